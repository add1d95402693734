"""ONNX: a ranker, with its feature transform, as a file for any ONNX runtime.

Lists, for any ranker:

    features  float32 [lists, documents, numbers]   raw, as in the log; NaN if missing; padding may hold anything
    texts     string  [lists, documents, texts]     categories, if there are any; "" if missing
    mask      bool    [lists, documents]            False for padding
    scores    float32 [lists, documents]            higher is better; scores of padding mean nothing

Flat, one row per document and no mask, for engines that score document by document (Vespa, Triton); both names can be
chosen. Only a ranker whose score depends on the document alone can be flat:

    features  float32 [documents, numbers]
    texts     string  [documents, texts]
    scores    float32 [documents, 1]

The vocabulary of each category is a label encoder in the graph. For engines that have no strings (Vespa), `codes`
leaves it out: then `features` has all columns, with the codes of `categories` in the metadata in place of text.

The numbers of lists and documents are dynamic, at least 1. The operators are those of opset 18 of the default domain,
which onnxruntime supports since 1.14. Metadata describe the file: see `METADATA`, each a string. The last entry, at the
very end of the file, is the SHA-256 digest of all bytes before it: a damaged file is refused when it is read.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unskew.data.untrusted import parse_json
from unskew.methods.bias.vectorization import ProjectedRanker
from unskew.networks.documents import PointwiseRanker, Ranker
from unskew.training.model import Model, ModelRanker

OPSET = 18
FORMAT = "unskew-onnx 2"
FLAT_FORMAT = "unskew-onnx-flat 2"
WITH_TEXTS = {FORMAT: "unskew-onnx 3", FLAT_FORMAT: "unskew-onnx-flat 3"}  # the formats of files that take text
ML_OPSET = 3  # of the domain ai.onnx.ml
UNKNOWN = "\N{WORD JOINER}"  # stands for a text that no vocabulary has
METADATA = {
    "format": f"{FORMAT!r}, or {FLAT_FORMAT!r} for a flat file; 3 in place of 2 if it takes texts",
    "unskew_version": "the release that wrote the file",
    "method": "the method that the ranker was trained with",
    "transform": "the name of the feature transform inside",
    "n_features": "number of features per document",
    "feature_names": "their names in order, a JSON list; empty if the log has none",
    "categories": "values of each category by feature name, a JSON object of lists: the feature is the value's number "
    "in its list, from 0; -1 for a value that is not in it, NaN for a missing one",
    "texts": "names of the categories in the order of the input `texts`, a JSON list; only if there is that input",
    "missing_in_training": "indices of the features that had missing values in training, a JSON list",
    "scores_depend_on": "'document': lists may be split; 'list': pass all candidates of a query at once",
    "lineage": "digests of the model and of the log that it was trained on, a JSON object",
    "sha256": "digest of all bytes of the file before this entry, which is the last",
}
IN_CACHE = 1024  # rows of a flat file that are scored together: hidden units of more would leave the cache
EXTRA = ("onnx", "onnxscript", "onnxruntime")
INPUT = "features"
OUTPUT = "scores"
TEXTS = "texts"
EXTERNAL = b"\n\x08location\x12"  # the key of an entry that names another file
TREES = "or distil it into trees (--as lightgbm or --as xgboost), or serve the masked .onnx with whole lists"


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
        size = len(_digest_entry(b""))
        is_whole = _with_digest(model[:-size]) == model
        damaged = f"{name} is damaged, or another program wrote it (by its SHA-256 digest): export it again"
        if EXTERNAL in model:
            raise ValueError(f"{name} keeps data in other files, which `unskew export` never does: it is not read")
        if b"sha256" in model[-size:] and not is_whole:  # known before onnxruntime reads it
            raise ValueError(damaged)
        try:
            self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            self.metadata: Mapping[str, str] = self.session.get_modelmeta().custom_metadata_map
        except Exception as error:  # onnxruntime has no common error class
            raise ValueError(f"{name} cannot be read as ONNX ({error}): export it again") from error
        if self.metadata.get("format") not in (*WITH_TEXTS, *WITH_TEXTS.values()):
            raise ValueError(
                f"{name} was not written by `unskew export`: its format is {self.metadata.get('format')!r}"
            )
        if not is_whole:
            raise ValueError(damaged)
        self.flat = self.metadata["format"] in (FLAT_FORMAT, WITH_TEXTS[FLAT_FORMAT])
        self.n_features = int(self.metadata["n_features"])
        self.feature_names = tuple(parse_json(self.metadata["feature_names"]))
        self.inputs = [entry.name for entry in self.session.get_inputs()]
        self.output = self.session.get_outputs()[0].name
        categories = parse_json(self.metadata.get("categories", "{}"))
        texts = parse_json(self.metadata.get("texts", "[]"))
        self.text_columns = [self.feature_names.index(name) for name in texts]
        self.number_columns = [column for column in range(self.n_features) if column not in self.text_columns]
        self.values = [np.array([*categories[name], UNKNOWN, ""], dtype=object) for name in texts]  # by code, -1, NaN

    def __call__(self, features: Tensor, mask: Tensor) -> Tensor:
        """Scores `[batch, docs]` of raw features `[batch, docs, f]`."""
        if self.flat:
            every = bool(mask.all())
            rows = features.flatten(0, 1) if every else features[mask]
            found = torch.from_numpy(self.score_rows(rows.float().cpu().numpy()))
            return found.reshape(mask.shape) if every else torch.zeros(mask.shape).masked_scatter(mask, found)
        inputs = {**self._inputs(features.float().cpu().numpy()), "mask": mask.cpu().numpy()}
        return torch.from_numpy(self.session.run([self.output], inputs)[0])

    def score_rows(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores `[documents]` of raw features `[documents, f]`, by a flat file."""
        scores = np.zeros((len(features), 1), dtype=np.float32)
        for start in range(0, len(features), IN_CACHE):
            rows = slice(start, start + IN_CACHE)
            (scores[rows],) = self.session.run([self.output], self._inputs(features[rows]))
        return scores[:, 0]

    def _inputs(self, features: NDArray[np.float32]) -> dict[str, NDArray]:
        """Numbers and texts from columns with codes of categories."""
        if not self.text_columns:
            return {self.inputs[0]: features}
        texts = np.empty((*features.shape[:-1], len(self.text_columns)), dtype=object)
        for place, (column, values) in enumerate(zip(self.text_columns, self.values, strict=True)):
            codes = features[..., column]
            n_codes = len(values) - 2
            # A code above the last one counts as missing, as in the transform; one below 0 is a value never seen.
            entry = np.where(codes < 0, n_codes, np.where(codes < n_codes, codes, n_codes + 1))
            texts[..., place] = values[entry.astype(np.int64)]
        numbers = {self.inputs[0]: features[..., self.number_columns]} if self.number_columns else {}
        return {**numbers, TEXTS: texts}


