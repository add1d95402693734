r"""Held-out clicks, counted by document, for evaluation without labels.

Rankers are given as one score per document of the log, `[documents]`; documents that are not ranked have NaN. A
criterion gives one value per query of the log, whose mean is the estimate, so that intervals and paired tests over
queries are those of `evaluation.differences`. For a ratio of sums $R = \sum_q a_q / \sum_q b_q$ these are
$R + (a_q - R\,b_q) / \bar b$: their mean is $R$, and their spread gives its standard error (the delta method).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.evaluate import Scorer, score_documents

Vector = NDArray  # float64
Numbers = NDArray[np.int64]

CANDIDATES = {
    "shown": "documents that the held-out log shows for the query",
    "all": "every document of the query that the log describes, shown or not",
}


class NotMeasured(ValueError):
    """The log or the ranker does not support a criterion; the message says why, in a few words."""


@dataclass(frozen=True, eq=False)
class Impressions:
    """One row per document and position where it was shown."""

    documents: Numbers  # [rows]
    positions: Numbers  # [rows]
    queries: Numbers  # [rows], as `HeldOut.queries` numbers them
    sessions: Vector  # [rows], number of times it was shown there
    clicks: Vector  # [rows]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """A log that rankers were not trained on."""

    log: ClickLog

    def __post_init__(self) -> None:
        object.__setattr__(self, "log", self.log.with_context_as_features())

    @cached_property
    def distinct(self) -> Numbers:
        """Numbers in the log of the queries that it shows, `[queries]`."""
        return np.unique(self.log.queries)

    @property
    def n_queries(self) -> int:
        return len(self.distinct)

    @property
    def query_ids(self) -> NDArray:
        return self.log.query_ids[self.distinct]

    @cached_property
    def query_of_list(self) -> Numbers:
        """`[lists]`."""
        return np.searchsorted(self.distinct, self.log.queries)

    @cached_property
    def sessions(self) -> Vector:
        """Sessions of each query."""
        return self.sum_by_query(self.query_of_list, self.log.sessions)

    @cached_property
    def impressions(self) -> Impressions:
        log = self.log
        lists, columns = np.nonzero(log.mask)
        documents = log.versions[lists, columns].astype(np.int64)
        positions = log.positions[lists, columns].astype(np.int64)
        keys, row = np.unique(documents * max(log.n_positions, 1) + positions, return_inverse=True)
        places = keys % max(log.n_positions, 1)
        shown = keys // max(log.n_positions, 1)
        return Impressions(
            documents=shown,
            positions=places,
            queries=np.searchsorted(self.distinct, log.version_queries[shown]),
            sessions=np.bincount(row, log.sessions[lists].astype(np.float64), len(keys)),
            clicks=np.bincount(row, log.clicks[lists, columns].astype(np.float64), len(keys)),
        )

    def candidates(self, which: str = "shown") -> tuple[Numbers, Numbers]:
        """The documents to rank, query by query, and the query of each."""
        if which not in CANDIDATES:
            raise ValueError(f"unknown candidates '{which}': choose one of {', '.join(CANDIDATES)}")
        if which == "shown":
            documents = np.unique(self.log.versions[self.log.mask]).astype(np.int64)
        else:
            documents = np.flatnonzero(np.isin(self.log.version_queries, self.distinct))
        queries = np.searchsorted(self.distinct, self.log.version_queries[documents])
        order = np.argsort(queries, kind="stable")
        return documents[order], queries[order]

    def score(self, ranker: Scorer, which: str = "shown") -> Vector:
        """Scores of a ranker, `[documents]`, the candidates of a query as one list; NaN for other documents."""
        documents, queries = self.candidates(which)
        sizes = np.bincount(queries, minlength=self.n_queries)
        lists = JudgedSet(
            features=self.log.features[documents],
            grades=np.zeros(len(documents), dtype=np.float32),
            offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        )
        scores = np.full(len(self.log.features), np.nan)
        scores[documents] = score_documents(ranker, lists)
        return scores

    def sum_by_query(self, queries: Numbers, values: ArrayLike) -> Vector:
        """Sums of values that each belong to a query."""
        return np.bincount(queries, np.asarray(values, dtype=np.float64), self.n_queries)


def of_ratio(numerators: ArrayLike, denominators: ArrayLike) -> Vector:
    """One value per query, whose mean is the ratio of the sums; NaN for queries with denominator 0."""
    above, below = np.asarray(numerators, dtype=np.float64), np.asarray(denominators, dtype=np.float64)
    counted = below != 0
    if not counted.any():
        raise NotMeasured("no held-out query has data for it")
    ratio = above[counted].sum() / below[counted].sum()
    values = np.full(len(above), np.nan)
    values[counted] = ratio + (above[counted] - ratio * below[counted]) / below[counted].mean()
    return values
