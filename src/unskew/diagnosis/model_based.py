r"""Results of models fitted to a log: learned examination curves, and the theorems of LBD.

Both are conditional on a model. A learned curve is as good as the assumption of the method that learns it. Its interval
comes from the spread of fits on disjoint parts of the queries: it measures the certainty of the fit, not whether the
model is right. The theorems need true, absolute rates: here those of a fitted model replace them, scaled so that it
predicts the observed number of clicks.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import t as student

from unskew.data.clicks.click_log import ClickLog
from unskew.diagnosis.bounds import PairBounds, pair_bounds
from unskew.diagnosis.logging_policy import shown_pairs
from unskew.methods.bias.lbd import LBD
from unskew.propensities.curve import Curve, NotIdentified
from unskew.reporting.answers import PLAIN
from unskew.training.fitting import fit_recipe
from unskew.training.model import Model
from unskew.training.recipe import Recipe

Vector = NDArray[np.float64]

LEARNT = ("dla", "regression_em")  # methods whose curve is shown
N_PARTS = 4  # parts of the queries, each with its own fit
MOST_LISTS = 20_000  # lists that a fit learns from
SMALL = {"hidden": (32,), "steps": 200}
SLOPE = 0.05  # Lipschitz constant of the certified observation, per unit of the transformed features
N_PAIRS = 200
SHARES = ("lipschitz_possible", "bernoulli_possible")  # of the pairs
MEDIANS = ("least_cancel", "greatest_cancel", "least_beta", "greatest_beta")
LEAST_RELEVANCE = 1e-6


@dataclass(frozen=True)
class ModelBounds:
    """The conditions of the theorems for pairs of documents of one list, if a fitted model were the truth."""

    n_pairs: int
    slope: float  # Lipschitz constant of the fitted observation
    lipschitz_possible: float  # share of the pairs with a beta that satisfies Theorems 1 and 2
    bernoulli_possible: float  # share of the pairs with a t that satisfies Theorems 3 and 4
    least_cancel: float  # Theorem 3, the median pair: above 1 no t puts it right
    greatest_cancel: float  # Theorem 4, the median pair
    least_beta: float  # Theorem 2, the median pair
    greatest_beta: float  # Theorem 1, the median pair; negative: for no beta

    def answer(self) -> tuple[str, str]:
        text = (
            f"if the fitted model is right, Lipschitz orders {self.lipschitz_possible:.0%} of the pairs with "
            f"certainty, Bernoulli {self.bernoulli_possible:.0%}"
        )
        return text, PLAIN


def learnt_curve(log: ClickLog, method: str, *, level: float = 0.95, seed: int = 0) -> Curve:
    """The curve that a method learns along with a ranker, relative to the top.

    Its values are geometric means of fits on disjoint parts of the queries, from which its interval comes.
    """
    rng = np.random.default_rng(seed)
    queries, member = np.unique(log.queries, return_inverse=True)
    if len(queries) < N_PARTS:
        raise NotIdentified(f"{len(queries)} queries are too few for an interval, which needs fits on {N_PARTS} parts")
    part_of = rng.permutation(len(queries)) % N_PARTS
    recipe = Recipe.of(method, seed=seed, **SMALL)
    logs = []
    for part in range(N_PARTS):
        rows = np.flatnonzero(part_of[member] == part)
        model = fit_recipe(recipe, log.select(_some(rows, MOST_LISTS // N_PARTS, rng)))
        curve = model.examination()
        if curve is None or not (np.isfinite(curve) & (curve > 0)).all():
            raise NotIdentified(f"{method} learned no curve")
        padded = np.full(log.n_positions, np.nan)
        padded[: len(curve)] = np.log(curve / curve[0])
        logs.append(padded)
    values = np.array(logs)
    known = np.isfinite(values).sum(axis=0)
    if not (known > 1).all():
        raise NotIdentified(f"some positions occur in only one part of the queries: {method} has no interval there")
    middle = np.nanmean(values, axis=0)
    half = student.ppf((1 + level) / 2, known - 1) * np.nanstd(values, axis=0, ddof=1) / np.sqrt(known)
    curves = (np.exp(middle), np.exp(middle - half), np.exp(middle + half))
    return Curve(method, np.arange(log.n_positions), *curves, log.by_position()[0], level)


def model_bounds(log: ClickLog, *, seed: int = 0) -> ModelBounds:
    """The theorems for pairs of documents, conditional on a certified LBD fitted to this log."""
    if log.graded:
        raise NotIdentified("the feedback is graded, but the theorems are about click rates")
    log = log.with_context_as_features()  # the theorems compare documents by everything that the model sees
    rng = np.random.default_rng(seed)
    learning = log.select(_some(np.arange(log.n_lists), MOST_LISTS, rng))
    model = fit_recipe(Recipe.of("lbd", lipschitz="certified", beta=SLOPE, cancel=0.0, seed=seed, **SMALL), learning)
    method = model.method
    assert isinstance(method, LBD)
    drawn = shown_pairs(log, rng)
    chosen = rng.choice(len(drawn.upper), min(N_PAIRS, len(drawn.upper)), replace=False)
    documents = np.stack([drawn.upper[chosen], drawn.lower[chosen]], axis=1)
    points, relevance = _points_and_relevance(model, log, documents)

    def observation(values: Vector) -> Vector:
        with torch.no_grad():
            seen = method.seen(torch.as_tensor(values, dtype=torch.float32))
        return seen.numpy().astype(np.float64)

    found = []
    for pair, rates in zip(points, relevance, strict=True):
        high, low = (0, 1) if rates[0] >= rates[1] else (1, 0)
        found.append(
            pair_bounds(pair[high], pair[low], (float(rates[high]), float(rates[low])), observation, alpha=SLOPE)
        )
    return _summary(found)


def _summary(found: list[PairBounds]) -> ModelBounds:
    return ModelBounds(
        n_pairs=len(found),
        slope=SLOPE,
        **{name: float(np.mean([getattr(pair, name) for pair in found])) for name in SHARES},
        **{name: median(getattr(pair, name) for pair in found) for name in MEDIANS},
    )


def _some(rows: NDArray[np.int64], most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return rows if len(rows) <= most else np.sort(rng.choice(rows, most, replace=False))


def _points_and_relevance(model: Model, log: ClickLog, documents: NDArray[np.int64]) -> tuple[Vector, Vector]:
    """Transformed features of documents, `[pairs, 2, features]`, and their fitted relevance, `[pairs, 2]`.

    Relevance is scaled so that the model predicts the observed number of clicks.
    """
    method = model.method
    assert isinstance(method, LBD)
    features = torch.as_tensor(log.features[documents])
    mask = torch.ones(documents.shape, dtype=torch.bool)
    with torch.no_grad():
        values = model.transform(features, mask)
        scores = method.relevance(values, mask)
        seen = method.seen(values).mean(-1)
        relative = torch.exp(scores - scores.max())
        rate = log.n_clicks / float((log.sessions * log.mask.sum(axis=1)).sum())
        scale = rate / float((relative * seen).mean().clamp(min=1e-12))
    relevance = np.clip(scale * relative.numpy().astype(np.float64), LEAST_RELEVANCE, 1.0)
    return values.numpy().astype(np.float64), relevance