def to_onnx(ranker: Ranker, n_features: int, metadata: Mapping[str, str]) -> bytes:
    """The ranker as an ONNX file of lists."""
    lists, documents = torch.export.Dim("lists", min=1), torch.export.Dim("documents", min=1)
    shape = {0: lists, 1: documents}
    example = (torch.zeros(3, 7, n_features), torch.ones(3, 7, dtype=torch.bool))
    return export_module(ranker, example, (shape, shape), ["features", "mask"], ["scores"], metadata)


def export_module(
    module: nn.Module,
    example: tuple[Tensor, ...],
    shapes: tuple[Mapping[int, Any], ...],
    inputs: Sequence[str],
    outputs: Sequence[str],
    metadata: Mapping[str, str],
) -> bytes:
    """A module as an ONNX file, with metadata and without paths of the machine that wrote it."""
    need_onnx()
    with _quiet():
        program = torch.onnx.export(
            module.eval(),
            example,
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes=shapes,
        )
    assert program is not None
    model = program.model_proto
    _forget_the_exporter(model)
    if TEXTS in metadata:
        _take_texts(model, metadata)
    for name, value in metadata.items():
        model.metadata_props.add(key=name, value=value)
    return _with_digest(model.SerializeToString())


def _take_texts(model: Any, metadata: Mapping[str, str]) -> None:
    """Put the vocabularies into the graph: categories come in as texts, the other columns as numbers."""
    from onnx import TensorProto, helper

    graph, (source, *others) = model.graph, list(model.graph.input)
    name, coded = source.name, f"{source.name}_coded"
    shape = [entry.dim_param or entry.dim_value for entry in source.type.tensor_type.shape.dim][:-1]
    for node in graph.node:
        for place, used in enumerate(node.input):
            if used == name:
                node.input[place] = coded
    names, texts = parse_json(metadata["feature_names"]), parse_json(metadata[TEXTS])
    categories = parse_json(metadata["categories"])
    numbers = [column for column, each in enumerate(names) if each not in texts]
    parts = [name] if numbers else []
    nodes = []
    for place, text in enumerate(texts):
        index, picked, code = (f"{TEXTS}_{place}_{kind}" for kind in ("index", "picked", "code"))
        graph.initializer.append(helper.make_tensor(index, TensorProto.INT64, [1], [place]))
        nodes.append(helper.make_node("Gather", [TEXTS, index], [picked], axis=-1))
        known = {value: float(number) for number, value in enumerate(categories[text])}
        known.setdefault("", math.nan)
        encoder: dict[str, Any] = {"keys_strings": [*known], "values_floats": [*known.values()], "default_float": -1.0}
        nodes.append(helper.make_node("LabelEncoder", [picked], [code], domain="ai.onnx.ml", **encoder))
        parts.append(code)
    order = np.argsort([*numbers, *(names.index(text) for text in texts)]).tolist()
    graph.initializer.append(helper.make_tensor(f"{TEXTS}_order", TensorProto.INT64, [len(order)], order))
    nodes.append(helper.make_node("Concat", parts, [f"{TEXTS}_joined"], axis=-1))
    nodes.append(helper.make_node("Gather", [f"{TEXTS}_joined", f"{TEXTS}_order"], [coded], axis=-1))
    inner = list(graph.node)
    del graph.node[:], graph.input[:]
    graph.node.extend([*nodes, *inner])
    kinds = [(name, TensorProto.FLOAT, len(numbers))] if numbers else []
    kinds.append((TEXTS, TensorProto.STRING, len(texts)))
    graph.input.extend([helper.make_tensor_value_info(each, kind, [*shape, n]) for each, kind, n in kinds])
    graph.input.extend(others)
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", ML_OPSET))


