"""Grouping: equal ids and equal rows get the same number, without a Python loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

LARGEST_EXACT = 2.0**53  # largest exact whole number in float64


def number_ids(ids: Any) -> tuple[NDArray, NDArray[np.int64]]:
    """Distinct ids in order of first appearance, and for each row the number of its id."""
    values = as_array(ids)
    _check_exact(values)
    if values.null_count:
        row = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise ValueError(f"the id in row {row} is missing: fill it or drop the row")
    if isinstance(values.type, pa.DictionaryType):  # categories: number the codes and look only at the few names
        names, number_of_category = number_ids(values.dictionary)
        used, codes = number_ids(number_of_category[values.indices.to_numpy(zero_copy_only=False)])
        return names[used], codes
    encoded = pc.dictionary_encode(values)
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return plain_ids(encoded.dictionary), codes


def plain_ids(ids: Any) -> NDArray:
    """Ids as a numpy array of integers if possible, otherwise of strings (objects: one long id must not widen all)."""
    values = decoded(as_array(ids))
    _check_exact(values)
    if pa.types.is_integer(values.type):
        return values.to_numpy(zero_copy_only=False)
    return np.asarray(as_text(values).to_numpy(zero_copy_only=False), dtype=object)


def as_array(values: Any) -> pa.Array:
    """A list, numpy array, series or arrow column as one arrow array; mixed numbers and text are an error."""
    try:
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise ValueError(f"ids must be either all whole numbers of up to 64 bits, or all text: {error}") from error
    if isinstance(array, pa.ChunkedArray):
        if pa.types.is_string(array.type):
            array = array.cast(pa.large_string())  # an array of plain strings is limited to 2 GB
        array = array.unify_dictionaries().combine_chunks()
    return array


def _check_exact(ids: pa.Array) -> None:
    """Refuse float ids that are NaN, fractional, or so large that two ids may be the same number."""
    if not pa.types.is_floating(ids.type):
        return
    bad = np.flatnonzero(~(np.abs(ids.to_numpy(zero_copy_only=False)) < LARGEST_EXACT))
    if len(bad) and ids[int(bad[0])].is_valid:
        raise ValueError(
            f"the id in row {bad[0]} is the float {ids[int(bad[0])]}: floats represent ids from 2^53 on inexactly, and "
            "NaN is not an id; pass ids as whole numbers or as text"
        )


def decoded(values: pa.Array) -> pa.Array:
    """Categories as plain values; other arrays unchanged."""
    if not isinstance(values.type, pa.DictionaryType):
        return values
    names = values.dictionary
    names = pc.cast(names, pa.large_string()) if _is_text(names.type) else names  # arrow cannot take from string views
    return names.take(values.indices)


def as_text(values: pa.Array) -> pa.Array:
    """Values written as text."""
    values = decoded(values)
    if pa.types.is_decimal(values.type):  # arrow needs more digits than the type has
        return pa.array([str(entry) for entry in values.to_pylist()], pa.large_string())
    return pc.cast(values, pa.large_string())


def unique_rows(matrix: NDArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First index of each distinct row, in order of first appearance, and the number of each row among them.

    Rows are grouped by a 64-bit hash, and every row is then compared with its representative: a collision costs time,
    never correctness.
    """
    rows = np.ascontiguousarray(matrix)
    if rows.shape[1] == 0 or len(rows) == 0:
        return np.zeros(min(1, len(rows)), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    first, kind = _first_appearances(_hash(rows))
    if not np.array_equal(rows[first[kind]], rows, equal_nan=rows.dtype.kind == "f"):
        _, codes = np.unique(rows, axis=0, return_inverse=True)
        first, kind = _first_appearances(codes.reshape(-1))
    return first, kind


def _first_appearances(codes: NDArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    _, first, kind = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order].astype(np.int64), rank[kind.reshape(-1)]


def _hash(rows: NDArray) -> NDArray[np.uint64]:
    state = np.full(len(rows), 0x9E3779B97F4A7C15, dtype=np.uint64)
    for column in rows.T:  # splitmix64, one column at a time
        state = state ^ (_words(column) + np.uint64(0x9E3779B97F4A7C15))
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return state


def _words(column: NDArray) -> NDArray[np.uint64]:
    if column.dtype.kind == "f":
        return np.where(column == 0, 0.0, column).astype(np.float64).view(np.uint64)  # -0.0 equals 0.0
    return np.ascontiguousarray(column, dtype=np.int64).view(np.uint64)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view"
