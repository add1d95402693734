"""Curve: how much each position is seen relative to the top one, with its bootstrap interval.

Estimators first add up what they need query by query; a curve is a function of the sums over queries. So the bootstrap
draws queries, with everything that happened in them, and never goes back to single documents or sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

NUMBERS_AT_ONCE = 4_000_000  # held while resampling

Vector = NDArray  # float64


class NotIdentified(ValueError):
    """The log cannot tell the curve; the message says why and what to do."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Propensities of the positions that occur, relative to the first of them."""

    estimator: str
    positions: NDArray[np.int64]  # [positions], ascending; without those that never occur
    values: Vector  # [positions]; the first is 1
    low: Vector  # [positions]; NaN where there are too few queries, or no resamples, for an interval
    high: Vector  # [positions]
    n_impressions: Vector  # [positions], that the estimate rests on
    level: float = 0.95

    def propensities(self, n_positions: int) -> Vector:
        """A value for each of the positions 0, 1, …, as `ipw` takes them.

        Where no document was counted there is nothing to correct: between two positions the curve is drawn straight
        on a log scale, outside it keeps its end value.
        """
        return np.exp(np.interp(np.arange(n_positions), self.positions, np.log(self.values)))

    def rows(self) -> list[dict[str, float]]:
        """One row a position, for tables and files."""
        columns = {
            "position": self.positions,
            "propensity": self.values,
            "low": self.low,
            "high": self.high,
            "n_impressions": self.n_impressions,
        }
        return [
            dict(zip(columns, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)
        ]

    def to_table(self) -> str:
        """The rows as aligned text; positions count from 1 there."""
        lines = [f"{'position':>8} {'propensity':>10} {f'{self.level:.0%} interval':>17} {'impressions':>12}"]
        for row in self.rows():
            interval = f"{row['low']:.3f} to {row['high']:.3f}"
            lines.append(
                f"{row['position'] + 1:>8} {row['propensity']:>10.3f} {interval:>17} {row['n_impressions']:>12,.0f}"
            )
        return "\n".join(lines)


def curve_of_sums(
    estimator: str,
    positions: NDArray[np.int64],
    n_impressions: Vector,
    per_query: sparse.csr_array,
    estimate: Callable[[Vector], Vector],
    *,
    n_bootstrap: int,
    level: float,
    seed: int,
) -> Curve:
    """The curve of a log and its percentile interval over resampled queries.

    Args:
        per_query: `[queries, sums]`, what each query contributes.
        estimate: from sums `[resamples, sums]` to values `[resamples, positions]`; NaN, 0 and infinity are allowed.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    if n_bootstrap < 0:
        raise ValueError(f"n_bootstrap must be at least 0, got {n_bootstrap}")
    values = estimate(np.asarray(per_query.sum(axis=0), dtype=np.float64).reshape(1, -1))[0]
    low = high = np.full(len(values), np.nan)
    if n_bootstrap and per_query.shape[0] > 1:
        drawn = _resample(per_query, estimate, n_bootstrap, np.random.default_rng(seed))
        # A resample that cannot tell says nothing against any value. The outer of two order statistics is taken.
        low = np.quantile(np.nan_to_num(drawn, nan=0.0, posinf=np.inf), (1 - level) / 2, axis=0, method="lower")
        high = np.quantile(np.nan_to_num(drawn, nan=np.inf, posinf=np.inf), (1 + level) / 2, axis=0, method="higher")
    return Curve(estimator, positions, values, low, high, n_impressions, level)


def _resample(
    per_query: sparse.csr_array, estimate: Callable[[Vector], Vector], n_bootstrap: int, rng: np.random.Generator
) -> Vector:
    """Values `[resamples, positions]`, each of as many queries as there are, drawn with replacement."""
    n_queries = per_query.shape[0]
    step = max(1, NUMBERS_AT_ONCE // max(per_query.shape))
    parts = []
    for start in range(0, n_bootstrap, step):
        times_drawn = np.empty((n_queries, min(step, n_bootstrap - start)))
        for column in times_drawn.T:
            column[:] = np.bincount(rng.integers(n_queries, size=n_queries), minlength=n_queries)
        parts.append(estimate((per_query.T @ times_drawn).T))
    return np.concatenate(parts)
