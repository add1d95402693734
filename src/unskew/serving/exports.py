"""Export: a model as a file for serving, checked against torch before it is written.

The file extension decides the format: `.onnx` for any ranker (see `onnx_file`), `.json` for linear rankers in
Elasticsearch and OpenSearch and, with `form="solr"`, for plain networks in Solr (see `engine_json`). Files are written
atomically, and only if their scores differ from torch's by at most `TOLERANCE` of the largest score.

That is measured on lists made to find differences: they are random, of several sizes down to one document, with NaN in
the padding, and some are padding only. Their features are drawn where the model's transform does not clip: noise after
the inverse transform; for trees, values around the thresholds of their splits.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unskew.data.files import check_place, write_file
from unskew.data.inputs import Judged, LogOrPlace, Place, as_judged, as_log
from unskew.data.raw_columns import RawColumns, missing_in_training
from unskew.data.transforms import Chain, HeavyTailLog, MinMax, Reciprocal, SignedLog, Standard, Transform
from unskew.networks.trees import TreesRanker
from unskew.serving.distillation import Exported, export_trees
from unskew.serving.engine_json import linear_scores, solr_network, to_json
from unskew.serving.onnx_file import (
    FLAT_FORMAT,
    FORMAT,
    INPUT,
    OPSET,
    OUTPUT,
    TEXTS,
    WITH_TEXTS,
    OnnxRanker,
    check_flat,
    depends_on,
    rank_profile,
    to_flat_onnx,
    to_onnx,
)
from unskew.serving.saved_ranker import as_model, check_features_alone
from unskew.serving.tree_files import FORMS as TREE_FORMS
from unskew.serving.tree_files import write_categories
from unskew.training.model import Model, ModelRanker

FORMS = {"onnx": ".onnx", "linear": ".json", "solr": ".json"}
Scores = Callable[[Tensor, Tensor], Tensor]  # features [batch, docs, f], mask [batch, docs] -> [batch, docs]
SHAPES = ((1, 1), (1, 6), (2, 1), (5, 12), (8, 40))  # lists and documents
PADDING_SHARE = 0.3
MISSING_SHARE = 0.1
TOLERANCE = 1e-4  # of the largest score: float32 sums in another order differ by less, a wrong graph by more
FLOOR = 1e-5  # scores close to 0 differ by rounding only
LARGEST_EXPONENT = 60.0  # float32 overflows at e^88


@dataclass(frozen=True)
class Content:
    """A file to be written, and what scores by it."""

    data: bytes
    scores: Scores
    note: str
    snippet: str = ""
    missing: bool = True  # whether it takes missing values


def export(
    model: Model | Place,
    to: Place,
    *,
    form: str | None = None,
    log: LogOrPlace | None = None,
    judged: Judged | None = None,
    overwrite: bool = False,
    seed: int = 0,
    **options: Any,
) -> Exported:
    """Export a model to a file for serving; its scores are checked against torch.

    `save_model` saves it for Python.

    Args:
        model: a model, a fitted `UnbiasedRanker`, or the path of a saved model.
        to: the output file; its extension decides the format unless `form` does.
        form: the format, see `unskew export --help`; `lightgbm` and `xgboost` are trees.
        log: the log with the documents that trees learn from.
        judged: judged queries to evaluate the model and the trees.
        seed: for the random lists on which the file is compared with torch.
        options: options of the format, see `serving.export.export_model` and `serving.distillation.export_trees`.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> model = unskew.fit("naive", log, network="linear", transform="standard", steps=3, progress=False)
    >>> unskew.export(model, "model.json", form="linear").path.name
    'model.json'
    """
    fitted = as_model(model)
    if form not in TREE_FORMS:
        return export_model(fitted, to, form=form, overwrite=overwrite, seed=seed, **options)
    clicks = None if log is None else as_log(log)
    queries = None if judged is None else as_judged(judged, "test")
    return export_trees(fitted, to, clicks, kind=form, judged=queries, overwrite=overwrite, seed=seed, **options)


def export_model(
    model: Model,
    path: str | Path,
    *,
    form: str | None = None,
    flat: bool = False,
    codes: bool = False,
    names: tuple[str, str] = (INPUT, OUTPUT),
    overwrite: bool = False,
    seed: int = 0,
) -> Exported:
    """Write a model as `.onnx` or `.json`; `distillation.export_trees` writes trees.

    Args:
        form: one of `FORMS`; default: chosen by the file extension.
        flat: ONNX with one row per document and no mask, for engines that score document by document.
        codes: ONNX takes the codes of categories, which a second file holds, in place of text, for engines without
            strings.
        names: names of the flat file's input and output.
        seed: seed of the random lists on which the file is compared with torch.
    """
    target = Path(path)
    form = form or next((name for name, ending in FORMS.items() if target.suffix == ending), None)
    if form is None:
        endings = ", ".join(dict.fromkeys(FORMS.values()))
        raise ValueError(f"{target.name}: the extension must be one of {endings}, or choose a tree format with --as")
    if form not in FORMS or target.suffix != FORMS[form]:
        known = ", ".join(f"{name} ({ending})" for name, ending in FORMS.items())
        raise ValueError(f"{target.name} cannot be written as '{form}': choose one of {known}")
    if flat and form != "onnx":
        raise ValueError(f"{target.name}: only ONNX files can be flat: use the extension .onnx")
    check_place(target, overwrite=overwrite)
    check_features_alone(model)
    rng = np.random.default_rng(seed)
    if form == "onnx":
        content = _flat_onnx(model, target, names, codes=codes) if flat else _onnx(model, codes=codes)
    else:
        content = _linear(model, target, rng) if form == "linear" else _solr(model, target)
    agreement = _agreement(model, content, rng, f"{target} was not written, because it")
    note = content.note
    if codes and form == "onnx":
        note += write_categories(target, model.categories)
    write_file(target, content.data)
    return Exported(target, agreement, note, content.snippet)


def onnx_bytes(model: Model, seed: int = 0, *, flat: bool = False) -> bytes:
    """The model as an ONNX file of lists, or of single documents, compared with torch."""
    check_features_alone(model)
    content = _flat_onnx(model, Path("model.onnx"), (INPUT, OUTPUT), codes=True) if flat else _onnx(model, codes=True)
    _agreement(model, content, np.random.default_rng(seed), "the ONNX file")
    return content.data


def _agreement(model: Model, content: Content, rng: np.random.Generator, what: str) -> Agreement:
    """How the file agrees with torch; an error if it does not."""
    agreement = compare(_copy_on_cpu(model), content.scores, model.n_features, rng, missing=content.missing)
    if not agreement.holds:
        raise ValueError(f"{what} would not rank as the model does: {agreement}")
    return agreement


def _onnx(model: Model, *, codes: bool) -> Content:
    ranker = _copy_on_cpu(model)
    metadata = _metadata(model, ranker, FORMAT, codes=codes)
    data = to_onnx(ranker, model.n_features, metadata)
    return Content(data, OnnxRanker(data), f"ONNX opset {OPSET}, a score depends on the {metadata['scores_depend_on']}")


def _flat_onnx(model: Model, target: Path, names: tuple[str, str], *, codes: bool) -> Content:
    if not all(names) or names[0] == names[1]:
        raise ValueError(f"input and output need two different names, got '{names[0]}' and '{names[1]}'")
    ranker, n_features = _copy_on_cpu(model), model.n_features
    check_flat(model, ranker)
    metadata = _metadata(model, ranker, FLAT_FORMAT, codes=codes)
    data = to_flat_onnx(ranker, n_features, metadata, names)
    n_texts = len(json.loads(metadata.get(TEXTS, "[]")))
    texts = f", string {TEXTS} [documents, {n_texts}]" if n_texts else ""
    given = f"float32 {names[0]} [documents, {n_features - n_texts}]{texts}"
    note = f"flat ONNX opset {OPSET}, {given} to {names[1]} [documents, 1]"
    snippet = "" if texts else rank_profile(target.name, target.stem, _feature_names(model), names)  # Vespa has no text
    return Content(data, OnnxRanker(data), note, snippet)


def _metadata(model: Model, ranker: ModelRanker, layout: str, *, codes: bool) -> dict[str, str]:
    texts = [] if codes else [name for name in model.feature_names if name in model.categories]
    return {
        "format": WITH_TEXTS[layout] if texts else layout,
        **({TEXTS: json.dumps(texts)} if texts else {}),
        "unskew_version": version("unskew"),
        "method": model.name,
        "transform": model.recipe.transform,
        "n_features": str(model.n_features),
        "feature_names": json.dumps(list(model.feature_names)),
        "categories": json.dumps({name: list(values) for name, values in model.categories.items()}),
        "missing_in_training": json.dumps(missing_in_training(model.transform)),
        "scores_depend_on": depends_on(ranker),
        "lineage": json.dumps(model.lineage),
    }


def _linear(model: Model, target: Path, rng: np.random.Generator) -> Content:
    scores, names = linear_scores(model, model.n_features, rng), _feature_names(model)
    note = f"{model.n_features} weights, a constant of {scores.constant:.4g} left out"
    if not model.feature_names:
        note += f", features called {names[0]} to {names[-1]} as the log does not name them"
    return Content(to_json(scores, target.stem, names), scores, note, missing=False)  # weights cannot handle NaN


def _solr(model: Model, target: Path) -> Content:
    network = solr_network(model)
    data = network.to_json(target.stem, _feature_names(model))
    return Content(data, network, f"{len(network.layers)} layers for Solr", missing=False)


def _feature_names(model: Model) -> tuple[str, ...]:
    return model.feature_names or tuple(f"f{number}" for number in range(model.n_features))


def _copy_on_cpu(model: Model) -> ModelRanker:
    ranker = copy.deepcopy(model.ranker()).cpu().eval()
    if isinstance(ranker.ranker, TreesRanker):
        ranker.ranker.booster = None  # the operations of torch are exported, not those of LightGBM
    return ranker


@dataclass(frozen=True)
class Agreement:
    """The agreement of two rankers."""

    largest: float  # largest difference of a score; NaN if one of them is not a number
    allowed: float
    n_documents: int

    @property
    def holds(self) -> bool:
        return self.largest <= self.allowed  # False for NaN

    def __str__(self) -> str:
        return (
            f"largest difference from torch {self.largest:.2g} on {self.n_documents} documents "
            f"(allowed: {self.allowed:.2g})"
        )


def compare(
    ranker: ModelRanker, other: Scores, n_features: int, rng: np.random.Generator, *, missing: bool = True
) -> Agreement:
    """The differences of another program's scores from torch's; lists have missing values unless it has none."""
    largest, size, n_documents = [], [], 0
    for features, mask in sample_lists(ranker, n_features, rng, MISSING_SHARE if missing else 0.0):
        with torch.inference_mode():
            expected = ranker(features, mask)
        difference = (other(features, mask) - expected).abs()
        # Scores of padding mean nothing, but must be numbers: a NaN would break the caller's sorting.
        largest.append(difference.masked_fill(~mask & difference.isfinite(), 0.0).max())
        size.append(expected.masked_fill(~mask, 0.0).abs().max())
        n_documents += int(mask.sum())
    allowed = max(TOLERANCE * float(torch.stack(size).max()), FLOOR)
    return Agreement(float(torch.stack(largest).max()), allowed, n_documents)


def sample_lists(
    ranker: ModelRanker, n_features: int, rng: np.random.Generator, missing_share: float = MISSING_SHARE
) -> Iterator[tuple[Tensor, Tensor]]:
    """Lists of raw features and their masks."""
    for n_lists, n_docs in SHAPES:
        mask = torch.from_numpy(rng.random((n_lists, n_docs)) >= PADDING_SHARE)
        mask[-1, 0] = True
        if n_lists > 1:
            mask[0] = False
        noise = torch.from_numpy(rng.standard_normal((n_lists, n_docs, n_features)))
        trees = ranker.ranker
        features = (
            trees.near_splits(noise) if isinstance(trees, TreesRanker) else undo(ranker.transform, noise)
        ).float()
        if isinstance(trees, TreesRanker) or isinstance(ranker.transform, RawColumns):
            missing = torch.from_numpy(rng.random(features.shape) < missing_share)
            features = features.masked_fill(missing, torch.nan)
        yield features.masked_fill(~mask.unsqueeze(-1), torch.nan), mask
    yield torch.full((1, 3, n_features), torch.nan), torch.zeros(1, 3, dtype=torch.bool)


def undo(transform: Transform, values: Tensor) -> Tensor:
    """Raw features that the transform maps to about these values; the values themselves if it has no inverse."""
    if isinstance(transform, Chain):
        for step in reversed(transform.steps):
            assert isinstance(step, Transform)
            values = undo(step, values)
        return values
    for kind, inverse in INVERSES.items():
        if isinstance(transform, kind):
            return inverse(transform, values)
    return values


def _undo_scale(values: Tensor, centre: Tensor, inverse: Tensor) -> Tensor:
    """The inverse of scaling; columns that were constant in training vary here, as they may in serving."""
    return centre + values / torch.where(inverse > 0, inverse, 1.0)


def _undo_log(values: Tensor) -> Tensor:
    return values.sign() * values.abs().clamp(max=LARGEST_EXPONENT).expm1()


def _undo_columns(step: RawColumns, values: Tensor) -> Tensor:
    """Numbers before their transform, and codes of categories, including unseen and out-of-range codes."""
    raw = values.clone()
    raw[..., step.numbers] = undo(step.inner, values[..., step.numbers])
    last = torch.tensor(step.codes, dtype=values.dtype)
    raw[..., step.category_columns] = (values[..., step.category_columns].abs() * 7 % (last + 2)).floor() - 1
    return raw


INVERSES: dict[type[Transform], Callable[..., Tensor]] = {
    RawColumns: _undo_columns,
    Standard: lambda step, values: _undo_scale(values, step.mean, step.inverse_deviation),
    MinMax: lambda step, values: _undo_scale(values, step.centre, step.inverse_radius),
    SignedLog: lambda _, values: _undo_log(values),
    HeavyTailLog: lambda step, values: torch.where(step.heavy, step.unit * _undo_log(values), values),
    Reciprocal: lambda step, values: step.constant * values.abs(),
}
