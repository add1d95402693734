"""Joining logs: one log of several that share no query, such as the shards of a folder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.impressions import BiasColumn, Patterns
from unskew.data.grouping import number_ids


def join_logs(logs: Sequence[ClickLog]) -> ClickLog:
    """One log of several with the same features and bias columns; a query in two of them is refused."""
    if len(logs) == 1:
        return logs[0]
    query_ids = _join_ids([log.query_ids for log in logs])
    _check_apart(query_ids, [len(log.query_ids) for log in logs])
    width = max(log.n_docs for log in logs)
    first_document = _starts([len(log.features) for log in logs])
    first_query = _starts([len(log.query_ids) for log in logs])
    scores = [log.policy_scores for log in logs if log.policy_scores is not None]
    changed = [log.interventions for log in logs if log.interventions is not None]
    times = [log.first_shown for log in logs if log.first_shown is not None]
    documents = [np.where(log.mask, log.documents + start, 0) for log, start in zip(logs, first_document, strict=True)]
    queries = [log.document_queries + start for log, start in zip(logs, first_query, strict=True)]
    return ClickLog(
        features=np.concatenate([log.features for log in logs]),
        documents=_stack(documents, width).astype(np.int32),
        mask=_stack([log.mask for log in logs], width),
        clicks=_stack([log.clicks for log in logs], width),
        sessions=np.concatenate([log.sessions for log in logs]),
        positions=_stack([log.positions for log in logs], width),
        document_queries=np.concatenate(queries),
        query_ids=query_ids,
        document_ids=_join_ids([log.document_ids for log in logs]),
        feature_names=logs[0].feature_names,
        patterns=_join_patterns(logs, width),
        bias={name: _join_columns([log.bias[name] for log in logs], logs, width) for name in logs[0].bias},
        policy_scores=_stack(scores, width) if len(scores) == len(logs) else None,
        interventions=_join_columns(changed, logs, width) if len(changed) == len(logs) else None,
        first_shown=np.concatenate(times) if len(times) == len(logs) else None,
        graded=logs[0].graded,
    )


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
            "all lists of a query belong into one, build them again"
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
