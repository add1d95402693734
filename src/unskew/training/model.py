"""Model: a fitted method with its feature transform, from raw features to scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.lineage import lineage_of
from unskew.data.clicks.vocabulary import Vocabulary
from unskew.data.files import array_digest
from unskew.data.raw_columns import Column, describe_columns, grouped
from unskew.data.transformed import transform_log
from unskew.data.transforms import Identity, Transform
from unskew.display import Displayed, Screen, new_axes
from unskew.evaluation.click_prediction import ClickPrediction, predict_clicks
from unskew.methods import Method
from unskew.networks.documents import AveragedRanker, Ranker
from unskew.networks.registry import Problem
from unskew.networks.trees import TreesRanker, from_lightgbm
from unskew.training.history import History
from unskew.training.recipe import Recipe

MISSING = "Missing in: share of the stored feature rows, not of the impressions."
COUNTED = ("lists", "sessions", "clicks", "judged_queries")  # counts in `trained_on`


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
        """Scores. A ranker of ids also needs the codes of documents; without them it knows no document."""
        features = self.transform(features, mask)
        return self.ranker(features, mask) if codes is None else self.ranker(features, mask, codes)


@dataclass(frozen=True, eq=False)
class Member:
    """Another fitted method whose ranker is averaged with that of a model, on the same transformed features."""

    recipe: Recipe
    problem: Problem
    method: Method


def member_name(number: int) -> str:
    """The name of a member's tensors."""
    return f"other{number}"


