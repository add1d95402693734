"""Judged queries that also occur in a click log, so that a ranker has learned from their clicks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.judged_set import JudgedSet


def seen_queries(judged: JudgedSet, log: ClickLog) -> NDArray[np.bool_]:
    """Which judged queries the log shows, `[queries]`.

    They have the same id. If the ids are numbers this proves nothing, because many sets count from 0: then a document
    of the query must also share a feature row with the log, if both have the same number of features.
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
    """One sentence on how many judged queries occur in the log."""
    return f"{int(seen.sum()):,} of {len(seen):,} judged queries also occur in the click log"
