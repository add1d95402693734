"""A click log from a table with one row per impression: number ids, pad showings, and count equal ones together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.data.checks import PROBABLE, ROUNDING, check_columns, check_places, check_same, check_values
from unskew.data.clicks.build import Documents, Impressions, build_log
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.column_names import ImpressionColumns
from unskew.data.clicks.impressions import BiasColumn, first_rows
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

NO_INTERVENTION = "none"
Integers = NDArray[np.int64]


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


def log_from_table(
    table: Any,
    columns: ImpressionColumns,
    *,
    sessions: str | None,
    weight: str | None,
    events: Sequence[str],
    first_position: int,
    graded: bool,
    joint: bool,
    period: str | None,
) -> ClickLog:
    """A log from a table; `ClickLog.from_table` documents its columns."""
    if sessions is not None and weight is not None:
        raise ValueError("pass sessions (clicks are counts) or weight (one session per list), not both")
    data = as_arrow(table)
    features = _check_table(data, columns, [*events, *(name for name in (sessions, weight) if name is not None)])
    roles = columns.roles
    ids = _number_rows(data, roles)
    places = whole_numbers(data, roles["position"]) - first_position
    check_places(places, roles["position"], first_position, "If so, pass first_position=1")
    clicks, shown_times = _feedback(data, ids, roles["click"], sessions, weight, graded=graded)
    found = _versions(data, features, ids)
    context, levels = _context(data, columns.context, ids)
    times = _first_times(data, ids, columns.time)
    shown = Impressions(
        showings=ids.showings,
        positions=places,
        versions=found.versions,
        clicks=clicks,
        sessions=shown_times,
        counted=sessions is not None,
        bias={name: BiasColumn(*levels_or_numbers(data, name)) for name in columns.bias},
        policy_scores=_scores(data, columns.policy_score),
        display_probabilities=_probabilities(data, columns.display_probability),
        interventions=_interventions(data, ids, columns.intervention),
        events={name: _counts(data, name) for name in events},
        seen=_looks(data, columns.seen, sessions),
        times=times,
        periods=None if period is None else begin_of_period(times, period),
        context=context,
        context_names=tuple(columns.context),
        position_name=roles["position"],
    )
    documents = Documents(
        features=found.features,
        feature_names=tuple(features),
        document_ids=ids.document_ids,
        document_queries=ids.document_queries,
        query_ids=ids.query_ids,
        version_documents=found.documents,
        categories=found.categories | levels,
    )
    return build_log(shown, documents, joint=joint, graded=graded)


def _check_table(data: pa.Table, columns: ImpressionColumns, counts: Sequence[str]) -> Sequence[str]:
    """Refuse a table without rows, or with missing values in required columns; return the feature names."""
    whole = [*columns.named, *counts]
    may_lack = [*columns.context, *(name for name in (columns.seen, columns.display_probability) if name is not None)]
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


def _counts(data: pa.Table, name: str) -> NDArray:
    values = numbers(data, name)
    check_values(values, np.isfinite(values) & (values >= 0), name, "events must be 0 or more")
    return values


def _looks(data: pa.Table, name: str | None, sessions: str | None) -> NDArray | None:
    """Whether each document was examined; NaN if not recorded."""
    if name is None:
        return None
    values = numbers(data, name)
    check_values(values, np.isnan(values) | (values >= 0), name, "examination must be 0, 1 or a number of seconds")
    return np.where(np.isnan(values), np.nan, values > 0) if sessions is None else values


def _feedback(
    data: pa.Table, ids: _Ids, click: str, sessions: str | None, weight: str | None, *, graded: bool
) -> tuple[NDArray, NDArray]:
    """Clicks of each row, and the number of sessions of each showing, or the weight of its single session."""
    values = numbers(data, click)
    check_values(values, np.isfinite(values) & (values >= 0), click, "clicks must be 0 or more")
    shown = np.ones(len(values))
    if sessions is not None:
        shown = numbers(data, sessions)
        check_values(shown, np.isfinite(shown) & (shown > 0), sessions, "sessions must be above 0")
    if not graded:
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


def _scores(data: pa.Table, name: str | None) -> NDArray | None:
    if name is None:
        return None
    scores = numbers(data, name)
    check_values(scores, np.isfinite(scores), name, "scores must be finite")
    return scores


def _probabilities(data: pa.Table, name: str | None) -> NDArray | None:
    """The probability of each shown document to be shown at its position; NaN if not recorded."""
    if name is None:
        return None
    chances = numbers(data, name)
    chances = np.where((chances > 1) & (chances <= 1 + ROUNDING), 1.0, chances)
    check_values(chances, np.isnan(chances) | ((chances > 0) & (chances <= 1)), name, PROBABLE)
    return chances


def _first_times(data: pa.Table, ids: _Ids, name: str | None) -> Integers | None:
    """The earliest time of each showing."""
    if name is None:
        return None
    first = np.full(len(ids.first_of_showing), np.iinfo(np.int64).max)
    np.minimum.at(first, ids.showings, microseconds(data, name))
    return first
