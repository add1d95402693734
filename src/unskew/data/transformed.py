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


def transform_for(name: str, source: ClickLog | LogFolder | JudgedSet) -> Transform:
    """The transform of this name, fitted to the features of a source."""
    if isinstance(source, LogFolder):
        return fit_transform(name, _ShardFeatures(source), columns=feature_names(source))
    return fit_transform(name, source.features, _offsets(source), columns=feature_names(source))


def transform_log(log: ClickLog, transform: Transform) -> ClickLog:
    """The log with transformed features."""
    offsets = _offsets(log)
    if transform.per_query and offsets is None:  # its documents do not stand query by query
        order = np.argsort(log.document_queries, kind="stable")
        sizes = np.bincount(log.document_queries, minlength=len(log.query_ids))
        features = np.empty_like(log.features)
        features[order] = transform.apply_to(log.features[order], np.concatenate([[0], np.cumsum(sizes)]))
        return replace(log, features=features)
    return replace(log, features=transform.apply_to(log.features, offsets))


def transform_judged(judged: JudgedSet, transform: Transform) -> JudgedSet:
    """The judged set with transformed features."""
    return replace(judged, features=transform.apply_to(judged.features, judged.offsets))


def feature_names(source: ClickLog | LogFolder | JudgedSet) -> tuple[str, ...]:
    """Names of the feature columns; none where a source has numbers only."""
    if isinstance(source, LogFolder):
        names = source.about["features"]
        return () if isinstance(names, int) else tuple(names)
    return source.feature_names if isinstance(source, ClickLog) else ()


@dataclass(frozen=True)
class _ShardFeatures:
    """Features of a log on disk, block after block, as often as asked."""

    folder: LogFolder

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        return (shard.features for shard in self.folder.shards())


def _offsets(source: ClickLog | JudgedSet) -> NDArray[np.int64] | None:
    if isinstance(source, JudgedSet):
        return source.offsets
    owners = source.document_queries
    if (np.diff(owners) < 0).any():
        return None
    return np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(source.query_ids)))]).astype(np.int64)
