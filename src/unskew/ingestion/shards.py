"""Turn the patterns of a range of queries, as arrow tables, into a click log: clean them, then count them.

Lists are checked here: each document occurs once, and each position holds one document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.data.clicks.build import Documents, Impressions, first_rows, log_fields
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.kept_users import UserLog, numbers_from_digits, users_table
from unskew.data.clicks.row_fields import BiasColumn
from unskew.data.grouping import plain_ids
from unskew.ingestion.group import POSITION_BITS
from unskew.ingestion.impressions import NO_INTERVENTION, Shape
from unskew.ingestion.report import Dropped

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Schema:
    """The schema shared by all shards."""

    shape: Shape
    levels: Mapping[str, Sequence[str]]  # names of levels by extra column
    joint: bool


@dataclass(frozen=True, eq=False)
class _Rows:
    """Patterns as consecutive entries, list by list, top first."""

    lists: Integers  # [entries], the pattern of each entry
    positions: Integers
    versions: Integers  # rows of the table of documents
    documents: Integers  # the document of the version
    clicks: Integers
    extras: Mapping[str, NDArray]
    queries: Integers  # [patterns], query_number
    sessions: Integers  # [patterns]
    users: NDArray[np.uint64] | None  # [patterns]
    times: Integers | None  # [patterns]
    periods: Integers | None  # [patterns]

    def select_entries(self, kept: NDArray[np.bool_]) -> _Rows:
        """Keep some entries; patterns without entries are removed."""
        left = np.unique(self.lists[kept])
        new_number = np.zeros(len(self.queries), dtype=np.int64)
        new_number[left] = np.arange(len(left))
        of_entries = ("positions", "versions", "documents", "clicks")
        of_patterns = [n for n in ("queries", "sessions", "users", "times", "periods") if getattr(self, n) is not None]
        return replace(
            self,
            lists=new_number[self.lists[kept]],
            extras={name: values[kept] for name, values in self.extras.items()},
            **{name: getattr(self, name)[kept] for name in of_entries},
            **{name: getattr(self, name)[left] for name in of_patterns},
        )


def shard_log(patterns: pa.Table, documents: pa.Table, schema: Schema, dropped: Dropped) -> UserLog | None:
    """The log of patterns sorted by query number and list, and documents sorted by query id and version number.

    None: nothing is left. Examples in `dropped` name a query and a document.
    """
    patterns, documents = _in_order_of_ids(patterns, documents)
    rows = _clean(_unpack(patterns, documents, schema), documents, dropped)
    if not len(rows.queries):
        return None
    shape = schema.shape

    def column(name: str) -> BiasColumn:
        levels = schema.levels.get(name)
        return BiasColumn(rows.extras[name], None if levels is None else tuple(levels))

    shown = Impressions(
        showings=rows.lists,
        positions=rows.positions,
        versions=rows.versions,
        clicks=rows.clicks.astype(np.float64),
        sessions=rows.sessions,
        optional={
            "bias": {name: column(f"bias_{number}") for number, (name, _) in enumerate(shape.bias)},
            "policy_scores": rows.extras.get("score"),
            "display_probabilities": rows.extras.get("display"),
            "interventions": _interventions(rows, schema) if shape.intervention else None,
            "first_shown": rows.times,
            "periods": rows.periods,
            "events": {kind: rows.extras[f"event_{number}"] for number, kind in enumerate(shape.kinds)},
            "seen": rows.extras.get("seen"),
            "context": _context(rows, shape),
        },
        about={
            "shuffled": shape.shuffled,
            "grades": shape.grades,
            "context_names": tuple(name for name, _ in shape.context),
        },
    )
    query_numbers, first_row = np.unique(documents["query_number"].to_numpy(), return_index=True)
    of_version = _document_numbers(documents)
    first = first_rows(of_version)
    listed = Documents(
        features=_features(documents, len(shape.features)),
        feature_names=shape.features,
        document_ids=plain_ids(documents["document"].take(pa.array(first))),
        document_queries=np.searchsorted(query_numbers, documents["query_number"].to_numpy()[first]),
        query_ids=plain_ids(documents["query"].take(pa.array(first_row))),
        version_documents=of_version,
        categories=dict(shape.categories)
        | {
            name: tuple(schema.levels[f"context_{number}"])
            for number, (name, is_level) in enumerate(shape.context)
            if is_level
        },
    )
    fields, lists = log_fields(shown, listed, joint=schema.joint)
    return UserLog(ClickLog(**fields), None if rows.users is None else users_table(shown, lists, rows.users))


def _in_order_of_ids(patterns: pa.Table, documents: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Both with queries numbered from 0 in the order of the documents, and sorted by that number."""
    numbers = documents["query_number"].to_numpy()
    first = np.flatnonzero(np.diff(numbers, prepend=-1))
    places = np.argsort(numbers[first])
    of_patterns = places[np.searchsorted(numbers[first][places], patterns["query_number"].to_numpy())]
    sizes = np.diff(np.append(first, len(numbers)))

    def numbered(table: pa.Table, values: Integers) -> pa.Table:
        return table.set_column(table.column_names.index("query_number"), "query_number", pa.array(values))

    order = pa.array(np.argsort(of_patterns, kind="stable"))
    return numbered(patterns, of_patterns).take(order), numbered(documents, np.repeat(np.arange(len(first)), sizes))


