"""The shards of a click log: as parquet files, with the schema that they share, and joined into one log.

`docs/click_log.md` describes the files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.data.clicks.build import first_rows
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.lineage import Lineage, joined
from unskew.data.clicks.row_fields import FIELDS, BiasColumn, Field, Patterns, in_tables, joined_fields
from unskew.data.files import file_digest
from unskew.data.grouping import number_ids, plain_ids
from unskew.data.untrusted import read_parquet

TABLES = ("versions", "lists", "patterns")
USERS = "users"  # a table that only `forget` reads
COUNTS = ("versions", "documents", "lists", "patterns", "sessions", "clicks", "positions")


def write_shard(log: ClickLog, stem: Path, users: pa.Table | None = None) -> dict[str, Any]:
    """Write a shard, and return its counts and the digests of its files."""
    tables = {"versions": _versions_table(log), "lists": _lists_table(log)}
    if log.patterns is not None:
        tables["patterns"] = _patterns_table(log, log.patterns)
    whole = {name: pa.table(columns) for name, columns in tables.items()} | ({} if users is None else {USERS: users})
    for name, table in whole.items():
        # Dictionary encoding costs time and saves nothing for floats, but pays for query ids, which repeat.
        pq.write_table(table, shard_file(stem, name), compression="zstd", use_dictionary=["query"])
    return log_counts(log) | {"digests": {name: file_digest(shard_file(stem, name)) for name in whole}}


def log_counts(log: ClickLog) -> dict[str, Any]:
    """The counts of a shard in `log.json`."""
    return {
        "versions": len(log.features),
        "documents": log.n_documents,
        "lists": log.n_lists,
        "patterns": 0 if log.patterns is None else len(log.patterns.lists),
        "sessions": log.n_sessions,
        "clicks": log.n_clicks,
        "positions": log.n_positions,
    }


def read_shard(stem: Path, about: Mapping[str, Any], counts: Mapping[str, Any], *, verify: bool = True) -> ClickLog:
    """The log of a shard; `about` and `counts` are the entries of `log.json` for all shards and for this one."""
    tables = {name: read_table(stem, name, counts, verify=verify) for name in TABLES if name in counts["digests"]}
    try:
        log = _log(tables["versions"], tables["lists"], tables.get("patterns"), about)
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, OverflowError, pa.ArrowException) as error:
        raise ValueError(f"{stem}.*.parquet do not fit together ({error}): write the log again") from error
    for name, count in log_counts(log).items():
        if counts.get(name) != count:
            raise ValueError(
                f"{stem}.*.parquet have {count} {name}, but log.json says {counts.get(name)}: files of two logs are "
                "mixed; write the log again"
            )
    return log


def shard_file(stem: Path, table: str) -> Path:
    return stem.with_name(f"{stem.name}.{table}.parquet")


def read_table(stem: Path, name: str, counts: Mapping[str, Any], *, verify: bool = True) -> pa.Table:
    """A table of a shard, checked against its digest."""
    path = shard_file(stem, name)
    try:
        if verify and file_digest(path) != counts["digests"][name]:
            raise ValueError("its content does not match the SHA-256 digest in log.json")
        return read_parquet(path, counts.get(name))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ValueError(
            f"{path} cannot be read ({error}): the log is incomplete or damaged; write it again"
        ) from error


def _versions_table(log: ClickLog) -> dict[str, pa.Array]:
    features = pa.nulls(len(log.features))
    if log.n_features:
        values = pa.field("element", pa.float32(), nullable=False)  # reading is a quarter faster
        flat = pa.array(np.ascontiguousarray(log.features, dtype=np.float32).reshape(-1))
        features = pa.FixedSizeListArray.from_arrays(flat, type=pa.list_(values, log.n_features))
    columns = {
        "query": _ids(log.query_ids).take(pa.array(log.version_queries)),
        "document": _ids(log.document_ids),
    }
    if log.features_change:
        numbers = pa.array(log.version_documents)
        columns |= {"document": columns["document"].take(numbers), "number": numbers}
    return columns | {"features": features}


def _lists_table(log: ClickLog) -> dict[str, pa.Array]:
    def ragged(padded: NDArray) -> pa.Array:
        return _ragged(padded, log.mask)

    columns = {}
    for name, column in in_tables(log):
        values = ragged(column.values) if column.values.ndim == 2 else pa.array(column.values)
        columns[name] = values.cast(pa.timestamp("us")) if column.field.time else values
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


def _log(versions: pa.Table, lists: pa.Table, patterns: pa.Table | None, about: Mapping[str, Any]) -> ClickLog:
    names = about["features"]
    query_ids, version_queries = number_ids(versions["query"])
    numbers = versions["number"].to_numpy() if "number" in versions.column_names else np.arange(len(versions))
    first = first_rows(numbers)
    sizes = np.asarray(pc.list_value_length(lists["versions"]).to_numpy(zero_copy_only=False), dtype=np.int64)
    mask = np.arange(sizes.max(initial=0))[None, :] < sizes[:, None]
    columns = {entry.name: _stored(entry, lists, mask, about) for entry in FIELDS if entry.stored is not None}
    return ClickLog(
        **columns,
        features=_features(versions["features"], names if isinstance(names, int) else len(names)),
        mask=mask,
        version_documents=numbers,
        document_queries=version_queries[first],
        query_ids=query_ids,
        document_ids=plain_ids(versions["document"])[first],
        feature_names=() if isinstance(names, int) else tuple(names),
        categories={name: tuple(levels) for name, levels in about["categories"].items()},
        context_names=tuple(about["context"]),
        patterns=None if patterns is None else _patterns(patterns, mask),
        graded=about["graded"],
        grades=about.get("grades", {}),
        shuffled=about.get("shuffled", {}),
    )


def _stored(entry: Field, lists: pa.Table, mask: NDArray[np.bool_], about: Mapping[str, Any]) -> Any:
    """The values of a column of the log; None if the log does not have it."""
    said: Any = True if entry.entry is None else about.get(entry.entry)  # interventions: the names of levels
    if said is None or said is False:
        return None
    if entry.name == "context":
        columns = [lists[f"{entry.stored}{name}"].to_numpy() for name in about["context"]]
        return np.column_stack(columns) if columns else np.zeros((lists.num_rows, 0), dtype=np.float32)
    if entry.name == "events":
        return {kind: _values(lists[f"{entry.stored}{kind}"], mask) for kind in about["events"]}
    if entry.name == "bias":
        return {name: _column(lists[f"{entry.stored}{name}"], levels, mask) for name, levels in about["bias"].items()}
    if entry.name == "interventions":
        return _column(lists[entry.stored], said, mask)
    return _values(lists[entry.stored], mask)


def _features(column: pa.ChunkedArray, n_features: int) -> NDArray[np.float32]:
    if not n_features:
        return np.zeros((len(column), 0), dtype=np.float32)
    flat = pc.list_flatten(column).to_numpy(zero_copy_only=False)
    return flat.astype(np.float32, copy=False).reshape(len(column), n_features)


def _patterns(table: pa.Table, mask: NDArray[np.bool_]) -> Patterns:
    lists = table["list"].to_numpy()
    return Patterns(lists, _padded(table["clicks"], mask[lists]), table["sessions"].to_numpy())


def _column(column: pa.ChunkedArray, levels: list[str] | None, mask: NDArray[np.bool_]) -> BiasColumn:
    return BiasColumn(_values(column, mask), None if levels is None else tuple(levels))


def _values(column: pa.ChunkedArray, mask: NDArray[np.bool_]) -> NDArray:
    """Values of lists `[lists]`, or of their places `[lists, docs]`."""
    if pa.types.is_large_list(column.type) or pa.types.is_list(column.type):
        return _padded(column, mask)
    return column.cast(pa.int64()).to_numpy() if pa.types.is_timestamp(column.type) else column.to_numpy()


def _padded(column: pa.ChunkedArray, mask: NDArray[np.bool_]) -> NDArray:
    values = pc.list_flatten(column).to_numpy()
    padded = np.zeros(mask.shape, dtype=values.dtype)
    padded[mask] = values
    return padded


class LogSchema:
    """Features, bias columns and kind of a log; new shards may add names of levels."""

    NEEDED: ClassVar = (  # entries of every log, since the first release
        *("features", "categories", "context", "bias", "interventions", "events"),
        *("policy_scores", "first_shown", "periods", "seen", "joint", "graded"),
    )

    def __init__(self, log: ClickLog):
        self._fixed = _fixed(log)
        self._levels: dict[str, list[str] | None] = {name: _names(column) for name, column in log.bias.items()}
        self._interventions = None if log.interventions is None else _names(log.interventions)

    def admit(self, log: ClickLog, number: int) -> ClickLog:
        """The log with levels numbered as in earlier shards; a log with another schema is refused."""
        new, known = _fixed(log), self._fixed
        for name in {**known, **new}:
            here, before = (each.get(name, False) for each in (new, known))
            if here != before:
                what = f"shard {number}: {name} is {here}, but {before} in shard 0"
                raise ValueError(f"{what}: build all shards with the same settings")
        interventions = log.interventions
        if interventions is not None:
            interventions = _renumber(interventions, self._interventions)
        bias = {name: _renumber(column, self._levels[name]) for name, column in log.bias.items()}
        return replace(log, bias=bias, interventions=interventions)

    def about(self) -> dict[str, Any]:
        """Entries of `log.json`."""
        return {**self._fixed, "bias": self._levels, "interventions": self._interventions}


def _fixed(log: ClickLog) -> dict[str, Any]:
    has = {
        entry.entry: getattr(log, entry.name) is not None
        for entry in FIELDS
        if entry.entry is not None and (getattr(log, entry.name) is not None or not entry.new)
    }
    return {
        "features": list(log.feature_names) or log.n_features,
        "categories": {name: list(names) for name, names in log.categories.items()},
        "context": list(log.context_names),
        "bias": {name: "numbers" if column.levels is None else "levels" for name, column in log.bias.items()},
        **has,
        "events": list(log.events),
        "joint": log.joint,
        "graded": log.graded,
        "grades": dict(log.grades),
        "shuffled": dict(log.shuffled),
    }


def _names(column: BiasColumn) -> list[str] | None:
    return None if column.levels is None else list(column.levels)


def _renumber(column: BiasColumn, known: list[str] | None) -> BiasColumn:
    """The column with the numbers of the known levels; new levels are added."""
    if known is None or column.levels is None or known[: len(column.levels)] == list(column.levels):
        return column
    known.extend(level for level in column.levels if level not in known)
    numbers = np.array([known.index(level) for level in column.levels])
    return BiasColumn(numbers[column.values], tuple(known))


def join_logs(logs: Sequence[ClickLog]) -> ClickLog:
    """Join logs with the same features and bias columns; a query in two of them is an error."""
    if len(logs) == 1:
        return logs[0]
    columns = joined_fields([vars(log) for log in logs], _joiner(logs))
    _check_apart(columns["query_ids"], [len(log.query_ids) for log in logs])
    lacking = any(log.patterns is None for log in logs)
    patterns = None if lacking else _join_patterns(logs)
    return replace(logs[0], **columns | {"codes": None, "patterns": patterns, "origin": _join_origins(logs)})


def _joiner(logs: Sequence[ClickLog]) -> Callable[[Field, list[NDArray]], NDArray]:
    """What joins the arrays of a column, one per log."""
    starts = {
        "version": _starts([len(log.features) for log in logs]),
        "document": _starts([log.n_documents for log in logs]),
        "query": _starts([len(log.query_ids) for log in logs]),
    }

    width = max(log.n_docs for log in logs)

    def join(entry: Field, parts: list[NDArray]) -> NDArray:
        if entry.name in ("query_ids", "document_ids"):
            return _join_ids(parts)
        if entry.of is not None:
            parts = [(part + start).astype(part.dtype) for part, start in zip(parts, starts[entry.of], strict=True)]
        if not entry.in_lists or entry.per == "list" or all(part.ndim == 1 for part in parts):
            return np.concatenate(parts)
        if entry.of is not None:
            parts = [np.where(log.mask, part, part.dtype.type(0)) for log, part in zip(logs, parts, strict=True)]
        columns = [BiasColumn(part) for part in parts]  # which may have values of places in some logs only
        return _stack([column.per_document(log.n_docs) for column, log in zip(columns, logs, strict=True)], width)

    return join


def _join_origins(logs: Sequence[ClickLog]) -> Lineage | None:
    """That of all logs, if they are parts of one; otherwise a join; None: none of them was on disk."""
    origins = list(dict.fromkeys(None if log.origin is None else log.origin.digest for log in logs))
    return logs[0].origin if len(origins) == 1 else joined([log.lineage for log in logs])


def _starts(sizes: Sequence[int]) -> NDArray[np.int64]:
    return np.cumsum([0, *sizes])[:-1]


def _stack(parts: Sequence[NDArray], width: int) -> NDArray:
    return np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts])


def _join_ids(parts: Sequence[NDArray]) -> NDArray:
    if len({part.dtype.kind in "iu" for part in parts if len(part)}) == 2:  # numbers in one shard, text in another
        parts = [part.astype(str).astype(object) for part in parts]
    return np.concatenate(parts)


def _check_apart(query_ids: NDArray, sizes: Sequence[int]) -> None:
    names, numbers = number_ids(query_ids)
    log_of_row = np.repeat(np.arange(len(sizes)), sizes)
    first = np.full(len(names), len(sizes))
    np.minimum.at(first, numbers, log_of_row)
    again = first[numbers] != log_of_row
    if again.any():
        row = int(np.argmax(again))
        raise ValueError(
            f"query {query_ids[row]!r} is in log {first[numbers[row]]} and in log {log_of_row[row]}: "
            "all lists of a query must be in the same log; build them again"
        )


def _join_patterns(logs: Sequence[ClickLog]) -> Patterns:
    patterns = [log.patterns for log in logs if log.patterns is not None]
    starts = _starts([log.n_lists for log in logs])
    return Patterns(
        np.concatenate([part.lists + start for part, start in zip(patterns, starts, strict=True)]),
        _stack([part.clicks for part in patterns], max(log.n_docs for log in logs)),
        np.concatenate([part.sessions for part in patterns]),
    )
