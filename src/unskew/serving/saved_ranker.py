"""Rankers from disk: a saved model or exported trees, run by torch, or an exported ONNX file, run by onnxruntime.

The model's transform fills missing features (NaN), even in columns that had none in training. There the model guesses,
so `UnknownCounts` counts those values, and values of categories that are new to the model. Infinite features are
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from unskew.data.checks import check_features
from unskew.data.clicks.vocabulary import Vocabulary
from unskew.data.files import file_digest
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.object_storage import fetched, remote
from unskew.data.raw_columns import UNSEEN, missing_in_training
from unskew.data.untrusted import parse_json
from unskew.evaluation.evaluate import Scorer, score_documents
from unskew.methods.click_models.parts import PartsRanker
from unskew.networks.trees import TreesRanker
from unskew.serving.model_files import load_model
from unskew.serving.onnx_file import OnnxRanker
from unskew.serving.tree_files import read_categories, read_trees
from unskew.training.model import Model

TREE_ENDINGS = (".txt", ".json")


@dataclass(frozen=True, eq=False)
class ScoredIds:
    """Scores, and the number of unknown documents, which are scored by their URL, their query or the average."""

    scores: NDArray[np.float64]  # [documents]
    unknown: int


@dataclass(frozen=True, eq=False)
class SavedRanker:
    """A ranker of raw features, and the features it expects."""

    score: Callable[..., Tensor]
    name: str
    n_features: int
    feature_names: tuple[str, ...] = ()  # in the order of the features; empty: the log had no names
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # vocabularies, by feature name
    missing_in_training: tuple[int, ...] | None = None  # columns; None: not known, as for trees, which take any value
    vocabulary: Vocabulary | None = None  # the documents that a ranker of ids knows
    lineage: Mapping[str, Any] = field(default_factory=dict)  # digests of the model and its log
    context: tuple[str, ...] = ()  # features of users and moments, which judged queries may lack

    def score_ids(self, queries: ArrayLike, documents: ArrayLike, features: NDArray[np.float32]) -> ScoredIds:
        """Scores of documents by their ids, from a ranker that knows some of them."""
        assert self.vocabulary is not None
        codes = self.vocabulary.numbers(queries, documents)
        everything = torch.ones(1, len(codes), dtype=torch.bool)
        with torch.inference_mode():
            scores = self.score(torch.from_numpy(features)[None], everything, torch.from_numpy(codes)[None])
        return ScoredIds(scores[0].double().numpy(), int((codes[:, 0] == 0).sum()))

    def score_judged(self, judged: JudgedSet) -> ScoredIds:
        """Scores of all documents of a judged set, by their ids if the ranker knows ids."""
        score = self.for_judged(judged)
        if self.vocabulary is None:
            return ScoredIds(score_documents(score, judged), 0)
        return self.score_ids(np.repeat(judged.query_ids, judged.sizes), judged.document_ids, judged.features)

    def for_judged(self, judged: JudgedSet) -> Scorer:
        """The ranker; an error if the data have another number of features."""
        if judged.n_features != self.n_features:
            raise ValueError(
                f"{judged.name or 'the data'} has {judged.n_features} features, but the model was trained on "
                f"{self.n_features}: rank data with the same features"
            )
        check_features(judged.features, self.feature_names, what=f"{judged.name or 'the data'}, document")
        return self.score

    @classmethod
    def of(cls, model: Model, name: str = "") -> SavedRanker:
        """The ranker of a model, run by torch."""
        known = missing_in_training(model.transform)
        return cls(
            model.ranker(),
            name or model.name,
            model.n_features,
            model.feature_names,
            model.categories,
            None if known is None else tuple(known),
            model.vocabulary if ranks_by_ids(model) else None,
            model.lineage,
            tuple(model.trained_on.get("context", ())),
        )


def ranks_by_ids(model: Model) -> bool:
    """Whether the ranker of a model needs the ids of documents."""
    own = model.ranker().ranker
    return isinstance(own, PartsRanker) and own.uses_ids


def check_features_alone(model: Model) -> None:
    """Refuse a model for a file that sees only features."""
    if ranks_by_ids(model):
        raise ValueError(
            f"{model.name} ranks by document ids, and an exported file sees only features: rank with unskew rank, or "
            "train with attraction=features (and satisfaction=features)"
        )
    if not model.n_features:
        raise ValueError("the model was trained without features and scores all documents equally: add features")


class UnknownCounts:
    """Counts of values that training never saw: missing in columns that had none missing, and unseen categories.

    Args:
        strict: refuse the first such missing value instead.
    """

    def __init__(self, ranker: SavedRanker, *, strict: bool = False):
        self.names = ranker.feature_names or tuple(f"number {column}" for column in range(ranker.n_features))
        known = ranker.missing_in_training
        self.expected = np.isin(np.arange(ranker.n_features), () if known is None else known) | (known is None)
        self.categorical = np.flatnonzero(np.isin(self.names, list(ranker.categories)))  # columns
        self.missing = np.zeros(ranker.n_features, dtype=np.int64)
        self.new = np.zeros(ranker.n_features, dtype=np.int64)
        self.strict = strict

    def add(self, features: NDArray) -> None:
        """Count in these rows."""
        missing = np.isnan(features)
        if missing.any():
            self.missing = self.missing + np.where(self.expected, 0, missing.sum(axis=0))
        if len(self.categorical):
            unseen = (features[:, self.categorical] == UNSEEN).sum(axis=0)
            self.new = self.new + np.bincount(self.categorical, unseen, len(self.new)).astype(np.int64)
        if self.strict and self.missing.any():
            column = int(np.argmax(self.missing > 0))
            raise ValueError(
                f"column '{self.names[column]}' has missing values, but had none in training: fill them, train on data "
                "with missing values, or leave out --strict to let the model guess"
            )

    def filled(self) -> dict[str, int]:
        """Missing values that were filled, by name of the column."""
        return self._named(self.missing)

    def unseen(self) -> dict[str, int]:
        """Values of categories that training never saw, by name of the column."""
        return self._named(self.new)

    def _named(self, counts: NDArray[np.int64]) -> dict[str, int]:
        return {self.names[column]: int(counts[column]) for column in np.flatnonzero(counts)}


def open_ranker(path: str | Path) -> SavedRanker:
    """The ranker in a folder that `save_model` wrote, or in an exported `.onnx` file or trees (`.txt`, `.json`)."""
    if remote(path) is not None:
        with fetched(path) as local:
            return open_ranker(local)
    place = Path(path)
    if place.suffix in TREE_ENDINGS:
        forest = read_trees(place)
        trees = TreesRanker(forest, place.read_text() if place.suffix == ".txt" else None).eval()
        unnamed = forest.feature_names == tuple(f"f{number}" for number in range(trees.n_features))
        names = () if unnamed else forest.feature_names  # a log without names gives numbered names in the file
        lineage = {"model": file_digest(place)}
        return SavedRanker(trees, place.name, trees.n_features, names, read_categories(place), lineage=lineage)
    if place.suffix == ".onnx":
        return ranker_of_onnx(OnnxRanker(place), place.name)
    return SavedRanker.of(load_model(place), place.name)


def ranker_of_onnx(exported: OnnxRanker, name: str) -> SavedRanker:
    """An exported ranker, with the features named in its metadata."""
    known = parse_json(exported.metadata.get("missing_in_training", "null"))
    categories = parse_json(exported.metadata.get("categories", "{}"))
    return SavedRanker(
        exported,
        name,
        exported.n_features,
        exported.feature_names,
        {name: tuple(values) for name, values in categories.items()},
        None if known is None else tuple(known),
        lineage=parse_json(exported.metadata.get("lineage", "null")) or {"model": exported.metadata["sha256"]},
    )


def as_model(model: Any) -> Model:
    """A model from a model, a fitted `UnbiasedRanker`, or the folder of a saved model."""
    fitted = getattr(model, "model_", model)
    if isinstance(fitted, Model):
        return fitted
    if isinstance(fitted, str | Path):
        return load_model(Path(fitted))
    raise TypeError(f"pass a fitted model or the path of a saved one, got {type(model).__name__}")


def as_ranker(ranker: Any) -> SavedRanker:
    """A ranker and the inputs it expects, from a model, a fitted estimator, a model folder or an `.onnx` file."""
    if isinstance(ranker, SavedRanker):
        return ranker
    if isinstance(ranker, str | Path):
        return open_ranker(Path(ranker))
    return SavedRanker.of(as_model(ranker))
