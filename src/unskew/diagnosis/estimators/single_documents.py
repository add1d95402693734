"""A log of single documents: impressions and clicks of each document at each position, and nothing else.

Most parts of a diagnosis need no more than that. A log of ten million impressions has far fewer pairs of document and
position, so it is summed once and then used many times.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.impressions import compact_counts
from unskew.diagnosis.estimators.position_pairs import counted_impressions

MOST_CODES = 200_000_000  # documents x positions counted without sorting


def single_documents(log: ClickLog) -> ClickLog:
    """The same clicks and impressions with one list per document and position, summed over bias columns."""
    chosen = counted_impressions(log, None)
    n_positions = log.n_positions
    code = log.versions[chosen].astype(np.int64) * n_positions + log.positions[chosen]
    sessions = np.broadcast_to(log.sessions[:, None], chosen.shape)[chosen]
    cells, shown, clicks = _added_up(code, sessions, log.clicks[chosen], len(log.features) * n_positions)
    documents, positions = np.divmod(cells, n_positions)
    return ClickLog(
        features=log.features,
        versions=documents[:, None].astype(np.int32),
        mask=np.ones((len(cells), 1), dtype=bool),
        clicks=compact_counts(clicks)[:, None],
        sessions=compact_counts(shown),
        positions=positions[:, None].astype(np.int16),
        version_documents=log.version_documents,
        document_queries=log.document_queries,
        query_ids=log.query_ids,
        document_ids=log.document_ids,
        feature_names=log.feature_names,
        categories={name: names for name, names in log.categories.items() if name in log.feature_names},
        graded=log.graded,
    )


def _added_up(
    code: NDArray[np.int64], shown: NDArray, clicks: NDArray, n_codes: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """The codes that occur, and the sums of both values for each."""
    if n_codes > MOST_CODES:
        cells, number = np.unique(code, return_inverse=True)
        sums = [np.bincount(number, weights=values).astype(np.float64) for values in (shown, clicks)]
        return cells, sums[0], sums[1]
    sums = [np.bincount(code, weights=values, minlength=n_codes).astype(np.float64) for values in (shown, clicks)]
    cells = np.flatnonzero(sums[0] > 0)
    return cells, sums[0][cells], sums[1][cells]
