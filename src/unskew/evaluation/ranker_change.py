r"""A change of ranker: does the relation between features and positions change at some date?

Within a list, features and positions become ranks, so that drift of a column does not matter. One linear function,
fitted to all lists, predicts positions from features; its residual times a feature has mean 0 in every period as long
as one ranker is in place, whatever the documents. For each date, the mean of a query's lists from then on minus the
mean of its lists before is one difference per query and feature; its $t$ over queries is
$\sum_q d_q / \sqrt{\sum_q d_q^2}$. The test statistic is the largest $|t|$ over dates and features, compared with its
distribution when the signs of every query's differences are flipped at random: it keeps its level however the lists of
a query depend on each other, and a query that was never shown in two orders does not count. The date is the one that
minimizes the variance of a query's lists before and after it. The period after a change is tested again, so that the
latest change is found.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.windows import DAY
from unskew.data.transformed import plain_numbers
from unskew.evaluation.held_out import NotMeasured, Vector

FALSE_ALARMS = 0.01  # significance: the rate at which a log with one ranker seems to have two
FLIPS = 999
FEWEST_QUERIES = 20  # queries shown on both sides of a date
MOST_DATES = 60
MOST_LISTS = 20_000  # a log with more is sampled by query
RIDGE = 1e-3
LISTS_AT_ONCE = 2_000


@dataclass(frozen=True)
class RankerChange:
    """The latest change of ranker that a log shows."""

    since: int  # microseconds since 1970: the start of the first period of the latest ranker
    p_value: float
    column: str  # the feature whose relation to positions changed most
    n_queries: int  # shown before and after

    @property
    def day(self) -> str:
        """The date, for `--production since=`."""
        moment = datetime.fromtimestamp(self.since / 1e6, UTC)
        return moment.strftime("%Y-%m-%d" if self.since % DAY == 0 else "%Y-%m-%dT%H:%M:%S")

    @property
    def line(self) -> str:
        return (
            f"the ranker changed on {self.day}: the effect of {self.column} on positions differs from then on, "
            f"p = {self.p_value:.3f} over {self.n_queries:,} queries shown before and after"
        )


@dataclass(frozen=True, eq=False)
class _Paths:
    """Residuals of a fitted ranker, by query and period."""

    sums: NDArray[np.float64]  # [queries, periods, columns], over sessions
    sessions: NDArray[np.float64]  # [queries, periods]
    begins: NDArray[np.int64]  # [periods]
    names: tuple[str, ...]

    def since(self, period: int) -> _Paths:
        return replace(
            self, sums=self.sums[:, period:], sessions=self.sessions[:, period:], begins=self.begins[period:]
        )


def latest_change(log: ClickLog, *, seed: int = 0) -> RankerChange | None:
    """The latest change of ranker; None: the log shows none.

    Raises NotMeasured, with what is missing, if the log does not support the test.
    """
    paths = _paths(log, np.random.default_rng(seed))
    change = _change(paths, np.random.default_rng(seed))
    found = None
    while change is not None:
        period, found = change
        paths = paths.since(period)
        with suppress(NotMeasured):  # too little data is left to test for another change
            change = None
            change = _change(paths, np.random.default_rng(seed))
    return found


def _paths(log: ClickLog, rng: np.random.Generator) -> _Paths:
    begins, period = _periods(log)
    usual = np.ones(log.n_lists, dtype=bool) if log.interventions is None else log.interventions.values == 0
    usual &= log.mask.sum(axis=1) > 1
    chosen = _sampled(log, usual, period, rng)
    if not len(chosen):
        raise NotMeasured(
            "no query was shown in two periods: a change of ranker cannot be separated from a change of queries"
        )
    features = plain_numbers(log)
    if not features.shape[1]:
        raise NotMeasured("the log has no features to explain positions by")
    names = log.feature_names or tuple(f"feature {number}" for number in range(features.shape[1]))
    _, query = np.unique(log.queries[chosen], return_inverse=True)
    left = _all_left_over(log, chosen, features)
    cell = query * len(begins) + period[chosen]
    sessions = log.sessions[chosen].astype(np.float64)
    n_cells = (int(query.max()) + 1) * len(begins)
    sums = np.zeros((n_cells, left.shape[1]))
    np.add.at(sums, cell, left * sessions[:, None])
    counts = np.bincount(cell, sessions, n_cells).astype(np.float64)
    return _Paths(
        sums.reshape(-1, len(begins), left.shape[1]),
        counts.reshape(-1, len(begins)),
        begins,
        (*names, "all features together"),
    )


def _periods(log: ClickLog) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts of a limited number of periods, and the period of each list."""
    if log.periods is not None:
        times = log.periods
    elif log.first_shown is not None and (log.sessions == 1).all():
        times = log.first_shown
    elif log.first_shown is not None:
        raise NotMeasured("the log counts sessions over its whole time: ingest it with --period day")
    else:
        raise NotMeasured("the log has no times: ingest it with --time and --period day")
    begins = np.unique(times)
    if len(begins) > MOST_DATES:
        begins = np.unique(times // DAY * DAY)
    if len(begins) > MOST_DATES:
        begins = begins[:: -(-len(begins) // MOST_DATES)]
    if len(begins) < 2:
        raise NotMeasured("the log has one period")
    return begins, np.searchsorted(begins, times, side="right") - 1


def _sampled(
    log: ClickLog, usual: NDArray[np.bool_], period: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Lists of queries that were shown in at least two periods; a sample of queries if there are many."""
    queries = log.queries
    n = len(log.query_ids)
    first, last = np.full(n, len(period)), np.full(n, -1)
    np.minimum.at(first, queries[usual], period[usual])
    np.maximum.at(last, queries[usual], period[usual])
    of_query = np.bincount(queries[usual], minlength=n) * (first < last)
    order = rng.permutation(n)
    kept = np.zeros(n, dtype=bool)
    kept[order] = np.cumsum(of_query[order]) <= max(MOST_LISTS, of_query.max(initial=0))
    return np.flatnonzero(usual & (kept & (of_query > 0))[queries])


def _all_left_over(log: ClickLog, lists: NDArray[np.int64], features: NDArray) -> Vector:
    """Residuals of one linear function fitted to all these lists, `[lists, columns + 1]`."""
    blocks = [lists[start : start + LISTS_AT_ONCE] for start in range(0, len(lists), LISTS_AT_ONCE)]
    products = np.sum([_products(log, block, features) for block in blocks], axis=0)
    n = len(products) - 1
    ridge = (RIDGE * np.trace(products[:n, :n]) / n + 1e-12) * np.eye(n)
    weights = np.linalg.solve(products[:n, :n] + ridge, products[:n, n])
    return np.concatenate([_left_over(log, block, features, weights) for block in blocks])


def _ranks(log: ClickLog, lists: NDArray[np.int64], features: NDArray) -> tuple[Vector, Vector]:
    """Columns `[lists, docs, columns]` and heights `[lists, docs]` as ranks within the list, mean 0; 0 in padding."""
    mask = log.mask[lists]
    columns = features[log.versions[lists]]
    sizes = mask.sum(axis=1)[:, None]

    def centred(ranks: Vector) -> Vector:
        return (ranks - (sizes + 1) / 2) / sizes

    values = np.where(mask[:, :, None], columns, np.inf)  # padding ranks last and moves no other
    ranks = centred(rankdata(values, axis=1).transpose(2, 0, 1)).transpose(1, 2, 0)
    heights = centred(rankdata(np.where(mask, -log.positions[lists].astype(np.float64), np.inf), axis=1))
    return np.where(mask[:, :, None], ranks, 0.0), np.where(mask, heights, 0.0)


def _products(log: ClickLog, lists: NDArray[np.int64], features: NDArray) -> Vector:
    """Sums of products of columns and heights; each list counts once."""
    ranks, heights = _ranks(log, lists, features)
    joined = np.concatenate([ranks, heights[:, :, None]], axis=2).reshape(-1, ranks.shape[2] + 1)
    return joined.T @ joined


def _left_over(log: ClickLog, lists: NDArray[np.int64], features: NDArray, weights: Vector) -> Vector:
    """Residuals times each column, and times the prediction, `[lists, columns + 1]`."""
    ranks, heights = _ranks(log, lists, features)
    guess = ranks @ weights
    left = heights - guess
    return np.concatenate([np.einsum("ld,ldc->lc", left, ranks), (left * guess).sum(axis=1)[:, None]], axis=1)


def _change(paths: _Paths, rng: np.random.Generator) -> tuple[int, RankerChange] | None:
    """The first period after the clearest change, and the change; None if there is none."""
    n_queries, n_periods, _ = paths.sums.shape
    signs = rng.choice([-1.0, 1.0], size=(FLIPS + 1, n_queries))
    signs[0] = 1.0  # as it was
    greatest = np.zeros(FLIPS + 1)
    best, column, explained, enough = 0.0, 0, np.full(n_periods, -np.inf), np.zeros(n_periods, dtype=int)
    before, n_before = np.cumsum(paths.sums, axis=1), np.cumsum(paths.sessions, axis=1)
    for period in range(1, n_periods):
        n_here, n_there = n_before[:, period - 1], n_before[:, -1] - n_before[:, period - 1]
        both = (n_here > 0) & (n_there > 0)
        enough[period] = both.sum()
        if enough[period] < FEWEST_QUERIES:
            continue
        here = before[both, period - 1] / n_here[both, None]
        difference = (before[both, -1] - before[both, period - 1]) / n_there[both, None] - here
        spread = np.sqrt((difference**2).sum(axis=0))
        t = np.abs(signs[:, both] @ (difference / np.where(spread > 1e-9, spread, np.inf)))
        greatest = np.maximum(greatest, t.max(axis=1))
        if t[0].max() > best:
            best, column = float(t[0].max()), int(t[0].argmax())
        share = n_here[both] * n_there[both] / (n_here[both] + n_there[both])
        explained[period] = float((share[:, None] * difference**2).sum())
    if not (enough >= FEWEST_QUERIES).any():
        raise NotMeasured(f"fewer than {FEWEST_QUERIES} queries were shown in two periods: too few to test a change")
    p_value = float((greatest >= greatest[0] - 1e-12).mean())
    if p_value > FALSE_ALARMS:
        return None
    period = int(explained.argmax())
    return period, RankerChange(int(paths.begins[period]), p_value, paths.names[column], int(enough[period]))
