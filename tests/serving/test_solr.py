"""Solr's JSON holds plain networks and scores as they do; others are told which settings export."""

import json

import numpy as np
import pyarrow as pa
import pytest
import torch

from unskew import ClickLog, Recipe, fit
from unskew.serving.exports import export_model

NAMES = ("bm25", "price", "same")
PLAIN = {"steps": 3, "hidden": (4, 3), "batch_size": 16, "transform": "standard", "norm": False, "activation": "relu"}


@pytest.fixture(scope="module")
def small_log():
    rng = np.random.default_rng(3)
    features = rng.standard_normal((80, 3)) * [1, 100, 0] + [0, 50, 2]
    table = pa.table({name: features[:, column] for column, name in enumerate(NAMES)})
    return ClickLog.from_arrays(table, rng.integers(0, 10, 80), group=[4] * 20, sessions=[10] * 20)


def solr(body, row):
    """Solr's own arithmetic: normalizers, then layers."""
    values = [
        (row[feature["name"]] - float(feature["norm"]["params"]["avg"])) / float(feature["norm"]["params"]["std"])
        for feature in body["features"]
    ]
    functions = {"relu": lambda x: max(x, 0.0), "tanh": np.tanh, "identity": lambda x: x}
    for layer in body["params"]["layers"]:
        assert len(layer["matrix"]) == len(layer["bias"])
        assert {len(weights) for weights in layer["matrix"]} == {len(values)}
        sums = [np.dot(weights, values) + bias for weights, bias in zip(layer["matrix"], layer["bias"], strict=True)]
        values = [functions[layer["activation"]](value) for value in sums]
    (score,) = values
    return score


@pytest.mark.parametrize(
    "options",
    [{}, {"network": "mlp"}, {"network": "mlp", "activation": "tanh"}, {"network": "linear"}],
    ids=["default", "mlp", "tanh", "linear"],
)
def test_solr_computes_what_torch_does(options, small_log, tmp_path):
    model = fit(Recipe.of("dla", **{**PLAIN, **options}), small_log)
    exported = export_model(model, tmp_path / "shop.json", form="solr")
    body = json.loads(exported.path.read_text())
    assert (body["class"], body["name"]) == ("org.apache.solr.ltr.model.NeuralNetworkModel", "shop")
    rows = np.array([[0.5, 20, 2], [-1, 300, 5]], np.float32)
    with torch.inference_mode():
        expected = model.ranker()(torch.from_numpy(rows)[None], torch.ones(1, 2, dtype=torch.bool))[0]
    scores = [solr(body, dict(zip(NAMES, row, strict=True))) for row in rows.tolist()]
    np.testing.assert_allclose(scores, expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"norm": True}, "no layer 'LayerNorm'"),
        ({"activation": "gelu"}, "no layer 'GELU'"),
        ({"transform": "automatic"}, "no normalizer for the feature transform 'automatic'"),
        ({"network": "listwise", "expand": 8, "heads": 2, "layers": 1}, "supports only plain layers"),
    ],
)
def test_what_solr_does_not_know_is_refused_with_the_settings_that_export(options, why, small_log, tmp_path):
    model = fit(Recipe.of("dla", **{**PLAIN, **options}), small_log)
    with pytest.raises(ValueError, match=rf"{why}.*--set norm=false --set activation=relu"):
        export_model(model, tmp_path / "shop.json", form="solr")
