"""Files of earlier versions, written by `tests/fixtures/write_fixtures.py`: they still mean what they meant."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import unskew
from unskew.methods import METHODS, hyper_parameters
from unskew.networks import registry
from unskew.networks.registry import Network
from unskew.serving.model_files import OLD_DEFAULTS, OLD_OPTIONS
from unskew.serving.onnx_file import OnnxRanker
from unskew.training.settings import LEFT_OUT, Settings

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = sorted(path.name for path in FIXTURES.iterdir() if (path / "expected.json").is_file())
EXPECTED = {version: json.loads((FIXTURES / version / "expected.json").read_text()) for version in VERSIONS}
MODELS = [(version, name) for version in VERSIONS for name in EXPECTED[version]["models"]]
CHECKPOINT = {"method": "dla", "steps": 30, "seed": 1, "hidden": (8,), "dropout": 0.2, "validate_every": 10}

pytestmark = pytest.mark.parametrize("version", VERSIONS)


def candidates(version):
    features = np.array(EXPECTED[version]["candidates"], dtype=np.float32)  # None is NaN, a missing value
    return torch.tensor(features), torch.ones(features.shape[:2], dtype=torch.bool)


def scores(model, version):
    with torch.no_grad():
        return model.ranker()(*candidates(version)).numpy()


def assert_means_the_same(model, version, expected):
    if expected["scores"] is not None:
        np.testing.assert_allclose(scores(model, version), expected["scores"], rtol=0, atol=1e-6)
    if expected["log_likelihood"] is not None:
        found = model.predict_clicks(unskew.read_log(FIXTURES / version / "log")).per_page().value
        assert found == pytest.approx(expected["log_likelihood"], abs=1e-6)
    assert (model.examination() is None) == (expected["examination"] is None)
    if expected["examination"] is not None:
        np.testing.assert_allclose(model.examination(), expected["examination"], rtol=0, atol=1e-6)
    for level, curve in expected["examination_by_level"].items():
        np.testing.assert_allclose(model.examinations()[level], curve, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", sorted({name for _, name in MODELS}))
def test_an_old_model_scores_as_it_did(version, name, tmp_path):
    if (version, name) not in MODELS:
        pytest.skip(f"there is no {name} of {version}")
    model = unskew.load_model(FIXTURES / version / name)
    assert_means_the_same(model, version, EXPECTED[version]["models"][name])
    again = unskew.load_model(unskew.save_model(model, tmp_path / "again"))
    assert_means_the_same(again, version, EXPECTED[version]["models"][name])


@pytest.mark.parametrize("form", ["masked", "flat"])
def test_an_old_onnx_file_scores_as_the_model_does(version, form):
    pytest.importorskip("onnxruntime")
    found = OnnxRanker(FIXTURES / version / f"{form}.onnx", threads=1)(*candidates(version))
    expected = EXPECTED[version]["models"]["tabular_norm"]["scores"]
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("place", "n_shards"), [("log", 1), ("log_of_shards", 3)])
def test_an_old_log_holds_what_it_held(version, place, n_shards):
    folder, expected = unskew.open_log(FIXTURES / version / place), EXPECTED[version]["log"]
    log = unskew.read_log(folder.path)
    assert folder.n_shards == n_shards
    assert (log.n_lists, log.n_documents) == (expected["lists"], expected["documents"])
    assert log.joint == (place == "log")
    np.testing.assert_allclose(log.click_rates(), expected["click_rates"])
    np.testing.assert_allclose(np.nansum(log.features, axis=0, dtype=np.float64), expected["sums"])


def test_an_old_checkpoint_is_resumed_or_refused_with_a_reason(version, tmp_path):
    place = tmp_path / "run.checkpoint"
    place.write_bytes((FIXTURES / version / "run.checkpoint").read_bytes())
    log = unskew.read_log(FIXTURES / version / "log")
    try:
        model = unskew.fit(**CHECKPOINT, log=log, checkpoint=place, progress=False)
    except ValueError as refusal:
        if "delete it to start over" not in str(refusal):
            raise
        return
    assert_means_the_same(model, version, EXPECTED[version]["resumed"])


@pytest.fixture
def other_defaults(monkeypatch):
    """As if tabular had become normalized, the last layer started at random, and encoders were narrow."""
    monkeypatch.setattr(registry, "NORMALIZED", ("tabular",))
    monkeypatch.setattr(registry, "STARTING_AT_ZERO", ())
    monkeypatch.setattr(registry, "ENCODER_WIDTH", 4)
    assert Network().norm
    assert not Network("mlp").norm


def test_other_default_networks_change_no_old_model(version, other_defaults, tmp_path):
    for name, expected in EXPECTED[version]["models"].items():
        model = unskew.load_model(FIXTURES / version / name)
        assert_means_the_same(model, version, expected)
        again = unskew.load_model(unskew.save_model(model, tmp_path / name))
        assert_means_the_same(again, version, expected)
        assert again.recipe == model.recipe


def test_training_starts_from_an_old_model_under_other_defaults(version, other_defaults):
    log, start = unskew.read_log(FIXTURES / version / "log"), FIXTURES / version / "tabular"
    model = unskew.fit("dla", log, start=start, steps=1, progress=False)
    assert model.recipe.network == unskew.load_model(start).recipe.network
    assert not model.recipe.network.norm


def test_settings_that_old_files_leave_out_are_the_old_defaults(version):
    defaults = json.loads((FIXTURES / version / "defaults.json").read_text())["settings"]
    assert {name: defaults[name] for name in LEFT_OUT} == LEFT_OUT
    assert Settings.from_json({}).to_json() == Settings(**LEFT_OUT).to_json()


def test_what_an_old_model_leaves_out_has_not_changed(version):
    """Hyper-parameters at their defaults are not in files of 0.2: a new default needs an entry in `OLD_DEFAULTS`."""
    defaults = json.loads((FIXTURES / version / "defaults.json").read_text())
    for name, expected in defaults["methods"].items():
        now = {option: entry.default for option, entry in hyper_parameters(METHODS[name]).items()}
        now |= OLD_DEFAULTS.get(name, {})
        kept = {option: value for option, value in expected.items() if option not in OLD_OPTIONS.get(name, ())}
        assert json.loads(json.dumps({option: now[option] for option in kept}, default=list)) == kept, name
