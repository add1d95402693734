r"""Propensities: examination of each position relative to the top, estimated from a log.

Every estimator is `(log, *, n_bootstrap, level, seed, counted, …) -> Curve` and raises `NotIdentified` if the log does
not identify the curve. The interval is over queries. All assume that examination depends on the position alone (or on
the position and one more column, see `estimate_by`) and that the log contains sessions without clicks: without them,
the curve is too flat.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.looks import recorded
from unskew.data.clicks.shuffles import WHOLE_LIST, shuffled_positions
from unskew.diagnosis.estimators.curve import Curve, NotIdentified, Vector, curve_of_sums
from unskew.diagnosis.estimators.display import display
from unskew.diagnosis.estimators.harvesting import adjacent_chain, all_pairs, pivot
from unskew.diagnosis.estimators.position_pairs import counted_impressions, how_to_leave_out, spell

ENOUGH_CLICKS = 100  # shuffled clicks at each position, for a standard error of about a tenth; otherwise all_pairs


def randomization(
    log: ClickLog,
    *,
    n_bootstrap: int = 200,
    level: float = 0.95,
    seed: int = 0,
    intervention: str | None = None,
    assume_random: bool = False,
    counted: NDArray[np.bool_] | None = None,
) -> Curve:
    r"""Click rates of lists in random order: $p_k / p_1 = \mathrm{ctr}_k / \mathrm{ctr}_1$.

    Both rates are those of the lists that reach $k$, because short lists may differ from others.

    Args:
        intervention: name of the intervention that shuffled lists, or their top; None: as in `shuffled_positions`.
        assume_random: treat all lists as shuffled.
        counted: impressions that count, `[lists, docs]`; default: all.
    """
    reach = _shuffled(log, intervention, assume_random)
    shuffled = reach > 0
    chosen = (counted_impressions(log, counted) & (log.positions < reach[:, None]))[shuffled]
    part = log.select(shuffled)
    if not chosen.any():
        raise NotIdentified("randomization: none of the counted impressions is in a shuffled list")
    positions, per_query = _matched_clicks(part, chosen)
    clicks = np.asarray(per_query.sum(axis=0)).reshape(2, -1)
    silent = positions[~(clicks > 0).all(axis=0)]
    if len(silent):
        raise NotIdentified(
            f"randomization cannot compare {spell(silent)} with {spell(positions[:1])}: no shuffled list that shows "
            f"both was clicked at both. Shuffle more sessions, or {how_to_leave_out(silent[0])}"
        )

    def estimate(sums: Vector) -> Vector:
        here, on_top = np.split(sums, 2, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):  # a resample may hold no click
            return here / on_top

    shown = np.broadcast_to(part.sessions[:, None], chosen.shape)[chosen]
    n_impressions = np.bincount(np.searchsorted(positions, part.positions[chosen]), weights=shown)
    return curve_of_sums(
        "randomization", positions, n_impressions, per_query, estimate, n_bootstrap=n_bootstrap, level=level, seed=seed
    )


def seen(
    log: ClickLog,
    *,
    n_bootstrap: int = 200,
    level: float = 0.95,
    seed: int = 0,
    counted: NDArray[np.bool_] | None = None,
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
    values = np.concatenate([looks[chosen].astype(np.float64), shown])
    columns = np.concatenate([place, place + len(positions)])
    shape = (len(log.query_ids), 2 * len(positions))
    per_query = sparse.csr_array((values, (np.tile(queries, 2), columns)), shape=shape)
    silent = positions[np.bincount(place, weights=looks[chosen]) == 0]
    if len(silent):
        raise NotIdentified(
            f"seen: no examination was recorded at {spell(silent)}: record more, or {how_to_leave_out(silent[0])}"
        )

    def estimate(sums: Vector) -> Vector:
        looked, of = np.split(sums, 2, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):  # a resample may have no recorded examination
            shares = looked / of
            return shares / shares[:, :1]

    n_shown = np.bincount(place, weights=shown)
    return curve_of_sums(
        "seen",
        positions.astype(np.int64),
        n_shown,
        per_query,
        estimate,
        n_bootstrap=n_bootstrap,
        level=level,
        seed=seed,
    )


ESTIMATORS: dict[str, Callable[..., Curve]] = {
    "randomization": randomization,
    "pivot": pivot,
    "adjacent_chain": adjacent_chain,
    "all_pairs": all_pairs,
}


def estimate_propensities(log: ClickLog, estimator: str = "auto", **options: Any) -> Curve:
    """The curve of a log by the estimator of this name, with the estimator's options.

    `auto` uses randomization if enough of the log is shuffled, otherwise all_pairs, otherwise display if the log has
    display probabilities; `seen` uses recorded examination.
    """
    known_estimators = {**ESTIMATORS, "display": display, "seen": seen}
    if estimator != "auto" and estimator not in known_estimators:
        raise ValueError(f"unknown estimator '{estimator}': choose auto or one of {', '.join(known_estimators)}")
    chosen = known_estimators.get(estimator, _automatic)
    known = [name for name in inspect.signature(chosen).parameters if name != "log"]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ValueError(f"estimator '{estimator}' has no option '{unknown[0]}'; it accepts {', '.join(known)}")
    return chosen(log, **options)


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
    n_bootstrap: int = 200,
    level: float = 0.95,
    seed: int = 0,
    counted: NDArray[np.bool_] | None = None,
) -> Curve:
    """Randomization if enough of the log is shuffled, otherwise all pairs, otherwise display probabilities."""
    common: dict[str, Any] = {"n_bootstrap": n_bootstrap, "level": level, "seed": seed, "counted": counted}
    if _shuffled_enough(log, counted):
        return randomization(log, **common)
    try:
        return all_pairs(log, **common)
    except NotIdentified as error:
        if log.display_probabilities is not None:
            return display(log, **common)
        raise NotIdentified(
            f"the log does not identify propensities: too little of it is marked as shuffled, and {error}"
        ) from error


def _shuffled_enough(log: ClickLog, counted: NDArray[np.bool_] | None) -> bool:
    """Whether every position has enough shuffled clicks."""
    try:
        reach = _shuffled(log, None, assume_random=False)
    except NotIdentified:
        return False
    chosen = counted_impressions(log, counted)
    random = chosen & (log.positions < reach[:, None])
    n_clicks = np.bincount(log.positions[random], log.clicks[random])
    positions = np.unique(log.positions[chosen])
    return len(n_clicks) > positions[-1] and bool((n_clicks[positions] >= ENOUGH_CLICKS).all())


def _shuffled(log: ClickLog, intervention: str | None, assume_random: bool) -> NDArray[np.int64]:
    """How many of the top positions of each list were shown in random order, `[lists]`."""
    if assume_random:
        return np.full(log.n_lists, WHOLE_LIST, dtype=np.int64)
    if log.interventions is None:
        raise NotIdentified(
            "randomization needs shuffled lists, and the log has no interventions: shuffle a share of the sessions "
            "(in a simulation interventions={'shuffle': 0.05}), ingest the column that marks them (--intervention), or "
            "pass assume_random=True if all lists were shown in random order"
        )
    levels = log.interventions.levels or ()
    reach = shuffled_positions(log, intervention)
    if not reach.any():
        asked = "shuffle" if intervention is None else intervention
        raise NotIdentified(
            f"randomization needs shuffled lists, and no list of the log is marked '{asked}': its interventions are "
            f"{', '.join(levels)}. If one of them shuffles lists, declare it with unskew ingest --shuffled NAME, or "
            "pass intervention=…; or use all_pairs"
        )
    return reach


def _matched_clicks(log: ClickLog, chosen: NDArray[np.bool_]) -> tuple[NDArray[np.int64], sparse.csr_array]:
    """Positions, and per query the clicks there and at the top of the same lists, `[queries, 2 x positions]`."""
    positions = np.unique(log.positions[chosen].astype(np.int64))
    clicks = np.where(chosen, log.clicks, 0.0).astype(np.float64)
    top = log.mask & (log.positions == positions[0])
    clicks_on_top = np.where(top, clicks, 0.0).sum(axis=1)
    compared = log.mask & top.any(axis=1, keepdims=True) & np.isin(log.positions, positions)
    lists, columns = np.nonzero(compared)
    places = np.searchsorted(positions, log.positions[lists, columns])
    _, queries = np.unique(log.queries, return_inverse=True)
    values = np.concatenate([clicks[lists, columns], clicks_on_top[lists]])
    rows = np.tile(queries[lists], 2)
    shape = (int(queries.max()) + 1, 2 * len(positions))
    entries = (values, (rows, np.concatenate([places, places + len(positions)])))
    return positions, sparse.csr_array(sparse.coo_array(entries, shape=shape))
