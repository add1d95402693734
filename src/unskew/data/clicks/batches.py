"""Batches: lists as tensors, shuffled once per epoch; the step number alone determines a batch.

The order is a function of seed and epoch, so a resumed run sees exactly what an uninterrupted run would have seen.
Batches of an epoch have nearly equal sizes. Up to `together` lists of a query stay together, so that a batch holds few
distinct documents and networks run once per document. If several processes train together, each asks for its share of
the rows. `shard_batches` is for logs larger than memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.row_fields import FIELDS, BiasColumn
from unskew.data.grouping import unique_rows
from unskew.data.judged.judged_set import JudgedSet, ragged_rows
from unskew.lists import ClickedLists, Distinct, JudgedLists, shared_tensor
from unskew.processes import WHOLE, Share

ClickDetail = Literal["counts", "pairs", "patterns"]
BATCHED = [entry.name for entry in FIELDS if entry.batched]
TOGETHER = 16  # lists of a query that stay together in a batch


class ClickBatches:
    """Batches of a log, by list; a row is all showings of a list or, with `patterns`, one of its click patterns.

    Args:
        together: rows of a query that stay together; 1: every row is shuffled separately.
        stream: number that makes the logs of one run, e.g. shards, shuffle differently.
    """

    def __init__(
        self,
        log: ClickLog,
        batch_size: int = 256,
        *,
        seed: int = 0,
        detail: ClickDetail = "counts",
        together: int = TOGETHER,
        stream: int = 0,
    ):
        check_detail(detail, joint=log.joint)
        self.log = log
        self.detail = detail
        queries = log.queries if detail != "patterns" or log.patterns is None else log.queries[log.patterns.lists]
        check_rows(len(queries))
        self.order = Order(len(queries), batch_size, seed, stream, lambda: _Groups(queries, together))
        self._first_key = stream << 40  # no two documents of a run have the same key
        self._features = shared_tensor(log.features)
        contexts, context = unique_rows(log.context)
        self._contexts = torch.from_numpy(log.context[contexts])
        # A network sees a version in a context, numbered `version · contexts + context`.
        self._shown = torch.from_numpy(log.versions.astype(np.int64) * len(contexts) + context[:, None])
        self._positions = torch.from_numpy(log.positions.astype(np.int64))
        self._mask = shared_tensor(log.mask)
        self._padded = not log.mask.all()
        self._bias = {name: shared_tensor(_levels_or_numbers(column, log.n_docs)) for name, column in log.bias.items()}
        self._repeats = detail == "patterns" or _repeated(self._shown[self._mask], len(log.features))
        self._codes = None if log.codes is None else torch.from_numpy(log.codes[log.version_documents])
        self._others = {name: values for name in BATCHED if (values := getattr(log, name)) is not None}
        if log.patterns is not None:
            self._pattern_offsets = np.searchsorted(log.patterns.lists, np.arange(log.n_lists + 1))

    @property
    def per_epoch(self) -> int:
        return self.order.per_epoch

    def __call__(self, step: int, share: Share = WHOLE) -> ClickedLists:
        """The batch of this step, or a share of it."""
        return self.shared(self.order(step), share)

    def shared(self, rows: NDArray[np.int64], share: Share, lane: int = 0) -> ClickedLists:
        """A share of the rows of a lane of a global batch."""
        mine = share.rows(len(rows))
        return self.rows(rows[mine.start : mine.stop], torch.arange(mine.start, mine.stop) + (lane << 32))

    def all(self, batch_size: int = 1024) -> Iterator[ClickedLists]:
        """Every row once, in the log's order."""
        for start in range(0, self.order.n_rows, batch_size):
            yield self.rows(np.arange(start, min(start + batch_size, self.order.n_rows)))

    def by_query(self, batch_size: int = 1024) -> Iterator[tuple[NDArray[np.int64], ClickedLists]]:
        """Every row once with its number, query by query, so that few documents are in two batches."""
        order = self.order.by_query()
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            yield rows, self.rows(rows)

    def rows(self, rows: NDArray[np.int64], keys: Tensor | None = None) -> ClickedLists:
        """These rows as tensors; `keys` are their numbers in the global batch."""
        log = self.log
        if self.detail == "patterns" and log.patterns is not None:
            lists = log.patterns.lists[rows]
            sessions = log.patterns.sessions[rows].astype(np.float32)
            clicks = log.patterns.clicks[rows] * sessions[:, None]
        else:
            lists = rows
            sessions = log.sessions[rows].astype(np.float32)
            clicks = log.clicks[rows].astype(np.float32)
        chosen = torch.from_numpy(lists)
        mask = self._mask[chosen]
        rows_of = {name: values[lists] for name, values in self._others.items()}
        others: dict[str, Any] = {name: torch.from_numpy(values).float() for name, values in rows_of.items()}
        return ClickedLists(
            **self._documents_of(chosen, mask),
            mask=mask,
            codes=None if self._codes is None else self._codes[self._shown[chosen] // len(self._contexts)],
            positions=self._positions[chosen],
            clicks=torch.from_numpy(clicks),
            sessions=torch.from_numpy(sessions),
            bias={name: values[chosen] for name, values in self._bias.items()},
            **others,
            pairs=self._pairs(lists) if self.detail == "pairs" else None,
            keys=keys,
        )

    def _documents_of(self, lists: Tensor, mask: Tensor) -> dict[str, Any]:
        """Features of these lists; once per distinct document, if documents are in several of them."""
        numbers = self._shown[lists]
        if self._padded:
            numbers.masked_fill_(~mask, len(self._features) * len(self._contexts))  # after all documents
        if not self._repeats:
            return {"features": self._rows(numbers.flatten()).view(*numbers.shape, self.log.n_inputs)}
        chosen, places = numbers.unique(return_inverse=True)
        return {"features": None, "distinct": Distinct(self._rows(chosen), places, chosen + self._first_key)}

    def _rows(self, numbers: Tensor) -> Tensor:
        """Features of these versions in their contexts; 0 for numbers past the last version."""
        n_contexts = len(self._contexts)
        past = numbers == len(self._features) * n_contexts if self._padded else None
        if past is not None:
            numbers = numbers.masked_fill(past, 0)
        rows = self._features.index_select(0, numbers if n_contexts == 1 else numbers // n_contexts)
        if self.log.context_names:
            rows = torch.cat([rows, self._contexts.index_select(0, numbers % n_contexts)], dim=1)
        return rows if past is None else rows.masked_fill_(past.unsqueeze(-1), 0.0)

    def _pairs(self, lists: NDArray[np.int64]) -> Tensor:
        """Sessions of each list in which i was clicked and j was not, `[lists, docs, docs]`."""
        patterns = self.log.patterns
        assert patterns is not None
        rows, offsets = ragged_rows(self._pattern_offsets, lists)
        clicked = torch.from_numpy(patterns.clicks[rows])
        weighted = clicked * torch.from_numpy(patterns.sessions[rows].astype(np.float32)).unsqueeze(-1)
        owner = torch.from_numpy(np.repeat(np.arange(len(lists)), np.diff(offsets)))
        counts = torch.zeros(len(lists), self.log.n_docs, self.log.n_docs)
        counts.index_add_(0, owner, weighted.unsqueeze(2) * (clicked == 0).unsqueeze(1))
        mask = self._mask[torch.from_numpy(lists)]
        return counts * (mask.unsqueeze(2) & mask.unsqueeze(1))


class JudgedBatches:
    """Batches of a judged set."""

    def __init__(self, judged: JudgedSet, batch_size: int = 256, *, seed: int = 0):
        self.judged = judged
        check_rows(judged.n_queries)
        self.order = Order(judged.n_queries, batch_size, seed)

    @property
    def per_epoch(self) -> int:
        return self.order.per_epoch

    def __call__(self, step: int, share: Share = WHOLE) -> JudgedLists:
        """The batch of this step, or a share of it."""
        rows = self.order(step)
        mine = share.rows(len(rows))
        return self.judged.lists(rows[mine.start : mine.stop])


class Order:
    """The rows of the batch of each step."""

    def __init__(
        self,
        n_rows: int,
        batch_size: int,
        seed: int,
        stream: int = 0,
        new_groups: Callable[[], _Groups] | None = None,
    ):
        self.n_rows = n_rows
        self.per_epoch = batches_per_epoch(n_rows, batch_size)
        self._new_groups = new_groups
        self._seed = [seed, stream]
        self._epoch = -1
        self._permutation = np.zeros(0, dtype=np.int64)

    def __call__(self, step: int) -> NDArray[np.int64]:
        return self.of_epoch(*divmod(step, self.per_epoch))

    def of_epoch(self, epoch: int, number: int) -> NDArray[np.int64]:
        """Rows of a batch of an epoch."""
        start, end = (self.n_rows * place // self.per_epoch for place in (number, number + 1))
        return self.permutation(epoch)[start:end]

    def permutation(self, epoch: int) -> NDArray[np.int64]:
        """All rows in the order of an epoch."""
        if epoch != self._epoch:
            seed, stream = self._seed
            rng = np.random.default_rng([seed, epoch, stream])
            self._permutation = rng.permutation(self.n_rows) if self._groups is None else self._groups.shuffled(rng)
            self._epoch = epoch
        return self._permutation

    def by_query(self) -> NDArray[np.int64]:
        """All rows, ordered by query if queries are known."""
        return np.arange(self.n_rows) if self._groups is None else self._groups.rows

    @cached_property
    def _groups(self) -> _Groups | None:
        return None if self._new_groups is None else self._new_groups()


class _Groups:
    """Rows of the same query, in groups of at most `most` rows and nearly equal size."""

    def __init__(self, queries: NDArray[np.int64], most: int):
        self.queries = queries
        self.rows = np.argsort(queries, kind="stable")  # query by query
        _, firsts, sizes = np.unique(queries[self.rows], return_index=True, return_counts=True)
        parts = -(-sizes // most)
        self.cut = bool((parts > 1).any())
        part = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
        starts = np.repeat(firsts, parts) + np.repeat(sizes, parts) * part // np.repeat(parts, parts)
        self.offsets = np.append(starts, len(queries))

    def shuffled(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """All rows, group after group; the rows of a query with several groups are regrouped at random."""
        rows = self.rows
        if self.cut:
            dealt = rng.permutation(len(rows))
            rows = dealt[np.argsort(self.queries[dealt], kind="stable")]
        chosen, _ = ragged_rows(self.offsets, rng.permutation(len(self.offsets) - 1))
        return rows[chosen]


def batches_per_epoch(n_rows: int, batch_size: int) -> int:
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    return -(-n_rows // batch_size)


def _repeated(numbers: Tensor, n_versions: int) -> bool:
    """Whether anything was shown in several lists."""
    if int(numbers.max()) < 4 * n_versions:
        return bool(torch.bincount(numbers).max() > 1)
    return len(numbers.unique()) < len(numbers)


def _levels_or_numbers(column: BiasColumn, n_docs: int) -> NDArray:
    return column.per_document(n_docs).astype(np.float32 if column.levels is None else np.int64, copy=False)


def check_detail(detail: ClickDetail, *, joint: bool) -> None:
    if detail != "counts" and not joint:
        raise ValueError(
            f"this method learns from {detail} of clicks, but the log only has counts per document: build the log "
            "again and keep which documents were clicked together (--joint, in Python joint=True)"
        )


def check_rows(n_rows: int) -> None:
    if n_rows == 0:
        raise ValueError("there are no lists to learn from: the log is empty")
