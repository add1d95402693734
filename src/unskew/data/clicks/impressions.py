"""Impressions: rows of shown documents, in any order, arranged into padded lists and counted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unskew.data.grouping import unique_rows


@dataclass(frozen=True, eq=False)
class Patterns:
    """Distinct click patterns of lists, sorted by list."""

    lists: NDArray[np.int64]  # [patterns], row of the log's lists
    clicks: NDArray[np.float32]  # [patterns, docs], of one session
    sessions: NDArray  # [patterns], number of sessions with this pattern


@dataclass(frozen=True, eq=False)
class BiasColumn:
    """Something besides position that may change examination: a device, a result type, a numeric context."""

    values: NDArray  # [lists] or [lists, docs]; numbers of levels, or float32
    levels: tuple[str, ...] | None = None  # names of the levels; None: the values are numbers

    def per_document(self, n_docs: int) -> NDArray:
        """Values as `[lists, docs]`."""
        return self.values if self.values.ndim == 2 else np.repeat(self.values[:, None], n_docs, axis=1)

    def select(self, lists: NDArray) -> BiasColumn:
        """The column of these lists."""
        return replace(self, values=self.values[lists])


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
