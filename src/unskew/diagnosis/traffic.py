"""Traffic: the composition of a log, and whether a few queries, users or robots dominate it.

A log counts sessions, not people. Users are known only if a bias column names them (`heavy_users`); `unskew ingest
--user COLUMN=N` leaves out whole sessions when the log is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.diagnosis.click_rates import row_keys
from unskew.propensities.curve import NotIdentified
from unskew.reporting.answers import BAD, PLAIN, UNKNOWN, Finding

HEAVY_SHARE = 0.01  # the heaviest 1% of the queries
CLICKS_EVERYTHING = 0.8  # share of clicked documents in a session that counts as clicking everything
FEWEST_DOCUMENTS = 5


@dataclass(frozen=True)
class Traffic:
    """The composition of a log."""

    n_sessions: float
    n_lists: int
    n_queries: int  # with a list
    n_documents: int
    compaction: float  # sessions per row
    orders_per_query: float  # distinct lists, the mean over queries
    one_order: float  # share of the queries that were shown one list only
    never_shown: float  # share of the candidates that were never shown
    heavy_queries: float  # share of the sessions of the heaviest 1% of the queries
    clickless: float | None  # share of the sessions without a click; None: unknown
    everything_clicked: float | None  # share of the sessions that clicked nearly everything; None: unknown

    @property
    def only_shown(self) -> bool:
        """Whether the log contains only shown candidates, as real logs do."""
        return self.never_shown == 0

    @property
    def clickless_missing(self) -> bool:
        """Whether sessions without a click seem to have been left out."""
        return self.clickless == 0

    def findings(self) -> Iterator[Finding]:
        orders = f"{self.orders_per_query:,.1f} on average; {self.one_order:.0%} of the queries had a single order"
        yield Finding("orders per query", orders)
        heavy = f"the heaviest 1% of the queries have {self.heavy_queries:.0%} of the sessions"
        yield Finding("sessions per list", f"{self.compaction:,.1f}; {heavy}")
        if self.only_shown:
            text = "unknown: the log contains only shown documents; ingest --features keeps the other candidates"
            yield Finding("never shown", text, UNKNOWN)
        else:
            share = f"{self.never_shown:.0%} of the candidates"
            yield Finding("never shown", f"{share}: clicks say nothing about them")
        if self.clickless is not None:
            missing = ": they seem to have been removed; without them every curve is too flat"
            text = f"{self.clickless:.0%} of the sessions{missing if self.clickless_missing else ''}"
            yield Finding("sessions without clicks", text, BAD if self.clickless_missing else PLAIN)
        if self.everything_clicked:
            yield Finding("clicked everything", f"{self.everything_clicked:.2%} of the sessions, perhaps robots")


def traffic(log: ClickLog) -> Traffic:
    """The composition of the log."""
    queries, lists = np.unique(log.queries, return_counts=True)
    if not len(queries):
        raise NotIdentified("the log is empty")
    of_query = np.bincount(log.queries, weights=log.sessions)
    heaviest = np.sort(of_query)[::-1][: max(1, round(HEAVY_SHARE * len(queries)))]
    orders = _orders(log, lists)
    shown = np.zeros(log.n_documents, dtype=bool)
    shown[log.documents[log.mask]] = True
    clickless, everything = _patterns(log)
    return Traffic(
        n_sessions=log.n_sessions,
        n_lists=log.n_lists,
        n_queries=len(queries),
        n_documents=log.n_documents,
        compaction=log.compaction,
        orders_per_query=float(orders.mean()),
        one_order=float((orders == 1).mean()),
        never_shown=float(1 - shown.mean()),
        heavy_queries=float(heaviest.sum() / of_query.sum()),
        clickless=clickless,
        everything_clicked=everything,
    )


@dataclass(frozen=True)
class CappedUsers:
    """The effect of a cap on sessions per user."""

    n_users: int
    n_capped: int
    most: float | None  # maximum of sessions per user; None: no cap
    sessions_dropped: float
    impressions_dropped: float
    clicks_dropped: float
    heaviest: str  # the user with most sessions, before the cap
    heaviest_share: float  # of all sessions
    heaviest_rate: float  # clicks per impression: a robot clicks nothing, or everything

    def answer(self) -> tuple[str, str]:
        text = (
            f"{self.n_users:,} users; {self.heaviest} has {self.heaviest_share:.1%} of the sessions and clicks "
            f"{self.heaviest_rate:.0%} of the impressions"
        )
        if self.most is not None:
            text += f"; {self.n_capped:,} capped at {self.most:g}, {self.sessions_dropped:,.0f} sessions left out"
        return text, PLAIN


def heavy_users(log: ClickLog, column: str, most: float | None = None) -> CappedUsers:
    """Sessions of each user, and what a cap would remove.

    Args:
        column: the bias column that names the user.
        most: maximum number of sessions per user; default: no cap.
    """
    users, sessions, names = _users(log, column)
    clicks = np.bincount(users, weights=log.clicks.sum(axis=1, dtype=np.float64), minlength=len(sessions))
    sizes = np.bincount(users, weights=log.sessions * log.mask.sum(axis=1), minlength=len(sessions))
    kept = _kept(sessions, most)
    worst = int(np.argmax(sessions))
    return CappedUsers(
        n_users=int((sessions > 0).sum()),
        n_capped=int((kept < 1).sum()),
        most=most,
        sessions_dropped=float(((1 - kept) * sessions).sum()),
        impressions_dropped=float(((1 - kept) * sizes).sum()),
        clicks_dropped=float(((1 - kept) * clicks).sum()),
        heaviest=names[worst],
        heaviest_share=float(sessions[worst] / sessions.sum()),
        heaviest_rate=float(clicks[worst] / max(sizes[worst], 1e-9)),
    )


def scale_heavy_users(log: ClickLog, column: str, most: float) -> ClickLog:
    """The log with the sessions of each heavy user scaled down to a total of `most`."""
    users, sessions, _ = _users(log, column)
    return log.weighted(_kept(sessions, most)[users])


def _users(log: ClickLog, column: str) -> tuple[NDArray[np.int64], NDArray[np.float64], tuple[str, ...]]:
    """The user of each list, the sessions of each user, and the users' names."""
    if column not in log.bias:
        raise ValueError(
            f"'{column}' is not a bias column of the log (found: {', '.join(log.bias) or 'none'}): ingest the log with "
            "--bias COLUMN, or cap users at ingestion with --user COLUMN=N"
        )
    entry = log.bias[column]
    if entry.values.ndim != 1 or entry.levels is None:
        raise ValueError(f"bias column '{column}' does not name one user per session: choose another column")
    users = entry.values.astype(np.int64)
    sessions = np.bincount(users, weights=log.sessions, minlength=len(entry.levels))
    return users, sessions.astype(np.float64), entry.levels


