"""ClickSource: an object that gives the lists of a step, where clicks are not a fixed log.

`unskew.fit` takes one in place of a log. What a step gives must depend on the step (and on what the source itself was
made with) alone: then a run that was cut off goes on as if it had not been.

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
    """Gives the lists of a step.

    `fit` takes one in place of a log; `FreshClicks` is the one of the simulation.

    >>> from unskew import FreshClicks
    >>> issubclass(FreshClicks, ClickSource)
    True
    """

    documents: ClickLog  # all that may be shown: features, positions and bias columns are read off; clicks are not
    digest: str  # names what it gives: a run goes on only with a source of the same digest

    @abstractmethod
    def lists(self, step: int, n_sessions: int) -> ClickLog:
        """The log of this step, of about so many sessions; the same for the same step."""


class SourceBatches:
    """Batches of a source: every step has lists of its own.

    Args:
        batch_size: sessions in a batch.
        prepare: applied to what every step gives, e.g. a transform of its features.
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
