"""Without a method, `UnbiasedRanker`, `unskew.fit` and `unskew train` choose one, and always give a ranker."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

import unskew
from unskew.cli import app
from unskew.comparison import automatic
from unskew.comparison.learning import AUTO, DEFAULT_METHOD

pytestmark = pytest.mark.skipif(DEFAULT_METHOD != AUTO, reason="auto is not the default")
FAST = {"steps": 2, "hidden": [4], "progress": False}
SMALL = {name: value for name, value in FAST.items() if name != "progress"}


def rows(n_queries, n_documents=4, n_features=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_queries * n_documents, n_features))
    clicks = (rng.random(len(X)) < 0.3).astype(int)
    clicks[0] = 1
    return X, clicks, [n_documents] * n_queries


def shown(group):
    return np.concatenate([np.arange(size) for size in group])


@pytest.fixture
def trainings(monkeypatch):
    """Methods that were trained, in their order."""
    done = []
    usual = automatic.fit_recipe

    def counted(recipe, *arguments, **more):
        done.append(recipe.method)
        return usual(recipe, *arguments, **more)

    monkeypatch.setattr(automatic, "fit_recipe", counted)
    return done


def test_the_default_is_auto_and_survives_a_clone():
    assert clone(unskew.UnbiasedRanker(steps=3)).get_params() == {"method": "auto", "seed": 0, "steps": 3}


def test_few_queries_train_on_raw_clicks_once_and_say_so(trainings):
    X, clicks, group = rows(3)
    with pytest.warns(RuntimeWarning, match="naive: it is the safe choice.*3 queries are too few"):
        ranker = unskew.UnbiasedRanker(**SMALL).fit(X, clicks, group, shown(group), progress=False)
    assert trainings == ["naive"]
    assert ranker.verdict_.production == "unknown"
    assert ranker.predict(X).shape == (12,)
    assert ranker.model_.trained_on["verdict"]["method"] == "naive"


def test_a_choice_trains_each_model_once_with_the_steps_that_were_asked_for(monkeypatch):
    done = []
    usual = automatic.fit_recipe

    def counted(recipe, *arguments, **more):
        done.append((recipe.method, recipe.settings.steps))
        return usual(recipe, *arguments, **more)

    monkeypatch.setattr(automatic, "fit_recipe", counted)
    X, clicks, group = rows(120)
    with pytest.warns(RuntimeWarning):
        unskew.UnbiasedRanker(**{**SMALL, "steps": 10}).fit(X, clicks, group, shown(group), progress=False)
    names = [name for name, _ in done]
    assert names[:2] == ["naive", "two_tower"] or names[:2] == ["two_tower", "naive"]
    assert len(names) == len(set(names))
    assert {steps for _, steps in done} == {10}


@pytest.mark.parametrize("n_queries", [5, 120])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda X: X[:, :1],
        lambda X: np.where(np.arange(X.size).reshape(X.shape) % 7 == 0, np.nan, X),
        lambda X: np.zeros_like(X),
        lambda X: pd.DataFrame({"a": X[:, 0], "colour": np.where(X[:, 1] > 0, "red", "blue")}),
    ],
    ids=["one feature", "missing values", "constant features", "text"],
)
def test_odd_features_give_a_ranker_too(spoil, n_queries):
    X, clicks, group = rows(n_queries)
    table = spoil(X)
    with pytest.warns(RuntimeWarning):
        ranker = unskew.UnbiasedRanker(**SMALL).fit(table, clicks, group, shown(group), progress=False)
    assert np.isfinite(ranker.predict(table)).all()


@pytest.mark.parametrize("n_queries", [5, 120])
@pytest.mark.filterwarnings("ignore:every list has only one document:RuntimeWarning")
def test_one_document_per_list_gives_a_ranker_too(n_queries):
    X, clicks, group = rows(n_queries, n_documents=1)
    with pytest.warns(RuntimeWarning, match="naive: "):
        ranker = unskew.UnbiasedRanker(**SMALL).fit(X, clicks, group, shown(group), progress=False)
    assert ranker.model_.recipe.method == "naive"


def test_without_a_click_there_is_nothing_to_learn():
    X, clicks, group = rows(5)
    with pytest.raises(ValueError, match="the log has no clicks"):
        unskew.UnbiasedRanker(**SMALL).fit(X, 0 * clicks, group, shown(group))


def test_what_auto_has_no_use_for_trains_the_safe_method():
    X, clicks, group = rows(60)
    with pytest.warns(RuntimeWarning, match="auto cannot use validate"):
        ranker = unskew.UnbiasedRanker(**SMALL).fit(
            X, clicks, group, shown(group), eval_set=(X, clicks, group), progress=False
        )
    assert ranker.model_.recipe.method == "dla"
    assert ranker.history_.best_value is not None


def test_options_of_one_method_need_its_name():
    X, clicks, group = rows(5)
    with pytest.raises(ValueError, match=r"'max_weight' is an option of .*dla.*: name such a method"):
        unskew.UnbiasedRanker(max_weight=3.0).fit(X, clicks, group, shown(group))
    named = unskew.UnbiasedRanker("dla", max_weight=3.0, **SMALL).fit(X, clicks, group, shown(group), progress=False)
    assert not hasattr(named, "verdict_")


def test_fit_warns_and_keeps_the_verdict_with_the_model(tmp_path):
    X, clicks, group = rows(5)
    log = unskew.ClickLog.from_arrays(X, clicks, group)
    with pytest.warns(RuntimeWarning, match="No verdict on production"):
        model = unskew.fit(log=log, **FAST)
    unskew.save_model(model, tmp_path / "model")
    kept = unskew.load_model(tmp_path / "model").trained_on["verdict"]
    assert kept["production"] == "unknown"


def test_train_without_a_method_is_auto_and_writes_a_model_in_any_case(tmp_path):
    X, clicks, group = rows(5)
    unskew.write_log(unskew.ClickLog.from_arrays(X, clicks, group), tmp_path / "log")
    small = ["--set", "steps=2", "--set", "hidden=[4]", "--json"]
    done = CliRunner().invoke(app, ["train", str(tmp_path / "log"), "--out", str(tmp_path / "model"), *small])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["production"] == "unknown"
    assert unskew.load_model(tmp_path / "model").recipe.method == "naive"
    again = ["train", str(tmp_path / "log"), "--validate", "0.4", "--out", str(tmp_path / "other"), *small]
    done = CliRunner().invoke(app, again)
    assert done.exit_code == 0, done.output
    assert "training dla, because auto cannot use --validate" in done.stderr
