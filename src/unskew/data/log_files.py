"""Click logs on disk: a folder of parquet shards with a versioned schema.

    LOG/log.json                       format, version, feature names, bias columns, counts of each shard
    LOG/shard-00000.documents.parquet  query, document, features (fixed-size list of float)
    LOG/shard-00000.lists.parquet      documents (row numbers of the shard's documents), positions, clicks, sessions,
                                       and, where the log has them: policy_scores, intervention, first_shown, bias.NAME
    LOG/shard-00000.patterns.parquet   list, clicks, sessions; only in a joint log

A query stands in one shard only, so every shard is a log by itself and a log larger than memory is read shard by
shard. A folder appears whole or not at all.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.data.click_log import ClickLog
from unskew.data.grouping import number_ids, plain_ids
from unskew.data.impressions import BiasColumn, Patterns

FORMAT = "unskew-click-log"
VERSION = 1


def write_log(log: ClickLog, folder: str | Path, *, n_shards: int = 1, overwrite: bool = False) -> Path:
    """Write a log into a new folder, atomically; queries are dealt to shards in their order."""
    n_queries = len(log.query_ids)
    shard_of_query = np.arange(n_queries) * n_shards // max(n_queries, 1)
    shards = (log.select(shard_of_query[log.queries] == shard) for shard in range(n_shards))
    owner = shard_of_query[log.document_queries]
    kept = (np.flatnonzero(owner == shard) for shard in range(n_shards))
    return write_shards(zip(shards, kept, strict=True), folder, overwrite=overwrite)


def write_shards(
    shards: Iterator[tuple[ClickLog, NDArray[np.int64]]], folder: str | Path, *, overwrite: bool = False
) -> Path:
    """Write logs that share no query as the shards of one log; each comes with the documents that it keeps."""
    target = Path(folder)
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists: choose another folder, or pass overwrite=True (--overwrite)")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target.parent} does not exist: create it first, the log is written into it")
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        about: dict[str, Any] = {}
        counts = []
        for number, (log, documents) in enumerate(shards):
            about = about or _about(log)
            counts.append(_write_shard(log, documents, scratch / f"shard-{number:05d}"))
        text = json.dumps({"format": FORMAT, "version": VERSION, **about, "shards": counts}, indent=2)
        (scratch / "log.json").write_text(text + "\n", encoding="utf-8")
        if target.exists():
            shutil.rmtree(target)
        scratch.replace(target)
        target.chmod(0o755)  # mkdtemp makes it private
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return target


@dataclass(frozen=True)
class LogFolder:
    """A log on disk, read shard by shard."""

    path: Path
    about: dict[str, Any]

    @property
    def n_shards(self) -> int:
        return len(self.about["shards"])

    @property
    def n_lists(self) -> list[int]:
        """Lists of each shard."""
        return [shard["lists"] for shard in self.about["shards"]]

    @property
    def joint(self) -> bool:
        return bool(self.about["joint"])

    def shard(self, number: int) -> ClickLog:
        return _read_shard(self.path / f"shard-{number:05d}", self.about)

    def shards(self, order: Sequence[int] | None = None) -> Iterator[ClickLog]:
        """Logs of the shards, the next one read while this one is in use: two are in memory at most."""
        numbers = list(range(self.n_shards)) if order is None else list(order)
        with ThreadPoolExecutor(1) as reader:
            upcoming = reader.submit(self.shard, numbers[0]) if numbers else None
            for number in [*numbers[1:], None]:
                assert upcoming is not None
                current = upcoming.result()
                upcoming = None if number is None else reader.submit(self.shard, number)
                yield current


def open_log(folder: str | Path) -> LogFolder:
    """A log folder, checked but not read."""
    path = Path(folder)
    if not (path / "log.json").is_file():
        raise FileNotFoundError(f"{path} is no click log: log.json is missing in it (make one with unskew simulate)")
    try:
        about = json.loads((path / "log.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path / 'log.json'} is damaged ({error}): write the log again") from error
    if about.get("format") != FORMAT:
        raise ValueError(f"{path / 'log.json'}: format is {about.get('format')!r}, {FORMAT!r} is needed")
    if about.get("version") != VERSION:
        raise ValueError(f"{path}: version {about.get('version')} of the format; this release reads version {VERSION}")
    return LogFolder(path, about)


def read_log(folder: str | Path) -> ClickLog:
    """A whole log in memory."""
    logs = list(open_log(folder).shards())
    if not logs:
        raise ValueError(f"{folder} has no shards: the log is empty")
    return logs[0] if len(logs) == 1 else _join(logs)


def _about(log: ClickLog) -> dict[str, Any]:
    return {
        "features": list(log.feature_names) or log.n_features,
        "bias": {name: None if column.levels is None else list(column.levels) for name, column in log.bias.items()},
        "interventions": None if log.interventions is None else list(log.interventions.levels or ()),
        "joint": log.joint,
        "graded": log.graded,
    }


def _write_shard(log: ClickLog, documents: NDArray[np.int64], stem: Path) -> dict[str, Any]:
    sizes = log.mask.sum(1)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))

    def ragged(padded: NDArray) -> pa.Array:
        return pa.ListArray.from_arrays(offsets, pa.array(padded[log.mask]))

    renumber = np.zeros(len(log.features), dtype=np.int32)
    renumber[documents] = np.arange(len(documents), dtype=np.int32)
    lists = {
        "documents": ragged(renumber[log.documents]),
        "positions": ragged(log.positions),
        "clicks": ragged(log.clicks),
        "sessions": pa.array(log.sessions),
    }
    if log.policy_scores is not None:
        lists["policy_scores"] = ragged(log.policy_scores)
    if log.interventions is not None:
        lists["intervention"] = pa.array(log.interventions.values)
    if log.first_shown is not None:
        lists["first_shown"] = pa.array(log.first_shown).cast(pa.timestamp("us"))
    for name, column in log.bias.items():
        lists[f"bias.{name}"] = pa.array(column.values) if column.values.ndim == 1 else ragged(column.values)
    flat = pa.array(np.ascontiguousarray(log.features[documents]).reshape(-1))
    table = {
        "query": pa.array(log.query_ids[log.document_queries[documents]]).dictionary_encode(),
        "document": pa.array(log.document_ids[documents]),
        "features": pa.FixedSizeListArray.from_arrays(flat, log.n_features)
        if log.n_features
        else pa.nulls(len(documents)),
    }
    _write(table, f"{stem}.documents.parquet")
    _write(lists, f"{stem}.lists.parquet")
    if log.patterns is not None:
        kept = log.mask[log.patterns.lists]
        pattern_offsets = pa.array(np.concatenate([[0], np.cumsum(kept.sum(1))]).astype(np.int64))
        clicks = pa.LargeListArray.from_arrays(pattern_offsets, pa.array(log.patterns.clicks[kept]))
        patterns = {"list": pa.array(log.patterns.lists), "clicks": clicks, "sessions": pa.array(log.patterns.sessions)}
        _write(patterns, f"{stem}.patterns.parquet")
    return {"lists": log.n_lists, "documents": len(documents), "sessions": log.n_sessions, "clicks": log.n_clicks}


def _write(columns: dict[str, pa.Array], path: str) -> None:
    pq.write_table(pa.table(columns), path, compression="zstd")


def _read(path: Path) -> pa.Table:
    try:
        return pq.read_table(path)
    except (OSError, ValueError, pa.ArrowInvalid) as error:
        raise ValueError(f"{path} cannot be read ({error}): the log is incomplete, write it again") from error


def _read_shard(stem: Path, about: dict[str, Any]) -> ClickLog:
    table = _read(stem.with_name(f"{stem.name}.documents.parquet"))
    lists = _read(stem.with_name(f"{stem.name}.lists.parquet"))
    names = about["features"]
    n_features = names if isinstance(names, int) else len(names)
    features = np.zeros((len(table), 0), dtype=np.float32)
    if n_features:
        column = table["features"].combine_chunks()
        features = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, n_features)
    query_ids, document_queries = number_ids(table["query"])
    sizes = np.asarray(pa.compute.list_value_length(lists["documents"]).to_numpy(zero_copy_only=False), dtype=np.int64)
    mask = np.arange(sizes.max(initial=0))[None, :] < sizes[:, None]

    def padded(name: str) -> NDArray:
        return _padded(lists[name], mask)

    def bias(name: str, levels: list[str] | None) -> BiasColumn:
        column = lists[f"bias.{name}"]
        values = padded(f"bias.{name}") if pa.types.is_list(column.type) else column.to_numpy()
        return BiasColumn(values, None if levels is None else tuple(levels))

    patterns = None
    if about["joint"]:
        stored = _read(stem.with_name(f"{stem.name}.patterns.parquet"))
        owner = stored["list"].to_numpy()
        patterns = Patterns(owner, _padded(stored["clicks"], mask[owner]), stored["sessions"].to_numpy())
    has = set(lists.column_names)
    return ClickLog(
        features=features,
        documents=padded("documents"),
        mask=mask,
        clicks=padded("clicks"),
        sessions=lists["sessions"].to_numpy(),
        positions=padded("positions"),
        document_queries=document_queries,
        query_ids=query_ids,
        document_ids=plain_ids(table["document"]),
        feature_names=() if isinstance(names, int) else tuple(names),
        patterns=patterns,
        bias={name: bias(name, levels) for name, levels in about["bias"].items()},
        policy_scores=padded("policy_scores") if "policy_scores" in has else None,
        interventions=BiasColumn(lists["intervention"].to_numpy(), tuple(about["interventions"]))
        if "intervention" in has
        else None,
        first_shown=lists["first_shown"].cast(pa.int64()).to_numpy() if "first_shown" in has else None,
        graded=about["graded"],
    )


def _padded(column: pa.ChunkedArray, mask: NDArray[np.bool_]) -> NDArray:
    values = pa.compute.list_flatten(column).to_numpy()
    padded = np.zeros(mask.shape, dtype=values.dtype)
    padded[mask] = values
    return padded


def _join(logs: Sequence[ClickLog]) -> ClickLog:
    """One log of several that share no query."""
    width = max(log.n_docs for log in logs)
    first_document = np.cumsum([0, *(len(log.features) for log in logs)])
    first_query = np.cumsum([0, *(len(log.query_ids) for log in logs)])
    first_list = np.cumsum([0, *(log.n_lists for log in logs)])

    def wide(parts: Sequence[NDArray]) -> NDArray:
        return np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts])

    def column(entries: Sequence[BiasColumn]) -> BiasColumn:
        flat = all(entry.values.ndim == 1 for entry in entries)
        if flat:
            return BiasColumn(np.concatenate([entry.values for entry in entries]), entries[0].levels)
        spread = [entry.per_document(log.n_docs) for entry, log in zip(entries, logs, strict=True)]
        return BiasColumn(wide(spread), entries[0].levels)

    patterns = None
    if logs[0].patterns is not None:
        found = [log.patterns for log in logs if log.patterns is not None]
        patterns = Patterns(
            np.concatenate([part.lists + start for part, start in zip(found, first_list[:-1], strict=True)]),
            wide([part.clicks for part in found]),
            np.concatenate([part.sessions for part in found]),
        )
    shifted = [
        np.where(log.mask, log.documents + start, 0) for log, start in zip(logs, first_document[:-1], strict=True)
    ]
    scores = [log.policy_scores for log in logs if log.policy_scores is not None]
    changed = [log.interventions for log in logs if log.interventions is not None]
    times = [log.first_shown for log in logs if log.first_shown is not None]
    return ClickLog(
        features=np.concatenate([log.features for log in logs]),
        documents=wide(shifted).astype(np.int32),
        mask=wide([log.mask for log in logs]),
        clicks=wide([log.clicks for log in logs]),
        sessions=np.concatenate([log.sessions for log in logs]),
        positions=wide([log.positions for log in logs]),
        document_queries=np.concatenate(
            [log.document_queries + start for log, start in zip(logs, first_query[:-1], strict=True)]
        ),
        query_ids=np.concatenate([log.query_ids for log in logs]),
        document_ids=np.concatenate([log.document_ids for log in logs]),
        feature_names=logs[0].feature_names,
        patterns=patterns,
        bias={name: column([log.bias[name] for log in logs]) for name in logs[0].bias},
        policy_scores=wide(scores) if len(scores) == len(logs) else None,
        interventions=column(changed) if len(changed) == len(logs) else None,
        first_shown=np.concatenate(times) if len(times) == len(logs) else None,
        graded=logs[0].graded,
    )
