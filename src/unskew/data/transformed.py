"""Transformed sources: fit a transform to a log or judged set, and apply it to their features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import Log, LogFolder
from unskew.data.fitted_transforms import Matrices, Parts, fit_transform, moments
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.raw_columns import RawColumns
from unskew.data.transforms import Transform

LISTS_AT_ONCE = 8192


def transform_for(name: str, source: Log | JudgedSet) -> RawColumns:
    """The transform of this name, fitted to the features of a source."""
    names, categories = feature_names(source), feature_categories(source)
    if isinstance(source, LogFolder):
        return fit_transform(name, _shard_features(source), columns=names, categories=categories)
    if isinstance(source, ClickLog) and source.context_names:
        return fit_transform(name, _ListBlocks(source), columns=names, categories=categories)
    return fit_transform(name, source.features, _offsets(source), columns=names, categories=categories)


def transform_log(log: ClickLog, transform: Transform) -> ClickLog:
    """The log with transformed features."""
    if log.context_names:
        return _with_context(log, transform)
    offsets = _offsets(log)
    if transform.per_query and offsets is None:  # its documents are not ordered by query
        order = np.argsort(log.version_queries, kind="stable")
        sizes = np.bincount(log.version_queries, minlength=len(log.query_ids))
        features = np.empty((len(log.features), transform.width(log.n_features)), np.float32)
        features[order] = transform.apply_to(log.features[order], np.concatenate([[0], np.cumsum(sizes)]))
    else:
        features = transform.apply_to(log.features, offsets)
    return replace(log, features=features, feature_names=(), categories={})  # these belong to raw columns


def _with_context(log: ClickLog, transform: Transform) -> ClickLog:
    """Transform features and context separately, which is possible because columns are transformed one by one."""
    if transform.per_query:
        raise ValueError(
            "a transform per query cannot be used with context features, which are the same for all documents of a "
            "list: choose another transform, such as automatic"
        )
    of_documents = np.zeros((len(log.features), log.n_inputs), dtype=np.float32)
    of_documents[:, : log.n_features] = log.features
    of_lists = np.zeros((log.n_lists, log.n_inputs), dtype=np.float32)
    of_lists[:, log.n_features :] = log.context
    columns = transform.sources().numpy() if isinstance(transform, RawColumns) else np.arange(log.n_inputs)
    context = [f"context_{number}" for number in range(int((columns >= log.n_features).sum()))]
    return replace(
        log,
        features=transform.apply_to(of_documents)[:, columns < log.n_features],
        context=transform.apply_to(of_lists)[:, columns >= log.n_features],
        feature_names=(),
        context_names=tuple(context),
        categories={},
    )


def transform_judged(judged: JudgedSet, transform: Transform) -> JudgedSet:
    """The judged set with transformed features."""
    features = transform.apply_to(judged.features, judged.offsets)
    return replace(judged, features=features, feature_names=(), categories={})


def feature_names(source: Log | JudgedSet) -> tuple[str, ...]:
    """Names of a ranker's inputs, features and context; none if the source has no names."""
    return source.feature_names if isinstance(source, JudgedSet) else source.input_names


def feature_categories(source: Log | JudgedSet) -> dict[str, tuple[str, ...]]:
    """Vocabularies of the columns that hold categories, by name."""
    return {name: tuple(values) for name, values in source.categories.items()}


def plain_numbers(log: ClickLog) -> NDArray[np.float32]:
    """Features for statistics on plain numbers: a missing value is the mean of its column, a category is 0."""
    features = log.features
    columns = [log.feature_names.index(name) for name in feature_categories(log) if name in log.feature_names]
    missing = np.isnan(features)
    if missing.any() or columns:
        features = np.where(missing, moments([features]).mean, features).astype(np.float32)
        features[:, columns] = 0.0
    return features


def _shard_features(folder: LogFolder) -> Parts:
    """Features of a log on disk, in parts that can be read repeatedly."""

    def read(numbers: Sequence[int]) -> Iterator[Matrices]:
        for shard in folder.shards(numbers):
            yield _ListBlocks(shard) if shard.context_names else (shard.features,)

    return Parts(folder.n_shards, folder.n_inputs, read)


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
