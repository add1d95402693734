"""Impressions: rows of shown documents, in any order, arranged into padded lists and counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.data.checks import check_values
from unskew.data.grouping import unique_rows

EXACT_IN_FLOAT32 = 2**24


@dataclass(frozen=True, eq=False)
class Patterns:
    """Distinct click patterns of lists, sorted by list."""

    lists: NDArray[np.int64]  # [patterns], row of the log's lists
    clicks: NDArray[np.float32]  # [patterns, docs], of one session
    sessions: NDArray  # [patterns], how often it occurred


@dataclass(frozen=True, eq=False)
class BiasColumn:
    """Something besides position that may change what is seen: a device, a result type, a numeric context."""

    values: NDArray  # [lists] or [lists, docs]; numbers of levels, or float32
    levels: tuple[str, ...] | None = None  # names of the levels; None: the values are numbers

    def per_document(self, n_docs: int) -> NDArray:
        """Values as `[lists, docs]`."""
        return self.values if self.values.ndim == 2 else np.repeat(self.values[:, None], n_docs, axis=1)


def as_arrow(table: Any) -> pa.Table:
    """A pyarrow, pandas or polars table as a pyarrow one, without a copy where that is possible."""
    if isinstance(table, pa.Table):
        return table
    if hasattr(table, "__arrow_c_stream__"):
        return pa.table(table)
    if hasattr(table, "to_arrow"):
        return table.to_arrow()
    raise TypeError(f"a pyarrow, pandas or polars table is needed, got {type(table).__name__}")


def numbers(table: pa.Table, name: str) -> NDArray[np.float64]:
    """A numeric column as float64; booleans become 0 and 1."""
    column = table[name]
    if isinstance(column.type, pa.DictionaryType):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)):
        raise ValueError(f"column '{name}' holds {column.type}, numbers are needed, e.g. {column[0]} in row 0")
    return np.asarray(pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False))


def whole_numbers(table: pa.Table, name: str) -> NDArray[np.int64]:
    """A column of whole numbers."""
    values = numbers(table, name)
    check_values(values, np.isfinite(values) & (values == np.floor(values)), name, "whole numbers are needed")
    return values.astype(np.int64)


def levels_or_numbers(table: pa.Table, name: str) -> tuple[NDArray, tuple[str, ...] | None]:
    """A bias column as level numbers with their names (text, booleans, integers), or as float32 (fractions)."""
    column = table[name]
    if pa.types.is_floating(column.type):
        values = numbers(table, name)
        check_values(values, np.isfinite(values), name, "finite numbers are needed")
        return values.astype(np.float32), None
    text = np.asarray(pc.cast(column, pa.string()).to_numpy(zero_copy_only=False), dtype=np.str_)
    names, codes = np.unique(text, return_inverse=True)
    return codes.reshape(-1).astype(np.int64), tuple(str(entry) for entry in names)


def pad(
    list_of_row: NDArray[np.int64], positions: NDArray, n_lists: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Row numbers `[lists, docs]` in shown order and the mask of the real ones; padding points at row 0."""
    order = np.lexsort((positions, list_of_row))
    sizes = np.bincount(list_of_row, minlength=n_lists)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    columns = np.arange(sizes.max(initial=0))
    mask = columns[None, :] < sizes[:, None]
    return order[np.where(mask, starts[:, None] + columns[None, :], 0)], mask


def distinct_documents(
    columns: Sequence[NDArray], names: Sequence[str], first: NDArray[np.int64], documents: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Features of each document once, from columns with a value for each row; two values for one are refused."""
    features = np.empty((len(first), len(columns)), dtype=np.float32)
    for number, (column, name) in enumerate(zip(columns, names, strict=True)):
        features[:, number] = column[first]
        if len(first) == len(documents):
            continue
        same = (column == column[first[documents]]) | (np.isnan(column) & np.isnan(column[first[documents]]))
        if not same.all():
            row = int(np.argmin(same))
            raise ValueError(
                f"column '{name}', row {row}: {column[row]}, but row {first[documents[row]]} says "
                f"{column[first[documents[row]]]} for the same query and document; a document has one set of features"
            )
    return features


def count_sessions(
    key: NDArray, clicks: NDArray, sessions: NDArray, *, joint: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray, NDArray, Patterns | None]:
    """Add up showings of the same list.

    Args:
        key: `[showings, anything]`, equal for showings of the same list.
        clicks: `[showings, docs]`, over all sessions of the showing.
        sessions: `[showings]`; with `joint`, each showing is one session, or one pattern of this weight.

    Returns:
        first showing of each list, list of each showing, clicks `[lists, docs]`, sessions `[lists]`, patterns.
    """
    first, kind = unique_rows(key)
    total = np.bincount(kind, weights=sessions, minlength=len(first))
    counts = np.zeros((len(first), clicks.shape[1]))
    for column in range(clicks.shape[1]):
        counts[:, column] = np.bincount(kind, weights=clicks[:, column], minlength=len(first))
    patterns = count_patterns(kind, clicks / sessions[:, None], sessions) if joint else None
    return first, kind, compact_counts(counts), compact_counts(total), patterns


def count_patterns(lists: NDArray[np.int64], clicks: NDArray, sessions: NDArray) -> Patterns:
    """Distinct click patterns of each list, from single sessions."""
    first, kind = unique_rows(np.column_stack([lists, clicks]).astype(np.float64))
    order = np.argsort(lists[first], kind="stable")
    weight = np.bincount(kind, weights=sessions, minlength=len(first))
    return Patterns(
        lists=lists[first][order],
        clicks=clicks[first][order].astype(np.float32),
        sessions=compact_counts(weight[order]),
    )


def compact_counts(counts: NDArray) -> NDArray:
    """Counts as float32 where that is exact, else as float64."""
    values = np.asarray(counts, dtype=np.float64)
    return values if values.max(initial=0.0) > EXACT_IN_FLOAT32 else values.astype(np.float32)
