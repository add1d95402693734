"""Propensities: examination of each position relative to the top, estimated from a log.

Every estimator is `(log, *, counted, …, **interval) -> Curve` and raises `NotIdentified` if the log does
not identify the curve. The interval is over queries. All assume that examination depends on the position alone (or on
the position and one more column, see `estimate_by`) and that the log contains sessions without clicks: without them,
the curve is too flat.

`curves_by_level` tells whether examination depends on a context feature, such as the device, which should then be a
bias column too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.examination_record import recorded
from unskew.data.clicks.within_memory import MEMORY
from unskew.data.inputs import LogOrPlace, as_part
from unskew.propensities.curve import (
    Curve,
    Curves,
    Interval,
    NotIdentified,
    Vector,
    curve_of_sums,
    ratio,
    sums_per_query,
)
from unskew.propensities.harvesting import adjacent_chain, all_pairs, pivot
from unskew.propensities.position_pairs import counted_impressions, how_to_leave_out, spell
from unskew.propensities.randomization import display, randomization, shuffled_part

ENOUGH_CLICKS = 100  # shuffled clicks at each position, for a standard error of about a tenth; otherwise all_pairs
ESTIMATORS: dict[str, Callable[..., Curve]] = {
    "randomization": randomization,
    "pivot": pivot,
    "adjacent_chain": adjacent_chain,
    "all_pairs": all_pairs,
}
MOST_LEVELS = 8  # features with more levels are not compared
LEAST_SHARE = 0.05  # share of the sessions that a level needs to be compared
N_BOOTSTRAP = 100


def seen(
    log: ClickLog,
    *,
    counted: NDArray[np.bool_] | None = None,
    **interval: Unpack[Interval],
) -> Curve:
    """Share of the recorded sessions in which a position was examined, relative to the first, including false alarms.

    Args:
        counted: impressions that count, `[lists, docs]`; default: all.
    """
    looks, sessions = recorded(log)
    chosen = counted_impressions(log, counted) & (sessions > 0)[:, None]
    positions, place = np.unique(log.positions[chosen], return_inverse=True)
    queries = np.broadcast_to(log.queries[:, None], chosen.shape)[chosen]
    shown = np.broadcast_to(sessions[:, None], chosen.shape)[chosen].astype(np.float64)
    values = [looks[chosen].astype(np.float64), shown]
    per_query = sums_per_query(queries, place, values, len(log.query_ids), len(positions))
    silent = positions[np.bincount(place, weights=looks[chosen]) == 0]
    if len(silent):
        raise NotIdentified(
            f"seen: no examination was recorded at {spell(silent)}: record more, or {how_to_leave_out(silent[0])}"
        )

    def estimate(sums: Vector) -> Vector:
        shares = ratio(*np.split(sums, 2, axis=1))
        return ratio(shares, shares[:, :1])

    n_shown = np.bincount(place, weights=shown)
    return curve_of_sums("seen", positions.astype(np.int64), n_shown, per_query, estimate, **interval)


@overload
def estimate_propensities(log: LogOrPlace, estimator: str = ..., *, by: None = ..., **options: Any) -> Curve: ...
@overload
def estimate_propensities(log: LogOrPlace, estimator: str = ..., *, by: str, **options: Any) -> Curves: ...
def estimate_propensities(
    log: LogOrPlace, estimator: str = "auto", *, by: str | None = None, memory: str | None = MEMORY, **options: Any
) -> Curve | Curves:
    """Estimate the examination of each position relative to the top from clicks alone, with intervals over queries.

    `fit` learns examination along with a ranker; `diagnose` shows every estimator that the log supports.

    Args:
        estimator: `auto` uses randomization if enough of the log is shuffled, else all_pairs, else display (logged
            display probabilities), `seen` recorded examination.
        by: a bias column: estimate one curve per level, each relative to its own top.
        memory: limit for a log on disk; None: no limit. If the log needs more, a random sample of its queries is read.
        options: options of the estimator, such as `n_bootstrap`, `level`, `seed`, `intervention`.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", interventions={"shuffle": 0.5}, progress=False).log
    >>> unskew.estimate_propensities(log, n_bootstrap=0).estimator
    'randomization'
    """
    clicks, _ = as_part(log, memory)
    if by is not None:
        return Curves(estimate_by(clicks, by, estimator, **options), by)
    known_estimators = {**ESTIMATORS, "display": display, "seen": seen}
    if estimator != "auto" and estimator not in known_estimators:
        raise ValueError(f"unknown estimator '{estimator}': choose auto or one of {', '.join(known_estimators)}")
    chosen = known_estimators.get(estimator, _automatic)
    own = [name for name in inspect.signature(chosen).parameters if name not in ("log", "interval")]
    known = [*Interval.__annotations__, *own]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ValueError(f"estimator '{estimator}' has no option '{unknown[0]}'; it accepts {', '.join(known)}")
    return chosen(clicks, **options)


def estimate_by(
    log: ClickLog,
    by: str,
    estimator: str = "auto",
    *,
    counted: NDArray[np.bool_] | None = None,
    **options: Any,
) -> dict[str, Curve]:
    """One curve per level of a bias column that occurs in the log, each relative to its own top position.

    The difference between levels at the top is not estimated: relevance and examination are confounded there.
    """
    if by not in log.bias:
        raise ValueError(f"by='{by}' is not a bias column of the log; there are: {', '.join(log.bias) or 'none'}")
    column = log.bias[by]
    if column.levels is None:
        raise ValueError(f"by='{by}' holds numbers, but a curve is estimated per level: group it into a few levels")
    chosen = counted_impressions(log, counted)
    values = column.per_document(log.n_docs)
    curves = {}
    for number, name in enumerate(column.levels):
        of_level = chosen & (values == number)
        if not of_level.any():
            continue
        try:
            curves[name] = estimate_propensities(log, estimator, counted=of_level, **options)
        except NotIdentified as error:
            raise NotIdentified(f"{by} '{name}': {error}") from error
    return curves


def propensity_matrix(curves: Mapping[str, Curve], levels: Sequence[str], n_positions: int) -> Vector:
    """Curves of `estimate_by` in the form that `ipw` needs, `[levels, n_positions]`; 1 for levels that never occur."""
    return np.stack(
        [curves[level].propensities(n_positions) if level in curves else np.ones(n_positions) for level in levels]
    )


def _automatic(
    log: ClickLog,
    *,
    counted: NDArray[np.bool_] | None = None,
    **interval: Unpack[Interval],
) -> Curve:
    """Randomization if enough of the log is shuffled, otherwise all pairs, otherwise display probabilities."""
    if _shuffled_enough(log, counted):
        return randomization(log, counted=counted, **interval)
    try:
        return all_pairs(log, counted=counted, **interval)
    except NotIdentified as error:
        if log.display_probabilities is not None:
            return display(log, counted=counted, **interval)
        raise NotIdentified(
            f"the log does not identify propensities: too little of it is marked as shuffled, and {error}"
        ) from error


def _shuffled_enough(log: ClickLog, counted: NDArray[np.bool_] | None) -> bool:
    """Whether every position has enough shuffled clicks."""
    try:
        reach = shuffled_part(log)
    except NotIdentified:
        return False
    chosen = counted_impressions(log, counted)
    random = chosen & (log.positions < reach[:, None])
    n_clicks = np.bincount(log.positions[random], log.clicks[random])
    positions = np.unique(log.positions[chosen])
    return len(n_clicks) > positions[-1] and bool((n_clicks[positions] >= ENOUGH_CLICKS).all())


@dataclass(frozen=True)
class LevelCurves:
    """Examination curves by level of a context feature, and where two of them differ most."""

    curves: Mapping[str, Curve]
    apart: tuple[str, str, int] | None  # two levels, and a position where their intervals do not overlap


def curves_by_level(log: ClickLog, name: str, *, seed: int = 0) -> LevelCurves:
    """Curves by level of a context feature; an error if it has too many levels, or the log does not identify them."""
    values = log.context[:, log.context_names.index(name)]
    found, number = np.unique(values, return_inverse=True)
    if len(found) > MOST_LEVELS:
        raise ValueError(f"'{name}' has {len(found):,} values, but curves are compared only for up to {MOST_LEVELS}")
    sessions = np.bincount(number, weights=log.sessions)
    curves = {}
    for level in np.flatnonzero(sessions >= LEAST_SHARE * sessions.sum()):
        counted = np.broadcast_to((number == level)[:, None], log.mask.shape)
        try:
            curves[_level_name(log, name, found[level])] = all_pairs(
                log, n_bootstrap=N_BOOTSTRAP, seed=seed, counted=counted
            )
        except NotIdentified:
            continue
    if len(curves) < 2:
        raise NotIdentified(f"fewer than two levels of '{name}' have an identified curve")
    return LevelCurves(curves, _farthest(curves))


def _farthest(curves: Mapping[str, Curve]) -> tuple[str, str, int] | None:
    names, best, gap = list(curves), None, 0.0
    for number, one in enumerate(names):
        for other in names[number + 1 :]:
            a, b = curves[one], curves[other]
            common, here, there = np.intersect1d(a.positions, b.positions, return_indices=True)
            with np.errstate(divide="ignore", invalid="ignore"):
                gaps = np.maximum(np.log(a.low[here] / b.high[there]), np.log(b.low[there] / a.high[here]))
            gaps = np.nan_to_num(gaps, nan=-1.0, posinf=-1.0, neginf=-1.0)
            if len(gaps) and gaps.max() > gap:
                gap, best = float(gaps.max()), (one, other, int(common[np.argmax(gaps)]))
    return best


def _level_name(log: ClickLog, name: str, value: float) -> str:
    if np.isnan(value):
        return "missing"
    return log.categories[name][int(value)] if name in log.categories else f"{value:g}"
