"""Export: a model as a file for serving, checked against torch before it is written.

The file extension decides the format: `.onnx` for any ranker (see `onnx_file`, and `flat_onnx` for rows of documents
without a mask), `.json` for linear rankers in Elasticsearch and OpenSearch (see `linear_json`) and, with `form="solr"`,
for plain networks in Solr (see `solr_json`). Files are written atomically, and only if their scores differ from torch's
by at most `agreement.TOLERANCE` of the largest score.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from unskew.data.files import check_place, write_file
from unskew.data.raw_columns import missing_in_training
from unskew.display import OnScreen, Screen
from unskew.serving.agreement import Agreement, compare
from unskew.serving.flat_onnx import INPUT, OUTPUT, check_flat, rank_profile, to_flat_onnx
from unskew.serving.linear_json import linear_scores, to_json
from unskew.serving.onnx_file import FLAT_FORMAT, FORMAT, OPSET, OnnxRanker, depends_on, to_onnx
from unskew.serving.saved_ranker import check_features_alone
from unskew.serving.solr_json import solr_network
from unskew.training.model import Model, ModelRanker

FORMS = {"onnx": ".onnx", "linear": ".json", "solr": ".json"}


@dataclass(frozen=True, repr=False)
class Exported(OnScreen):
    """The exported file, and its agreement with torch."""

    path: Path
    agreement: Agreement
    note: str
    snippet: str = ""  # for the engine's configuration

    def screen(self) -> Screen:
        return Screen(f"{self.path}: {self.note}; {self.agreement}")


@dataclass(frozen=True)
class Content:
    """A file to be written."""

    data: bytes
    agreement: Agreement
    note: str
    snippet: str = ""


def export_model(
    model: Model,
    path: str | Path,
    *,
    form: str | None = None,
    flat: bool = False,
    names: tuple[str, str] = (INPUT, OUTPUT),
    overwrite: bool = False,
    seed: int = 0,
) -> Exported:
    """Write a model as `.onnx` or `.json`; `distillation.export_trees` writes trees.

    Args:
        form: one of `FORMS`; default: chosen by the file extension.
        flat: ONNX with one row per document and no mask, for engines that score document by document.
        names: names of the flat file's input and output.
        seed: seed of the random lists on which the file is compared with torch.
    """
    target = Path(path)
    form = form or _default_form(target)
    if form not in FORMS or target.suffix != FORMS[form]:
        known = ", ".join(f"{name} ({ending})" for name, ending in FORMS.items())
        raise ValueError(f"{target.name} cannot be written as '{form}': choose one of {known}")
    if flat and form != "onnx":
        raise ValueError(f"{target.name}: only ONNX files can be flat: use the extension .onnx")
    check_place(target, overwrite=overwrite)
    check_features_alone(model)
    rng = np.random.default_rng(seed)
    if form == "linear":
        content = _linear(model, target, rng)
    elif form == "solr":
        content = _solr(model, target, rng)
    else:
        content = _flat_onnx(model, target, rng, names) if flat else _onnx(model, rng)
    if not content.agreement.holds:
        raise ValueError(f"{target} was not written, because it would not rank as the model does: {content.agreement}")
    write_file(target, content.data)
    return Exported(target, content.agreement, content.note, content.snippet)


def onnx_bytes(model: Model, seed: int = 0) -> bytes:
    """The model as an ONNX file of lists, compared with torch."""
    check_features_alone(model)
    content = _onnx(model, np.random.default_rng(seed))
    if not content.agreement.holds:
        raise ValueError(f"the ONNX file would not rank as the model does: {content.agreement}")
    return content.data


def _default_form(target: Path) -> str:
    for form, ending in FORMS.items():
        if target.suffix == ending:
            return form
    endings = ", ".join(dict.fromkeys(FORMS.values()))
    raise ValueError(f"{target.name}: the extension must be one of {endings}, or choose a tree format with --as")


def _onnx(model: Model, rng: np.random.Generator) -> Content:
    ranker, n_features = _copy_on_cpu(model), model.n_features
    metadata = _metadata(model, ranker, FORMAT)
    data = to_onnx(ranker, n_features, metadata)
    agreement = compare(ranker, OnnxRanker(data), n_features, rng)
    return Content(data, agreement, f"ONNX opset {OPSET}, a score depends on the {metadata['scores_depend_on']}")


def _flat_onnx(model: Model, target: Path, rng: np.random.Generator, names: tuple[str, str]) -> Content:
    if not all(names) or names[0] == names[1]:
        raise ValueError(f"input and output need two different names, got '{names[0]}' and '{names[1]}'")
    ranker, n_features = _copy_on_cpu(model), model.n_features
    check_flat(model, ranker)
    data = to_flat_onnx(ranker, n_features, _metadata(model, ranker, FLAT_FORMAT), names)
    agreement = compare(ranker, OnnxRanker(data), n_features, rng)
    note = f"flat ONNX opset {OPSET}, float32 {names[0]} [documents, {n_features}] to {names[1]} [documents, 1]"
    return Content(data, agreement, note, rank_profile(target.name, target.stem, _feature_names(model), names))


def _metadata(model: Model, ranker: ModelRanker, layout: str) -> dict[str, str]:
    return {
        "format": layout,
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
    n_features = model.n_features
    scores = linear_scores(model, n_features, rng)
    names = _feature_names(model)
    agreement = compare(_copy_on_cpu(model), scores, n_features, rng, missing=False)  # weights cannot handle NaN
    note = f"{n_features} weights, a constant of {scores.constant:.4g} left out"
    if not model.feature_names:
        note += f", features called {names[0]} to {names[-1]} as the log does not name them"
    return Content(to_json(scores, target.stem, names), agreement, note)


def _solr(model: Model, target: Path, rng: np.random.Generator) -> Content:
    network = solr_network(model)
    agreement = compare(_copy_on_cpu(model), network, model.n_features, rng, missing=False)
    return Content(
        network.to_json(target.stem, _feature_names(model)), agreement, f"{len(network.layers)} layers for Solr"
    )


def _feature_names(model: Model) -> tuple[str, ...]:
    return model.feature_names or tuple(f"f{number}" for number in range(model.n_features))


def _copy_on_cpu(model: Model) -> ModelRanker:
    return copy.deepcopy(model.ranker()).cpu().eval()
