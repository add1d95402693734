"""ONNX: a ranker as a file that any runtime scores lists with, its feature transform inside.

    features  float32 [lists, documents, features]  raw, as in the log; rows of padding may hold anything, NaN included
    mask      bool    [lists, documents]            False for padding
    scores    float32 [lists, documents]            higher is better; what padding gets means nothing

Numbers of lists and of documents are free, from 1 on. The operators are those of opset 18 of the default domain, which
onnxruntime has had since 1.14. Metadata say what the file is: `METADATA`, each a string.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unskew.networks.documents import PointwiseRanker, Ranker

OPSET = 18
FORMAT = "unskew-onnx 1"
METADATA = {
    "format": f"{FORMAT!r}",
    "unskew_version": "the release that wrote the file",
    "method": "what the ranker was trained with",
    "transform": "the name of the feature transform inside",
    "n_features": "how many features a document has",
    "feature_names": "their names in order, a JSON list; empty where the log has none",
    "scores_depend_on": "'document': lists may be cut at will; 'list': pass all candidates of a query at once",
}
EXTRA = ("onnx", "onnxscript", "onnxruntime")


class OnnxRanker:
    """An exported ranker, run by onnxruntime on the CPU."""

    def __init__(self, source: str | Path | bytes, *, threads: int | None = None):
        need_onnx()
        import onnxruntime

        name = "the model" if isinstance(source, bytes) else str(source)
        if not isinstance(source, bytes) and not Path(source).is_file():
            raise FileNotFoundError(f"{name} does not exist: write it with `unskew export MODEL --to {name}`")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads() if threads is None else threads
        model = source if isinstance(source, bytes) else Path(source).read_bytes()
        try:
            self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has no class of its own for what it raises
            raise ValueError(f"{name} cannot be read as ONNX ({error}): export it again") from error
        self.metadata: Mapping[str, str] = self.session.get_modelmeta().custom_metadata_map
        if self.metadata.get("format") != FORMAT:
            raise ValueError(f"{name} is no ranker of `unskew export`: its format is {self.metadata.get('format')!r}")
        self.n_features = int(self.metadata["n_features"])
        self.feature_names = tuple(json.loads(self.metadata["feature_names"]))

    def __call__(self, features: Tensor, mask: Tensor) -> Tensor:
        """Scores `[batch, docs]` of raw features `[batch, docs, f]`."""
        inputs = {"features": features.float().cpu().numpy(), "mask": mask.cpu().numpy()}
        (scores,) = self.session.run(["scores"], inputs)
        return torch.from_numpy(scores)


def to_onnx(ranker: Ranker, n_features: int, metadata: Mapping[str, str]) -> bytes:
    """The ranker as an ONNX file."""
    need_onnx()
    lists, documents = torch.export.Dim("lists", min=1), torch.export.Dim("documents", min=1)
    shape = {0: lists, 1: documents}
    example = (torch.zeros(3, 7, n_features), torch.ones(3, 7, dtype=torch.bool))
    with _quiet():
        program = torch.onnx.export(
            ranker.eval(),
            example,
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            input_names=["features", "mask"],
            output_names=["scores"],
            dynamic_shapes=(shape, shape),
        )
    assert program is not None
    model = program.model_proto
    _forget_the_exporter(model)
    for name, value in metadata.items():
        model.metadata_props.add(key=name, value=value)
    return model.SerializeToString()


def depends_on(ranker: Any) -> str:
    """What a score of a model's ranker depends on, as metadata say it."""
    alone = isinstance(ranker.ranker, PointwiseRanker) and not ranker.transform.per_query
    return "document" if alone else "list"


def need_onnx() -> None:
    """Refuse to go on without the libraries of the extra."""
    missing = [name for name in EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(f"ONNX needs {', '.join(missing)}: pip install 'unskew[onnx]'")


def _forget_the_exporter(model: Any) -> None:
    """Remove stack traces, which name files of the machine that exported."""
    graph = model.graph
    for entry in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del entry.metadata_props[:]
    del model.metadata_props[:]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks on other libraries it looks for and on dimensions that share a name."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
