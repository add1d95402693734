"""Batches: lists as tensors, shuffled once an epoch, found again from the number of the step alone.

The order is a function of seed and epoch, so a resumed run sees exactly what an uninterrupted one would have seen.
Batches of an epoch are of nearly equal size; all hold the counted rows of their lists.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.data.click_log import ClickLog
from unskew.data.judged_set import JudgedSet
from unskew.lists import ClickedLists, JudgedLists

ClickDetail = Literal["counts", "pairs", "patterns"]


class ClickBatches:
    """Batches of a log, by list; a row is all showings of a list, or with `patterns` one click pattern of it."""

    def __init__(self, log: ClickLog, batch_size: int = 256, *, seed: int = 0, detail: ClickDetail = "counts"):
        if detail != "counts" and not log.joint:
            raise ValueError(
                f"this method learns from {detail} of clicks, but the log only has counts of single documents: keep "
                "which documents were clicked together (joint=True when building or simulating, --joint)"
            )
        self.log = log
        self.detail = detail
        n_rows = len(log.patterns.lists) if detail == "patterns" and log.patterns is not None else log.n_lists
        self.order = _Order(n_rows, batch_size, seed)
        self._features = _tensor(log.features)
        self._documents = torch.from_numpy(log.documents.astype(np.int64))
        self._positions = torch.from_numpy(log.positions.astype(np.int64))
        self._mask = _tensor(log.mask)
        self._bias = {name: _tensor(column.per_document(log.n_docs)) for name, column in log.bias.items()}
        self._full = bool(log.mask.all())
        if log.patterns is not None:
            self._pattern_offsets = np.searchsorted(log.patterns.lists, np.arange(log.n_lists + 1))

    @property
    def per_epoch(self) -> int:
        return self.order.per_epoch

    def __call__(self, step: int) -> ClickedLists:
        """The batch of this step."""
        return self.rows(self.order(step))

    def all(self, batch_size: int = 1024) -> Iterator[ClickedLists]:
        """Every row once, in the log's order."""
        for start in range(0, self.order.n_rows, batch_size):
            yield self.rows(np.arange(start, min(start + batch_size, self.order.n_rows)))

    def rows(self, rows: NDArray[np.int64]) -> ClickedLists:
        """These rows as tensors."""
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
        documents = self._documents[chosen]
        features = self._features.index_select(0, documents.reshape(-1)).view(*documents.shape, -1)
        if not self._full:
            features *= mask.unsqueeze(-1)  # padding points at a real document
        return ClickedLists(
            features=features,
            mask=mask,
            positions=self._positions[chosen],
            clicks=torch.from_numpy(clicks),
            sessions=torch.from_numpy(sessions),
            bias={name: values[chosen] for name, values in self._bias.items()},
            policy_scores=None if log.policy_scores is None else torch.from_numpy(log.policy_scores[lists]),
            pairs=self._pairs(lists) if self.detail == "pairs" else None,
        )

    def _pairs(self, lists: NDArray[np.int64]) -> Tensor:
        """Sessions of each list in which i was clicked and j was not, `[lists, docs, docs]`."""
        patterns = self.log.patterns
        assert patterns is not None
        sizes = np.diff(self._pattern_offsets)[lists]
        starts = self._pattern_offsets[:-1][lists]
        rows = np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
        clicked = torch.from_numpy(patterns.clicks[rows])
        weighted = clicked * torch.from_numpy(patterns.sessions[rows].astype(np.float32)).unsqueeze(-1)
        owner = torch.from_numpy(np.repeat(np.arange(len(lists)), sizes))
        counts = torch.zeros(len(lists), self.log.n_docs, self.log.n_docs)
        counts.index_add_(0, owner, weighted.unsqueeze(2) * (1 - clicked).unsqueeze(1))
        mask = self._mask[torch.from_numpy(lists)]
        return counts * (mask.unsqueeze(2) & mask.unsqueeze(1))


class JudgedBatches:
    """Batches of a judged set."""

    def __init__(self, judged: JudgedSet, batch_size: int = 256, *, seed: int = 0):
        self.judged = judged
        self.order = _Order(judged.n_queries, batch_size, seed)

    @property
    def per_epoch(self) -> int:
        return self.order.per_epoch

    def __call__(self, step: int) -> JudgedLists:
        return self.judged.lists(self.order(step))


class _Order:
    """Which rows make up the batch of a step."""

    def __init__(self, n_rows: int, batch_size: int, seed: int):
        if n_rows == 0:
            raise ValueError("there are no lists to learn from: the log is empty")
        self.n_rows = n_rows
        self.seed = seed
        self.per_epoch = -(-n_rows // batch_size)
        self._epoch = -1
        self._permutation = np.zeros(0, dtype=np.int64)

    def __call__(self, step: int) -> NDArray[np.int64]:
        epoch, number = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            self._epoch = epoch
            self._permutation = np.random.default_rng([self.seed, epoch]).permutation(self.n_rows)
        bounds = np.linspace(0, self.n_rows, self.per_epoch + 1).astype(np.int64)
        return self._permutation[bounds[number] : bounds[number + 1]]


def _tensor(array: NDArray) -> Tensor:
    """A tensor that shares the array's memory; a read-only array is only ever read here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(array))