def _with_digest(content: bytes) -> bytes:
    return content + _digest_entry(content)


def _digest_entry(content: bytes) -> bytes:
    """The last entry of `metadata_props` (field 14 of an ONNX model); protobuf accepts fields in any order."""
    digest = hashlib.sha256(content).hexdigest().encode()
    entry = b"\x0a\x06sha256\x12" + bytes([len(digest)]) + digest
    return b"\x72" + bytes([len(entry)]) + entry


def depends_on(ranker: Ranker) -> str:
    """What a score depends on, as in the metadata."""
    return "document" if ranker.pointwise else "list"


def missing_modules(names: Sequence[str]) -> list[str]:
    """Those that are not installed."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def need_onnx() -> None:
    """Raise an error if the libraries of the extra are not installed."""
    missing = missing_modules(EXTRA)
    if missing:
        raise ModuleNotFoundError(f"ONNX needs {', '.join(missing)}: pip install 'unskew[onnx]'")


def _forget_the_exporter(model: Any) -> None:
    """Remove stack traces, which contain file names of the exporting machine."""
    graph = model.graph
    for entry in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del entry.metadata_props[:]
    del model.metadata_props[:]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's messages about optional libraries and about dimensions that share a name."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


class FlatRanker(nn.Module):
    """A model's ranker on rows of documents."""

    def __init__(self, ranker: ModelRanker):
        super().__init__()
        self.transform = ranker.transform
        self.ranker = ranker.ranker

    def forward(self, features: Tensor) -> Tensor:
        """Scores `[documents, 1]` of raw features `[documents, f]`."""
        # Plain layers take rows: onnxruntime multiplies a matrix faster than a batch of one matrix.
        rows = features if isinstance(self.ranker, PointwiseRanker) else features.unsqueeze(0)
        mask = torch.ones(rows.shape[:-1], dtype=torch.bool)  # the ranker is pointwise and does not look at it
        scores: Tensor = self.ranker(self.transform.change(rows, mask), mask)
        return scores.reshape(-1, 1)


def check_flat(model: Model, ranker: ModelRanker) -> None:
    """Refuse a ranker that depends on the other documents of the list, and say what to do."""
    if ranker.pointwise:
        return
    if ranker.transform.per_query:
        why = f"the transform '{model.recipe.transform}' depends on the other documents of the query"
        do = "train with --set transform=automatic"
    elif isinstance(ranker.ranker, ProjectedRanker) and ranker.ranker.embedding.encoder is None:
        why = "vectorization projects documents onto a vector of the whole list"
        do = "train with --set base=mean, one vector for all lists"
    else:
        why = f"a '{model.recipe.network.kind}' ranker scores a document together with the others of its list"
        do = "train without --set network=listwise"
    raise ValueError(f"the ranker cannot be flat, because {why}: {do}, {TREES}")


def to_flat_onnx(
    ranker: ModelRanker, n_features: int, metadata: Mapping[str, str], names: tuple[str, str] = (INPUT, OUTPUT)
) -> bytes:
    """The ranker as a flat ONNX file, with these names of input and output."""
    documents = torch.export.Dim("documents", min=1)
    example = (torch.zeros(7, n_features),)
    return export_module(FlatRanker(ranker), example, ({0: documents},), [names[0]], [names[1]], metadata)


def rank_profile(file: str, name: str, feature_names: Sequence[str], names: tuple[str, str]) -> str:
    """A Vespa rank profile that scores with the file; it assumes fields with the names of the features."""
    model = "".join(letter if letter.isalnum() else "_" for letter in name)
    values = ",\n            ".join(f"attribute({feature})" for feature in feature_names)
    return f"""\
rank-profile {model} {{
    function {model}_features() {{
        expression: tensor<float>(d0[1],d1[{len(feature_names)}]):[[
            {values}]]
    }}
    onnx-model {model} {{
        file: files/{file}
        input "{names[0]}": {model}_features
        output "{names[1]}": score
    }}
    first-phase {{
        expression: sum(onnx({model}).score)
    }}
}}"""
