"""A click log as a table with one row per shown document, for export."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

if TYPE_CHECKING:
    from unskew.data.clicks.click_log import ClickLog
    from unskew.data.clicks.impressions import BiasColumn


def log_to_table(log: ClickLog, *, features: bool = False) -> pa.Table:
    """Columns as `ClickLog.to_table` describes them."""
    sizes = log.mask.sum(1)
    documents, versions = log.documents[log.mask], log.versions[log.mask]

    def of_lists(values: NDArray) -> NDArray:
        return np.repeat(values, sizes)

    def column(entry: BiasColumn) -> pa.Array:
        values = of_lists(entry.values) if entry.values.ndim == 1 else entry.values[log.mask]
        return pa.array(values) if entry.levels is None else _named(values, np.array(entry.levels, dtype=object))

    columns = {
        "list": pa.array(of_lists(np.arange(log.n_lists))),
        "query": _named(log.document_queries[documents], log.query_ids),
        "document": _named(documents, log.document_ids),
        "position": pa.array(log.positions[log.mask]),
        "clicks": pa.array(log.clicks[log.mask]),
        "sessions": pa.array(of_lists(log.sessions)),
    }
    if log.policy_scores is not None:
        columns["policy_score"] = pa.array(log.policy_scores[log.mask])
    if log.display_probabilities is not None:
        columns["display_probability"] = pa.array(log.display_probabilities[log.mask], from_pandas=True)
    if log.interventions is not None:
        columns["intervention"] = column(log.interventions)
    if log.first_shown is not None:
        columns["first_shown"] = pa.array(of_lists(log.first_shown)).cast(pa.timestamp("us"))
    if log.periods is not None:
        columns["period"] = pa.array(of_lists(log.periods)).cast(pa.timestamp("us"))
    if log.seen is not None and log.seen_sessions is not None:
        columns["seen"] = pa.array(log.seen[log.mask])
        columns["seen_sessions"] = pa.array(of_lists(log.seen_sessions))
    _add(columns, {kind: pa.array(counts[log.mask]) for kind, counts in log.events.items()}, "kind of event")
    _add(columns, {name: column(entry) for name, entry in log.bias.items()}, "bias column")
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
