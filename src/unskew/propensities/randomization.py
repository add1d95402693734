r"""Propensities from documents in random order: shuffled lists, or a stochastic ranker that logged its probabilities.

**Shuffled lists.** Documents at all positions are equally relevant, so click rates are examination up to scale.

**Display probabilities.** With $\pi_i$ the logged probability of impression $i$, a sum of $1 / \pi_i$ over the
impressions at a position counts, in expectation, every document that may be shown there once per session. So clicks and
impressions at all positions, weighted by $1 / \pi_i$, are those of the same documents, as if orders had been shuffled:
$p_k / p_1 = \hat c_k / \hat c_1$, $\hat c_k = \sum_i c_i / \pi_i \big/ \sum_i 1 / \pi_i$ over the impressions at $k$.
No document has to be shown twice: the estimate is valid even if each session has its own documents, features and
probabilities.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.shuffles import WHOLE_LIST, shuffled_positions
from unskew.propensities.curve import Curve, Interval, NotIdentified, Vector, curve_of_sums, ratio, sums_per_query
from unskew.propensities.position_pairs import counted_impressions, how_to_leave_out, spell

LEAST_SUPPORT = 0.8  # share of the documents that may be at one position that must occur at the other


def randomization(
    log: ClickLog,
    *,
    intervention: str | None = None,
    assume_random: bool = False,
    counted: NDArray[np.bool_] | None = None,
    **interval: Unpack[Interval],
) -> Curve:
    r"""Click rates of lists in random order: $p_k / p_1 = \mathrm{ctr}_k / \mathrm{ctr}_1$.

    Both rates are those of the lists that reach $k$, because short lists may differ from others.

    Args:
        intervention: name of the intervention that shuffled lists, or their top; None: as in `shuffled_positions`.
        assume_random: treat all lists as shuffled.
        counted: impressions that count, `[lists, docs]`; default: all.
    """
    reach = shuffled_part(log, intervention, assume_random=assume_random)
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
        return ratio(*np.split(sums, 2, axis=1))

    shown = np.broadcast_to(part.sessions[:, None], chosen.shape)[chosen]
    n_impressions = np.bincount(np.searchsorted(positions, part.positions[chosen]), weights=shown)
    return curve_of_sums("randomization", positions, n_impressions, per_query, estimate, **interval)


def display(
    log: ClickLog,
    *,
    counted: NDArray[np.bool_] | None = None,
    **interval: Unpack[Interval],
) -> Curve:
    """Click rates weighted by logged display probabilities; `randomization` is the special case of equal probabilities.

    Every position is compared with the top in the lists that reach it. Impressions without a probability do not count.

    Args:
        counted: impressions that count, `[lists, docs]`; default: all.
    """
    if log.display_probabilities is None:
        raise NotIdentified(
            "display needs the probability with which a stochastic ranker showed each document at its position: log "
            "it, and pass its column to unskew ingest --display-probability (in Python display_probability=…)"
        )
    recorded = ~np.isnan(log.display_probabilities)
    chosen = counted_impressions(log, counted) & recorded
    if not chosen.any():
        raise NotIdentified("display: none of the counted impressions has a display probability")
    positions, n_impressions, per_query = _weighted(log, chosen)
    _check_support(positions, np.asarray(per_query.sum(axis=0), dtype=np.float64).reshape(5, -1))

    def estimate(sums: Vector) -> Vector:
        clicks, shown, clicks_on_top, shown_on_top, _ = np.split(sums, 5, axis=1)
        return ratio(ratio(clicks, shown), ratio(clicks_on_top, shown_on_top))

    return curve_of_sums("display", positions, n_impressions, per_query, estimate, **interval)


def shuffled_part(log: ClickLog, intervention: str | None = None, *, assume_random: bool = False) -> NDArray[np.int64]:
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
    queries, query = np.unique(log.queries, return_inverse=True)
    values = [clicks[lists, columns], clicks_on_top[lists]]
    return positions, sums_per_query(query[lists], places, values, len(queries), len(positions))


def _weighted(log: ClickLog, chosen: NDArray[np.bool_]) -> tuple[NDArray[np.int64], Vector, sparse.csr_array]:
    """Positions, impressions at each, and five sums per query and position, over lists that have it and the top.

    The sums are weighted clicks and impressions there, the same at the top, and shown documents.
    """
    assert log.display_probabilities is not None
    positions = np.unique(log.positions[chosen].astype(np.int64))
    weights = np.zeros(chosen.shape)
    weights[chosen] = 1 / log.display_probabilities[chosen].astype(np.float64)
    shown, clicks = weights * log.sessions[:, None], weights * log.clicks
    top = chosen & (log.positions == positions[0])
    on_top = [np.where(top, values, 0.0).sum(axis=1) for values in (clicks, shown)]
    lists, columns = np.nonzero(chosen & top.any(axis=1, keepdims=True))
    places = np.searchsorted(positions, log.positions[lists, columns])
    n_documents = log.mask.sum(axis=1) * log.sessions
    values = [clicks[lists, columns], shown[lists, columns], *(sums[lists] for sums in (*on_top, n_documents))]
    queries, query = np.unique(log.queries, return_inverse=True)
    per_query = sums_per_query(query[lists], places, values, len(queries), len(positions))
    n_impressions = np.bincount(places, weights=log.sessions[lists], minlength=len(positions))
    return positions, n_impressions, per_query


def _check_support(positions: NDArray[np.int64], sums: Vector) -> None:
    """Refuse positions without clicks, and those where other documents may be shown than at the top."""
    clicks, shown, clicks_on_top, shown_on_top, n_documents = sums
    silent = positions[(clicks <= 0) | (clicks_on_top <= 0)]
    if len(silent):
        raise NotIdentified(
            f"display cannot compare {spell(silent)} with {spell(positions[:1])}: no list with probabilities that "
            f"shows both was clicked at both. Use a longer log, or {how_to_leave_out(silent[0])}"
        )
    share = np.minimum(shown, shown_on_top) / np.maximum.reduce([shown, shown_on_top, n_documents])
    if share.min() < LEAST_SUPPORT:
        place = int(np.argmin(share))
        raise NotIdentified(
            f"display: by their probabilities, only {share[place]:.0%} of the documents that may be at "
            f"{spell(positions[:1])} or {spell(positions[place : place + 1])} were ever drawn for both. Either the "
            "ranker is almost deterministic (shuffle a share of the sessions), or the log is too short, or the column "
            "does not hold the probability of being shown at that position. Or "
            f"{how_to_leave_out(positions[place])}"
        )
