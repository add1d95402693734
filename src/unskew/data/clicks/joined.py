"""Join logs that share no query, such as the shards of a folder, into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.impressions import BiasColumn, Patterns
from unskew.data.clicks.lineage import Lineage, joined
from unskew.data.clicks.row_fields import Field, joined_fields
from unskew.data.grouping import number_ids


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
    found = [log.patterns for log in logs if log.patterns is not None]
    starts = _starts([log.n_lists for log in logs])
    return Patterns(
        np.concatenate([part.lists + start for part, start in zip(found, starts, strict=True)]),
        _stack([part.clicks for part in found], max(log.n_docs for log in logs)),
        np.concatenate([part.sessions for part in found]),
    )
