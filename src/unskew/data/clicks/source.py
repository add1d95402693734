"""ClickSource: an object that generates the lists of each step, for clicks that are not a fixed log.

`unskew.fit` takes one in place of a log. The lists of a step may depend only on the step and on the arguments of the
source: then an interrupted run resumes exactly.

>>> class Shuffled(ClickSource):
...     def __init__(self, log: ClickLog):
...         self.documents, self.digest = log, log.digest
...     def lists(self, step: int, n_sessions: int) -> ClickLog:
...         rng = np.random.default_rng(step)
...         return self.documents.select(rng.integers(0, self.documents.n_lists, n_sessions))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from unskew.data.clicks.batches import ClickBatches, ClickDetail
from unskew.data.clicks.click_log import ClickLog
from unskew.lists import ClickedLists
from unskew.processes import WHOLE, Share


class ClickSource(ABC):
    """Generates the lists of each step.

    `fit` takes one in place of a log; `FreshClicks` draws simulated clicks.

    >>> from unskew import FreshClicks
    >>> issubclass(FreshClicks, ClickSource)
    True
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
