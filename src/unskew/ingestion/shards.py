"""Patterns of a range of queries, as arrow tables, into a click log: cleaned, padded and counted in numpy.

Here it shows whether a list can be true: a document stands in it once, and each place holds one document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.impressions import BiasColumn, add_showings, compact_counts, count_patterns
from unskew.data.grouping import plain_ids, unique_rows
from unskew.ingestion.group import POSITION_BITS
from unskew.ingestion.impressions import NO_INTERVENTION, Shape
from unskew.ingestion.report import Dropped

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Schema:
    """What all shards of a log have in common."""

    shape: Shape
    levels: Mapping[str, Sequence[str]]  # names of levels by extra column
    per_list: frozenset[str]  # extra columns that say the same of all documents of a list
    joint: bool


@dataclass(frozen=True, eq=False)
class _Rows:
    """Patterns: entries one after the other, list by list, top first."""

    lists: Integers  # [entries], the pattern of each
    positions: Integers
    documents: Integers  # number within the query
    clicks: Integers
    extras: Mapping[str, NDArray]
    queries: Integers  # [patterns], query_number
    sessions: Integers  # [patterns]
    times: Integers | None  # [patterns]

    def select_entries(self, kept: NDArray[np.bool_]) -> _Rows:
        """Without some entries; a pattern that has none left is gone."""
        left = np.unique(self.lists[kept])
        new_number = np.zeros(len(self.queries), dtype=np.int64)
        new_number[left] = np.arange(len(left))
        return replace(
            self,
            lists=new_number[self.lists[kept]],
            positions=self.positions[kept],
            documents=self.documents[kept],
            clicks=self.clicks[kept],
            extras={name: values[kept] for name, values in self.extras.items()},
            queries=self.queries[left],
            sessions=self.sessions[left],
            times=None if self.times is None else self.times[left],
        )


def shard_log(patterns: pa.Table, documents: pa.Table, schema: Schema, dropped: Dropped) -> ClickLog | None:
    """The log of patterns sorted by query and list, and documents sorted by query and number; None: nothing is left.

    Examples in `dropped` name a query and a document.
    """
    rows = _clean(_unpack(patterns, schema), documents, dropped)
    if not len(rows.queries):
        return None
    sizes = np.bincount(rows.lists)
    mask = np.arange(sizes.max())[None, :] < sizes[:, None]

    def padded(values: NDArray, fill: float = 0) -> NDArray:
        spread = np.full(mask.shape, fill, dtype=values.dtype)
        spread[mask] = values
        return spread

    query_numbers, first_document = np.unique(documents["query_number"].to_numpy(), return_index=True)
    query_of_row = np.searchsorted(query_numbers, rows.queries)
    document_rows = rows.documents + first_document[query_of_row][rows.lists]
    key = [padded(document_rows, -1), padded(rows.positions, -1)]
    key += [padded(values, -1) for name, values in rows.extras.items() if name != "score"]
    first, kind = unique_rows(np.concatenate([part.astype(np.float64) for part in key], axis=1))
    n_lists = len(first)
    clicks = padded(rows.clicks.astype(np.float64))
    sessions = rows.sessions.astype(np.float64)
    columns = {
        name: _column(padded(values)[first], mask[first], name, schema)
        for name, values in rows.extras.items()
        if name != "score"
    }
    return ClickLog(
        features=_features(documents, len(schema.shape.features)),
        documents=padded(document_rows)[first].astype(np.int32),
        mask=mask[first],
        clicks=compact_counts(add_showings(kind, n_lists, clicks * sessions[:, None])),
        sessions=compact_counts(add_showings(kind, n_lists, sessions)),
        positions=padded(rows.positions)[first].astype(np.int16),
        document_queries=np.searchsorted(query_numbers, documents["query_number"].to_numpy()),
        query_ids=plain_ids(documents["query"].take(pa.array(first_document))),
        document_ids=plain_ids(documents["document"]),
        feature_names=schema.shape.features,
        patterns=count_patterns(kind, clicks, sessions) if schema.joint else None,
        bias={name: columns[f"bias_{number}"] for number, (name, _) in enumerate(schema.shape.bias)},
        policy_scores=_mean_scores(padded(rows.extras["score"]), kind, n_lists, sessions)
        if schema.shape.score
        else None,
        interventions=columns.get("intervention"),
        first_shown=None if rows.times is None else _earliest(rows.times, kind, n_lists),
    )


def _unpack(patterns: pa.Table, schema: Schema) -> _Rows:
    sizes = pc.list_value_length(patterns["shown"]).to_numpy().astype(np.int64)
    shown = pc.list_flatten(patterns["shown"]).to_numpy()
    return _Rows(
        lists=np.repeat(np.arange(len(sizes)), sizes),
        positions=shown >> POSITION_BITS,
        documents=(shown & (2**POSITION_BITS - 1)) >> 1,
        clicks=shown & 1,
        extras={name: _extra(pc.list_flatten(patterns[name]), schema.levels.get(name)) for name in schema.shape.extras},
        queries=patterns["query_number"].to_numpy().astype(np.int64),
        sessions=patterns["sessions"].to_numpy().astype(np.int64),
        times=_microseconds(patterns["time"]) if schema.shape.time else None,
    )


def _extra(values: pa.ChunkedArray, levels: Sequence[str] | None) -> NDArray:
    """Numbers as they are, text as numbers of levels."""
    if levels is None:
        return values.to_numpy().astype(np.float32)
    found = pc.index_in(values.cast(pa.large_string()), value_set=pa.array(levels, pa.large_string()))
    return found.to_numpy().astype(np.int64)


def _microseconds(times: pa.ChunkedArray) -> Integers:
    if pa.types.is_timestamp(times.type):
        times = times.cast(pa.timestamp("us", tz=times.type.tz), safe=False).cast(pa.int64())
    return times.to_numpy()


def _clean(rows: _Rows, documents: pa.Table, dropped: Dropped) -> _Rows:
    """Patterns in which a document stands once, and one document at each place; the rest is counted."""

    def drop(reason: str, bad: NDArray[np.bool_]) -> _Rows:
        count = rows.sessions[rows.lists[bad]].sum()
        entry = int(np.argmax(bad))
        query = rows.queries[rows.lists[entry]]
        dropped.add(reason, int(count), _describe(documents, int(query), int(rows.documents[entry])))
        return rows.select_entries(~bad)

    together = rows.lists[1:] == rows.lists[:-1]
    same_place = together & (rows.positions[1:] == rows.positions[:-1])
    again = same_place & (rows.documents[1:] == rows.documents[:-1])
    if again.any():  # sorted by click last, so the one that stays is clicked if any is
        rows = drop("duplicate", np.append(again, False))
    lower = _shown_above(rows)
    if lower.any():
        rows = drop("shown_again", lower)
    shared = (rows.lists[1:] == rows.lists[:-1]) & (rows.positions[1:] == rows.positions[:-1])
    if shared.any():
        broken = np.zeros(len(rows.queries), dtype=bool)
        broken[rows.lists[1:][shared]] = True
        rows = drop("shared_position", broken[rows.lists])
    return rows


def _shown_above(rows: _Rows) -> NDArray[np.bool_]:
    """Entries whose document stands further up in the same list."""
    key = rows.lists * (int(rows.documents.max(initial=0)) + 1) + rows.documents
    order = np.argsort(key, kind="stable")  # entries of a list come top first
    found = np.zeros(len(key), dtype=bool)
    found[order[1:]] = key[order[1:]] == key[order[:-1]]
    return found


def _describe(documents: pa.Table, query: int, document: int) -> str:
    start = int(np.searchsorted(documents["query_number"].to_numpy(), query))
    found = documents.select(["query", "document"]).slice(start + document, 1).to_pylist()
    return f"query {found[0]['query']}, document {found[0]['document']}" if found else ""


def _features(documents: pa.Table, n_features: int) -> NDArray[np.float32]:
    features = np.empty((documents.num_rows, n_features), dtype=np.float32)
    for number in range(n_features):
        features[:, number] = documents[f"feature_{number}"].to_numpy()
    return features


def _column(values: NDArray, mask: NDArray[np.bool_], name: str, schema: Schema) -> BiasColumn:
    levels = schema.levels.get(name)
    if name == "intervention":
        varied = (values != values[:, :1]) & mask
        if varied.any():
            raise ValueError("the intervention differs within a showing: all rows of a showing name the same one")
    return BiasColumn(values[:, 0] if name in schema.per_list else values, None if levels is None else tuple(levels))


def _mean_scores(scores: NDArray, kind: Integers, n_lists: int, sessions: NDArray) -> NDArray[np.float32]:
    """Mean over the sessions of a list: a policy that samples has no one score for it."""
    sums = add_showings(kind, n_lists, scores * sessions[:, None])
    return (sums / add_showings(kind, n_lists, sessions)[:, None]).astype(np.float32)


def _earliest(times: Integers, kind: Integers, n_lists: int) -> Integers:
    first = np.full(n_lists, np.iinfo(np.int64).max)
    np.minimum.at(first, kind, times)
    return first


def level_names(found: Sequence[Any], *, intervention: bool) -> list[str]:
    """Names of levels in order; of interventions, the one for nothing first."""
    names = sorted(str(name) for name in found)
    if not intervention:
        return names
    return [NO_INTERVENTION, *(name for name in names if name != NO_INTERVENTION)]
