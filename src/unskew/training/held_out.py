"""Held-out clicks: those that say when training has learned what a log can teach (`ending`)."""

from __future__ import annotations

import numpy as np

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import Log, LogFolder
from unskew.training.ending import HELD_OUT, MOST_HELD_OUT, held_out_share

LEAST_SHARDS = round(1 / HELD_OUT)  # of a log on disk from which a shard is held out

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
    """Shards share no query: a log of many lends one of them, and of that at most some thousand lists."""
    filled = np.flatnonzero(log.counts("lists"))
    if len(filled) < LEAST_SHARDS:
        return log, None
    lent = int(np.random.default_rng(seed).choice(filled))
    kept = tuple(number for number in range(log.n_shards) if number != lent)
    held_out = log.shard(lent)
    some = held_out.select(np.arange(min(held_out.n_lists, MOST_HELD_OUT)))
    if not some.n_clicks:
        return log, None
    return log.view(kept), some
