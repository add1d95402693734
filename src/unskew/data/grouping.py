"""Grouping: equal ids and equal rows get the same number, without a Python loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def number_ids(ids: Any) -> tuple[NDArray, NDArray[np.int64]]:
    """Distinct ids in order of first appearance, and for each row the number of its id."""
    values = ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(ids)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values.type, pa.DictionaryType):
        values = values.cast(values.type.value_type)
    encoded = pc.dictionary_encode(values)
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return plain_ids(encoded.dictionary), codes


def plain_ids(ids: Any) -> NDArray:
    """Ids as a numpy array of integers where they are, else of strings."""
    values = ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(ids)
    if isinstance(values.type, pa.DictionaryType):
        values = values.cast(values.type.value_type)
    if pa.types.is_integer(values.type):
        return values.to_numpy()
    return np.asarray(pc.cast(values, pa.string()).to_numpy(zero_copy_only=False), dtype=np.str_)


def unique_rows(matrix: NDArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First index of each distinct row, in order of first appearance, and for each row the number of its kind.

    Rows are told apart by a 64-bit hash, and every row is then compared with its representative: a collision costs
    time, never correctness.
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
    if rows.dtype.kind == "f":
        words = np.where(rows == 0, 0.0, rows.astype(np.float64)).view(np.uint64)  # -0.0 equals 0.0
    else:
        words = rows.astype(np.int64).view(np.uint64)
    state = np.full(len(rows), 0x9E3779B97F4A7C15, dtype=np.uint64)
    for column in words.T:  # splitmix64, one column at a time
        state = state ^ (column + np.uint64(0x9E3779B97F4A7C15))
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return state
