"""Batches of a log larger than memory, read shard by shard, and of a `ClickSource`, which draws the lists of each step.

Shards are assigned to lanes. A global batch takes rows from one shard of every lane, in proportion to the lane's share
of the log; the shards of a lane are reordered every epoch. So a batch is a function of seed, step and number of lanes.
Processes that train together share the lanes: each reads only the shards of its own lanes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.batches import (
    TOGETHER,
    ClickBatches,
    ClickDetail,
    Order,
    batches_per_epoch,
    check_detail,
    check_rows,
)
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import LogFolder
from unskew.lists import ClickedLists, join_lists
from unskew.processes import WHOLE, Share


class ShardBatches:
    """Batches of a log on disk, with two shards per lane in memory: one in use, the next being read.

    Args:
        lanes: number of shards that a batch takes rows from; at most the number of shards.
        prepare: applied to every shard after reading, e.g. a transform of its features; it must keep the lists.
        together: rows of a query that stay together in a batch.
    """

    def __init__(
        self,
        folder: LogFolder,
        batch_size: int = 256,
        *,
        seed: int = 0,
        detail: ClickDetail = "counts",
        prepare: Callable[[ClickLog], ClickLog] = lambda log: log,
        together: int = TOGETHER,
        lanes: int = 1,
    ):
        check_detail(detail, joint=folder.joint)
        self.folder = folder
        self.detail = detail
        self.prepare = prepare
        self._n_rows = folder.counts("patterns" if detail == "patterns" else "lists")
        self._filled = [number for number, n_rows in enumerate(self._n_rows) if n_rows]
        self._batching: dict[str, Any] = {"seed": seed, "together": together}
        self.batch_size = batch_size
        self._made_with: dict[str, Any] = {"batch_size": batch_size, "detail": detail, "lanes": lanes, **self._batching}
        check_rows(len(self._filled))
        dealt = _deal(self._filled, self._n_rows, min(lanes, len(self._filled), batch_size))
        sizes = _sizes(batch_size, [sum(self._n_rows[shard] for shard in shards) for shards in dealt])
        n_shards = len(self._n_rows)
        streams = [0, *range(n_shards + 1, n_shards + len(dealt))]  # the numbers between belong to the shards
        self._lanes = [
            _Lane({shard: self._n_rows[shard] for shard in shards}, size, seed, stream, self._read)
            for shards, size, stream in zip(dealt, sizes, streams, strict=True)
        ]
        self.per_epoch = max(lane.per_epoch for lane in self._lanes)

    @property
    def n_lanes(self) -> int:
        return len(self._lanes)

    def __call__(self, step: int, share: Share = WHOLE) -> ClickedLists:
        """The batch of this step, or a share of it."""
        parts = []
        for number, part in lanes_of(share, len(self._lanes)):
            batches, rows = self._lanes[number](step)
            parts.append(batches.shared(rows, part, number))
        return parts[0] if len(parts) == 1 else join_lists(parts)

    def logs(self) -> Iterator[ClickLog]:
        """The prepared log of every shard, in order."""
        return (batches.log for batches in self._each())

    def changed(self, change: Callable[[ClickLog], ClickLog]) -> ShardBatches:
        """The same batches with a further change to the prepared logs, which must keep every list."""
        return ShardBatches(self.folder, **self._made_with, prepare=lambda log: change(self.prepare(log)))

    def all(self, batch_size: int = 1024) -> Iterator[ClickedLists]:
        """Every row once, in the log's order."""
        for batches in self._each():
            yield from batches.all(batch_size)

    def _each(self) -> Iterator[ClickBatches]:
        for lane in self._lanes:
            lane.reader.clear()  # makes room for two other shards
        reader = _Reader(self._read)
        for number, following in zip(self._filled, [*self._filled[1:], None], strict=True):
            batches = reader.load(number)
            if following is not None:
                reader.read_ahead(following)
            yield batches

    def _read(self, shard: int, batch_size: int = 1) -> ClickBatches:
        log = self.prepare(self.folder.shard(shard))
        batches = ClickBatches(log, batch_size, detail=self.detail, stream=1 + shard, **self._batching)
        if batches.order.n_rows != self._n_rows[shard]:
            raise ValueError(
                f"shard {shard} has {self._n_rows[shard]} rows, but {batches.order.n_rows} after prepare: "
                "it must keep every list"
            )
        return batches


