"""Transformed sources: a transform fitted to a log or judged set, and the same data with its features transformed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import LogFolder
from unskew.data.fitted_transforms import Transform, fit_transform
from unskew.data.judged.judged_set import JudgedSet

LISTS_AT_ONCE = 8192


def transform_for(name: str, source: ClickLog | LogFolder | JudgedSet) -> Transform:
    """The transform of this name, fitted to the features of a source."""
    if isinstance(source, LogFolder):
        return fit_transform(name, _ShardFeatures(source), columns=feature_names(source))
    if isinstance(source, ClickLog) and source.context_names:
        return fit_transform(name, _ListBlocks(source), columns=feature_names(source))
    return fit_transform(name, source.features, _offsets(source), columns=feature_names(source))


def transform_log(log: ClickLog, transform: Transform) -> ClickLog:
    """The log with transformed features."""
    if log.context_names:
        return _with_context(log, transform)
    offsets = _offsets(log)
    if transform.per_query and offsets is None:  # its documents do not stand query by query
        order = np.argsort(log.version_queries, kind="stable")
        sizes = np.bincount(log.version_queries, minlength=len(log.query_ids))
        features = np.empty_like(log.features)
        features[order] = transform.apply_to(log.features[order], np.concatenate([[0], np.cumsum(sizes)]))
        return replace(log, features=features)
    return replace(log, features=transform.apply_to(log.features, offsets))


def _with_context(log: ClickLog, transform: Transform) -> ClickLog:
    """Features and context each for itself: a transform of single columns does not know what stands beside them."""
    if transform.per_query:
        raise ValueError(
            "a transform per query cannot be used with context features, which are the same for all documents of a "
            "list: choose another one, such as automatic"
        )
    of_documents = np.zeros((len(log.features), log.n_inputs), dtype=np.float32)
    of_documents[:, : log.n_features] = log.features
    of_lists = np.zeros((log.n_lists, log.n_inputs), dtype=np.float32)
    of_lists[:, log.n_features :] = log.context
    features = transform.apply_to(of_documents)[:, : log.n_features]
    return replace(log, features=features, context=transform.apply_to(of_lists)[:, log.n_features :])


def transform_judged(judged: JudgedSet, transform: Transform) -> JudgedSet:
    """The judged set with transformed features."""
    return replace(judged, features=transform.apply_to(judged.features, judged.offsets))


def feature_names(source: ClickLog | LogFolder | JudgedSet) -> tuple[str, ...]:
    """Names of what a ranker sees, features and context; none where a source has numbers only."""
    if isinstance(source, LogFolder):
        names, context = source.about["features"], source.about["context"]
        if isinstance(names, int):
            names = [f"feature_{number}" for number in range(names)] if context else []
        return (*names, *context)
    return source.input_names if isinstance(source, ClickLog) else ()


@dataclass(frozen=True)
class _ShardFeatures:
    """Features of a log on disk, block after block, as often as asked."""

    folder: LogFolder

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        for shard in self.folder.shards():
            yield from _ListBlocks(shard) if shard.context_names else (shard.features,)


@dataclass(frozen=True)
class _ListBlocks:
    """Features as shown, with their context, some lists at a time."""

    log: ClickLog

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        for start in range(0, self.log.n_lists, LISTS_AT_ONCE):
            lists = self.log.select(np.arange(start, min(start + LISTS_AT_ONCE, self.log.n_lists)))
            rows = np.repeat(np.arange(lists.n_lists), lists.mask.sum(1))
            yield np.concatenate([lists.features[lists.versions[lists.mask]], lists.context[rows]], axis=1)


def _offsets(source: ClickLog | JudgedSet) -> NDArray[np.int64] | None:
    if isinstance(source, JudgedSet):
        return source.offsets
    owners = source.version_queries
    if (np.diff(owners) < 0).any():
        return None
    return np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(source.query_ids)))]).astype(np.int64)
