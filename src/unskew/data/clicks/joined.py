"""Join logs that share no query, such as the shards of a folder, into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import BY_LIST, ClickLog
from unskew.data.clicks.impressions import BiasColumn, Patterns
from unskew.data.clicks.lineage import Lineage, joined
from unskew.data.grouping import number_ids


def join_logs(logs: Sequence[ClickLog]) -> ClickLog:
    """Join logs with the same features and bias columns; a query in two of them is an error."""
    if len(logs) == 1:
        return logs[0]
    query_ids = _join_ids([log.query_ids for log in logs])
    _check_apart(query_ids, [len(log.query_ids) for log in logs])
    width = max(log.n_docs for log in logs)
    first_version, first_document, first_query = (
        _starts([size(log) for log in logs])
        for size in (lambda log: len(log.features), lambda log: log.n_documents, lambda log: len(log.query_ids))
    )
    changed = [log.interventions for log in logs if log.interventions is not None]
    versions = [np.where(log.mask, log.versions + start, 0) for log, start in zip(logs, first_version, strict=True)]
    documents = [log.version_documents + start for log, start in zip(logs, first_document, strict=True)]
    queries = [log.document_queries + start for log, start in zip(logs, first_query, strict=True)]

    def stacked(name: str) -> Any:
        """A field of all logs, concatenated; None if one of them lacks it."""
        parts = [part for log in logs if (part := getattr(log, name)) is not None]
        if len(parts) < len(logs):
            return None
        per_place = parts[0].ndim == 2 and name != "context"
        return _stack(parts, width) if per_place else np.concatenate(parts)

    return replace(
        logs[0],
        **{name: stacked(name) for name in BY_LIST if name != "versions"},
        features=np.concatenate([log.features for log in logs]),
        versions=_stack(versions, width).astype(np.int32),
        version_documents=np.concatenate(documents),
        document_queries=np.concatenate(queries),
        query_ids=query_ids,
        document_ids=_join_ids([log.document_ids for log in logs]),
        events={kind: _stack([log.events[kind] for log in logs], width) for kind in logs[0].events},
        codes=None,
        patterns=_join_patterns(logs, width),
        bias={name: _join_columns([log.bias[name] for log in logs], logs, width) for name in logs[0].bias},
        interventions=_join_columns(changed, logs, width) if len(changed) == len(logs) else None,
        origin=_join_origins(logs),
    )


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


def _join_patterns(logs: Sequence[ClickLog], width: int) -> Patterns | None:
    found = [log.patterns for log in logs if log.patterns is not None]
    if len(found) < len(logs):
        return None
    starts = _starts([log.n_lists for log in logs])
    return Patterns(
        np.concatenate([part.lists + start for part, start in zip(found, starts, strict=True)]),
        _stack([part.clicks for part in found], width),
        np.concatenate([part.sessions for part in found]),
    )


def _join_columns(columns: Sequence[BiasColumn], logs: Sequence[ClickLog], width: int) -> BiasColumn:
    if all(column.values.ndim == 1 for column in columns):
        return BiasColumn(np.concatenate([column.values for column in columns]), columns[0].levels)
    spread = [column.per_document(log.n_docs) for column, log in zip(columns, logs, strict=True)]
    return BiasColumn(_stack(spread, width), columns[0].levels)
