"""Judged queries that also occur in a click log: a ranker has learned from what was shown for them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.judged_set import JudgedSet


def seen_queries(judged: JudgedSet, log: ClickLog) -> NDArray[np.bool_]:
    """Which judged queries the log shows, `[queries]`.

    They have the same id. An id that is a number proves nothing, as many sets count from 0: then a document of the
    query must also have a row of features in common with the log, where both have the same number of features.
    """
    numbers = {str(name): number for number, name in enumerate(log.query_ids.tolist())}
    names = [str(name) for name in judged.query_ids.tolist()]
    comparable = bool(judged.n_features) and judged.n_features == log.n_features
    versions = np.argsort(log.version_queries, kind="stable")
    ends = np.cumsum(np.bincount(log.version_queries, minlength=len(log.query_ids)))

    def share_a_row(query: int, number: int) -> bool:
        rows = log.features[versions[ends[number - 1] if number else 0 : ends[number]]]
        known = {row.tobytes() for row in np.ascontiguousarray(rows, dtype=np.float32)}
        return any(row.tobytes() in known for row in judged.features[judged.offsets[query] : judged.offsets[query + 1]])

    return np.array(
        [
            name in numbers and (not comparable or not name.lstrip("-").isdigit() or share_a_row(query, numbers[name]))
            for query, name in enumerate(names)
        ],
        dtype=bool,
    )


def count_text(seen: NDArray[np.bool_]) -> str:
    """How many judged queries occur in the log, in one sentence."""
    return f"{int(seen.sum()):,} of {len(seen):,} judged queries also occur in the click log"
