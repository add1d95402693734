r"""When LBD recovers the order of relevance: Theorems 1 to 4 of Chen et al. (NeurIPS 2022) as numbers.

Notation: $c_k(x) = r(x)\,o_k(x)$ is the truth, $\hat r(x)\,\hat o_k(x)$ a model that fits it exactly (the paper's
Assumption 1); every $o_k$ is $\alpha$-Lipschitz, every $\hat o_k$ is $\beta$-Lipschitz; $t$ is the probability that
observation is cancelled. All rates are absolute, between 0 and 1. `high` and `low` are the more and the less relevant
of two documents, $r(x_h) \ge r(x_l)$.

Corrections to the paper:

* Theorem 1 is printed with the factor $o_k(x_1)/\hat o_k(x_1)$ at the *more* relevant document. This is false: with
  $o \equiv .5$, $\hat o(x) = .3 + .3x$, $x_1 = 1$, $x_2 = 0$, $r = .453, .3$ its condition holds ($.51 \ge .5$), yet
  $\hat r(x_1) = .3775 < .5 = \hat r(x_2)$. The proof needs $o_k(x_2)/\hat o_k(x_2)$, at the less relevant document,
  which is implemented here. In the proof the second denominator is $o_k(x)$.
* Theorem 2: its proof means $n = 1/\hat r(x_2)$, not $1/\hat r(x_1)$.
* Theorem 3 names the documents in the opposite order of Theorem 1. Here it is always `high` and `low`.

The theorems need the true observation, its constant $\alpha$ and absolute rates, which are known in a simulation. For a
real log they are unknown: there the numbers are conditional on a fitted, normalized model. The conditions need not be
compatible: in the paper's own experiments a pair requires at least $t \ge .1$ (Theorem 3: relevance goes from .1 to 1)
and allows $t \le .06/.68 = .088$ (Theorem 4 without coupling), so no pair satisfies both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]
Observation = Callable[[Vector], ArrayLike]  # documents [n, features] -> [n, positions], or [n] for one position

N_NODES = 64  # of the Gauss-Legendre rule on the line between two documents


@dataclass(frozen=True)
class PairBounds:
    """The conditions of the theorems for one pair of documents."""

    least_beta: float  # Theorem 2: below it, no model fits the clicks of the two
    greatest_beta: float  # Theorem 1: up to it, their order is right; negative: for no beta
    least_cancel: float  # Theorem 3: from it on, their order is right
    greatest_cancel: float  # Theorem 4: above it, no model fits the clicks of both

    @property
    def lipschitz_possible(self) -> bool:
        """Whether some beta satisfies Theorems 1 and 2."""
        return self.least_beta <= self.greatest_beta

    @property
    def bernoulli_possible(self) -> bool:
        """Whether some t satisfies Theorems 3 and 4."""
        return self.least_cancel <= self.greatest_cancel


def greatest_beta(
    high: ArrayLike,
    low: ArrayLike,
    relevance: tuple[float, float],
    observation: Observation,
    estimate: Observation,
    *,
    alpha: float,
) -> float:
    r"""The largest $\beta$ that satisfies Theorem 1, corrected, at some position; negative if none does.

    $\frac{r(x_h)}{r(x_l)} - 1 \ge
    \frac{o_k(x_l)}{\hat o_k(x_l)} \int \frac{\beta o_k + \alpha \hat o_k}{o_k^2} \lVert dx\rVert$.
    The paper takes the least integral over all curves between the two; the straight line gives a sufficient condition.

    Args:
        relevance: true relevance of `high` and of `low`.
        observation: the true $o$.
        estimate: the model's $\hat o$.
    """
    factor, per_beta, per_alpha = _line_integrals(high, low, observation, estimate)
    with np.errstate(divide="ignore"):  # documents with the same features: any beta
        return float(((_gap(relevance) / factor - alpha * per_alpha) / per_beta).max())


def least_beta(one: ArrayLike, other: ArrayLike, clicks_of_one: ArrayLike, clicks_of_other: ArrayLike) -> float:
    r"""Theorem 2: $\beta \ge \inf_{m, n \ge 1} \lVert m\,c(x_1) - n\,c(x_2)\rVert_\infty / \lVert x_1 - x_2\rVert_2$.

    Args:
        clicks_of_one: true click rates at each position, `[positions]`.
    """
    distance = _distance(one, other)
    first, second = (_rates(values, "click rates", least=0.0) for values in (clicks_of_one, clicks_of_other))
    # Both factors above 1 could be shrunk together: at the minimum one of them is 1.
    difference = min(_least_difference(first, second), _least_difference(second, first))
    if distance == 0:
        return np.inf if difference > 0 else 0.0
    return difference / distance


def least_cancel(
    high: ArrayLike, low: ArrayLike, relevance: tuple[float, float], observation_of_high: ArrayLike, *, alpha: float
) -> float:
    r"""Theorem 3: the least $t$ that makes the order right; above 1 if there is none.

    $t \ge \frac{r(x_l)}{r(x_h)}\left(1 + \frac{\alpha\lVert x_h - x_l\rVert}{\sup_k o_k(x_h)}\right)$.

    Args:
        relevance: true relevance of `high` and of `low`.
        observation_of_high: true observation of `high` at each position, `[positions]`.
    """
    highest = _rates(observation_of_high, "observation").max()
    return float((1 + alpha * _distance(high, low) / highest) / (1 + _gap(relevance)))


def greatest_cancel(observation: ArrayLike) -> float:
    r"""Theorem 4: a model can only fit if $t \le \inf_k o_k(x) / \sup_k o_k(x)$.

    Args:
        observation: true observation of a document at each position, `[positions]`; of several, `[n, positions]`.
    """
    rates = np.atleast_2d(_rates(observation, "observation"))
    return float((rates.min(axis=-1) / rates.max(axis=-1)).min())


def pair_bounds(
    high: ArrayLike,
    low: ArrayLike,
    relevance: tuple[float, float],
    observation: Observation,
    estimate: Observation | None = None,
    *,
    alpha: float,
) -> PairBounds:
    r"""All four theorems for one pair.

    Args:
        observation: the true $o$ in a simulation, otherwise a fitted, normalized model of it.
        estimate: the model's $\hat o$; default: `observation`.
        alpha: Lipschitz constant of `observation`, e.g. the `beta` of a certified model.
    """
    estimate = observation if estimate is None else estimate
    points = np.stack([_point(high), _point(low)])
    seen = _rates(_by_position(observation, points), "observation")
    return PairBounds(
        least_beta=least_beta(high, low, relevance[0] * seen[0], relevance[1] * seen[1]),
        greatest_beta=greatest_beta(high, low, relevance, observation, estimate, alpha=alpha),
        least_cancel=least_cancel(high, low, relevance, seen[0], alpha=alpha),
        greatest_cancel=greatest_cancel(seen),
    )


def _line_integrals(
    high: ArrayLike, low: ArrayLike, observation: Observation, estimate: Observation
) -> tuple[Vector, Vector, Vector]:
    """The parts of Theorem 1 at each position: o / estimate at `low`, the integrals of 1 / o and of estimate / o^2."""
    start, end = _point(low), _point(high)
    nodes, weights = np.polynomial.legendre.leggauss(N_NODES)
    steps = np.concatenate([[0.0], (nodes + 1) / 2])  # the less relevant document itself comes first
    points = start + steps[:, None] * (end - start)
    seen = _rates(_by_position(observation, points), "observation")
    model = _rates(_by_position(estimate, points), "the estimate of observation")
    lengths = weights[:, None] / 2 * _distance(high, low)
    return seen[0] / model[0], (lengths / seen[1:]).sum(axis=0), (lengths * model[1:] / seen[1:] ** 2).sum(axis=0)


def _by_position(function: Observation, points: Vector) -> Vector:
    values = np.asarray(function(points), dtype=np.float64)
    return values.reshape(len(points), -1)


def _point(values: ArrayLike) -> Vector:
    return np.atleast_1d(np.asarray(values, dtype=np.float64))


def _distance(one: ArrayLike, other: ArrayLike) -> float:
    return float(np.linalg.norm(_point(one) - _point(other)))


def _gap(relevance: tuple[float, float]) -> float:
    high, low = relevance
    if not 0 < low <= high <= 1:
        raise ValueError(
            f"relevance is {high} for the more relevant and {low} for the less relevant document: pass probabilities "
            "above 0, the larger one first"
        )
    return high / low - 1


def _rates(values: ArrayLike, what: str, least: float = np.nextafter(0, 1)) -> Vector:
    rates = np.asarray(values, dtype=np.float64)
    if not ((rates >= least) & (rates <= 1)).all():
        raise ValueError(
            f"{what} must be probabilities{' above 0' if least > 0 else ''}, got values from {rates.min():.4g} to "
            f"{rates.max():.4g}: normalize relative rates first"
        )
    return rates


def _least_difference(fixed: Vector, scaled: Vector) -> float:
    r"""$\min_{n \ge 1} \max_k \lvert a_k - n b_k\rvert$: convex and piecewise linear, so the minimum is at a corner."""
    with np.errstate(divide="ignore", invalid="ignore"):
        corners = np.concatenate(
            [
                ((fixed[:, None] + sign * fixed) / (scaled[:, None] + sign * scaled)).ravel()  # lines that cross
                for sign in (-1.0, 1.0)
            ]
        )
    factors = np.concatenate([[1.0], corners[np.isfinite(corners) & (corners > 1)]])
    return float(np.abs(fixed - factors[:, None] * scaled).max(axis=1).min())
