r"""When training ends, if no number of steps is given: when held-out clicks are predicted no better.

The clicks of some queries are held out. From time to time, in growing intervals, the average of the last states
predicts them; training ends once it has run half as long again as the best of these states, and keeps that state. How
long that is depends on the clicks: few are soon learned by heart, many go on teaching.

Nothing can be held out from a log of few queries, from lists that are drawn afresh at every step, or from judgements.
Then the number of steps is fixed: `usual_steps`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from math import ceil

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.shards import log_counts
from unskew.data.clicks.storage import FolderView, Log, LogFolder

HELD_OUT = 0.1  # share of the queries
FEWEST_QUERIES = 20  # of a log from which clicks are held out
MOST_HELD_OUT = 5_000  # lists
FIRST, GROWTH = 10, 1.15  # steps until the first validation; by how much the number of steps grows to the next
LEAST = 400  # steps; before, the learning rate has not begun to fall
PATIENCE = 1.5  # training ends at this multiple of the best state's steps
MOST = 30_000  # steps
MOST_FIXED, MOST_PASSES = 1_000, 50  # steps, and passes over the data, where nothing is held out
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
UNSELECTED = 500  # steps of a stage that held-out clicks say nothing about


def _validations() -> list[int]:
    steps = [FIRST]
    while steps[-1] < MOST:
        steps.append(max(steps[-1] + FIRST, ceil(steps[-1] * GROWTH)))
    return [*steps[:-1], MOST]


VALIDATIONS = _validations()


def is_validated(step: int) -> bool:
    """Whether there is a validation after this number of steps.

    >>> [step for step in range(130) if is_validated(step)]
    [10, 20, 30, 40, 50, 60, 70, 81, 94, 109, 126]
    """
    place = bisect_left(VALIDATIONS, step)
    return place < len(VALIDATIONS) and VALIDATIONS[place] == step


def last_step(best_step: int) -> int:
    """The number of steps at which training ends unless a later state is better.

    >>> last_step(50), last_step(1_000)
    (400, 1500)
    """
    return min(MOST, max(LEAST, ceil(PATIENCE * best_step)))


def held_out_share(n_queries: int, n_lists: int) -> float:
    """The share of the queries to hold out; 0 if there are too few.

    >>> held_out_share(19, 19), held_out_share(3_000, 3_000), held_out_share(20_000, 500_000)
    (0.0, 0.1, 0.01)
    """
    return 0.0 if n_queries < FEWEST_QUERIES else min(HELD_OUT, MOST_HELD_OUT / n_lists)


def usual_steps(per_pass: int | None = None) -> int:
    """Steps where none are asked for and nothing is held out: 1,000, but at most 50 passes over the data.

    Args:
        per_pass: batches of one pass; None: the data has no end.

    >>> usual_steps(), usual_steps(24), usual_steps(2)
    (1000, 1000, 100)
    """
    return MOST_FIXED if per_pass is None else min(MOST_FIXED, MOST_PASSES * per_pass)


def seconds_of(time: str | float | None) -> float | None:
    """A time limit in seconds.

    >>> seconds_of("90s"), seconds_of("10m"), seconds_of("1.5h"), seconds_of(20)
    (90.0, 600.0, 5400.0, 20.0)
    """
    if time is None or isinstance(time, int | float):
        return None if time is None else float(time)
    number = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", time)
    if number is None:
        raise ValueError(f"time must be a number of seconds, minutes or hours, e.g. 90s, 10m or 2h, got '{time}'")
    return float(number[1]) * UNITS[number[2]]


@dataclass(frozen=True)
class Ending:
    """Why the last stage that validation can judge has ended."""

    steps: int
    best_step: int | None = None  # the state that was kept; None: the last one
    reason: str = "steps"  # one of `REASONS`

    def __str__(self) -> str:
        kept = "" if self.best_step is None else f"; the state of step {self.best_step:,} is kept"
        return REASONS[self.reason].format(steps=f"{self.steps:,}") + kept


REASONS = {
    "steps": "ended after {steps} steps, as asked",
    "usual": "ended after {steps} steps, the usual number where no clicks can be held out",
    "learned": "ended after {steps} steps: held-out clicks were predicted no better",
    "patience": "ended after {steps} steps: validation found nothing better",
    "diverged": "training diverged after {steps} steps: lower the learning rate, or check the features",
    "time": "cut off after {steps} steps by the time limit: it may not have learned all that the log can teach",
    "most": f"cut off after {{steps}} steps, the most of any training: set steps to train for more than {MOST:,}",
}


LEAST_SHARDS = round(1 / HELD_OUT)  # of a log on disk from which a whole shard is held out
MOST_OF_A_SHARD = 0.5  # share of the queries of a shard of a log of fewer

Parted = tuple[Log, ClickLog | None]


def part_held_out(log: Log, seed: int) -> Parted:
    """The log to learn from, and clicks of other queries that say when to end; None: the log is too small for that."""
    if isinstance(log, LogFolder):
        return _without_a_shard(log, seed)
    share = held_out_share(len(np.unique(log.queries)), log.n_lists)
    learning, some = log.split(share, seed) if share else (log, None)
    return (log, None) if some is None or not (learning.n_clicks and some.n_clicks) else (learning, some)


def share_held_out(log: Log, share: float, seed: int) -> Parted:
    """The log to learn from, and this share of the queries of a log, which is read into memory."""
    return log.whole().split(share, seed)


def _without_a_shard(log: LogFolder, seed: int) -> Parted:
    """Shards share no query: a log of many lends one of them, a log of few some queries of one."""
    filled = np.flatnonzero(log.counts("lists"))
    lender = int(np.random.default_rng(seed).choice(filled))
    shard = log.shard(lender)
    if len(filled) < LEAST_SHARDS:
        return _without_queries(log, lender, shard, seed)
    some = shard.select(np.arange(min(shard.n_lists, MOST_HELD_OUT)))
    if not some.n_clicks:
        return log, None
    return log.view([number for number in range(log.n_shards) if number != lender]), some


def _without_queries(log: LogFolder, lender: int, shard: ClickLog, seed: int) -> Parted:
    n_queries = len(np.unique(shard.queries))
    share = held_out_share(round(n_queries * log.n_lists / shard.n_lists), log.n_lists) * log.n_lists / shard.n_lists
    if not share or n_queries < 2:
        return log, None
    kept, some = shard.split(min(share, MOST_OF_A_SHARD), seed)
    if not (some.n_clicks and log.n_clicks > some.n_clicks):
        return log, None
    view = log.view()
    view.about["shards"][lender] = {**log.about["shards"][lender], **log_counts(kept)}
    return _Lender(**vars(view), lender=lender, queries=np.unique(kept.queries)), some


@dataclass(frozen=True, repr=False)
class _Lender(FolderView):
    """A log on disk without some queries of one shard."""

    lender: int = field(kw_only=True)
    queries: NDArray[np.integer] = field(kw_only=True)  # that this shard keeps

    def shard(self, number: int) -> ClickLog:
        log = super().shard(number)
        return log.select(np.isin(log.queries, self.queries)) if number == self.lender else log
