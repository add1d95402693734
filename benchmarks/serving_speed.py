"""Ranking with torch, with onnxruntime and with flat ONNX, against the matrix products alone that any program must do.

The ranker is the reference programs' (hidden layers of 512, 256 and 128, LayerNorm before each) with the automatic
feature transform, on 64 lists of 50 documents with 136 features. All sides are repeated in turn; a ratio is the median
of the ratios of each turn. `rank` is the whole way from a parquet file with ten times as many lists to a ranking on
disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn

from timing import Row, in_turn, median_ratio
from unskew.data.fitted_transforms import fit_transform
from unskew.methods.bias.vectorization import Vectorization
from unskew.networks.registry import Network, Problem
from unskew.networks.trees import TreesRanker, from_lightgbm
from unskew.serving.onnx_file import FLAT_FORMAT, FORMAT, OnnxRanker, to_flat_onnx, to_onnx
from unskew.serving.rankings import rank_table
from unskew.serving.saved_ranker import SavedRanker
from unskew.training.boosting import Boosting, boost_lightgbm
from unskew.training.model import ModelRanker

N_LISTS, N_DOCS, N_FEATURES = 64, 50, 136
REPEATS = 21
BOOSTING = Boosting()
N_TIMES, RANK_REPEATS = 10, 5  # of `rank`: so many times the lists, and turns


def run() -> list[Row]:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    problem = Problem(N_FEATURES, n_positions=10, network=Network(hidden=(512, 256, 128)))
    transform = fit_transform("automatic", np.exp(rng.standard_normal((1000, N_FEATURES))))
    features = torch.from_numpy(np.exp(rng.standard_normal((N_LISTS, N_DOCS, N_FEATURES)))).float()
    mask = torch.ones(N_LISTS, N_DOCS, dtype=torch.bool)
    rankers = {"mlp": problem.new_ranker(), "vectorization": Vectorization(problem).ranker()}
    metadata = {"format": FORMAT, "n_features": str(N_FEATURES), "feature_names": "[]"}
    rows: list[Row] = []
    for name, ranker in rankers.items():
        model = ModelRanker(transform, ranker).eval()
        sides: dict[str, Callable[[Tensor, Tensor], object]] = {
            "products": _bare_products(model),
            "torch": model,
            "onnxruntime": OnnxRanker(to_onnx(model, N_FEATURES, metadata)),
        }
        if model.pointwise:
            flat = OnnxRanker(to_flat_onnx(model, N_FEATURES, {**metadata, "format": FLAT_FORMAT}))
            rows_of_all = features.reshape(-1, N_FEATURES).numpy()
            sides["flat ONNX"] = lambda *_, flat=flat, rows=rows_of_all: flat.score_rows(rows)
        seconds = _in_turn(sides, features, mask)
        for side in [name for name in sides if name != "products"]:
            rate = N_LISTS * N_DOCS / median(seconds[side])
            ratio = median_ratio(seconds, side, "products")
            rows.append((f"{name} in {side}: documents per second", f"{rate:,.0f}", ""))
            rows.append((f"{name} in {side} / bare matrix products", f"{ratio:.2f} x", ""))
        if model.pointwise:
            faster = median_ratio(seconds, "onnxruntime", "flat ONNX")
            rows.append((f"{name}: speed of flat ONNX / of ONNX with a mask", f"{faster:.2f} x", ">= 1 x"))
        if name == "mlp":
            rows += _rank_rows(sides, features) + _tree_rows(sides["products"], features, mask)
    return rows


def _tree_rows(products: Callable[[Tensor, Tensor], object], features: Tensor, mask: Tensor) -> list[Row]:
    """Trees, as `export --as lightgbm` makes them, run by torch and by LightGBM."""
    documents = features.reshape(-1, N_FEATURES).numpy()
    names = [f"f{number}" for number in range(N_FEATURES)]
    booster = boost_lightgbm(documents, np.log(documents).sum(1), names, BOOSTING)
    trees = TreesRanker(from_lightgbm(booster.model_to_string()))
    sides = {"products": products, "torch": trees, "LightGBM": lambda *_: booster.predict(documents)}
    seconds = _in_turn(sides, features, mask, RANK_REPEATS)
    rows: list[Row] = []
    for side in ("torch", "LightGBM"):
        ratio = median_ratio(seconds, side, "products")
        rate = len(documents) / median(seconds[side])
        rows.append((f"trees in {side}: documents per second", f"{rate:,.0f}", ""))
        rows.append((f"trees in {side} / bare matrix products of the mlp", f"{ratio:.2f} x", ""))
    return rows


def _rank_rows(sides: dict[str, Callable[[Tensor, Tensor], object]], features: Tensor) -> list[Row]:
    """The way from a parquet file to a ranking on disk, with ids as text."""
    names = tuple(f"f{number}" for number in range(N_FEATURES))
    n_lists = N_TIMES * N_LISTS
    ids = {
        "query": [f"query {number}" for number in range(n_lists) for _ in range(N_DOCS)],
        "document": [f"document {number}" for number in range(n_lists * N_DOCS)],
    }
    columns = np.tile(features.reshape(-1, N_FEATURES).numpy(), (N_TIMES, 1)).T
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        table, out = Path(folder) / "candidates.parquet", Path(folder) / "ranking.parquet"
        pq.write_table(pa.table(ids | dict(zip(names, columns, strict=True))), table)

        def ranked(side: str) -> Callable[[Tensor, Tensor], object]:
            ranker = SavedRanker(sides[side], side, N_FEATURES, names)  # type: ignore[arg-type]
            return lambda *_: rank_table(ranker, table, out)

        ways = {side: ranked(side) for side in ("torch", "onnxruntime")}
        seconds = _in_turn({"products": sides["products"], **ways}, features, features[..., 0], RANK_REPEATS)
    for side in ways:
        rate = n_lists * N_DOCS / median(seconds[side])
        ratio = median_ratio(seconds, side, "products") / N_TIMES
        rows.append((f"rank, mlp in {side}: documents per second", f"{rate:,.0f}", ""))
        rows.append((f"rank, mlp in {side} / bare matrix products", f"{ratio:.2f} x", "<= 1.5 x"))
    return rows


def _bare_products(model: nn.Module) -> Callable[[Tensor, Tensor], object]:
    """The products of all linear layers, one after the other, on inputs of their sizes."""
    weights = [layer.weight.detach().T for layer in model.modules() if isinstance(layer, nn.Linear)]
    inputs = [torch.randn(N_LISTS * N_DOCS, len(weight)) for weight in weights]
    return lambda *_: [values @ weight for values, weight in zip(inputs, weights, strict=True)]


def _in_turn(
    sides: dict[str, Callable[[Tensor, Tensor], object]], features: Tensor, mask: Tensor, repeats: int = REPEATS
) -> dict[str, list[float]]:
    """Seconds of each side on these lists, after a first call, which sets up buffers."""
    with torch.inference_mode():
        return in_turn({name: partial(side, features, mask) for name, side in sides.items()}, repeats, warm_up=1)
