"""Model: a fitted method with its feature transform, from raw features to scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.vocabulary import Vocabulary
from unskew.data.column_table import Column, describe_columns
from unskew.data.fitted_transforms import Transform
from unskew.data.transformed import transform_log
from unskew.data.transforms import Identity
from unskew.evaluation.click_prediction import ClickPrediction, predict_clicks
from unskew.methods import Method
from unskew.networks.documents import Ranker
from unskew.networks.observation import at_level
from unskew.networks.registry import Problem
from unskew.networks.trees import TreesRanker, from_lightgbm
from unskew.recipe import Recipe
from unskew.training.history import History


class ModelRanker(Ranker):
    """A trained ranker with its feature transform: raw features in, scores out."""

    def __init__(self, transform: Transform, ranker: Ranker):
        super().__init__()
        self.transform = transform
        self.ranker = ranker

    @property
    def pointwise(self) -> bool:
        return self.ranker.pointwise and not self.transform.per_query

    def forward(self, features: Tensor, mask: Tensor, codes: Tensor | None = None) -> Tensor:
        """Scores; a ranker of ids takes the numbers of a vocabulary as well, and without them knows no id."""
        features = self.transform(features, mask)
        return self.ranker(features, mask) if codes is None else self.ranker(features, mask, codes)


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted method with all that is needed to serve, explain and save it."""

    recipe: Recipe
    problem: Problem
    method: Method
    transform: Transform
    history: History = field(default_factory=History)
    feature_names: tuple[str, ...] = ()
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # vocabularies of the training data
    trained_on: Mapping[str, Any] = field(default_factory=dict)
    vocabulary: Vocabulary | None = None  # the documents that it knows by their ids; None: it goes by features
    trees: str | None = None  # LightGBM's text of the trees that rank instead of the method's network

    def ranker(self) -> ModelRanker:
        """The ranker, on raw features."""
        if self.trees is not None:
            return self._trees_ranker
        return ModelRanker(self.transform, self.method.ranker()).eval()

    @cached_property
    def _trees_ranker(self) -> ModelRanker:
        assert self.trees is not None
        return ModelRanker(Identity(), TreesRanker(from_lightgbm(self.trees))).eval()

    @property
    def n_features(self) -> int:
        """Raw features of a document; networks see those that the transform makes of them."""
        fitted_on = self.transform.fitted_on()
        return self.problem.n_features if fitted_on is None else fitted_on

    def columns(self) -> list[Column]:
        """What each raw column became."""
        return describe_columns(self.transform, self.feature_names)

    def encode(self, log: ClickLog) -> ClickLog:
        """A log as the method sees it: with transformed features, and with the numbers of known ids."""
        seen = transform_log(log, self.transform)
        return seen if self.vocabulary is None else self.vocabulary.encode(seen)

    def predict_clicks(self, log: ClickLog) -> ClickPrediction:
        """How well the model predicts the clicks of a log: likelihood, perplexity, calibration."""
        if self.problem.n_features != log.n_features:
            raise ValueError(
                f"the log has {log.n_features} features, the model was trained on {self.problem.n_features}: "
                "evaluate on a log with the same features"
            )
        return predict_clicks(self.method, self.encode(log))

    def examination(self, level: str | None = None) -> NDArray[np.float64] | None:
        """The learnt examination curve relative to the top position; None: the method has none.

        Args:
            level: of a bias column, as "device=phone" (or "phone" where one column only has it); default: the average
                of all levels.
        """
        method: Method | None = self.method
        if level is not None:
            column, name = self._level(level)
            method = at_level(self.method, column, (self.problem.bias[column] or ()).index(name))
            if method is None:
                raise ValueError(
                    f"{self.recipe.method} has one curve for all levels of '{column}': train dla, two_tower or pbm "
                    "for a curve per level"
                )
        assert method is not None
        curve = method.examination()
        return None if curve is None else curve.detach().cpu().numpy().astype(np.float64)

    def examinations(self) -> dict[str, NDArray[np.float64]]:
        """The curve of each level of each bias column that bends it, by "column=level"."""
        levels = [f"{column}={level}" for column, names in self.problem.bias.items() for level in names or ()]
        bends = {column for column in self.problem.bias if at_level(self.method, column, 0) is not None}
        curves = {level: self.examination(level) for level in levels if level.partition("=")[0] in bends}
        return {level: curve for level, curve in curves.items() if curve is not None}

    def _level(self, text: str) -> tuple[str, str]:
        """Column and level of a text."""
        known = [(column, level) for column, levels in self.problem.bias.items() for level in levels or ()]
        found = [pair for pair in known if text in ("=".join(pair), pair[1])]
        if len(found) != 1:
            names = ", ".join("=".join(pair) for pair in known) or "none: the log had no bias column with levels"
            raise ValueError(f"'{text}' names {len(found)} levels of bias columns; there are: {names}")
        return found[0]
