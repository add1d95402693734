"""A click log from a table with one row per impression: ids are numbered, showings padded, equal ones counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.data.checks import check_columns, check_one_a_place, check_places, check_same, check_values
from unskew.data.clicks.impressions import (
    BiasColumn,
    Patterns,
    add_showings,
    compact_counts,
    count_patterns,
    first_rows,
    pad,
)
from unskew.data.columns import (
    as_arrow,
    feature_values,
    is_numeric,
    levels_or_numbers,
    microseconds,
    numbers,
    whole_numbers,
)
from unskew.data.grouping import number_ids, unique_rows

NO_INTERVENTION = "none"
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class TableColumns:
    """Names of the columns of an impression table; `ClickLog.from_table` says what they hold."""

    session: str
    query: str
    document: str
    position: str
    click: str
    features: Sequence[str] | None = None
    bias: Sequence[str] = ()
    policy_score: str | None = None
    intervention: str | None = None
    sessions: str | None = None
    weight: str | None = None
    time: str | None = None

    @property
    def named(self) -> list[str]:
        """All columns but the features."""
        optional = (self.policy_score, self.intervention, self.sessions, self.weight, self.time)
        needed = [self.session, self.query, self.document, self.position, self.click, *self.bias]
        return needed + [name for name in optional if name is not None]


@dataclass(frozen=True, eq=False)
class _Ids:
    """Rows numbered by what they belong to; a document is a query and a document together."""

    query_ids: NDArray
    document_ids: NDArray  # [documents]
    document_queries: Integers  # [documents]
    first_row: Integers  # [documents]
    documents: Integers  # [rows]
    showings: Integers  # [rows]
    n_showings: int


@dataclass(frozen=True, eq=False)
class _Showings:
    """Rows arranged as `[showings, docs]`, top first."""

    table: pa.Table
    rows: Integers
    mask: NDArray[np.bool_]
    first_row: Integers  # [rows], the row at the top of each row's showing

    def spread(self, values: NDArray, fill: float = 0) -> NDArray:
        """Values of rows as `[showings, docs]`."""
        return np.where(self.mask, values[self.rows], values.dtype.type(fill))

    def one_each(self, values: NDArray, column: str) -> NDArray:
        """Values of rows as `[showings]`; two in one showing are refused."""
        check_same(values, self.first_row, column, "all rows of a showing say the same")
        return values[self.rows[:, 0]]


@dataclass(frozen=True, eq=False)
class _Feedback:
    clicks: NDArray  # [showings, docs], over all sessions of the showing
    sessions: NDArray  # [showings]
    single: NDArray | None  # [showings, docs], clicks of one session, where they are known


def log_from_table(
    table: Any, columns: TableColumns, *, first_position: int, graded: bool, joint: bool
) -> dict[str, Any]:
    """Fields of a `ClickLog`."""
    data, columns = _check_table(table, columns)
    ids = _number_rows(data, columns)
    places = whole_numbers(data, columns.position) - first_position
    check_places(places, columns.position, first_position, "Then pass first_position=1")
    showings = _arrange(data, ids, places, columns.position)
    feedback = _feedback(showings, columns, graded=graded, joint=joint)
    bias = {name: _bias_column(showings, name) for name in columns.bias}
    interventions = _interventions(showings, columns.intervention)
    first, kind = _same_lists(showings, ids, places, [*bias.values(), *([interventions] if interventions else [])])
    n_lists = len(first)
    once = replace(showings, rows=showings.rows[first], mask=showings.mask[first])
    return {
        "features": _document_features(data, columns.features or (), ids),
        "documents": once.spread(ids.documents).astype(np.int32),
        "mask": once.mask,
        "clicks": compact_counts(add_showings(kind, n_lists, feedback.clicks)),
        "sessions": compact_counts(add_showings(kind, n_lists, feedback.sessions)),
        "positions": once.spread(places).astype(np.int16),
        "document_queries": ids.document_queries,
        "query_ids": ids.query_ids,
        "document_ids": ids.document_ids,
        "feature_names": tuple(columns.features or ()),
        "patterns": _patterns(kind, feedback),
        "bias": {name: column.select(first) for name, column in bias.items()},
        "policy_scores": _mean_scores(showings, columns.policy_score, kind, n_lists, feedback.sessions),
        "interventions": None if interventions is None else interventions.select(first),
        "first_shown": _first_times(data, columns.time, kind[ids.showings], n_lists),
        "graded": graded,
    }


def _check_table(table: Any, columns: TableColumns) -> tuple[pa.Table, TableColumns]:
    data = as_arrow(table)
    named = columns.named
    check_columns(data, named)
    if columns.sessions is not None and columns.weight is not None:
        raise ValueError("pass sessions (clicks are counts) or weight (one session a showing), not both")
    if data.num_rows == 0:
        raise ValueError("the table has no rows: nothing was shown")
    features = columns.features
    if features is None:
        features = [name for name in data.column_names if name not in named and is_numeric(data, name)]
    check_columns(data, features)
    return data, replace(columns, features=features)


def _number_rows(data: pa.Table, columns: TableColumns) -> _Ids:
    query_ids, queries = number_ids(data[columns.query])
    names, numbers_of_names = number_ids(data[columns.document])
    _, documents = number_ids(queries * len(names) + numbers_of_names)
    first_row = first_rows(documents)
    _, showings = number_ids(number_ids(data[columns.session])[1] * len(query_ids) + queries)
    return _Ids(
        query_ids=query_ids,
        document_ids=names[numbers_of_names[first_row]],
        document_queries=queries[first_row],
        first_row=first_row,
        documents=documents,
        showings=showings,
        n_showings=int(showings.max()) + 1,
    )


def _document_features(data: pa.Table, names: Sequence[str], ids: _Ids) -> NDArray[np.float32]:
    """Features of each document once, one column in memory at a time; two values for one document are refused."""
    features = np.empty((len(ids.first_row), len(names)), dtype=np.float32)
    representative = ids.first_row[ids.documents]
    for number, name in enumerate(names):
        values = feature_values(data, name)
        check_same(values, representative, name, "a document of a query has one set of features")
        features[:, number] = values[ids.first_row]
    return features


def _arrange(data: pa.Table, ids: _Ids, places: Integers, column: str) -> _Showings:
    rows, mask = pad(ids.showings, places, ids.n_showings)
    check_one_a_place(places, rows, mask, column)
    return _Showings(data, rows, mask, rows[:, 0][ids.showings])


def _feedback(showings: _Showings, columns: TableColumns, *, graded: bool, joint: bool) -> _Feedback:
    values = numbers(showings.table, columns.click)
    check_values(values, np.isfinite(values) & (values >= 0), columns.click, "clicks are counted from 0")
    shown = np.ones(len(values))
    if columns.sessions is not None:
        shown = numbers(showings.table, columns.sessions)
        check_values(shown, np.isfinite(shown) & (shown > 0), columns.sessions, "a list was shown at least once")
    if not graded:
        rule = "a click is 0 or 1" if columns.sessions is None else f"clicks are at most '{columns.sessions}'"
        whole = values <= shown if columns.sessions is not None else (values == 0) | (values == 1)
        check_values(values, whole, columns.click, f"{rule} (graded=True takes dwell times and the like)")
    clicks = showings.spread(values)
    if columns.sessions is not None:
        sessions = showings.one_each(shown, columns.sessions)
        return _Feedback(clicks, sessions, clicks if joint and (sessions == 1).all() else None)
    sessions = np.ones(len(clicks))
    if columns.weight is not None:
        weights = numbers(showings.table, columns.weight)
        check_values(weights, np.isfinite(weights) & (weights > 0), columns.weight, "weights are positive")
        sessions = showings.one_each(weights, columns.weight)
    return _Feedback(clicks * sessions[:, None], sessions, clicks if joint else None)


def _patterns(kind: Integers, feedback: _Feedback) -> Patterns | None:
    return None if feedback.single is None else count_patterns(kind, feedback.single, feedback.sessions)


def _bias_column(showings: _Showings, name: str) -> BiasColumn:
    """A value a list where it is the same all over each list, else a value a document."""
    values, levels = levels_or_numbers(showings.table, name)
    if np.array_equal(values, values[showings.first_row]):
        return BiasColumn(values[showings.rows[:, 0]], levels)
    return BiasColumn(showings.spread(values), levels)


def _interventions(showings: _Showings, name: str | None) -> BiasColumn | None:
    if name is None:
        return None
    values, levels = levels_or_numbers(showings.table, name)
    if levels is None:
        raise ValueError(f"column '{name}' holds fractions: it must name the intervention, or say {NO_INTERVENTION}")
    names = (NO_INTERVENTION, *(level for level in levels if level != NO_INTERVENTION))
    renumber = np.array([names.index(level) for level in levels])
    return BiasColumn(showings.one_each(renumber[values], name), names)


def _same_lists(
    showings: _Showings, ids: _Ids, places: Integers, columns: Sequence[BiasColumn]
) -> tuple[Integers, Integers]:
    """First showing of each distinct list, and the list of each showing."""
    key = [showings.spread(ids.documents, -1), showings.spread(places, -1)]
    key += [column.values.reshape(ids.n_showings, -1) for column in columns]
    return unique_rows(np.concatenate([part.astype(np.float64) for part in key], axis=1))


def _mean_scores(
    showings: _Showings, name: str | None, kind: Integers, n_lists: int, sessions: NDArray
) -> NDArray[np.float32] | None:
    """Mean over the sessions of a list: a policy that samples has no one score for it."""
    if name is None:
        return None
    scores = numbers(showings.table, name)
    check_values(scores, np.isfinite(scores), name, "scores are finite")
    sums = add_showings(kind, n_lists, showings.spread(scores) * sessions[:, None])
    return (sums / add_showings(kind, n_lists, sessions)[:, None]).astype(np.float32)


def _first_times(data: pa.Table, name: str | None, list_of_row: Integers, n_lists: int) -> Integers | None:
    if name is None:
        return None
    first = np.full(n_lists, np.iinfo(np.int64).max)
    np.minimum.at(first, list_of_row, microseconds(data, name))
    return first