def _kept(sessions: NDArray[np.float64], most: float | None) -> NDArray[np.float64]:
    """Share of each user's sessions that is kept."""
    if most is None:
        return np.ones(len(sessions))
    if not most > 0:
        raise ValueError(f"the maximum number of sessions per user must be above 0, got {most}")
    return np.minimum(1.0, most / np.maximum(sessions, 1e-9))


def _orders(log: ClickLog, lists: NDArray[np.int64]) -> NDArray[np.int64]:
    """Distinct orders of each query; rows that differ only in a bias column or intervention have the same order."""
    if not log.bias and log.interventions is None:
        return lists
    shown = np.where(log.mask, log.documents.astype(np.int64) + 1, 0)
    _, first = np.unique(row_keys(shown.T), return_index=True)  # the documents of a list determine its query
    return np.unique(log.queries[first], return_counts=True)[1]


def _patterns(log: ClickLog) -> tuple[float | None, float | None]:
    """Shares of the sessions without a click, and with nearly everything clicked."""
    if log.graded:
        return None, None
    if log.patterns is not None:
        clicks, sessions, owners = log.patterns.clicks.sum(axis=1), log.patterns.sessions, log.patterns.lists
    elif (log.sessions == 1).all():
        clicks, sessions, owners = log.clicks.sum(axis=1), log.sessions, np.arange(log.n_lists)
    else:
        return None, None  # lists shown once differ from the others: rare queries, other clicks
    sizes = log.mask.sum(axis=1)[owners]
    total = float(sessions.sum())
    everything = (sizes >= FEWEST_DOCUMENTS) & (clicks >= CLICKS_EVERYTHING * sizes)
    return float(sessions[clicks == 0].sum()) / total, float(sessions[everything].sum()) / total
