"""Curve: examination of each position relative to the top, with its bootstrap interval.

Estimators first sum what they need per query; a curve is a function of the sums over queries. So the bootstrap
resamples queries, with everything in them, and never returns to single documents or sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from unskew.display import Displayed, Screen, new_axes

NUMBERS_AT_ONCE = 4_000_000  # in memory while resampling

Vector = NDArray  # float64


class NotIdentified(ValueError):
    """The log does not identify the answer; the message says why and what to do."""


class Interval(TypedDict, total=False):
    """How the interval of a curve is computed, see `curve_of_sums`."""

    n_bootstrap: int  # resamples of queries; 0: no interval
    level: float
    seed: int


@dataclass(frozen=True, eq=False, repr=False)
class Curve(Displayed):
    """Propensities of the positions that occur, relative to the first of them."""

    estimator: str
    positions: NDArray[np.int64]  # [positions], ascending; without those that never occur
    values: Vector  # [positions]; the first is 1
    low: Vector  # [positions]; NaN if there are too few queries, or no resamples, for an interval
    high: Vector  # [positions]
    n_impressions: Vector  # [positions], used by the estimate
    level: float = 0.95

    def propensities(self, n_positions: int) -> Vector:
        """One value per position 0, 1, …, as `ipw` needs them.

        Positions that never occur need no correction: between two positions the curve is interpolated linearly on a log
        scale, outside it keeps its end value.
        """
        return np.exp(np.interp(np.arange(n_positions), self.positions, np.log(self.values)))

    def spelled(self, place: int) -> str:
        """The value at a place of the curve, with its interval."""
        return f"{self.values[place]:.2f} ({self.low[place]:.2f} to {self.high[place]:.2f})"

    def rows(self) -> list[dict[str, float]]:
        """One row per position, as plain numbers."""
        return self.to_table().to_pylist()

    def to_table(self) -> pa.Table:
        """One row per position, counted from 0: propensity, its interval, and the impressions behind it."""
        return pa.table(
            {
                "position": self.positions,
                "propensity": self.values,
                "low": self.low,
                "high": self.high,
                "n_impressions": self.n_impressions,
            }
        )

    def screen(self) -> Screen:
        columns = ("position", "propensity", f"{self.level:.0%} interval", "impressions")
        rows = [
            (f"{row['position'] + 1}", f"{row['propensity']:.3f}", _interval(row), f"{row['n_impressions']:,.0f}")
            for row in self.rows()
        ]
        return Screen(
            f"Examination by {self.estimator}, relative to the top; positions count from 1", columns, rows, left=0
        )

    def plot(self, ax: Any = None) -> Any:
        """Plot the curve with its interval; positions count from 1."""
        return draw_curves({self.estimator: self}, ax)


class Curves(dict[str, Curve], Displayed):
    """One curve per level of a bias column, each relative to its own top."""

    def __init__(self, curves: Mapping[str, Curve], by: str):
        super().__init__(curves)
        self.by = by

    __repr__ = Displayed.__repr__

    def to_table(self) -> pa.Table:
        """The tables of all levels, with the level in the first column."""
        tables = [
            curve.to_table().add_column(0, self.by, pa.array([level] * len(curve.values), pa.string()))
            for level, curve in self.items()
        ]
        return pa.concat_tables(tables)

    def screen(self) -> Screen:
        positions = sorted({int(place) for curve in self.values() for place in curve.positions})
        tables = [{row["position"]: row for row in curve.rows()} for curve in self.values()]
        rows = [
            [str(place + 1), *("–" if place not in table else _cell(table[place]) for table in tables)]
            for place in positions
        ]
        title = f"Examination by {self.by}, each relative to its own top; positions count from 1"
        return Screen(title, ("position", *self), rows, left=0)

    def plot(self, ax: Any = None) -> Any:
        """Plot the curves with their intervals; positions count from 1."""
        return draw_curves(self, ax)


def draw_curves(curves: Mapping[str, Curve], ax: Any = None) -> Any:
    """Curves with their intervals, one line each."""
    axes = new_axes(ax)
    for label, curve in curves.items():
        (line,) = axes.plot(curve.positions + 1, curve.values, marker="o", markersize=3, label=label)
        finite = np.isfinite(curve.low) & np.isfinite(curve.high)
        if finite.any():
            bounds = (curve.low[finite], curve.high[finite])
            axes.fill_between(curve.positions[finite] + 1, *bounds, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set_xlabel("position")
    axes.set_ylabel("examination, relative to the top")
    axes.legend(frameon=False)
    return axes


def _interval(row: Mapping[str, float]) -> str:
    return f"{row['low']:.3f} to {row['high']:.3f}"


def _cell(row: Mapping[str, float]) -> str:
    return f"{row['propensity']:.3f} ({_interval(row)})"


def ratio(below: Vector, above: Vector) -> Vector:
    """A quotient of sums; a resample may hold no click."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return below / above


def sums_per_query(
    queries: NDArray[np.int64], places: NDArray[np.int64], values: Sequence[Vector], n_queries: int, n_positions: int
) -> sparse.csr_array:
    """Values of impressions summed per query and position, `[queries, values x positions]`."""
    columns = np.concatenate([places + number * n_positions for number in range(len(values))])
    entries = (np.concatenate(values), (np.tile(queries, len(values)), columns))
    return sparse.csr_array(sparse.coo_array(entries, shape=(n_queries, len(values) * n_positions)))


def curve_of_sums(
    estimator: str,
    positions: NDArray[np.int64],
    n_impressions: Vector,
    per_query: sparse.csr_array,
    estimate: Callable[[Vector], Vector],
    *,
    n_bootstrap: int = 200,
    level: float = 0.95,
    seed: int = 0,
) -> Curve:
    """The curve of a log and its percentile interval over resampled queries.

    Args:
        per_query: contribution of each query, `[queries, sums]`.
        estimate: maps sums `[resamples, sums]` to values `[resamples, positions]`; NaN, 0 and infinity are allowed.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    if n_bootstrap < 0:
        raise ValueError(f"n_bootstrap must be at least 0, got {n_bootstrap}")
    values = estimate(np.asarray(per_query.sum(axis=0), dtype=np.float64).reshape(1, -1))[0]
    low = high = np.full(len(values), np.nan)
    if n_bootstrap and per_query.shape[0] > 1:
        drawn = _resample(per_query, estimate, n_bootstrap, np.random.default_rng(seed))
        # A resample without an estimate rejects no value. The outer of two order statistics is used.
        low = np.quantile(np.nan_to_num(drawn, nan=0.0, posinf=np.inf), (1 - level) / 2, axis=0, method="lower")
        high = np.quantile(np.nan_to_num(drawn, nan=np.inf, posinf=np.inf), (1 + level) / 2, axis=0, method="higher")
    return Curve(estimator, positions, values, low, high, n_impressions, level)


def _resample(
    per_query: sparse.csr_array, estimate: Callable[[Vector], Vector], n_bootstrap: int, rng: np.random.Generator
) -> Vector:
    """Values `[resamples, positions]`, each from as many queries as the log has, drawn with replacement."""
    n_queries = per_query.shape[0]
    step = max(1, NUMBERS_AT_ONCE // max(per_query.shape))
    parts = []
    for start in range(0, n_bootstrap, step):
        times_drawn = np.empty((n_queries, min(step, n_bootstrap - start)))
        for column in times_drawn.T:
            column[:] = np.bincount(rng.integers(n_queries, size=n_queries), minlength=n_queries)
        parts.append(estimate((per_query.T @ times_drawn).T))
    return np.concatenate(parts)
