"""Why documents were shown at several positions: randomization, a change of ranker, or changed features.

The first two move a document without changing it, so that its clicks show the effect of the positions. A changed price
that moved a document also changed its relevance: such pairs are counted, but compared only on request
(`across_versions`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.diagnosis.estimators.position_pairs import Index, counted_impressions, pairs_of_documents

DOCUMENTS_AT_ONCE = 100_000


@dataclass(frozen=True)
class PairCauses:
    """Pairs of positions of documents, each counted under the best of its causes."""

    ranker: int  # the same version at both positions, in lists that no intervention changed
    randomization: int  # the same version at both, at one of them only in lists that an intervention changed
    features: int  # no version at both, but two versions of the document


def pair_causes(log: ClickLog) -> PairCauses:
    """Count pairs of positions at which documents of a query were shown, by cause.

    >>> log = ClickLog.from_arrays([[1.0], [2.0]], clicks=[1, 0], group=[2])
    >>> pair_causes(log)
    PairCauses(ranker=0, randomization=0, features=0)
    """
    chosen = counted_impressions(log, None)
    n_positions = log.n_positions
    plain = np.ones(log.n_lists, bool) if log.interventions is None else log.interventions.values == 0
    code = log.versions[chosen].astype(np.int64) * n_positions + log.positions[chosen]
    unchanged = np.broadcast_to(plain[:, None], chosen.shape)[chosen]
    cells = np.unique(code)
    of_plain = np.isin(cells, np.unique(code[unchanged]), assume_unique=True)
    versions, places = np.divmod(cells, n_positions)
    documents = log.version_documents[versions]
    order = np.lexsort((places, versions, documents))
    versions, places, documents = versions[order], places[order], documents[order]
    of_plain = of_plain[order]
    counts = np.zeros(3, dtype=np.int64)
    starts = np.searchsorted(documents, np.arange(0, log.n_documents, DOCUMENTS_AT_ONCE))
    for first, last in zip(starts, [*starts[1:], len(documents)], strict=True):
        part = slice(first, last)
        own, at, kept = documents[part], places[part], of_plain[part]
        by_ranker = _pairs(versions[part][kept], own[kept], at[kept], n_positions)
        of_version = _pairs(versions[part], own, at, n_positions)
        across = np.unique(own * n_positions + at)
        of_document = _pairs(across // n_positions, across // n_positions, across % n_positions, n_positions)
        sizes = (len(by_ranker), len(of_version), len(of_document))
        counts += (sizes[0], sizes[1] - sizes[0], sizes[2] - sizes[1])
    return PairCauses(*counts.tolist())


def _pairs(numbers: Index, documents: Index, places: NDArray, n_positions: int) -> Index:
    """Distinct pairs of positions of each document, among rows of the same number, as codes."""
    one, other = pairs_of_documents(numbers)
    return np.unique((documents[one] * n_positions + places[one]) * n_positions + places[other])
