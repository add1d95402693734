"""One shard of a click log as parquet files; `docs/click_log.md` describes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.impressions import BiasColumn, Patterns
from unskew.data.grouping import number_ids, plain_ids


def write_shard(log: ClickLog, stem: Path) -> dict[str, Any]:
    """Write a shard; gives its counts."""
    tables = {"documents": _documents_table(log), "lists": _lists_table(log)}
    if log.patterns is not None:
        tables["patterns"] = _patterns_table(log, log.patterns)
    for name, columns in tables.items():
        # A dictionary of float values costs time and saves nothing; one of query ids, repeated row by row, does.
        pq.write_table(pa.table(columns), shard_file(stem, name), compression="zstd", use_dictionary=["query"])
    return {
        "documents": len(log.features),
        "lists": log.n_lists,
        "patterns": 0 if log.patterns is None else len(log.patterns.lists),
        "sessions": log.n_sessions,
        "clicks": log.n_clicks,
        "positions": log.n_positions,
    }


def read_shard(stem: Path, about: Mapping[str, Any], counts: Mapping[str, Any]) -> ClickLog:
    """The log of a shard, with what `log.json` says of all shards and of this one."""
    documents = _read(stem, "documents", counts)
    lists = _read(stem, "lists", counts)
    patterns = _read(stem, "patterns", counts) if about["joint"] else None
    try:
        return _log(documents, lists, patterns, about)
    except (KeyError, ValueError, TypeError, pa.ArrowException) as error:
        raise ValueError(f"{stem}.*.parquet do not fit together ({error}): write the log again") from error


def shard_file(stem: Path, table: str) -> Path:
    return stem.with_name(f"{stem.name}.{table}.parquet")


def _read(stem: Path, name: str, counts: Mapping[str, Any]) -> pa.Table:
    path = shard_file(stem, name)
    try:
        table = pq.read_table(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ValueError(f"{path} cannot be read ({error}): the log is incomplete, write it again") from error
    if table.num_rows != counts[name]:
        raise ValueError(
            f"{path} has {table.num_rows} rows, log.json says {counts[name]}: files of two logs are mixed, "
            "write the log again"
        )
    return table


def _documents_table(log: ClickLog) -> dict[str, pa.Array]:
    features = pa.nulls(len(log.features))
    if log.n_features:
        values = pa.field("element", pa.float32(), nullable=False)  # read in three quarters of the time
        flat = pa.array(np.ascontiguousarray(log.features, dtype=np.float32).reshape(-1))
        features = pa.FixedSizeListArray.from_arrays(flat, type=pa.list_(values, log.n_features))
    return {
        "query": _ids(log.query_ids).take(pa.array(log.document_queries)),
        "document": _ids(log.document_ids),
        "features": features,
    }


def _lists_table(log: ClickLog) -> dict[str, pa.Array]:
    def ragged(padded: NDArray) -> pa.Array:
        return _ragged(padded, log.mask)

    columns = {
        "documents": ragged(log.documents),
        "positions": ragged(log.positions),
        "clicks": ragged(log.clicks),
        "sessions": pa.array(log.sessions),
    }
    if log.policy_scores is not None:
        columns["policy_scores"] = ragged(log.policy_scores)
    if log.interventions is not None:
        columns["intervention"] = pa.array(log.interventions.values)
    if log.first_shown is not None:
        columns["first_shown"] = pa.array(log.first_shown).cast(pa.timestamp("us"))
    for name, column in log.bias.items():
        columns[f"bias.{name}"] = pa.array(column.values) if column.values.ndim == 1 else ragged(column.values)
    return columns


def _patterns_table(log: ClickLog, patterns: Patterns) -> dict[str, pa.Array]:
    return {
        "list": pa.array(patterns.lists),
        "clicks": _ragged(patterns.clicks, log.mask[patterns.lists]),
        "sessions": pa.array(patterns.sessions),
    }


def _ids(ids: NDArray) -> pa.Array:
    return pa.array(ids) if ids.dtype.kind in "iu" else pa.array(ids, pa.large_string())


def _ragged(padded: NDArray, mask: NDArray[np.bool_]) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(mask.sum(1))]).astype(np.int64)
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(padded[mask]))


def _log(documents: pa.Table, lists: pa.Table, patterns: pa.Table | None, about: Mapping[str, Any]) -> ClickLog:
    names = about["features"]
    query_ids, document_queries = number_ids(documents["query"])
    sizes = np.asarray(pc.list_value_length(lists["documents"]).to_numpy(zero_copy_only=False), dtype=np.int64)
    mask = np.arange(sizes.max(initial=0))[None, :] < sizes[:, None]
    return ClickLog(
        features=_features(documents["features"], names if isinstance(names, int) else len(names)),
        documents=_padded(lists["documents"], mask),
        mask=mask,
        clicks=_padded(lists["clicks"], mask),
        sessions=lists["sessions"].to_numpy(),
        positions=_padded(lists["positions"], mask),
        document_queries=document_queries,
        query_ids=query_ids,
        document_ids=plain_ids(documents["document"]),
        feature_names=() if isinstance(names, int) else tuple(names),
        patterns=None if patterns is None else _patterns(patterns, mask),
        bias={name: _column(lists[f"bias.{name}"], levels, mask) for name, levels in about["bias"].items()},
        policy_scores=_padded(lists["policy_scores"], mask) if about["policy_scores"] else None,
        interventions=None
        if about["interventions"] is None
        else _column(lists["intervention"], about["interventions"], mask),
        first_shown=lists["first_shown"].cast(pa.int64()).to_numpy() if about["first_shown"] else None,
        graded=about["graded"],
    )


def _features(column: pa.ChunkedArray, n_features: int) -> NDArray[np.float32]:
    if not n_features:
        return np.zeros((len(column), 0), dtype=np.float32)
    flat = pc.list_flatten(column).to_numpy(zero_copy_only=False)
    return flat.astype(np.float32, copy=False).reshape(len(column), n_features)


def _patterns(table: pa.Table, mask: NDArray[np.bool_]) -> Patterns:
    lists = table["list"].to_numpy()
    return Patterns(lists, _padded(table["clicks"], mask[lists]), table["sessions"].to_numpy())


def _column(column: pa.ChunkedArray, levels: list[str] | None, mask: NDArray[np.bool_]) -> BiasColumn:
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    values = column.to_numpy() if is_number else _padded(column, mask)
    return BiasColumn(values, None if levels is None else tuple(levels))


def _padded(column: pa.ChunkedArray, mask: NDArray[np.bool_]) -> NDArray:
    values = pc.list_flatten(column).to_numpy()
    padded = np.zeros(mask.shape, dtype=values.dtype)
    padded[mask] = values
    return padded
