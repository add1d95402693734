"""Build a click log from impressions: showings are padded into lists, and equal lists are counted together.

Tables, arrays and ingestion each read and check their input; then all of them build the log here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.checks import check_one_a_place
from unskew.data.clicks.row_fields import BiasColumn, Field, Patterns, changed_fields
from unskew.data.grouping import unique_rows

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Documents:
    """Documents of a log, shown or not, with their versions; a document is a (query, document) pair."""

    features: NDArray[np.float32]  # [versions, features]
    feature_names: tuple[str, ...]
    document_ids: NDArray  # [documents]
    document_queries: Integers  # [documents], of query_ids
    query_ids: NDArray
    version_documents: Integers | None = None  # [versions]; None: each document has one
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Impressions:
    """Rows of shown documents, in any order, and the showings they belong to."""

    showings: Integers  # [rows], the showing of each row
    positions: Integers  # [rows], from 0
    versions: Integers  # [rows], rows of the features
    clicks: NDArray  # [rows], of one session, or summed over the sessions of the showing
    sessions: NDArray  # [showings], the number of sessions, or the weight of a single session
    counted: bool = False
    # Other columns of a log, by name: [rows] if they have a value per place, otherwise [showings]. Bias columns have
    # [rows]; `seen` says whether each row was examined, or in how many sessions; NaN: not recorded.
    optional: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)  # what the log says of all of them, such as `context_names`
    position_name: str = "position"  # in messages

    @property
    def single(self) -> bool:
        """Whether clicks are those of single sessions, so that it is known which were made together."""
        return not self.counted or bool((self.sessions == 1).all())


@dataclass(frozen=True, eq=False)
class _Grid:
    """Rows arranged as `[showings, docs]`, top first, and which showings have the same list."""

    rows: Integers
    mask: NDArray[np.bool_]
    first: Integers  # [lists], the first showing of each list
    kind: Integers  # [showings], the list of each showing
    sessions: NDArray[np.float64]  # [showings]
    counted: bool  # counts of rows are those of all sessions of the showing

    def spread(self, values: NDArray) -> NDArray:
        """Values of rows as `[showings, docs]`."""
        return np.where(self.mask, values[self.rows], values.dtype.type(0))

    def sums(self, values: NDArray) -> NDArray[np.float64]:
        """Values of showings summed over the showings of each list."""
        return add_showings(self.kind, len(self.first), values)

    def merged(self, column: Field, values: NDArray) -> NDArray:
        """Values of rows or showings as those of lists."""
        if column.merge == "same":
            return values[self.first] if column.per != "place" else self._once(values)
        if column.merge == "earliest":
            earliest = np.full(len(self.first), np.iinfo(np.int64).max)
            np.minimum.at(earliest, self.kind, values)
            return earliest
        if column.per == "list":
            return compact_counts(self.sums(values))
        spread, sessions = self.spread(values.astype(np.float64, copy=False)), self.sessions[:, None]
        if column.merge == "sum":
            spread = np.nan_to_num(spread) if column.holes else spread  # empty: 0
            return compact_counts(self.sums(spread if self.counted else spread * sessions))
        if column.merge == "mean":
            return (self.sums(spread * sessions) / self.sums(self.sessions)[:, None]).astype(np.float32)
        with np.errstate(divide="ignore"):
            inverse = np.where(self.mask, 1 / np.minimum(spread, 1.0), 0.0)
            mean = self.sums(self.sessions)[:, None] / self.sums(inverse * sessions)
        return np.where(self.mask[self.first], mean, 0.0).astype(np.float32)

    def _once(self, values: NDArray) -> NDArray:
        """Values of rows as `[lists, docs]`, taken from the first showing of each list."""
        return np.where(self.mask[self.first], values[self.rows[self.first]], values.dtype.type(0))


def log_fields(
    shown: Impressions, documents: Documents, *, joint: bool, distinct: bool = False
) -> tuple[dict[str, Any], Integers]:
    """The fields of the `ClickLog` of these impressions, and the list of each showing.

    Args:
        joint: keep which documents were clicked together, if that is known.
        distinct: no two showings have the same list, so skip the search for equal lists.
    """
    rows, mask = pad(shown.showings, shown.positions, len(shown.sessions))
    check_one_a_place(shown.positions, rows, mask, shown.position_name)
    sessions = np.asarray(shown.sessions, dtype=np.float64)
    columns = {name: values for name, values in shown.optional.items() if values is not None}
    columns |= _recorded(shown, sessions)
    columns["bias"] = {
        name: _by_list_or_place(column, shown.showings, rows, mask) for name, column in columns.get("bias", {}).items()
    }
    everyone = np.arange(len(rows))
    first, kind = (everyone, everyone) if distinct else unique_rows(_key(shown, columns, rows, mask))
    grid = _Grid(rows, mask, first, kind, sessions, shown.counted)
    columns |= {"versions": shown.versions, "positions": shown.positions, "clicks": shown.clicks, "sessions": sessions}
    merged = changed_fields(columns, grid.merged)
    merged["versions"] = merged["versions"].astype(np.int32)
    merged["positions"] = merged["positions"].astype(np.int16)
    patterns = None
    if joint and shown.single:
        clicks = grid.spread(shown.clicks)
        patterns = Patterns(kind, clicks.astype(np.float32), compact_counts(sessions)) if distinct else None
        patterns = count_patterns(kind, clicks, sessions) if patterns is None else patterns
    return {**vars(documents), **merged, "mask": mask[first], "patterns": patterns, **shown.about}, kind


def _by_list_or_place(column: BiasColumn, showings: Integers, rows: Integers, mask: NDArray[np.bool_]) -> BiasColumn:
    """One value per list if all documents of each list have the same value, otherwise one per document."""
    top = column.values[rows[:, 0]]
    if np.array_equal(column.values, top[showings]):
        return BiasColumn(top, column.levels)
    return BiasColumn(np.where(mask, column.values[rows], column.values.dtype.type(0)), column.levels)


def _key(shown: Impressions, columns: Mapping[str, Any], rows: Integers, mask: NDArray[np.bool_]) -> NDArray:
    """A key that is equal for showings of the same list."""
    parts = [np.where(mask, values[rows], -1) for values in (shown.versions, shown.positions)]

    def add(column: Field, values: NDArray) -> NDArray:
        if column.merge == "same":
            parts.append(values.reshape(len(rows), -1))
        return values

    changed_fields(columns, add)
    chances = columns.get("display_probabilities")
    if chances is not None:  # lists with and without a record may come from different rankers
        parts.append(np.isnan(chances[rows]) & mask)
    return np.concatenate([part.astype(np.float64) for part in parts], axis=1)


def _recorded(shown: Impressions, sessions: NDArray) -> dict[str, NDArray]:
    """Recorded examination of rows, and the sessions of each showing that recorded it, for whole lists only."""
    seen = shown.optional.get("seen")
    if seen is None:
        return {}
    seen = seen.astype(np.float64)
    whole = np.ones(len(sessions), dtype=bool)
    whole[shown.showings[np.isnan(seen)]] = False
    seen = seen if shown.counted else (seen > 0).astype(np.float64)
    return {"seen": np.where(whole[shown.showings], seen, 0.0), "seen_sessions": np.where(whole, sessions, 0.0)}


def first_rows(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first row of each code 0, 1, 2, …"""
    first = np.empty(int(codes.max(initial=-1)) + 1, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return first


def shown_order(lists: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each row among the rows of its list."""
    order = np.argsort(lists, kind="stable")
    sizes = np.bincount(lists)
    places = np.empty(len(lists), dtype=np.int64)
    places[order] = np.arange(len(lists)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return places


def pad(
    list_of_row: NDArray[np.int64], positions: NDArray, n_lists: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Row numbers `[lists, docs]` in shown order, and the mask of real documents; padding points at any row."""
    order = _in_shown_order(list_of_row, positions)
    sizes = np.bincount(list_of_row, minlength=n_lists)
    starts = np.cumsum(sizes) - sizes
    columns = np.arange(sizes.max(initial=0))
    mask = columns[None, :] < sizes[:, None]
    return order[np.where(mask, starts[:, None] + columns[None, :], 0)], mask


def _in_shown_order(list_of_row: NDArray[np.int64], positions: NDArray) -> NDArray[np.int64]:
    later = (list_of_row[1:] > list_of_row[:-1]) | (
        (list_of_row[1:] == list_of_row[:-1]) & (positions[1:] >= positions[:-1])
    )
    return np.arange(len(list_of_row)) if later.all() else np.lexsort((positions, list_of_row))


def add_showings(kind: NDArray[np.int64], n_lists: int, values: NDArray) -> NDArray[np.float64]:
    """Values of showings, `[showings]` or `[showings, docs]`, summed over the showings of each list."""
    if values.ndim == 1:
        return np.asarray(np.bincount(kind, weights=values, minlength=n_lists), dtype=np.float64)
    sums = np.zeros((n_lists, values.shape[1]))
    for column in range(values.shape[1]):
        sums[:, column] = np.bincount(kind, weights=values[:, column], minlength=n_lists)
    return sums


def count_patterns(lists: NDArray[np.int64], clicks: NDArray, sessions: NDArray) -> Patterns:
    """Distinct click patterns of each list, from single sessions of these weights."""
    first, kind = unique_rows(np.column_stack([lists, clicks]).astype(np.float64))
    order = np.argsort(lists[first], kind="stable")
    weight = add_showings(kind, len(first), sessions)
    return Patterns(
        lists=lists[first][order],
        clicks=clicks[first][order].astype(np.float32),
        sessions=compact_counts(weight[order]),
    )


def compact_counts(counts: NDArray) -> NDArray:
    """Counts as float32 if that is exact, otherwise as float64."""
    values = np.asarray(counts, dtype=np.float64)
    with np.errstate(over="ignore"):
        small = values.astype(np.float32)
    return small if np.array_equal(small, values) else values
