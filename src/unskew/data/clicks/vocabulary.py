"""Vocabulary: numbers for the ids of a log, for models that learn parameters of single documents.

A document is a (query, URL) pair. Each has three numbers, from the specific to the general: its own, that of its URL
(the same result for other queries) and that of its query. 0 means unknown: a model falls back to the more general ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.grouping import as_array, as_text

LEVELS = ("document", "url", "query")


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The documents that a model knows, in the order of their numbers, which count from 1."""

    queries: pa.Array  # [documents], text
    urls: pa.Array  # [documents], text

    @classmethod
    def of(cls, logs: Iterable[ClickLog]) -> Vocabulary:
        """All documents that these logs show."""
        queries, urls = [], []
        for log in logs:
            shown = np.unique(log.documents[log.mask])
            queries.append(as_text(as_array(log.query_ids[log.document_queries[shown]])))
            urls.append(as_text(as_array(log.document_ids[shown])))
        return cls(pa.concat_arrays(queries), pa.concat_arrays(urls))

    @classmethod
    def from_table(cls, table: pa.Table) -> Vocabulary:
        return cls(as_array(table["query"]), as_array(table["document"]))

    def to_table(self) -> pa.Table:
        """One row per document: its query and its URL."""
        return pa.table({"query": self.queries, "document": self.urls})

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of known documents, URLs and queries."""
        return len(self.queries), len(self._known_urls), len(self._known_queries)

    def numbers(self, queries: ArrayLike, urls: ArrayLike) -> NDArray[np.int64]:
        """Numbers of documents by their ids, `[documents, 3]`."""
        query = _index(queries, self._known_queries)
        url = _index(urls, self._known_urls)
        keys = query * (len(self._known_urls) + 1) + url
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        known = (query > 0) & (url > 0) & (self._keys[place] == keys)
        return np.stack([np.where(known, self._order[place] + 1, 0), url, query], axis=1)

    def encode(self, log: ClickLog) -> ClickLog:
        """The log with these numbers for its documents."""
        return replace(log, codes=self.numbers(log.query_ids[log.document_queries], log.document_ids))

    @cached_property
    def _known_queries(self) -> pa.Array:
        return pc.unique(self.queries)

    @cached_property
    def _known_urls(self) -> pa.Array:
        return pc.unique(self.urls)

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        return np.argsort(self._pairs, kind="stable")

    @cached_property
    def _keys(self) -> NDArray[np.int64]:
        return self._pairs[self._order]

    @cached_property
    def _pairs(self) -> NDArray[np.int64]:
        urls = _index(self.urls, self._known_urls)
        return _index(self.queries, self._known_queries) * (len(self._known_urls) + 1) + urls


def _index(values: ArrayLike, known: pa.Array) -> NDArray[np.int64]:
    """Numbers from 1; 0 for unknown values."""
    numbers = pc.index_in(as_text(as_array(values)), known)
    return pc.fill_null(numbers, -1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
