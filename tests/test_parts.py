"""Parts from outside the package: a class works wherever a name works, and a change of its code is seen."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import unskew
from unskew.comparison.own_log import compare
from unskew.comparison.plan import plan
from unskew.comparison.settings import Entry, Experiment, SimulationSettings
from unskew.data.clicks.storage import write_log
from unskew.evaluation.evaluate import evaluate_scorer, score_documents
from unskew.extensions import described, find, load_part, name_of, source_digest
from unskew.methods import Method
from unskew.networks.documents import PointwiseRanker
from unskew.serving.model_files import load_model, save_model
from unskew.simulation.independent import PositionBased
from unskew.simulation.policies import Policy
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import METHODS, Recipe

FAST = {"steps": 5, "batch_size": 16}


class Own(Method):
    """Clicks as labels, as `naive` has them, but times a factor."""

    paper, assumes = "nobody", "nothing"

    def __init__(self, problem, *, factor: float = 1.0):
        super().__init__()
        self.relevance = problem.new_ranker()
        self.factor = factor

    def loss(self, lists):
        scores = self.relevance(lists.features, lists.mask)
        return {"loss": -(self.factor * scores * lists.clicks * lists.mask).sum() + (scores**2 * lists.mask).sum()}


class Eager(PositionBased):
    """Clicks on what is on top alone."""


class ByNumber(Policy):
    """Shows documents in the order of the file."""

    def scores(self, judged):
        return -np.arange(judged.n_documents, dtype=np.float64)


def tiny_network(problem):
    return PointwiseRanker(torch.nn.Linear(problem.n_features, 1))


def test_a_class_of_ones_own_trains_like_a_method_by_name(world, log):
    model = fit_recipe(Recipe.of(Own, factor=2.0, **FAST), log)
    assert model.recipe.method == f"{__name__}:Own"
    assert model.method.factor == 2.0
    with pytest.raises(ValueError, match=r"unknown option 'factors' for .*Own \(did you mean 'factor'\?\)"):
        Recipe.of(Own, factors=2.0)
    with pytest.raises(ValueError, match="is not a method: pass a subclass"):
        Recipe.of(dict)


def test_a_saved_model_of_an_outside_method_loads_only_with_its_class(world, log, tmp_path):
    model = fit_recipe(Recipe.of(Own, network=tiny_network, **FAST), log)
    save_model(model, tmp_path / "m")
    with pytest.raises(ValueError, match=r"needs the method .*:Own.*load_model\(path, parts=\[Own\]\)"):
        load_model(tmp_path / "m")
    with pytest.raises(ValueError, match=r"needs the network .*:tiny_network"):
        load_model(tmp_path / "m", parts=[Own])
    again = load_model(tmp_path / "m", parts=[Own, tiny_network])
    scores = [score_documents(entry.ranker(), world.test) for entry in (model, again)]
    np.testing.assert_array_equal(*scores)


def test_users_and_policies_are_classes_or_names(world):
    log = unskew.simulate(world.train, ByNumber, Eager, sessions=2, seed=0).log
    other = unskew.simulate(world.train, ByNumber(), Eager(), sessions=2, seed=0).log
    np.testing.assert_array_equal(log.clicks, other.clicks)


def test_names_that_are_code_need_leave(monkeypatch):
    with pytest.raises(ValueError, match=r"unknown method 'my:Own'.*--allow-code"):
        find("method", METHODS, "my:Own")
    with pytest.raises(ValueError, match="'my:Own' names code outside unskew: pass --allow-code"):
        load_part("my:Own", allow_code=False)
    with pytest.raises(ValueError, match="'nowhere:Own' cannot be loaded"):
        load_part("nowhere:Own", allow_code=True)
    assert load_part("fractions:Fraction", allow_code=True).__name__ == "Fraction"
    assert (name_of(METHODS, METHODS["dla"]), name_of(METHODS, Own)) == ("dla", f"{__name__}:Own")


METHOD = """
from unskew.methods import Method

class Signed(Method):
    paper, assumes = "", ""
    SIGN = 1

    def __init__(self, problem):
        super().__init__()
        self.relevance = problem.new_ranker()

    def loss(self, lists):
        scores = self.relevance(lists.features, lists.mask)
        return {"loss": -self.SIGN * (scores * lists.clicks * lists.mask).sum() + (scores**2 * lists.mask).sum()}
