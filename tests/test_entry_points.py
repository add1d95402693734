"""An installed package registers parts by entry points; then plain names work, in Python and on the command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from unskew.comparison.plan import plan
from unskew.comparison.settings import Entry, Experiment, SimulationSettings

PARTS = """
import numpy as np
from torch import nn
from unskew.methods import losses
from unskew.methods import Method
from unskew.networks.documents import PointwiseRanker
from unskew.simulation.independent import PositionBased
from unskew.simulation.policies import Policy


class Sharper(Method):
    paper, assumes = "nobody", "nothing"

    def __init__(self, problem, *, sharpness: float = 2.0):
        super().__init__()
        self.relevance = problem.new_ranker()
        self.sharpness = sharpness

    def loss(self, lists):
        return {"clicks": losses.softmax(self.sharpness * lists.apply(self.relevance), lists.clicks, lists.mask)}


class Hasty(PositionBased):
    pass


class ByNumber(Policy):
    def scores(self, judged):
        return -np.arange(judged.n_documents, dtype=np.float64)


def top_grade(scores, grades, mask):
    best = scores.masked_fill(~mask, float("-inf")).argmax(-1, keepdim=True)
    return grades.gather(1, best).squeeze(1).double()


def flat(problem):
    return PointwiseRanker(nn.Linear(problem.n_features, 1))
"""
ENTRY_POINTS = """
[unskew.methods]
sharper = stranger:Sharper
[unskew.users]
hasty = stranger:Hasty
[unskew.policies]
by_number = stranger:ByNumber
[unskew.metrics]
top_grade = stranger:top_grade
[unskew.networks]
flat = stranger:flat
"""
USE = """
import unskew
from unskew.cli import app

if __name__ == "__main__":
    log = unskew.simulate("world:tiny", "by_number", "hasty", sessions=2, out="log", progress=False).log
    model = unskew.fit("sharper", log, sharpness=3.0, network="flat", steps=2, progress=False)
    again = unskew.load_model(unskew.save_model(model, "model"))  # registered: no class needs to be passed
    print("loaded", type(again.method).__name__, again.method.sharpness)
    print("measured", *unskew.evaluate(again, "world:tiny", ["top_grade"]).per_query)
    done = unskew.compare("log", ["naive", "sharper"], validate="world:tiny", test="world:tiny", metrics=["top_grade"],
                          metric="top_grade", options={"steps": 2}, seeds=1, jobs=2, out="compared", progress=False)
    print("compared", len(done.results.results), "failed", len(done.results.failed))
    for words in (
        ["simulate", "world:tiny", "--policy", "by_number", "--user", "hasty", "--sessions", "2", "--out", "log2"],
        ["train", "log2", "--method", "sharper", "--set", "steps=2", "--set", "network=flat", "--out", "model2"],
        ["evaluate", "model2", "world:tiny", "--metrics", "top_grade"],
    ):
        print("command", words[0], app([*words], standalone_mode=False) or 0)
"""


def install(folder: Path, parts: str) -> None:
    """What pip leaves of a package of one module."""
    about = folder / "stranger-1.0.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "stranger.py").write_text(parts)


@pytest.mark.slow  # installs a package
def test_parts_of_an_installed_package_work_by_name(tmp_path: Path) -> None:
    install(tmp_path, PARTS)
    (tmp_path / "use.py").write_text(USE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run(
        [sys.executable, "use.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "loaded Sharper 3.0" in done.stdout
    assert "measured top_grade" in done.stdout
    assert "compared 3 failed 0" in done.stdout  # production is a row, too
    assert re.findall(r"^command (\w+) 0", done.stdout, re.MULTILINE) == ["simulate", "train", "evaluate"]


def test_changed_code_of_a_registered_part_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def names(parts: str) -> tuple[str, str]:
        install(tmp_path, parts)
        sys.modules.pop("stranger", None)
        simulation = SimulationSettings(user={"name": "hasty"}, policy={"name": "random"})
        methods = (Entry("a", "naive"),)
        experiment = Experiment("x", "x", "x", methods=methods, metrics=("top_grade",), simulation=simulation)
        run = plan(experiment, "world:tiny", 1)[0].candidates[0]
        return run.key, run.family

    first, same, other = names(PARTS), names(PARTS), names(f"{PARTS}\n# changed\n")
    sys.modules.pop("stranger", None)
    assert first == same
    assert first[0] != other[0]
    assert first[1] == other[1]  # so that it is said to have changed
