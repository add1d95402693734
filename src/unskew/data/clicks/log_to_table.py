"""A click log as a table with one row per shown document, for export."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.data.clicks.row_fields import Column, in_tables

if TYPE_CHECKING:
    from unskew.data.clicks.click_log import ClickLog


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
        names = log.feature_names or tuple(f"feature_{number}" for number in range(log.n_features))
        by_name = {name: _feature(log, name, log.features[versions, number]) for number, name in enumerate(names)}
        _add(columns, by_name, "feature")
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