@dataclass(frozen=True, eq=False, repr=False)
class Model(Displayed):
    """A fitted method with everything needed to serve, explain and save it.

    `fit` and `load_model` return one; `rank`, `evaluate`, `export` and `tune` accept it.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> model = unskew.fit("dla", log, steps=3, progress=False)
    >>> model.examination().shape
    (10,)
    """

    recipe: Recipe
    problem: Problem
    method: Method
    transform: Transform
    history: History = field(default_factory=History)
    feature_names: tuple[str, ...] = ()
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # vocabularies of the training data
    trained_on: Mapping[str, Any] = field(default_factory=dict)
    vocabulary: Vocabulary | None = None  # documents known by their ids; None: the model uses features only
    trees: str | None = None  # trees in LightGBM's text format that rank instead of the method's network
    others: tuple[Member, ...] = ()  # of an average of rankers: all but the first
    weights: tuple[float, ...] = ()  # of the rankers in an average, including the first

    def tensors(self) -> dict[str, Tensor]:
        """Weights, running estimates and the numbers of the transform, by part and name."""
        parts: dict[str, nn.Module] = {"method": self.method, "transform": self.transform}
        parts |= {member_name(number): member.method for number, member in enumerate(self.others)}
        return {
            f"{part}.{name}": value.detach().cpu().clone().contiguous()
            for part, module in parts.items()
            for name, value in module.state_dict().items()
        }

    @property
    def digest(self) -> str:
        """SHA-256 of what the model has learned; a saved model has the same."""
        tensors = self.tensors()
        about = [self.recipe.method, self.trees or "", repr(self.weights)]
        return array_digest([value.numpy() for value in tensors.values()], [*tensors, *about])

    @property
    def lineage(self) -> dict[str, Any]:
        """The digests of the model, `model`, and of the log that it came from, `log`."""
        return lineage_of(self.digest, self.trained_on.get("log"))

    def ranker(self) -> ModelRanker:
        """The ranker, on raw features."""
        if self.trees is not None:
            return self._trees_ranker
        own = self.method.ranker()
        if self.others:
            own = AveragedRanker([own, *(member.method.ranker() for member in self.others)], self.weights)
        return ModelRanker(self.transform, own).eval()

    @property
    def name(self) -> str:
        """The method, or the methods of an average; as `auto` called them, so a member may be `production`."""
        chosen = str((self.trained_on.get("verdict") or {}).get("method", "")).split(" + ")
        methods = [self.recipe.method, *(member.recipe.method for member in self.others)]
        return " + ".join(chosen if self.others and len(chosen) == len(methods) else methods)

    @cached_property
    def _trees_ranker(self) -> ModelRanker:
        assert self.trees is not None
        return ModelRanker(Identity(), TreesRanker(from_lightgbm(self.trees), self.trees)).eval()

    @property
    def n_features(self) -> int:
        """Number of raw features per document; networks see the transformed ones."""
        fitted_on = self.transform.fitted_on()
        return self.problem.n_features if fitted_on is None else fitted_on

    def columns(self) -> list[Column]:
        """The transform of each raw column."""
        return describe_columns(self.transform, self.feature_names)

    def encode(self, log: ClickLog) -> ClickLog:
        """The log as the method sees it: transformed features, and codes of known ids."""
        seen = transform_log(log, self.transform)
        return seen if self.vocabulary is None else self.vocabulary.encode(seen)

    def predict_clicks(self, log: ClickLog) -> ClickPrediction:
        """How well the model predicts the clicks of a log: likelihood, perplexity, calibration."""
        if self.n_features != log.n_inputs:
            raise ValueError(
                f"the log has {log.n_inputs} features, but the model was trained on {self.n_features}: "
                "evaluate on a log with the same features"
            )
        if self.others:
            raise ValueError(f"{self.name} is an average of rankers and predicts no clicks: use one of its methods")
        return predict_clicks(self.method, self.encode(self._with_known_levels(log)))

    def _with_known_levels(self, log: ClickLog) -> ClickLog:
        """The log with the levels of its bias columns numbered as in training."""
        bias = dict(log.bias)
        for name, levels in self.problem.bias.items():
            if name not in bias or (bias[name].levels is None) != (levels is None):
                kind = "numbers" if levels is None else "levels"
                raise ValueError(
                    f"the model was trained with {kind} in the bias column '{name}', and the log has none: ingest it "
                    f"with --bias {name}"
                )
            column = bias[name]
            if levels is None or column.levels is None or column.levels == levels:
                continue
            numbers = np.array([levels.index(level) if level in levels else -1 for level in column.levels])
            values = numbers[column.values]
            shown = values if values.ndim == 1 else values[log.mask]
            if (shown < 0).any():
                unknown = ", ".join(level for level in column.levels if level not in levels)
                raise ValueError(
                    f"{unknown}: not among the levels of the bias column '{name}' that the model was trained with "
                    f"({', '.join(levels)}): leave these sessions out, or train on a log that has them"
                )
            bias[name] = replace(column, values=values.clip(min=0).astype(column.values.dtype))
        return replace(log, bias=bias)

    def examination(self, level: str | None = None) -> NDArray[np.float64] | None:
        """The learned examination curve relative to the top position; None if the method has none.

        Args:
            level: of a bias column, as "device=phone" (or "phone" if only one column has it); default: the average
                of all levels.
        """
        method: Method | None = self.method
        if level is not None:
            column, name = self._level(level)
            method = self.method.at_level(column, (self.problem.bias[column] or ()).index(name))
            if method is None:
                raise ValueError(
                    f"{self.recipe.method} has one curve for all levels of '{column}': for a curve per level, train "
                    f"dla, two_tower, pbm or ipw (with by={column})"
                )
        assert method is not None
        curve = method.examination()
        return None if curve is None else curve.detach().cpu().numpy().astype(np.float64)

    def examinations(self) -> dict[str, NDArray[np.float64]]:
        """The curve per level of each bias column that changes it, by "column=level"."""
        levels = [f"{column}={level}" for column, names in self.problem.bias.items() for level in names or ()]
        bends = {column for column in self.problem.bias if self.method.at_level(column, 0) is not None}
        curves = {level: self.examination(level) for level in levels if level.partition("=")[0] in bends}
        return {level: curve for level, curve in curves.items() if curve is not None}

    def _level(self, text: str) -> tuple[str, str]:
        """Column and level of a text."""
        known = [(column, level) for column, levels in self.problem.bias.items() for level in levels or ()]
        found = [pair for pair in known if text in ("=".join(pair), pair[1])]
        if len(found) != 1:
            names = ", ".join("=".join(pair) for pair in known) or "none: the log had no bias column with levels"
            raise ValueError(f"'{text}' matches {len(found)} levels of bias columns; known levels: {names}")
        return found[0]

    def to_table(self) -> pa.Table:
        """Learned examination relative to the top, one row per position from 0; empty if the method has no curve.

        If a bias column changes the curve, each of its levels has a column, "device=phone".
        """
        curve = self.examination()
        values = np.zeros(0) if curve is None else curve
        return pa.table({"position": np.arange(len(values)), "examination": values, **self.examinations()})

    def to_json(self) -> dict[str, Any]:
        """How training went and what it learned besides the ranker."""
        curve, history = self.examination(), self.history
        return {
            "method": self.recipe.method,
            "best_step": history.best_step,
            "best_value": history.best_value,
            "seconds": history.seconds,
            "ending": history.ended,
            "examination": None if curve is None else curve.tolist(),
            "examination_by_level": {level: each.tolist() for level, each in self.examinations().items()},
            "never_shown": self.trained_on.get("never_shown", []),
            **{name: self.trained_on.get(name) for name in ("feedback", "started_from")},
            "warnings": history.warnings,
            "columns": {column.name: column.became for column in self.columns()},
        }

    def screen(self) -> Screen:
        curve = self.examination()
        trained = ", ".join(f"{value:,.0f} {name}" for name, value in self.trained_on.items() if name in COUNTED)
        title = f"{self.name} of {self.n_features} features, trained on {trained or 'no clicks'}"
        transforms = grouped(self.columns())
        gaps = [MISSING] if any("missing in" in row[0] for row in transforms) else []
        names = ("transform", "columns", "names")
        more = [Screen("Transforms of the features", names, transforms, gaps, left=3)] if transforms else []
        if curve is None:
            return Screen(title, notes=self._training_notes(), more=more)
        by_level = self.examinations()
        columns = ("position", "examination, relative to the top", *by_level)
        empty = self.trained_on.get("never_shown_by_level", {})
        never_shown = [self.trained_on.get("never_shown", []), *(empty.get(level, []) for level in by_level)]
        rows = curve_rows([curve, *by_level.values()], never_shown)
        notes = self._training_notes()
        if len(rows) < len(curve):
            notes.append(f"The curve has {len(curve)} positions; --json and the report show all of them")
        return Screen(title, columns, rows, notes, left=0, more=more)

    def _training_notes(self) -> list[str]:
        """What is worth knowing of the training, as sentences."""
        history, about = self.history, self.trained_on
        value = history.best_value
        best = "" if value is None else f", best {about['validation']} {value:.4f}"
        notes = [f"Trained in {history.seconds:.1f} s{best}"] if history.seconds else []
        notes += [] if self.trees is None else ["The ranker is LightGBM, trained on its debiased targets"]
        notes += [f"Learned from {about['feedback']}"] if about.get("feedback", "clicks") != "clicks" else []
        notes += [f"Training {history.ended}"] if history.ended else []
        if (started := about.get("started_from")) is not None:
            new = f"; new, initialized to the average: {', '.join(started['extended'])}" if started["extended"] else ""
            notes.append(f"Started from a {started['method']} model of {started['steps']:,} steps{new}")
        return notes

    def plot(self, ax: Any = None) -> Any:
        """Plot the learned examination curve, also per level of a bias column; positions count from 1."""
        curve = self.examination()
        if curve is None:
            raise ValueError(f"{self.recipe.method} learns no examination curve: plot model.history instead")
        axes = new_axes(ax)
        for name, each in {str(self.recipe.method): curve, **self.examinations()}.items():
            style = "-" if each is curve else "--"
            axes.plot(np.arange(len(each)) + 1, each, style, marker="o", markersize=3, label=name)
        axes.set_xlabel("position")
        axes.set_ylabel("examination, relative to the top")
        axes.legend(frameon=False)
        return axes


