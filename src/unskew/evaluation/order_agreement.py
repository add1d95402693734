"""Agreement of two orders: how similarly two rankers order the documents of each query."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.data.judged.judged_set import JudgedSet

PAIRS_AT_ONCE = 2**22


def grades_of(scores: NDArray[np.float64], documents: JudgedSet) -> NDArray[np.float32]:
    """Scores as grades, from 0 for the lowest of a query to 4 for its highest."""
    low = np.repeat(np.minimum.reduceat(scores, documents.offsets[:-1]), documents.sizes)
    high = np.repeat(np.maximum.reduceat(scores, documents.offsets[:-1]), documents.sizes)
    return (4 * (scores - low) / np.where(high > low, high - low, 1.0)).astype(np.float32)


def kendall(first: NDArray, second: NDArray, offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    r"""Kendall's $\tau_b$ of two scorings within each query `[queries]`; NaN if one of them has no order."""
    sizes = np.diff(offsets)
    taus = np.full(len(sizes), np.nan)
    for size in np.unique(sizes[sizes > 1]):
        queries = np.flatnonzero(sizes == size)
        rows, columns = np.triu_indices(size, 1)
        for part in np.array_split(queries, -(-len(queries) * len(rows) // PAIRS_AT_ONCE)):
            places = offsets[part][:, None] + np.arange(size)
            signs = [np.sign(scores[places][:, rows] - scores[places][:, columns]) for scores in (first, second)]
            counted = np.sqrt(np.prod([(sign != 0).sum(1) for sign in signs], axis=0, dtype=np.float64))
            together = (signs[0] * signs[1]).sum(1)
            taus[part] = np.divide(together, counted, out=np.full(len(part), np.nan), where=counted > 0)
    return taus
