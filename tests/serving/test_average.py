"""An average of rankers is one ranker: saved, loaded, exported and refused like any model."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from unskew import ClickLog, Recipe, fit, load_model, save_model
from unskew.data.judged.judged_set import JudgedSet
from unskew.monitoring.tuning import tune
from unskew.serving.distillation import export_trees
from unskew.serving.exports import export_model
from unskew.serving.onnx_file import OnnxRanker
from unskew.training.model import average_models

FAST = {"steps": 3, "hidden": (4,), "batch_size": 16}


def log_of(seed):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((80, 3)) * [1, 100, 3]
    return ClickLog.from_arrays(features, rng.integers(0, 10, 80), group=[4] * 20, sessions=[10] * 20)


@pytest.fixture(scope="module")
def models():
    return [fit(Recipe.of(name, **FAST), log_of(0)) for name in ("dla", "low_rank", "naive")]


@pytest.fixture(scope="module")
def average(models):
    return average_models(models, [0.5, 2.0, -1.0])


def scores(model, rows):
    with torch.inference_mode():
        return model.ranker()(rows, torch.ones(rows.shape[:2], dtype=torch.bool))


@pytest.fixture
def rows():
    return torch.from_numpy(np.random.default_rng(1).normal(0, 30, (2, 5, 3)).astype(np.float32))


def test_its_score_is_the_weighted_sum(models, average, rows):
    one, two, three = (scores(model, rows) for model in models)
    assert_close(scores(average, rows), 0.5 * one + 2 * two - three)
    assert average.name == "dla + low_rank + naive"
    assert average.ranker().pointwise


def test_it_is_saved_and_loaded_as_one(average, rows, tmp_path):
    found = load_model(save_model(average, tmp_path / "model"))
    assert_close(scores(found, rows), scores(average, rows), rtol=0, atol=0)
    assert (found.name, found.weights) == (average.name, average.weights)
    assert "dla + low_rank + naive" in (tmp_path / "model/README.md").read_text()


def test_it_is_exported_as_one(average, rows, tmp_path):
    flat = OnnxRanker(export_model(average, tmp_path / "flat.onnx", flat=True).path)
    assert_close(torch.from_numpy(flat.score_rows(rows[0].numpy())), scores(average, rows)[0], rtol=1e-4, atol=1e-5)
    lists = OnnxRanker(export_model(average, tmp_path / "lists.onnx").path)
    assert_close(lists(rows, torch.ones(2, 5, dtype=torch.bool)), scores(average, rows), rtol=1e-4, atol=1e-5)


def test_it_is_distilled_as_one(average, tmp_path):
    written = export_trees(average, tmp_path / "trees.txt", log_of(0), least_agreement=0.0)
    assert "dla + low_rank + naive" in written.note


def test_what_cannot_be_averaged_is_refused(models):
    with pytest.raises(ValueError, match="same feature transform"):
        average_models([models[0], fit(Recipe.of("naive", **FAST), log_of(5))], [1, 1])
    with pytest.raises(ValueError, match="one finite weight per model"):
        average_models(models, [1, 1])


def test_it_predicts_no_clicks_and_is_not_trained_further(average):
    with pytest.raises(ValueError, match="average of rankers and predicts no clicks"):
        average.predict_clicks(log_of(0))
    with pytest.raises(ValueError, match="start from one of its methods"):
        fit(average.recipe, log_of(0), start=average)
    judged = JudgedSet.from_arrays(np.eye(3), [1, 0, 2], [3])
    with pytest.raises(ValueError, match="tune one of its methods"):
        tune(average, judged)
