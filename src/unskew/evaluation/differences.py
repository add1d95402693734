"""Compare rankers on the same queries: intervals, paired tests, corrections for many comparisons.

Values are one per query, or `[seeds, queries]`. NaN marks a query that was left out; it must be left out for every
ranker, because that depends only on grades. All tests are two-sided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from unskew.display import Displayed, Screen, draw_intervals, rows_table

MARKS = {0.05: 1, 0.005: 2}  # p below -> signs: "+" and "++" (better), "-" and "--" (worse), as the LBD paper prints
CHUNK = 4_000_000  # numbers in memory while resampling

Interval = tuple[float, float]
Vector = NDArray[np.float64]
Test = Callable[[Vector, Vector], float]


@dataclass(frozen=True, eq=False)
class Paired:
    r"""Differences of pairs, one per query, seed or fold; all their intervals and tests are computed here.

    Args:
        overlap: folds share training data, so their values are not independent: with test parts of `overlap` times
            the training parts the variance of the mean is $s^2 (1/n + \text{overlap})$, and the test is the corrected
            resampled t-test (Nadeau and Bengio, 2003).
    """

    values: Vector
    overlap: float = 0.0

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return float(self.values.std(ddof=1) * np.sqrt(1 / len(self.values) + self.overlap))

    def interval(self, level: float = 0.95) -> Interval:
        """The t interval of the mean; infinite with one pair."""
        if len(self.values) == 1:
            return -np.inf, np.inf
        half = float(stats.t.isf((1 - level) / 2, df=len(self.values) - 1) * self.error)
        return self.mean - half, self.mean + half

    def p(self) -> float | None:
        """The p-value of a two-sided t-test, 1 if all pairs are equal; None with one pair."""
        if len(self.values) < 2:
            return None
        error = self.error
        if error == 0:
            return 1.0 if self.values[0] == 0 else 0.0
        return float(2 * stats.t.sf(abs(self.mean / error), df=len(self.values) - 1))

    def p_above(self, threshold: float) -> float:
        """The p-value of a one-sided t-test: small if the mean is above the threshold."""
        error = self.error
        if error == 0:
            return 0.5 - 0.5 * float(np.sign(self.mean - threshold))
        return float(stats.t.sf((self.mean - threshold) / error, df=len(self.values) - 1))


def paired(a: ArrayLike, b: ArrayLike, overlap: float = 0.0) -> Paired:
    """Differences a - b; a pair with NaN on both sides is left out, NaN on only one side is an error."""
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"paired values must be two rows of equal length, got shapes {first.shape} and {second.shape}")
    if (np.isnan(first) != np.isnan(second)).any():
        raise ValueError("a query is left out (NaN) on only one side: evaluate both with the same `undefined`")
    return Paired(_counted(first - second), overlap)


def paired_t(a: ArrayLike, b: ArrayLike) -> float:
    """The p-value of a paired t-test; 1 if all pairs are equal."""
    p = paired(a, b).p()
    if p is None:
        raise ValueError("a paired test needs at least 2 pairs, got 1")
    return p


def randomization_test(a: ArrayLike, b: ArrayLike, rng: np.random.Generator, n: int = 10_000) -> float:
    """The p-value of Fisher's randomization test: how often swapping pairs at random gives as large a difference.

    The observed assignment is one of the permutations, so that p is never 0.
    """
    values = paired(a, b).values
    observed = abs(values.sum())
    as_large = 0
    step = max(1, CHUNK // max(1, len(values)))
    for start in range(0, n, step):
        keep = rng.integers(0, 2, size=(min(step, n - start), len(values)), dtype=np.int8)
        sums = 2 * (keep @ values) - values.sum()
        as_large += int((np.abs(sums) >= observed - 1e-12 * np.abs(values).sum()).sum())  # up to rounding
    return (1 + as_large) / (1 + n)


def holm(p_values: ArrayLike) -> Vector:
    """Holm's correction: the smallest of m p-values times m, the next times m - 1, and so on, never decreasing."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    scaled = p[order] * np.arange(len(p), 0, -1)
    corrected_p = np.empty_like(p)
    corrected_p[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return corrected_p


def corrected(p_values: Mapping[str, float | None]) -> dict[str, float]:
    """The known p-values, by name, after Holm's correction."""
    known = {name: p for name, p in p_values.items() if p is not None}
    return dict(zip(known, holm(list(known.values())).tolist(), strict=True))


def mark(difference: float | None, p: float | None, higher_is_better: bool, marks: Mapping[float, int] = MARKS) -> str:
    """Marks of a significant difference: plus is better, whatever the direction of the metric."""
    if difference is None or p is None:
        return ""
    signs = max((n for threshold, n in marks.items() if p < threshold), default=0)
    return ("+" if (difference > 0) == higher_is_better else "-") * signs


def standard_error(values: ArrayLike) -> float:
    """The standard error of the mean, without left-out values; NaN for fewer than two."""
    counted = np.asarray(values, dtype=np.float64)
    counted = counted[~np.isnan(counted)]
    return Paired(counted).error if len(counted) > 1 else float("nan")


def mean_interval(values: ArrayLike, level: float = 0.95, overlap: float = 0.0) -> tuple[float, float, float]:
    """The mean and its t interval; a single value has an infinite interval. `overlap` as in `Paired`."""
    counted = Paired(_counted(values), overlap)  # from 0
    return counted.mean, *counted.interval(level)


@dataclass(frozen=True)
class Difference:
    """One ranker against the baseline; `difference` is its mean minus that of the baseline."""

    name: str
    mean: float  # over seeds and queries
    interval: Interval  # over queries, of values averaged over seeds
    seed_interval: Interval | None  # over seeds, of means over queries; None with one seed
    difference: float
    difference_interval: Interval  # paired, over queries
    n_seeds: int
    p: float | None  # paired over queries, of values averaged over seeds; None for the baseline itself
    p_holm: float | None  # corrected for the number of rankers compared with the baseline
    p_seeds: float | None  # paired over seeds, of means over queries; None unless both have the same 2 or more seeds
    p_seeds_holm: float | None
    mark: str  # "+", "++", "-", "--" or "", from p_holm: plus is better, whatever the direction of the metric


class Differences(list[Difference], Displayed):
    """One row per ranker, each compared with the baseline."""

    __repr__ = Displayed.__repr__

    def to_table(self) -> pa.Table:
        """One row per ranker; intervals are pairs."""
        return rows_table(self, Difference)

    def screen(self) -> Screen:
        rows = [
            (
                row.name,
                f"{row.mean:.4f} {row.mark}".rstrip(),
                f"{row.interval[0]:.4f} to {row.interval[1]:.4f}",
                "" if row.p is None else f"{row.difference:+.4f}",
                "" if row.p_holm is None else f"{row.p_holm:.2g}",
            )
            for row in self
        ]
        columns = ("ranker", "mean", "95% interval", "difference", "p (Holm)")
        return Screen("Differences from the baseline, paired by query", columns, rows)

    def plot(self, ax: Any = None) -> Any:
        """Plot differences from the baseline with their intervals."""
        others = [(row.name, row.difference, *row.difference_interval) for row in self if row.p is not None]
        return draw_intervals(others, "difference from the baseline", ax)


def paired_differences(
    per_query: Mapping[str, ArrayLike],
    baseline: str,
    *,
    higher_is_better: bool = True,
    test: Test = paired_t,
    level: float = 0.95,
    marks: Mapping[float, int] = MARKS,
) -> Differences:
    """One row per ranker, in the order given, each compared with the baseline.

    `Evaluation.values` returns suitable values; `compare` does everything for methods on a log.

    Args:
        per_query: For each ranker, the values of one metric, `[seeds, queries]` or `[queries]`.
        test: A paired two-sided test that returns p, such as
            `lambda a, b: randomization_test(a, b, numpy.random.default_rng(1))`.
        marks: Number of signs for a Holm-corrected p below each threshold.

    >>> import unskew
    >>> found = unskew.paired_differences({"old": [0.1, 0.2, 0.4], "new": [0.2, 0.4, 0.5]}, baseline="old")
    >>> [(row.name, round(row.difference, 2), round(row.p, 2)) for row in found if row.p is not None]
    [('new', 0.13, 0.06)]
    """
    if baseline not in per_query:
        raise ValueError(f"there is no baseline '{baseline}': choose from {', '.join(per_query)}")
    runs = _same_queries(per_query)
    others = [name for name in runs if name != baseline]
    p: dict[str, float | None] = {name: test(runs[name].mean(axis=0), runs[baseline].mean(axis=0)) for name in others}
    seeded = [name for name in others if 1 < len(runs[name]) == len(runs[baseline])]
    p_seeds: dict[str, float | None] = {
        name: test(runs[name].mean(axis=1), runs[baseline].mean(axis=1)) for name in seeded
    }
    p_holm, p_seeds_holm = corrected(p), corrected(p_seeds)

    rows = Differences()
    for name, values in runs.items():
        mean, low, high = mean_interval(values.mean(axis=0), level)
        pairs = paired(values.mean(axis=0), runs[baseline].mean(axis=0))
        rows.append(
            Difference(
                name=name,
                mean=mean,
                interval=(low, high),
                seed_interval=mean_interval(values.mean(axis=1), level)[1:] if len(values) > 1 else None,
                difference=pairs.mean,
                difference_interval=pairs.interval(level),
                n_seeds=len(values),
                p=p.get(name),
                p_holm=p_holm.get(name),
                p_seeds=p_seeds.get(name),
                p_seeds_holm=p_seeds_holm.get(name),
                mark=mark(pairs.mean, p_holm.get(name), higher_is_better, marks),
            )
        )
    return rows


def _same_queries(per_query: Mapping[str, ArrayLike]) -> dict[str, Vector]:
    """Values [seeds, queries] of each ranker without the queries that are left out for all of them."""
    runs = {name: np.atleast_2d(np.asarray(values, dtype=np.float64)) for name, values in per_query.items()}
    first, reference = next(iter(runs.items()))
    left_out = np.isnan(reference[0])
    for name, values in runs.items():
        if values.ndim != 2 or values.shape[1] != len(left_out):
            raise ValueError(
                f"'{name}' has values of shape {values.shape}, but '{first}' of {reference.shape}: "
                "pass [seeds, queries] of the same queries"
            )
        if (np.isnan(values) != left_out).any():
            raise ValueError(
                f"'{name}' leaves out other queries than '{first}': evaluate both on the same set with the same "
                "`undefined`"
            )
    return {name: values[:, ~left_out] for name, values in runs.items()}


def _counted(values: ArrayLike) -> Vector:
    array = np.asarray(values, dtype=np.float64)
    counted = array[~np.isnan(array)]
    if len(counted) == 0:
        raise ValueError(f"there is nothing to average: all {len(array)} values are left out (NaN)")
    return counted
