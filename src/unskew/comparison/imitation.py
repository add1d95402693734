"""Production as a ranker: plain clicks on a log in which only production's order is clicked.

Production scores the documents of a log, and a ranker that is served scores any document. So a ranker learns the order
of production from features, and is averaged with others as one more member (`choice`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import LogFolder
from unskew.evaluation.production import production_of_log


def ordered_as_production(log: ClickLog, which: str | None = None) -> ClickLog:
    """The log with clicks that fall with the place in production's order: always on the first, never on the last.

    What production did not show is not clicked.

    Args:
        which: the ranker that production is, where the log shows several.
    """
    scores = production_of_log(log, which).scores
    ranked = np.flatnonzero(np.isfinite(scores))
    ranked = ranked[np.lexsort((-scores[ranked], log.version_queries[ranked]))]
    _, starts, sizes = np.unique(log.version_queries[ranked], return_index=True, return_counts=True)
    places = np.arange(len(ranked)) - np.repeat(starts, sizes)
    share = np.zeros(len(log.features))
    share[ranked] = 1 - places / np.maximum(np.repeat(sizes, sizes) - 1, 1)
    clicks = np.where(log.mask, np.rint(share[log.versions] * log.sessions[:, None]), 0)
    return replace(log, clicks=clicks.astype(log.clicks.dtype))


def ordered_folder(folder: LogFolder, which: str | None = None) -> LogFolder:
    """The same for a log on disk, read shard by shard."""

    def ordered(shard: ClickLog) -> ClickLog:
        try:
            return ordered_as_production(shard, which)
        except ValueError:  # production was not shown for these queries
            return replace(shard, clicks=np.zeros_like(shard.clicks))

    return folder.view(change=ordered)
