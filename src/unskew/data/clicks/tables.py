"""A click log from a table with one row per impression, and as a table with one row per shown document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.data.checks import check_columns, check_places, check_same, check_values
from unskew.data.clicks.build import Documents, Impressions, first_rows, log_fields
from unskew.data.clicks.row_fields import FIELDS, BiasColumn, Column, Field, in_tables
from unskew.data.columns import (
    as_arrow,
    begin_of_period,
    feature_column,
    feature_matrix,
    is_numeric,
    levels_or_numbers,
    microseconds,
    numbers,
    whole_numbers,
)
from unskew.data.grouping import number_ids, unique_rows

if TYPE_CHECKING:
    from unskew.data.clicks.click_log import ClickLog

NO_INTERVENTION = "none"
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class ImpressionColumns:
    """The column for each role in a table with one row per impression; None: there is no such column."""

    single: ClassVar[tuple[str, ...]] = (
        *("session", "query", "document", "position", "click"),
        *("time", "policy_score", "display_probability", "intervention", "seen"),
    )
    session: str | None = None
    query: str | None = None
    document: str | None = None
    position: str | None = None
    click: str | None = None
    time: str | None = None
    policy_score: str | None = None
    display_probability: str | None = None  # of being shown at this position, under the ranker that drew the list
    intervention: str | None = None
    seen: str | None = None  # recorded examination: 0 or 1, or seconds
    bias: Sequence[str] = ()
    context: Sequence[str] = ()  # features of user, session or moment, the same for all documents of a result page
    features: Sequence[str] | None = None  # None: every numeric column without another role

    @property
    def roles(self) -> dict[str, str]:
        """Columns by role, for roles with a single column."""
        return {role: getattr(self, role) for role in self.single if getattr(self, role) is not None}

    @property
    def named(self) -> list[str]:
        """All columns but the features."""
        return [*self.roles.values(), *self.bias, *self.context]


@dataclass(frozen=True)
class TableColumns(ImpressionColumns):
    """The options of `ClickLog.from_table`, which documents them."""

    single: ClassVar[tuple[str, ...]] = (*ImpressionColumns.single, "dwell")
    dwell: str | None = None
    session: str = "session"
    query: str = "query"
    document: str = "document"
    position: str = "position"
    click: str = "click"
    sessions: str | None = None
    weight: str | None = None
    events: Sequence[str] = ()
    period: str | None = None
    first_position: int = 0
    graded: bool = False
    joint: bool = True

    def __post_init__(self) -> None:
        if self.sessions is not None and self.weight is not None:
            raise ValueError("pass sessions (clicks are counts) or weight (one session per list), not both")

    @property
    def counts(self) -> list[str]:
        """Columns with numbers of sessions and events."""
        return [*self.events, *(name for name in (self.sessions, self.weight) if name is not None)]


@dataclass(frozen=True, eq=False)
class _Ids:
    """Numbers of the query, document and showing of each row; a document is a (query, document) pair."""

    query_ids: NDArray
    document_ids: NDArray  # [documents]
    document_queries: Integers  # [documents]
    first_row: Integers  # [documents]
    documents: Integers  # [rows]
    showings: Integers  # [rows]
    first_of_showing: Integers  # [showings], one row of each showing

    def one_each(self, values: NDArray, column: str) -> NDArray:
        """Values of rows as `[showings]`; two values in one showing are an error."""
        check_same(values, self.first_of_showing[self.showings], column, "it must be the same in all rows of a showing")
        return values[self.first_of_showing]


def fields_from_table(table: Any, columns: TableColumns) -> dict[str, Any]:
    """The fields of a log from a table; `ClickLog.from_table` documents its columns."""
    data = as_arrow(table)
    features = _check_table(data, columns)
    roles = columns.roles
    ids = _number_rows(data, roles)
    places = whole_numbers(data, roles["position"]) - columns.first_position
    check_places(places, roles["position"], columns.first_position, "If so, pass first_position=1")
    clicks, shown_times = _feedback(data, ids, columns)
    versions = _versions(data, features, ids)
    context, levels = _context(data, columns.context, ids)
    times = _first_times(data, ids, columns.time)
    shown = Impressions(
        showings=ids.showings,
        positions=places,
        versions=versions.versions,
        clicks=clicks,
        sessions=shown_times,
        counted=columns.sessions is not None,
        optional={
            **_numbers_of_rows(data, columns),
            "bias": {name: BiasColumn(*levels_or_numbers(data, name)) for name in columns.bias},
            "interventions": _interventions(data, ids, columns.intervention),
            "first_shown": times,
            "periods": None if columns.period is None else begin_of_period(times, columns.period),
            "context": context,
        },
        about={"context_names": tuple(columns.context), "graded": columns.graded},
        position_name=roles["position"],
    )
    documents = Documents(
        features=versions.features,
        feature_names=tuple(features),
        document_ids=ids.document_ids,
        document_queries=ids.document_queries,
        query_ids=ids.query_ids,
        version_documents=versions.documents,
        categories=versions.categories | levels,
    )
    return log_fields(shown, documents, joint=columns.joint)[0]


def _check_table(data: pa.Table, columns: TableColumns) -> Sequence[str]:
    """Refuse a table without rows, or with missing values in required columns; return the feature names."""
    whole = [*columns.named, *columns.counts]
    optional = [getattr(columns, entry.column or entry.name) for entry in FIELDS if entry.holes]
    may_lack = [*columns.context, *(name for name in optional if name is not None)]
    check_columns(data, [name for name in whole if name not in may_lack])
    check_columns(data, may_lack, holes=True)
    if data.num_rows == 0:
        raise ValueError("the table has no rows: pass one row per impression")
    features = columns.features
    if features is None:
        features = [name for name in data.column_names if name not in whole and is_numeric(data, name)]
    check_columns(data, features, holes=True)
    return features


def _number_rows(data: pa.Table, roles: Mapping[str, str]) -> _Ids:
    query_ids, queries = number_ids(data[roles["query"]])
    names, numbers_of_names = number_ids(data[roles["document"]])
    _, documents = number_ids(queries * len(names) + numbers_of_names)
    first_row = first_rows(documents)
    _, showings = number_ids(number_ids(data[roles["session"]])[1] * len(query_ids) + queries)
    return _Ids(
        query_ids=query_ids,
        document_ids=names[numbers_of_names[first_row]],
        document_queries=queries[first_row],
        first_row=first_row,
        documents=documents,
        showings=showings,
        first_of_showing=first_rows(showings),
    )


class _Versions(NamedTuple):
    """Distinct rows of features of each document."""

    features: NDArray[np.float32]  # [versions, features]
    categories: dict[str, tuple[str, ...]]
    versions: Integers  # [rows]
    documents: Integers | None  # [versions]; None: each document has one


def _versions(data: pa.Table, names: Sequence[str], ids: _Ids) -> _Versions:
    """Features of each version once; one column at a time in memory, except for columns that change."""
    features, categories = feature_matrix(data, names, ids.first_row)
    changing = []
    for number, name in enumerate(names):
        values, _ = feature_column(data, name)
        if not np.array_equal(values, features[ids.documents, number], equal_nan=True):
            changing.append(values)
    if not changing:
        return _Versions(features, categories, ids.documents, None)
    first, versions = unique_rows(np.column_stack([ids.documents, *changing]))
    return _Versions(feature_matrix(data, names, first)[0], categories, versions, ids.documents[first])


def _context(
    data: pa.Table, names: Sequence[str], ids: _Ids
) -> tuple[NDArray[np.float32] | None, dict[str, tuple[str, ...]]]:
    """Context features of each showing."""
    if not names:
        return None, {}
    for name in names:
        values, _ = feature_column(data, name)
        ids.one_each(np.nan_to_num(values, nan=-np.inf), name)
    return feature_matrix(data, names, ids.first_of_showing)


def _numbers_of_rows(data: pa.Table, columns: TableColumns) -> dict[str, Any]:
    """The optional numbers of each row, by name of the column of a log."""

    def of(entry: Field, name: str) -> NDArray:
        assert entry.allowed is not None
        values = numbers(data, name)
        check_values(values, entry.allowed(values), name, entry.rule)
        return values

    numbers_of: dict[str, Any] = {}
    for entry in (entry for entry in FIELDS if entry.allowed is not None):
        named = getattr(columns, entry.column or entry.name)
        if named is not None:
            several = not isinstance(named, str)
            numbers_of[entry.name] = {name: of(entry, name) for name in named} if several else of(entry, named)
    return numbers_of


def _feedback(data: pa.Table, ids: _Ids, columns: TableColumns) -> tuple[NDArray, NDArray]:
    """Clicks of each row, and the number of sessions of each showing, or the weight of its single session."""
    click, sessions, weight = columns.click, columns.sessions, columns.weight
    values = numbers(data, click)
    check_values(values, np.isfinite(values) & (values >= 0), click, "clicks must be 0 or more")
    shown = np.ones(len(values))
    if sessions is not None:
        shown = numbers(data, sessions)
        check_values(shown, np.isfinite(shown) & (shown > 0), sessions, "sessions must be above 0")
    if not columns.graded:
        rule = "a click is 0 or 1" if sessions is None else f"clicks cannot exceed '{sessions}'"
        whole = values <= shown if sessions is not None else (values == 0) | (values == 1)
        check_values(values, whole, click, f"{rule} (for dwell times, pass graded=True)")
    if sessions is not None:
        return values, ids.one_each(shown, sessions)
    if weight is not None:
        weights = numbers(data, weight)
        check_values(weights, np.isfinite(weights) & (weights > 0), weight, "weights must be above 0")
        return values, ids.one_each(weights, weight)
    return values, np.ones(len(ids.first_of_showing))


def _interventions(data: pa.Table, ids: _Ids, name: str | None) -> BiasColumn | None:
    if name is None:
        return None
    values, levels = levels_or_numbers(data, name)
    if levels is None:
        raise ValueError(f"column '{name}' holds fractions: write the name of the intervention, or {NO_INTERVENTION}")
    names = (NO_INTERVENTION, *(level for level in levels if level != NO_INTERVENTION))
    renumber = np.array([names.index(level) for level in levels])
    return BiasColumn(ids.one_each(renumber[values], name), names)


def _first_times(data: pa.Table, ids: _Ids, name: str | None) -> Integers | None:
    """The earliest time of each showing."""
    if name is None:
        return None
    first = np.full(len(ids.first_of_showing), np.iinfo(np.int64).max)
    np.minimum.at(first, ids.showings, microseconds(data, name))
    return first


def log_to_table(log: ClickLog, *, features: bool = False) -> pa.Table:
    """Columns as `ClickLog.to_table` describes them."""
    sizes = log.mask.sum(1)
    documents, versions = log.documents[log.mask], log.versions[log.mask]

    def of_lists(values: NDArray) -> NDArray:
        return np.repeat(values, sizes)

    def column(of: Column) -> pa.Array:
        values = of_lists(of.values) if of.values.ndim == 1 else of.values[log.mask]
        if of.levels is not None:
            return _named(values, np.array(of.levels, dtype=object))
        table_column = pa.array(values, from_pandas=of.field.holes)  # NaN: null
        return table_column.cast(pa.timestamp("us")) if of.field.time else table_column

    columns = {
        "list": pa.array(of_lists(np.arange(log.n_lists))),
        "query": _named(log.document_queries[documents], log.query_ids),
        "document": _named(documents, log.document_ids),
    }
    for stored, each in in_tables(log):
        if each.field.name not in ("versions", "context"):
            what = "kind of event" if each.field.name == "events" else "bias column"
            _add(columns, {each.key or each.field.column or stored: column(each)}, what)
    if features:
        named = enumerate(log.named_features)
        _add(columns, {name: _feature(log, name, log.features[versions, n]) for n, name in named}, "feature")
        context = {name: of_lists(log.context[:, number]) for number, name in enumerate(log.context_names)}
        _add(columns, {name: _feature(log, name, values) for name, values in context.items()}, "context feature")
    return pa.table(columns)


def _feature(log: ClickLog, name: str, values: NDArray) -> pa.Array:
    """Numbers, or names of categories; null if a category is missing."""
    if name not in log.categories:
        return pa.array(values)
    missing = np.isnan(values)
    codes = pa.array(np.where(missing, 0, values).astype(np.int32), mask=missing)
    return pa.DictionaryArray.from_arrays(codes, pa.array(log.categories[name], pa.large_string()))


def _named(codes: NDArray, names: NDArray) -> pa.Array:
    """Numbers unchanged, text as categories, so that each name is stored once."""
    if names.dtype.kind in "iu":
        return pa.array(names[codes])
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(names, pa.large_string()))


def _add(columns: dict[str, pa.Array], more: dict[str, pa.Array], what: str) -> None:
    taken = sorted(columns.keys() & more.keys())
    if taken:
        raise ValueError(f"the table already has another column '{taken[0]}': rename the {what} in the log")
    columns.update(more)
