"""Rankers from disk: a saved model or exported trees, run by torch, or an exported ONNX file, run by onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from unskew.data.clicks.vocabulary import Vocabulary
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.evaluate import Scorer, score_documents
from unskew.networks.trees import TreesRanker
from unskew.serving.model_files import load_model
from unskew.serving.onnx_file import OnnxRanker
from unskew.serving.tree_files import read_trees

TREE_ENDINGS = (".txt", ".json")


@dataclass(frozen=True, eq=False)
class ScoredIds:
    """Scores, and how many of the documents are unknown: these are scored by their url, their query or the average."""

    scores: NDArray[np.float64]  # [documents]
    unknown: int


@dataclass(frozen=True, eq=False)
class SavedRanker:
    """A ranker of raw features, and what it expects of them."""

    score: Callable[..., Tensor]
    name: str
    n_features: int
    feature_names: tuple[str, ...]  # in the order of the features; none: the log had no names
    takes_missing: bool  # NaN may come in
    vocabulary: Vocabulary | None = None  # the documents that a ranker of ids knows

    def score_ids(self, queries: ArrayLike, documents: ArrayLike, features: NDArray[np.float32]) -> ScoredIds:
        """Scores of documents by their ids, one each, from a ranker that knows some of them."""
        assert self.vocabulary is not None
        codes = self.vocabulary.numbers(queries, documents)
        everything = torch.ones(1, len(codes), dtype=torch.bool)
        with torch.inference_mode():
            scores = self.score(torch.from_numpy(features)[None], everything, torch.from_numpy(codes)[None])
        return ScoredIds(scores[0].double().numpy(), int((codes[:, 0] == 0).sum()))

    def score_judged(self, judged: JudgedSet) -> ScoredIds:
        """Scores of all documents of a judged set, by their ids where the ranker knows some."""
        score = self.for_judged(judged)
        if self.vocabulary is None:
            return ScoredIds(score_documents(score, judged), 0)
        return self.score_ids(np.repeat(judged.query_ids, judged.sizes), judged.document_ids, judged.features)

    def for_judged(self, judged: JudgedSet) -> Scorer:
        """The ranker; refused for data with another number of features."""
        if judged.n_features != self.n_features:
            raise ValueError(
                f"{judged.name or 'the data'} has {judged.n_features} features, the model was trained on "
                f"{self.n_features}: rank data with the same features"
            )
        return self.score


def open_ranker(path: str | Path) -> SavedRanker:
    """The ranker of a folder that `save_model` wrote, or of an exported `.onnx` file or trees (`.txt`, `.json`)."""
    place = Path(path)
    if place.suffix in TREE_ENDINGS:
        forest = read_trees(place)
        trees = TreesRanker(forest).eval()
        unnamed = forest.feature_names == tuple(f"f{number}" for number in range(trees.n_features))
        names = () if unnamed else forest.feature_names  # the log had no names, and the file has numbers for them
        return SavedRanker(trees, place.name, trees.n_features, names, takes_missing=True)
    if place.suffix == ".onnx":
        exported = OnnxRanker(place)
        takes_missing = exported.metadata.get("takes_missing") == "yes"
        return SavedRanker(exported, place.name, exported.n_features, exported.feature_names, takes_missing)
    model = load_model(place)
    ranker = model.ranker()
    return SavedRanker(
        ranker,
        place.name,
        model.problem.n_features,
        model.feature_names,
        ranker.transform.takes_missing,
        model.vocabulary,
    )
