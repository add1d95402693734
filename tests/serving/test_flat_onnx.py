"""Flat ONNX scores rows as torch does, takes floats only, and says who cannot be flat."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.testing import assert_close

from unskew import ClickLog, Recipe, fit, save_model
from unskew.serving.exports import export_model
from unskew.serving.onnx_file import OnnxRanker

NAMES = ("bm25", "price", "views")
FAST = {"steps": 3, "hidden": (4,), "batch_size": 16}
LISTWISE = {"network": "listwise", "expand": 8, "heads": 2, "layers": 1}
FLOAT = onnx.TensorProto.FLOAT


@pytest.fixture(scope="module")
def small_log():
    rng = np.random.default_rng(3)
    features = rng.standard_normal((80, 3)) * [1, 100, 3] + [0, 50, 7]
    table = pa.table({name: features[:, column] for column, name in enumerate(NAMES)})
    return ClickLog.from_arrays(table, rng.integers(0, 10, 80), group=[4] * 20, sessions=[10] * 20)


@pytest.fixture(scope="module")
def model(small_log):
    return fit(Recipe.of("dla", **FAST), small_log)


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    return export_model(model, tmp_path_factory.mktemp("flat") / "shop-1.onnx", flat=True)


def test_a_flat_file_scores_rows_as_torch_does_in_any_number(model, exported):
    ranker = OnnxRanker(exported.path)
    rows = torch.from_numpy(np.random.default_rng(0).normal(50, 100, (9, 3)).astype(np.float32))
    with torch.inference_mode():
        expected = model.ranker()(rows.unsqueeze(0), torch.ones(1, 9, dtype=torch.bool))[0]
    for n in (1, 4, 9):
        assert_close(torch.from_numpy(ranker.score_rows(rows[:n].numpy())), expected[:n], rtol=1e-4, atol=1e-5)
    mask = torch.tensor([[True, False, True]])
    assert_close(ranker(rows[:3].unsqueeze(0), mask)[mask], expected[[0, 2]], rtol=1e-4, atol=1e-5)
    assert ranker(rows[:3].unsqueeze(0), torch.zeros(1, 3, dtype=torch.bool)).tolist() == [[0, 0, 0]]


def test_a_flat_file_takes_floats_and_gives_one_score_per_row(exported):
    graph = onnx.load(exported.path).graph
    (source,), (target,) = graph.input, graph.output
    assert (source.name, target.name) == ("features", "scores")
    assert source.type.tensor_type.elem_type == target.type.tensor_type.elem_type == FLOAT
    assert [dim.dim_value for dim in source.type.tensor_type.shape.dim] == [0, 3]  # 0: any number
    assert [dim.dim_value for dim in target.type.tensor_type.shape.dim] == [0, 1]


def test_the_rank_profile_lists_the_features_in_the_order_of_the_file(exported):
    lines = [line.strip() for line in exported.snippet.splitlines()]
    assert "expression: tensor<float>(d0[1],d1[3]):[[" in lines
    assert [line.strip("],") for line in lines if line.startswith("attribute")] == [f"attribute({n})" for n in NAMES]
    assert {"onnx-model shop_1 {", "file: files/shop-1.onnx", 'input "features": shop_1_features'} <= set(lines)
    assert "expression: sum(onnx(shop_1).score)" in lines


@pytest.mark.parametrize(
    ("method", "options", "why"),
    [
        ("dla", LISTWISE, r"a 'listwise' ranker scores .* train without --set network=listwise"),
        ("vectorization", {}, r"vectorization projects .* train with --set base=mean"),
        ("vectorization", {**LISTWISE, "base": "mean"}, r"a 'listwise' ranker"),
        (
            "dla",
            {"transform": "per_query_minmax"},
            r"the transform 'per_query_minmax' depends .* --set transform=automatic",
        ),
    ],
)
def test_who_looks_at_the_list_is_told_why_it_cannot_be_flat_and_what_to_do(method, options, why, small_log, tmp_path):
    listwise = fit(Recipe.of(method, **FAST, **options), small_log)
    with pytest.raises(ValueError, match=rf"cannot be flat, because {why}.*--as lightgbm"):
        export_model(listwise, tmp_path / "model.onnx", flat=True)


def test_vectorization_with_one_vector_for_all_lists_can_be_flat(small_log, tmp_path):
    mean = fit(Recipe.of("vectorization", **FAST, base="mean"), small_log)
    assert export_model(mean, tmp_path / "model.onnx", flat=True).agreement.holds


def test_rank_gives_the_same_scores_through_torch_lists_and_rows(run, model, tmp_path):
    save_model(model, tmp_path / "model")
    run("export", tmp_path / "model", "--to", tmp_path / "lists.onnx")
    options = ["--flat", "--input-name", "x", "--output-name", "y"]
    said = run("export", tmp_path / "model", "--to", tmp_path / "rows.onnx", *options)
    assert "rank-profile rows {" in said
    assert 'input "x": rows_features' in said
    values = np.random.default_rng(1).normal(50, 100, (12, 3))
    ids = {"query": [1] * 5 + [2] * 7, "document": list(range(12))}
    pq.write_table(pa.table({**ids, **dict(zip(NAMES, values.T, strict=True))}), tmp_path / "candidates.parquet")
    scores = {}
    for name in ("model", "lists.onnx", "rows.onnx"):
        run("rank", tmp_path / name, tmp_path / "candidates.parquet", "--out", tmp_path / "out.parquet", "--overwrite")
        scores[name] = pq.read_table(tmp_path / "out.parquet").sort_by("document")["score"].to_numpy()
    np.testing.assert_allclose(scores["lists.onnx"], scores["model"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(scores["rows.onnx"], scores["model"], rtol=1e-4, atol=1e-5)


def test_names_that_an_engine_cannot_tell_apart_are_refused(model, tmp_path):
    with pytest.raises(ValueError, match="two different names, got 'x' and 'x'"):
        export_model(model, tmp_path / "model.onnx", flat=True, names=("x", "x"))
    with pytest.raises(ValueError, match="only ONNX files can be flat"):
        export_model(model, tmp_path / "model.json", flat=True)


def test_categories_are_float_codes_and_context_is_repeated_in_every_row(small_log, tmp_path):
    rng = np.random.default_rng(4)
    features = small_log.features.copy()
    features[:, 1] = rng.integers(0, 3, len(features))
    log = replace(
        small_log,
        features=features,
        categories={"price": ("dear", "fair", "cheap")},
        context=rng.standard_normal((small_log.n_lists, 1)).astype(np.float32),
        context_names=("hour",),
    )
    model = fit(Recipe.of("dla", **FAST), log)
    flat = export_model(model, tmp_path / "shop.onnx", flat=True, codes=True)
    assert json.loads((tmp_path / "shop.onnx.categories.json").read_text()) == {"price": ["dear", "fair", "cheap"]}
    about = OnnxRanker(flat.path).metadata
    assert json.loads(about["feature_names"]) == [*NAMES, "hour"]
    assert json.loads(about["categories"]) == {"price": ["dear", "fair", "cheap"]}
    assert "attribute(hour)" in flat.snippet
    rows = np.column_stack([features[:4], np.full(4, 0.7)]).astype(np.float32)  # the hour of the query, in every row
    rows[3, 1] = -1  # a price that training never saw
    with torch.inference_mode():
        expected = model.ranker()(torch.from_numpy(rows).unsqueeze(0), torch.ones(1, 4, dtype=torch.bool))[0]
    assert_close(torch.from_numpy(OnnxRanker(flat.path).score_rows(rows)), expected, rtol=1e-4, atol=1e-5)

    # The same with text: no price, a fair one, none that training saw, a dear one.
    rows[:, 1] = [np.nan, 1, -1, 0]
    text = np.array([[""], ["fair"], ["zenith"], ["dear"]], dtype=object)
    with torch.inference_mode():
        expected = model.ranker()(torch.from_numpy(rows).unsqueeze(0), torch.ones(1, 4, dtype=torch.bool))[0].numpy()
    flat = export_model(model, tmp_path / "text.onnx", flat=True)
    lists = export_model(model, tmp_path / "lists.onnx")
    assert flat.snippet == ""  # Vespa has no text
    for exported, inputs, shape in (
        (flat, {"features": rows[:, [0, 2, 3]], "texts": text}, (4, 1)),
        (lists, {"features": rows[None][..., [0, 2, 3]], "texts": text[None], "mask": np.ones((1, 4), bool)}, (1, 4)),
    ):
        session = onnxruntime.InferenceSession(exported.path)
        np.testing.assert_allclose(session.run(None, inputs)[0], expected.reshape(shape), rtol=1e-4, atol=1e-5)
        ranker = OnnxRanker(exported.path)
        assert ranker.metadata["texts"] == '["price"]'
        found = ranker(torch.from_numpy(rows)[None], torch.ones(1, 4, dtype=torch.bool))[0]
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_the_configuration_of_triton_in_the_docs_has_the_names_and_types_of_the_file(exported):
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    told = re.findall(r"(input|output) \[\{ name: \"(\w+)\", data_type: (\w+), dims: \[(\d+)\] \}\]", page)
    graph = onnx.load(exported.path).graph
    assert [(kind, name, data) for kind, name, data, _ in told] == [
        ("input", graph.input[0].name, "TYPE_FP32"),
        ("output", graph.output[0].name, "TYPE_FP32"),
    ]
    assert told[1][3] == "1"
