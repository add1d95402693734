r"""The logging policy: how good was the shown order, and how well do the features predict it?

With an examination curve $\theta$ the mean relevance at a position is $r_k \propto \mathrm{ctr}_k / \theta_k$. A strong
logging policy puts relevant documents at the top, so $r_k$ decreases; under a random one it is flat. If lists were
shuffled, clicks per session in shown and in random order can be compared directly, without a model.

The shown order usually depends on features. How much is measured on pairs of documents of one list: a linear function
of the features, fitted on one half of the queries, predicts which of two was shown higher in the other half. Near 1,
position and features are confounded: a method that learns its curve along with the ranker may attribute the effect of
one to the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.shuffles import shuffled_positions
from unskew.data.transformed import plain_numbers
from unskew.diagnosis.click_rates import ClickRates
from unskew.propensities.curve import Curve, NotIdentified
from unskew.reporting.answers import PLAIN

Vector = NDArray[np.float64]

STRONG, WEAK = 0.2, 0.05  # gain over a random order of the same documents
MOST_PAIRS = 50_000  # a share among this many has a standard error of about 0.2%


@dataclass(frozen=True, eq=False)
class LoggerStrength:
    """Mean relevance at each position, by clicks divided by examination."""

    curve: str  # the estimator of the curve
    positions: NDArray[np.int64]
    relevance: Vector  # [positions], relative to the top
    low: Vector
    high: Vector
    gain: float  # of discounted relevance over a random order of the shown documents; 0: no better than chance
    word: str  # strong, moderate or weak

    def answer(self) -> tuple[str, str]:
        text = f"{self.word}: {self.gain:+.0%} discounted relevance compared with a random order"
        return f"{text}; relevance {self.relevance[-1]:.2f} at the last position, relative to the first", PLAIN


@dataclass(frozen=True)
class ShuffledClicks:
    """Clicks per session in the order of the logging policy and in random order."""

    shown: float
    shuffled: float
    gain: float  # shown / shuffled - 1
    low: float
    high: float
    level: float

    def answer(self) -> tuple[str, str]:
        interval = f"({self.low:+.1%} to {self.high:+.1%})"
        return f"{self.gain:+.1%} clicks per session compared with shuffled lists {interval}", PLAIN


def logger_strength(rates: ClickRates, curve: Curve) -> LoggerStrength:
    """How relevance decreases from the top down, given an examination curve."""
    both = np.isin(rates.positions, curve.positions)
    if both.sum() < 2:
        raise NotIdentified("the curve covers only one position: there is no order to evaluate")
    of_curve = np.isin(curve.positions, rates.positions)
    rate, seen = rates.rates[both], curve.values[of_curve]
    relevance = rate / seen
    if not relevance[0] > 0:
        raise NotIdentified("there are no clicks at the top: relevance relative to it is not defined")
    discount = 1 / np.log2(rates.positions[both] + 2)
    gain = float(discount @ relevance / (discount.sum() * relevance.mean()) - 1)
    with np.errstate(divide="ignore"):
        low, high = rate / curve.high[of_curve], rate / curve.low[of_curve]
    word = "strong" if gain >= STRONG else "weak" if gain < WEAK else "moderate"
    top = relevance[0]
    return LoggerStrength(curve.estimator, rates.positions[both], relevance / top, low / top, high / top, gain, word)


def shuffled_clicks(log: ClickLog, *, level: float = 0.95) -> ShuffledClicks:
    """Clicks per session of lists in the order of the logging policy and in random order; interval over queries.

    If only the top of lists was shuffled, only clicks there are counted.
    """
    reach = shuffled_positions(log, None)
    shuffled = reach > 0
    if log.interventions is None or not shuffled.any():
        raise NotIdentified("no list is marked as shuffled: shown and random order cannot be compared")
    plain = log.interventions.values == 0
    _, queries = np.unique(log.queries, return_inverse=True)
    n = int(queries.max()) + 1
    counted = log.mask & (log.positions < reach[shuffled].min())
    clicks = np.where(counted, log.clicks, 0).sum(axis=1, dtype=np.float64)

    def sums(chosen: NDArray[np.bool_]) -> list[Vector]:
        return [np.bincount(queries[chosen], each[chosen], n).astype(np.float64) for each in (clicks, log.sessions)]

    (shown_clicks, shown), (mixed_clicks, mixed) = sums(plain), sums(shuffled)
    if not (shown_clicks.sum() > 0 and mixed_clicks.sum() > 0):
        raise NotIdentified("the shuffled or the other sessions have no clicks: their orders cannot be compared")
    here, there = shown_clicks.sum() / shown.sum(), mixed_clicks.sum() / mixed.sum()
    # Delta method on the log ratio of two ratios of sums over queries.
    parts = (shown_clicks - here * shown) / shown_clicks.sum() - (mixed_clicks - there * mixed) / mixed_clicks.sum()
    half = NormalDist().inv_cdf((1 + level) / 2) * float(np.sqrt((parts**2).sum()))
    gain, low, high = (float(here / there * np.exp(side) - 1) for side in (0.0, -half, half))
    return ShuffledClicks(float(here), float(there), gain, low, high, level)


def order_from_features(log: ClickLog, *, seed: int = 0) -> float:
    """Share of held-out pairs whose shown order a linear function of the features predicts; 0.5 is chance."""
    pairs = shown_pairs(log, np.random.default_rng(seed))
    features = plain_numbers(log)
    difference = (features[pairs.upper] - features[pairs.lower]).astype(np.float64)
    spread = np.sqrt((difference**2).mean(axis=0))
    difference = np.clip(difference / np.where(spread > 0, spread, 1.0), -3.0, 3.0)
    first = np.random.default_rng(seed).permutation(int(pairs.queries.max()) + 1)[pairs.queries] % 2 == 0
    if not (first.any() and (~first).any()):
        raise NotIdentified("all lists belong to one query: nothing can be held out")
    right = []
    for taught in (first, ~first):
        x = difference[taught]
        curvature = x.T @ x + 1e-3 * len(x) * np.eye(x.shape[1])
        guess = difference[~taught] @ np.linalg.solve(curvature, x.sum(axis=0))
        right.append((guess > 0).mean() + 0.5 * (guess == 0).mean())
    return float(np.mean(right))


@dataclass(frozen=True, eq=False)
class ShownPairs:
    """Pairs of documents, as rows of the log's features."""

    upper: NDArray[np.int64]  # [pairs]
    lower: NDArray[np.int64]  # [pairs]
    queries: NDArray[np.int64]  # [pairs]


def shown_pairs(log: ClickLog, rng: Generator) -> ShownPairs:
    """Pairs from lists that no intervention changed, drawn equally from all lists."""
    sizes = log.mask.sum(axis=1)
    fit = sizes > 1
    if log.interventions is not None and (plain := fit & (log.interventions.values == 0)).any():
        fit = plain
    lists = np.flatnonzero(fit)
    if not len(lists):
        raise NotIdentified("no list shows two documents: there is no order")
    lists = rng.choice(lists, MOST_PAIRS)
    # Documents of a list are in shown order in its first columns.
    one = rng.integers(sizes[lists])
    other = rng.integers(sizes[lists] - 1)
    other = other + (other >= one)
    upper = log.versions[lists, np.minimum(one, other)]
    lower = log.versions[lists, np.maximum(one, other)]
    return ShownPairs(upper.astype(np.int64), lower.astype(np.int64), log.queries[lists])
