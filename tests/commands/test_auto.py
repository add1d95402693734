"""`unskew auto`."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import unskew
from unskew.cli import app
from unskew.comparison import automatic
from unskew.comparison.automatic import NOT_BETTER, AutoVerdict, Chosen

FAST = ["--set", "steps=5", "--set", "hidden=[4]", "--json"]


@pytest.fixture(scope="module")
def folder(world, tmp_path_factory):
    log = unskew.simulate(world.train, "svm", "position_based", sessions=4).log
    return unskew.write_log(log, tmp_path_factory.mktemp("auto") / "log")


def test_auto_writes_a_model_and_a_report_and_leaves_nothing_else(folder, tmp_path):
    done = CliRunner().invoke(app, ["auto", str(folder), "--out", str(tmp_path / "model"), *FAST])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["production"] == "unknown"
    assert unskew.load_model(tmp_path / "model").name == said["method"]
    page = (tmp_path / "model.html").read_text()
    assert "Choice: " in page
    has_curve = unskew.load_model(tmp_path / "model").examination() is not None
    assert ("Examination by position, as learned by" in page) == has_curve
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model.html"]


def test_nothing_better_than_production_has_an_exit_code_of_its_own_and_force_writes_anyway(
    folder, tmp_path, monkeypatch
):
    model = unskew.fit(unskew.Recipe.of("naive", steps=1, hidden=[4]), unskew.read_log(folder))
    verdict = AutoVerdict("naive", "it is all there is", NOT_BETTER, "Nothing was shown to be better.")
    monkeypatch.setattr(automatic, "auto", lambda *_, **__: Chosen(model, verdict))
    arguments = ["auto", str(folder), "--out", str(tmp_path / "model")]
    assert CliRunner().invoke(app, arguments).exit_code == 3
    assert not (tmp_path / "model").exists()
    assert (tmp_path / "model.html").exists()
    assert CliRunner().invoke(app, [*arguments, "--force"]).exit_code == 0
    assert (tmp_path / "model").exists()


def test_auto_goes_on_from_a_model_where_its_method_is_chosen_again(folder, tmp_path, monkeypatch):
    log = unskew.read_log(folder)
    monkeypatch.setattr(automatic, "family_of", lambda *_: ["naive"])
    yesterday = unskew.fit(unskew.Recipe.of("naive", steps=5, hidden=[4]), log)
    chosen = unskew.auto(log, start=yesterday, steps=3)
    assert chosen.model.trained_on["started_from"]["steps"] == 5
    assert chosen.model.recipe.network.hidden == (4,)  # the model's, not the default
    other = unskew.fit(unskew.Recipe.of("dla", steps=5, hidden=[4]), log)
    assert "started_from" not in unskew.auto(log, start=other, steps=3, hidden=[4]).model.trained_on


def test_auto_refuses_a_model_of_other_features_before_any_training(folder, tmp_path):
    rng = np.random.default_rng(0)
    few = unskew.ClickLog.from_arrays(rng.standard_normal((40, 3)), rng.integers(0, 2, 40), group=[4] * 10)
    unskew.save_model(unskew.fit(unskew.Recipe.of("naive", steps=1, hidden=[4]), few), tmp_path / "few")
    done = CliRunner().invoke(app, ["auto", str(folder), "--out", str(tmp_path / "m"), "--from", str(tmp_path / "few")])
    assert done.exit_code == 2
    assert "the model to start from 3" in " ".join(done.output.split())