def _unpack(patterns: pa.Table, documents: pa.Table, schema: Schema) -> _Rows:
    sizes = pc.list_value_length(patterns["shown"]).to_numpy().astype(np.int64)
    shown = pc.list_flatten(patterns["shown"]).to_numpy()
    lists = np.repeat(np.arange(len(sizes)), sizes)
    query_numbers, first_row = np.unique(documents["query_number"].to_numpy(), return_index=True)
    queries = patterns["query_number"].to_numpy().astype(np.int64)
    versions = (shown & (2**POSITION_BITS - 1)) >> 1
    versions = versions + first_row[np.searchsorted(query_numbers, queries)][lists]
    return _Rows(
        lists=lists,
        positions=shown >> POSITION_BITS,
        versions=versions,
        documents=_document_numbers(documents)[versions],
        clicks=shown & 1,
        extras={name: _extra(pc.list_flatten(patterns[name]), schema.levels.get(name)) for name in schema.shape.extras},
        queries=queries,
        sessions=patterns["sessions"].to_numpy().astype(np.int64),
        users=numbers_from_digits(patterns["user"]) if schema.shape.user else None,
        times=_microseconds(patterns["time"]) if schema.shape.time else None,
        periods=_microseconds(patterns["period"]) if schema.shape.period else None,
    )


def _document_numbers(documents: pa.Table) -> Integers:
    """The number of each version's document among all documents; those of a query are consecutive."""
    query, number = (documents[name].to_numpy() for name in ("query_number", "document_number"))
    return np.cumsum((np.diff(query, prepend=-1) != 0) | (np.diff(number, prepend=-1) != 0)) - 1


def _extra(values: pa.ChunkedArray, levels: Sequence[str] | None) -> NDArray:
    """Numbers unchanged, text as level numbers."""
    if levels is None:
        return values.to_numpy().astype(np.float32)
    names = pa.array(levels, pa.large_string())
    numbers = pc.index_in(values.cast(pa.large_string()), value_set=names, skip_nulls=True)
    return numbers.to_numpy() if numbers.null_count else numbers.to_numpy().astype(np.int64)  # NaN: missing


def _microseconds(times: pa.ChunkedArray) -> Integers:
    if pa.types.is_timestamp(times.type):
        times = times.cast(pa.timestamp("us", tz=times.type.tz), safe=False).cast(pa.int64())
    return times.to_numpy()


def _clean(rows: _Rows, documents: pa.Table, dropped: Dropped) -> _Rows:
    """Patterns with each document once and one document per position; the others are counted."""

    def drop(reason: str, bad: NDArray[np.bool_]) -> _Rows:
        count = rows.sessions[rows.lists[bad]].sum()
        dropped.add(reason, int(count), _describe(documents, int(rows.versions[np.argmax(bad)])))
        return rows.select_entries(~bad)

    together = rows.lists[1:] == rows.lists[:-1]
    same_place = together & (rows.positions[1:] == rows.positions[:-1])
    again = same_place & (rows.documents[1:] == rows.documents[:-1])
    if again.any():  # sorted by click last, so the entry that is kept is clicked if any of them is
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
    """Entries whose document is also higher up in the same list."""
    key = rows.lists * (int(rows.documents.max(initial=0)) + 1) + rows.documents
    order = np.argsort(key, kind="stable")  # entries of a list come top first
    again = np.zeros(len(key), dtype=bool)
    again[order[1:]] = key[order[1:]] == key[order[:-1]]
    return again


def _describe(documents: pa.Table, row: int) -> str:
    (found,) = documents.select(["query", "document"]).slice(row, 1).to_pylist()
    return f"query {found['query']}, document {found['document']}"


def _features(documents: pa.Table, n_features: int) -> NDArray[np.float32]:
    features = np.empty((documents.num_rows, n_features), dtype=np.float32)
    for number in range(n_features):
        features[:, number] = documents[f"feature_{number}"].to_numpy()
    return features


def _one_each_list(rows: _Rows, extra: str, name: str) -> NDArray:
    """The value of each list; two values in one list are an error."""
    values = rows.extras[extra]
    top = values[first_rows(rows.lists)]
    if not np.array_equal(top[rows.lists], values, equal_nan=True):
        raise ValueError(f"column '{name}' differs within a result page: all rows of a page must have the same value")
    return top


def _interventions(rows: _Rows, schema: Schema) -> BiasColumn:
    return BiasColumn(_one_each_list(rows, "intervention", "intervention"), tuple(schema.levels["intervention"]))


def _context(rows: _Rows, shape: Shape) -> NDArray[np.float32] | None:
    """Context features of each list; a missing category is NaN."""
    if not shape.context:
        return None
    columns = (_one_each_list(rows, f"context_{number}", name) for number, (name, _) in enumerate(shape.context))
    return np.column_stack([values.astype(np.float32) for values in columns])


def sizes_of(log: ClickLog) -> dict[str, int]:
    """The counts of a shard for the report."""
    known = log.display_probabilities
    last = np.where(log.mask, log.positions, -1).max(axis=1)
    sizes = {
        "impressions": (log.mask.sum(1) * log.sessions).sum(),  # shown documents, each as often as its list was shown
        "sessions": log.n_sessions,
        "clicks": log.n_clicks,
        "lists": log.n_lists,
        "queries": len(log.query_ids),
        "documents": log.n_documents,
        "versions": len(log.features),
        "shards": 1,
        "with_gaps": log.sessions[last + 1 > log.mask.sum(axis=1)].sum(),
        "recorded": 0 if log.seen_sessions is None else log.seen_sessions.sum(),
        "without_probability": 0 if known is None else (np.isnan(known).sum(axis=1) * log.sessions).sum(),
    }
    return {name: round(float(size)) for name, size in sizes.items()}


def level_names(levels: Sequence[Any], intervention: bool) -> list[str]:
    """Names of levels in order; for interventions, "none" comes first."""
    names = sorted(str(name) for name in levels)
    if not intervention:
        return names
    return [NO_INTERVENTION, *(name for name in names if name != NO_INTERVENTION)]