def lanes_of(share: Share, n_lanes: int) -> list[tuple[int, Share]]:
    """The lanes of a process and its share of each: whole lanes, or with more processes than lanes a part of one."""
    if share.of <= n_lanes:
        return [(lane, WHOLE) for lane in range(share.number, n_lanes, share.of)]
    lane = share.number % n_lanes
    return [(lane, Share(share.number // n_lanes, len(range(lane, share.of, n_lanes))))]


class _Lane:
    """One shard after another, in a new order every epoch."""

    def __init__(
        self, n_rows: dict[int, int], batch_size: int, seed: int, stream: int, read: Callable[[int, int], ClickBatches]
    ):
        self._filled = list(n_rows)
        self._order = Order(len(n_rows), 1, seed, stream)
        self._per_epoch = {shard: batches_per_epoch(n, batch_size) for shard, n in n_rows.items()}
        self.per_epoch = sum(self._per_epoch.values())
        self.reader = _Reader(lambda shard: read(shard, batch_size))
        self._visit = (-1, -1)  # epoch and place in its order of shards

    def __call__(self, step: int) -> tuple[ClickBatches, NDArray[np.int64]]:
        """The shard of this step, and its rows."""
        epoch, number = divmod(step, self.per_epoch)
        shards = self._shards(epoch)
        ends = np.cumsum([self._per_epoch[shard] for shard in shards])
        place = int(np.searchsorted(ends, number, side="right"))
        shard = shards[place]
        batches = self.reader.load(shard)
        if self._visit != (epoch, place):
            self._visit = (epoch, place)
            self.reader.read_ahead(shards[place + 1] if place + 1 < len(shards) else self._shards(epoch + 1)[0])
        first = int(ends[place]) - self._per_epoch[shard]
        return batches, batches.order.of_epoch(epoch, number - first)

    def _shards(self, epoch: int) -> list[int]:
        """Shards in the order of an epoch."""
        return [self._filled[number] for number in self._order.permutation(epoch)]


class _Reader:
    """One shard in use, the next being read in the background."""

    def __init__(self, read: Callable[[int], ClickBatches]):
        self._read = read
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="shards")
        self.clear()

    def clear(self) -> None:
        self._shard = -1
        self._batches: ClickBatches | None = None
        self._upcoming: tuple[int, Future[ClickBatches]] | None = None

    def load(self, shard: int) -> ClickBatches:
        if self._batches is not None and self._shard == shard:
            return self._batches
        self._batches = None
        if self._upcoming is None or self._upcoming[0] != shard:
            self.read_ahead(shard)
        assert self._upcoming is not None
        self._batches, self._shard = self._upcoming[1].result(), shard
        self._upcoming = None
        return self._batches

    def read_ahead(self, shard: int) -> None:
        if self._upcoming is not None:
            self._upcoming[1].cancel()
        self._upcoming = None
        if shard != self._shard or self._batches is None:
            self._upcoming = (shard, self._pool.submit(self._read, shard))


def _deal(shards: Sequence[int], n_rows: Sequence[int], n_lanes: int) -> list[list[int]]:
    """Shards of each lane, in order; the largest shards go first, each to the lane with the fewest rows."""
    dealt: list[list[int]] = [[] for _ in range(n_lanes)]
    filled = [0] * n_lanes
    for shard in sorted(shards, key=lambda shard: (-n_rows[shard], shard)):
        lane = filled.index(min(filled))
        dealt[lane].append(shard)
        filled[lane] += n_rows[shard]
    return [sorted(lane) for lane in dealt]


def _sizes(batch_size: int, n_rows: Sequence[int]) -> list[int]:
    """Rows per batch from each lane, at least one, in proportion to its rows, so that all end an epoch together."""
    ends = np.cumsum([0, *n_rows]) / sum(n_rows) * batch_size
    return [max(1, int(size)) for size in np.diff(np.round(ends))]


class ClickSource(ABC):
    """Generates the lists of each step, for clicks that are not a fixed log.

    `fit` takes one in place of a log; `FreshClicks` draws simulated clicks. The lists of a step may depend only on the
    step and on the arguments of the source: then an interrupted run resumes exactly.

    >>> class Shuffled(ClickSource):
    ...     def __init__(self, log: ClickLog):
    ...         self.documents, self.digest = log, log.digest
    ...     def lists(self, step: int, n_sessions: int) -> ClickLog:
    ...         rng = np.random.default_rng(step)
    ...         return self.documents.select(rng.integers(0, self.documents.n_lists, n_sessions))
    """

    documents: ClickLog  # all that may be shown, with features, positions and bias columns; clicks are ignored
    digest: str  # identifies the source: a run resumes only with a source of the same digest

    @abstractmethod
    def lists(self, step: int, n_sessions: int) -> ClickLog:
        """The log of this step, with about `n_sessions` sessions; the same for the same step."""


class SourceBatches:
    """Batches of a source: every step has its own lists.

    Args:
        batch_size: number of sessions in a batch.
        prepare: applied to the log of every step, e.g. a transform of its features.
    """

    def __init__(
        self,
        source: ClickSource,
        batch_size: int = 256,
        *,
        detail: ClickDetail = "counts",
        prepare: Callable[[ClickLog], ClickLog] = lambda log: log,
    ):
        self.source = source
        self.batch_size = batch_size
        self.detail: ClickDetail = detail
        self.prepare = prepare

    def __call__(self, step: int, share: Share = WHOLE) -> ClickedLists:
        """The batch of this step, or a share of it."""
        batches = ClickBatches(self.prepare(self.source.lists(step, self.batch_size)), detail=self.detail)
        return batches.shared(np.arange(batches.order.n_rows), share)