"""


def written(folder: Path, name: str, text: str):
    """The class of a module in this folder, as another process would import it."""
    (folder / f"{name}.py").write_text(text)
    sys.modules.pop(name, None)
    return load_part(f"{name}:Signed", allow_code=True)


def test_a_method_with_its_sign_flipped_is_a_new_run_and_is_said_to_be(world, log, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    write_log(log, tmp_path / "log")
    asked = {"validate": "world:tiny@valid", "test": "world:tiny@test", "options": FAST, "seeds": 1, "jobs": 1}

    def found(text):
        return compare(
            tmp_path / "log", ["naive", written(tmp_path, "signed_method", text)], **asked, out=tmp_path / "o"
        )

    first, same, flipped = found(METHOD), found(METHOD), found(METHOD.replace("SIGN = 1", "SIGN = -1"))
    assert not first.results.failed
    assert (same.results.found, same.results.changed) == (3, ())
    assert flipped.results.found == 2
    assert [title.split(",")[0] for title in flipped.results.changed] == ["Signed"]
    rows = [sheet.rows for done in (first, flipped) for sheet in done.shown.sheets if sheet.name == "results"]
    value = [next(row[1] for row in table if row[0] == "Signed") for table in rows]
    assert value[0] != value[1]


def test_a_declared_version_stands_in_for_the_source():
    class Fixed(Own):
        version = 3

    assert described(Fixed) == {"class": f"{__name__}:{Fixed.__qualname__}", "version": "3"}
    assert described(Own)["code"] == source_digest(Own)
    space = {"__name__": "somewhere"}
    exec(compile("def typed_in(): pass", "<typed in>", "exec"), space)
    with pytest.raises(ValueError, match="the source of somewhere:typed_in cannot be read"):
        source_digest(space["typed_in"])


def test_outside_users_and_policies_name_a_run(world):
    def key(user, policy):
        simulation = SimulationSettings(user={"name": user}, policy={"name": policy})
        experiment = Experiment("x", "x", "x", methods=(Entry("a", "naive"),), simulation=simulation, training=FAST)
        return plan(experiment, "world:tiny", 1)[0].candidates[0]

    runs = [key("position_based", "random"), key(Eager, "random"), key("position_based", ByNumber)]
    assert len({run.key for run in runs}) == 3
    assert [bool(run.family) for run in runs] == [False, True, True]
    assert runs[1].record["simulation"]["user"]["name"]["class"] == f"{__name__}:Eager"


NOTEBOOK = """
import sys, linecache
sys.argv = ["x"]
cell = '''
from unskew.methods import Method

class InACell(Method):
    paper, assumes = "", ""

    def __init__(self, problem):
        super().__init__()
        self.relevance = problem.new_ranker()

    def loss(self, lists):
        return {"loss": (self.relevance(lists.features, lists.mask) ** 2 * lists.mask).sum()}
'''
linecache.cache["<cell 1>"] = (len(cell), None, cell.splitlines(True), "<cell 1>")
exec(compile(cell, "<cell 1>", "exec"), globals())
from unskew.comparison.own_log import compare
if __name__ == "__main__":
    done = compare(%r, ["naive", InACell], validate="world:tiny@valid", test="world:tiny@test",
                   options={"steps": 2}, seeds=1, jobs=2, out=%r)
    print(len(done.results.results), done.results.failed)
"""


@pytest.mark.slow  # starts three programs
def test_a_class_of_a_notebook_reaches_other_processes(log, tmp_path):
    pytest.importorskip("cloudpickle")
    write_log(log, tmp_path / "log")
    code = NOTEBOOK % (str(tmp_path / "log"), str(tmp_path / "out"))
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.stdout.strip() == "3 ()", found.stderr


def reciprocal(scores, grades, mask):
    """One over the rank of the best document."""
    order = scores.masked_fill(~mask, -torch.inf).argsort(-1, descending=True)
    best = grades.masked_fill(~mask, -1.0).argmax(-1, keepdim=True)
    return 1 / (1 + (order == best).float().argmax(-1).double())


def test_a_metric_is_a_function_of_ones_own(world):
    found = evaluate_scorer(world.test.grades, world.test, ["ndcg@10", reciprocal])
    assert found.mean(reciprocal) > 0.9
    assert found.mean("ndcg@10") == 1.0
    assert [row.metric for row in found.summary()] == ["ndcg@10", "reciprocal"]
