"""Export: a model as a file for serving, checked against torch before it is written.

The ending of the file's name says which: `.onnx` for any ranker (see `onnx_file`), `.json` for linear rankers in
Elasticsearch and OpenSearch (see `linear_json`). A file appears whole or not at all, and none whose scores differ from
torch's by more than `agreement.TOLERANCE` of the largest score.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from unskew.data.files import check_place
from unskew.model import Model, ModelRanker
from unskew.serving.agreement import Agreement, compare
from unskew.serving.linear_json import linear_scores, to_json
from unskew.serving.onnx_file import FORMAT, OPSET, OnnxRanker, depends_on, to_onnx


@dataclass(frozen=True)
class Exported:
    """What was written, and how well it agrees with torch."""

    path: Path
    agreement: Agreement
    note: str

    def __str__(self) -> str:
        return f"{self.path}: {self.note}; {self.agreement}"


def export_model(model: Model, path: str | Path, *, overwrite: bool = False, seed: int = 0) -> Exported:
    """Write a model as `.onnx` or `.json`.

    Args:
        seed: of the random lists on which the file is compared with torch.
    """
    target = Path(path)
    if target.suffix not in EXPORTERS:
        raise ValueError(f"{target.name}: the ending must be one of {', '.join(EXPORTERS)}")
    check_place(target, overwrite=overwrite)
    if not model.problem.n_features:
        raise ValueError("the model was trained on a log without features and scores all documents alike: add features")
    content, agreement, note = EXPORTERS[target.suffix](model, target, np.random.default_rng(seed))
    if not agreement.holds:
        raise ValueError(f"{target} is not written, it would not rank as the model does: {agreement}")
    _write(target, content)
    return Exported(target, agreement, note)


def _export_onnx(model: Model, target: Path, rng: np.random.Generator) -> tuple[bytes, Agreement, str]:  # noqa: ARG001
    ranker = _copy_on_cpu(model)
    n_features = model.problem.n_features
    metadata = {
        "format": FORMAT,
        "unskew_version": version("unskew"),
        "method": model.recipe.method,
        "transform": model.recipe.transform,
        "n_features": str(n_features),
        "feature_names": json.dumps(list(model.feature_names)),
        "scores_depend_on": depends_on(ranker),
    }
    content = to_onnx(ranker, n_features, metadata)
    agreement = compare(ranker, OnnxRanker(content), n_features, rng)
    return content, agreement, f"ONNX opset {OPSET}, a score depends on the {metadata['scores_depend_on']}"


def _export_json(model: Model, target: Path, rng: np.random.Generator) -> tuple[bytes, Agreement, str]:
    n_features = model.problem.n_features
    scores = linear_scores(model, n_features, rng)
    names = model.feature_names or tuple(f"f{number}" for number in range(n_features))
    agreement = compare(_copy_on_cpu(model), scores, n_features, rng)
    note = f"{n_features} weights, a constant of {scores.constant:.4g} left out"
    if not model.feature_names:
        note += f", features called {names[0]} to {names[-1]} as the log does not name them"
    return to_json(scores, target.stem, names), agreement, note


EXPORTERS: dict[str, Callable[[Model, Path, np.random.Generator], tuple[bytes, Agreement, str]]] = {
    ".onnx": _export_onnx,
    ".json": _export_json,
}


def _copy_on_cpu(model: Model) -> ModelRanker:
    return copy.deepcopy(model.ranker()).cpu().eval()


def _write(target: Path, content: bytes) -> None:
    scratch = target.with_name(f".{target.name}.part")
    try:
        scratch.write_bytes(content)
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)
