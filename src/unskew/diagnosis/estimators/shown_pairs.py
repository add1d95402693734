"""Random pairs of documents of one list, the higher one first, to study the shown order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.diagnosis.estimators.curve import NotIdentified

MOST_PAIRS = 50_000  # a share among this many has a standard error of about 0.2%


@dataclass(frozen=True, eq=False)
class ShownPairs:
    """Pairs of documents, as rows of the log's features."""

    upper: NDArray[np.int64]  # [pairs]
    lower: NDArray[np.int64]  # [pairs]
    queries: NDArray[np.int64]  # [pairs]


def shown_pairs(log: ClickLog, rng: Generator) -> ShownPairs:
    """Pairs from lists that no intervention changed, drawn equally from all lists."""
    sizes = log.mask.sum(axis=1)
    fit = sizes > 1
    if log.interventions is not None and (plain := fit & (log.interventions.values == 0)).any():
        fit = plain
    lists = np.flatnonzero(fit)
    if not len(lists):
        raise NotIdentified("no list shows two documents: there is no order")
    lists = rng.choice(lists, MOST_PAIRS)
    # Documents of a list are in shown order in its first columns.
    one = rng.integers(sizes[lists])
    other = rng.integers(sizes[lists] - 1)
    other = other + (other >= one)
    upper = log.versions[lists, np.minimum(one, other)]
    lower = log.versions[lists, np.maximum(one, other)]
    return ShownPairs(upper.astype(np.int64), lower.astype(np.int64), log.queries[lists])