def average_models(models: Sequence[Model], weights: Sequence[float]) -> Model:
    """One model whose score is the weighted sum of these models; its examination curve is that of the first.

    Args:
        models: of one log, with the same feature transform.
        weights: one per model; divide by the spread of a model's scores to give models equal influence.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> models = [unskew.fit(name, log, steps=3, progress=False) for name in ("dla", "naive")]
    >>> average_models(models, [0.5, 0.5]).name
    'dla + naive'
    """
    first = models[0]
    for model in models:
        if model.trees is not None or model.vocabulary is not None or model.others or not model.method.has_ranker:
            raise ValueError(f"{model.name} cannot be averaged: only networks that rank by features can")
        if not _same_transform(model, first):
            raise ValueError("models to be averaged must have the same feature transform: train them on one log")
    if len(models) == 1:
        return first
    if len(weights) != len(models) or not np.isfinite(weights).all():
        raise ValueError(f"an average needs one finite weight per model: got {list(weights)} for {len(models)}")
    others = tuple(Member(model.recipe, model.problem, model.method) for model in models[1:])
    return replace(first, others=others, weights=tuple(float(weight) for weight in weights))


def _same_transform(one: Model, other: Model) -> bool:
    states = one.transform.state_dict(), other.transform.state_dict()
    return states[0].keys() == states[1].keys() and all(
        torch.equal(states[0][name].nan_to_num(), states[1][name].nan_to_num()) for name in states[0]
    )


SMALL_CURVE = 12  # positions up to which a curve is shown whole
PLACES = (0, 1, 2, 4, 9)  # of a longer one, with the last


def curve_rows(curves: Sequence[NDArray[np.float64]], never_shown: Sequence[Sequence[int]]) -> list[tuple[str, ...]]:
    """Rows of a small table of curves: the position, counted from 1, and the value of each curve.

    Args:
        never_shown: positions of each curve where no document was shown.
    """
    n_places = len(curves[0])
    places = range(n_places) if n_places <= SMALL_CURVE else [*PLACES, n_places - 1]

    def cell(number: int, place: int) -> str:
        return "never shown" if place in never_shown[number] else f"{curves[number][place]:.3f}"

    return [(str(place + 1), *(cell(number, place) for number in range(len(curves)))) for place in places]
