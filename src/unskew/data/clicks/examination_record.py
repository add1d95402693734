r"""Recorded examination: estimate the errors of the record from the log.

If examination is recorded with probability $1 - m$, and its absence is recorded as examination with probability $f$,
the record is $q_k(x) = f + (1 - m - f)\,o_k(x)$. Misses only rescale it. Clicks identify the false alarms if documents
moved: with click rates $c_k(x) = r(x)\,o_k(x)$ of one document at two positions, $c_k q_j - c_j q_k = f\,(c_k - c_j)$.
The click rate and the record in each product come from different sessions, so that both sides, summed over documents,
are unbiased. The rate of false alarms cannot exceed the record of the least examined position; a larger estimate means
that clicks are not a product of relevance and examination.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog

NO_RECORD = (
    "the log has no recorded examination: ingest it with --seen COLUMN or --seen-event TYPE, or choose a method that "
    "learns from clicks alone"
)
CERTAIN = 2.0  # standard errors by which clicks must differ between positions
REMEDY = "pass the rate as false_alarms (0 for a clean record), or shuffle a small share of the traffic"


@dataclass(frozen=True)
class FalseAlarms:
    """The rate of false alarms of a record of examination."""

    rate: float  # not clipped at 0: an estimate may be below by chance
    error: float  # standard error, over queries
    n_moved: int  # documents behind the estimate


def recorded(log: ClickLog) -> tuple[NDArray, NDArray]:
    """Recorded examination `[lists, docs]`, and sessions that recorded it `[lists]`; an error if there is no record."""
    if log.seen is None or log.seen_sessions is None or not log.seen_sessions.any():
        raise ValueError(NO_RECORD)
    return log.seen, log.seen_sessions


def examination_rates(log: ClickLog) -> NDArray[np.float64]:
    """Share of the recorded sessions in which each position was examined; NaN if nothing was recorded."""
    seen, sessions = recorded(log)
    places = log.positions[log.mask]
    shown = np.bincount(places, weights=np.broadcast_to(sessions[:, None], log.mask.shape)[log.mask])
    with np.errstate(invalid="ignore"):
        return np.bincount(places, weights=seen[log.mask]) / shown


@dataclass(frozen=True, eq=False)
class Cells:
    """Counts of each version at each position with recorded examination, version by version from the top down."""

    versions: NDArray[np.int64]
    positions: NDArray[np.int64]
    shown: NDArray[np.float64]  # sessions
    recorded: NDArray[np.float64]  # sessions that recorded examination
    clicks: NDArray[np.float64]  # in all sessions
    examined: NDArray[np.float64]

    def select(self, chosen: NDArray[np.bool_]) -> Cells:
        return Cells(**{entry.name: getattr(self, entry.name)[chosen] for entry in fields(self)})


def cells_of(log: ClickLog) -> Cells:
    """Clicks and recorded examination by document and position."""
    seen, sessions = recorded(log)
    n_positions = max(log.n_positions, 1)
    chosen = log.mask & (sessions > 0)[:, None]
    code = log.versions[chosen].astype(np.int64) * n_positions + log.positions[chosen]
    cells, number = np.unique(code, return_inverse=True)

    def added(values: NDArray) -> NDArray[np.float64]:
        weights = np.broadcast_to(values, chosen.shape)[chosen]
        return np.bincount(number, weights=weights, minlength=len(cells)).astype(np.float64)

    return Cells(
        versions=cells // n_positions,
        positions=cells % n_positions,
        shown=added(log.sessions[:, None]),
        recorded=added(sessions[:, None]),
        clicks=added(log.clicks),
        examined=added(seen),
    )


def false_alarms(log: ClickLog) -> FalseAlarms:
    """The rate of false alarms, from documents that were shown at several positions."""
    cells = cells_of(log)
    _, document, n_places = np.unique(cells.versions, return_inverse=True, return_counts=True)
    weight = cells.recorded / np.sqrt(np.bincount(document, weights=cells.recorded))[document]
    clicks, examined = weight * cells.clicks / cells.shown, weight * cells.examined / cells.recorded
    above = {name: _above(values, document) for name, values in (("w", weight), ("c", clicks), ("q", examined))}
    left = above["c"] * examined - clicks * above["q"]
    right = above["c"] * weight - clicks * above["w"]
    queries = log.version_queries[cells.versions]
    left, right = (np.bincount(queries, weights=values).astype(np.float64) for values in (left, right))
    n_moved = int((n_places > 1).sum())
    if not n_moved:
        raise ValueError(f"no document was shown at two positions, so false alarms cannot be estimated: {REMEDY}")
    if abs(right.sum()) <= CERTAIN * np.sqrt((right**2).sum()):
        raise ValueError(f"clicks on documents that moved hardly differ between positions: {REMEDY}")
    rate = float(left.sum() / right.sum())
    error = float(np.sqrt(((left - rate * right) ** 2).sum()) / abs(right.sum()))
    least = float(np.nanmin(examination_rates(log)))  # an upper bound of the rate of false alarms
    if rate - CERTAIN * error > least:
        raise ValueError(
            f"the estimated rate of false alarms is {rate:.2f} ± {error:.2f}, but one position was recorded as "
            f"examined in only {least:.2f} of the sessions: clicks are not a product of relevance and examination "
            f"here, so they do not identify false alarms: {REMEDY}"
        )
    return FalseAlarms(rate, error, n_moved)


def _above(values: NDArray[np.float64], document: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sum over the higher positions of the same document; cells are ordered by document, from the top down."""
    before = np.cumsum(values) - values
    first = np.searchsorted(document, document)
    return before - before[first]
