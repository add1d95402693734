"""Patterns of a range of queries, as arrow tables, into a click log: cleaned here, counted by its kernel.

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

from unskew.data.clicks.build import Documents, Impressions, build_log
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.impressions import BiasColumn, first_rows
from unskew.data.grouping import plain_ids
from unskew.ingestion.group import POSITION_BITS
from unskew.ingestion.impressions import NO_INTERVENTION, Shape
from unskew.ingestion.report import Dropped

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Schema:
    """What all shards of a log have in common."""

    shape: Shape
    levels: Mapping[str, Sequence[str]]  # names of levels by extra column
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
    query_numbers, first_document = np.unique(documents["query_number"].to_numpy(), return_index=True)
    query_of_list = np.searchsorted(query_numbers, rows.queries)

    def column(name: str) -> BiasColumn:
        levels = schema.levels.get(name)
        return BiasColumn(rows.extras[name], None if levels is None else tuple(levels))

    shown = Impressions(
        showings=rows.lists,
        positions=rows.positions,
        versions=rows.documents + first_document[query_of_list][rows.lists],
        clicks=rows.clicks.astype(np.float64),
        sessions=rows.sessions,
        bias={name: column(f"bias_{number}") for number, (name, _) in enumerate(schema.shape.bias)},
        policy_scores=rows.extras["score"] if schema.shape.score else None,
        interventions=_one_each_list(column("intervention"), rows.lists) if schema.shape.intervention else None,
        times=rows.times,
    )
    listed = Documents(
        features=_features(documents, len(schema.shape.features)),
        feature_names=schema.shape.features,
        document_ids=plain_ids(documents["document"]),
        document_queries=np.searchsorted(query_numbers, documents["query_number"].to_numpy()),
        query_ids=plain_ids(documents["query"].take(pa.array(first_document))),
    )
    return build_log(shown, listed, joint=schema.joint)


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


def _one_each_list(column: BiasColumn, lists: Integers) -> BiasColumn:
    top = column.values[first_rows(lists)]
    if not np.array_equal(top[lists], column.values):
        raise ValueError("the intervention differs within a showing: all rows of a showing name the same one")
    return BiasColumn(top, column.levels)


def level_names(found: Sequence[Any], *, intervention: bool) -> list[str]:
    """Names of levels in order; of interventions, the one for nothing first."""
    names = sorted(str(name) for name in found)
    if not intervention:
        return names
    return [NO_INTERVENTION, *(name for name in names if name != NO_INTERVENTION)]
