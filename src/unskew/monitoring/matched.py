"""Match two logs: their queries and documents get common numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.joined import join_logs
from unskew.data.clicks.storage import Log
from unskew.data.grouping import number_ids
from unskew.monitoring.estimates import totals

Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Side:
    """One of two logs, with the common numbers of its queries and documents."""

    log: ClickLog
    queries: Index  # [lists], common number of the query
    documents: Index  # [documents], common number of (query, document)
    sessions: NDArray[np.float64]  # [queries], by common number
    shown: NDArray[np.float64]  # [documents], sessions in which it was shown, by common number

    def per_place(self, keep: NDArray[np.bool_]) -> tuple[Index, Index, Index, Index]:
        """Common query and document numbers, list and column of the places that show a kept document."""
        kept = self.log.mask & keep[self.documents[self.log.documents]]
        rows, columns = np.nonzero(kept)
        return self.queries[rows], self.documents[self.log.documents[rows, columns]], rows, columns


@dataclass(frozen=True, eq=False)
class Matched:
    """Two logs, and the number of queries and documents in their union."""

    a: Side
    b: Side
    n_queries: int
    query_of_document: Index  # [documents]

    @property
    def shared_queries(self) -> NDArray[np.bool_]:
        return (self.a.sessions > 0) & (self.b.sessions > 0)

    @property
    def shared_documents(self) -> NDArray[np.bool_]:
        return (self.a.shown > 0) & (self.b.shown > 0)


def match(a: ClickLog, b: ClickLog) -> Matched:
    """Number queries and documents of both logs together, by their ids."""
    queries = _numbers(a.query_ids, b.query_ids)
    ids = _numbers(a.document_ids, b.document_ids)
    n_ids = int(max(part.max(initial=-1) for part in ids)) + 1
    pairs = [
        of_query[log.document_queries] * n_ids + of_id
        for log, of_query, of_id in zip((a, b), queries, ids, strict=True)
    ]
    known, number = np.unique(np.concatenate(pairs), return_inverse=True)
    documents = np.split(number.reshape(-1).astype(np.int64), [len(pairs[0])])
    n_queries = int(max(part.max(initial=-1) for part in queries)) + 1
    sides = [
        _side(log, of_query, of_document, n_queries, len(known))
        for log, of_query, of_document in zip((a, b), queries, documents, strict=True)
    ]
    return Matched(sides[0], sides[1], n_queries, known // n_ids)


def _side(log: ClickLog, of_query: Index, documents: Index, n_queries: int, n_documents: int) -> Side:
    queries = of_query[log.queries]
    sessions = totals(queries, log.sessions, n_queries)
    rows = np.nonzero(log.mask)[0]
    shown = totals(documents[log.documents[log.mask]], log.sessions[rows], n_documents)
    return Side(log, queries, documents, sessions, shown)


def _numbers(a: NDArray, b: NDArray) -> tuple[Index, Index]:
    if (a.dtype.kind in "iu") != (b.dtype.kind in "iu"):
        a, b = a.astype(str).astype(object), b.astype(str).astype(object)
    _, numbers = number_ids(np.concatenate([a, b]))
    return numbers[: len(a)], numbers[len(a) :]


def parts(a: Log, b: Log) -> Iterator[tuple[ClickLog, ClickLog]]:
    """Both logs whole or, for opened folders, in parts with the same queries: as many as the larger one has shards.

    A checksum of its id assigns a query to a part. Every shard is read once per part; memory holds two shards and one
    part of each log.
    """
    if isinstance(a, ClickLog) and isinstance(b, ClickLog):
        yield a, b
        return
    n_parts = max(a.n_shards, b.n_shards)
    for number in range(n_parts):
        yield _part(a, number, n_parts), _part(b, number, n_parts)


def _part(log: Log, number: int, n_parts: int) -> ClickLog:
    chosen = []
    for shard in log.shards():
        mine = [crc32(str(query).encode()) % n_parts == number for query in shard.query_ids.tolist()]
        chosen.append(shard.of_queries(np.array(mine, dtype=bool)))
    return join_logs(chosen)
