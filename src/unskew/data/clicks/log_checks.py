"""Checks of a log: every error names the list, document or entry, and says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unskew.data.checks import LARGEST_COUNT, LAST_POSITION, PROBABLE, ROUNDING, check_features
from unskew.data.clicks.row_fields import columns_of

if TYPE_CHECKING:
    from unskew.data.clicks.click_log import ClickLog

LEAST_ROWS = 5  # different rows of documents at a position, so that one value is no coincidence


def check_log(log: ClickLog) -> None:
    """Refuse an inconsistent log."""
    if log.features.ndim != 2:
        raise ValueError(f"features must be a matrix [versions, features], got shape {log.features.shape}")
    _check_shapes(log)
    check_features(log.features, log.feature_names, "version")
    check_features(log.context, log.context_names, "list")
    _check_documents(log)
    _check_counts(log)
    _check_positions(log)
    if log.patterns is not None:
        _check_patterns(log)


def _check_shapes(log: ClickLog) -> None:
    if log.versions.ndim != 2:
        raise ValueError(f"versions must be a matrix [lists, docs], got shape {log.versions.shape}")
    shape = log.versions.shape
    for column in columns_of(log):
        per, own_shape = column.field.per, column.values.shape
        if per == "place" or (per == "list or place" and column.values.ndim != 1):
            if own_shape != shape:
                raise ValueError(f"{column} has shape {own_shape}, versions has {shape}: they must agree")
        elif column.field.in_lists and column.field.name != "context" and own_shape != shape[:1]:
            raise ValueError(f"{column} has shape {own_shape}, but must have one value per list, {shape[:1]}")
    if log.feature_names and len(log.feature_names) != log.n_features:
        raise ValueError(f"{len(log.feature_names)} feature names, but {log.n_features} features: name each or none")
    if log.context.shape != (shape[0], len(log.context_names)):
        raise ValueError(
            f"context has shape {log.context.shape}, but must have {(shape[0], len(log.context_names))}: one row per "
            "list, one name per column"
        )
    unknown = sorted(set(log.categories) - {*log.feature_names, *log.context_names})
    if unknown:
        raise ValueError(f"categories of '{unknown[0]}', which is not a feature: name the feature as in feature_names")
    if (log.seen is None) != (log.seen_sessions is None):
        raise ValueError("pass both seen and seen_sessions: recorded examination, and the sessions that recorded it")


def _check_documents(log: ClickLog) -> None:
    n_versions, n_documents = len(log.features), len(log.document_ids)
    if log.document_queries.shape != (n_documents,) or log.version_documents.shape != (n_versions,):
        raise ValueError(
            f"{n_versions} rows of features for {len(log.version_documents)} versions, and {n_documents} document ids "
            f"for {len(log.document_queries)} document queries: these numbers must agree"
        )
    if n_versions and not 0 <= log.version_documents.min() <= log.version_documents.max() < n_documents:
        raise ValueError("version_documents points beyond document_ids: every version needs a document")
    if log.features_change and not np.bincount(log.version_documents, minlength=n_documents).all():
        raise ValueError("a document has no row of features: every document needs at least one version")
    if n_documents and not 0 <= log.document_queries.min() <= log.document_queries.max() < len(log.query_ids):
        raise ValueError("document_queries points beyond query_ids: every document needs a query")
    sizes = log.mask.sum(1)
    wrong = (log.mask != (np.arange(log.n_docs) < sizes[:, None])).any(1) | (sizes == 0)
    if wrong.any():
        raise ValueError(
            f"list {int(np.argmax(wrong))}: a list must show at least one document and have its padding at the end"
        )
    shown = log.versions[log.mask]
    if len(shown) and not 0 <= shown.min() <= shown.max() < n_versions:
        raise ValueError("versions points beyond the feature matrix: every shown document needs a row of features")
    mixed = log.document_queries[log.version_documents[shown]] != np.repeat(log.queries, sizes)
    if mixed.any():
        row = int(np.repeat(np.arange(log.n_lists), sizes)[np.argmax(mixed)])
        raise ValueError(f"list {row}: its documents belong to different queries, but a list answers one query")


def _check_counts(log: ClickLog) -> None:
    def refuse(bad: NDArray, values: NDArray, message: str) -> None:
        if bad.any():
            place = np.argwhere(bad)[0]
            where = f"list {place[0]}" + (f", document {place[1]}" if len(place) == 2 else "")
            raise ValueError(f"{where}: {message.format(values[tuple(place)])}")

    sessions, clicks = log.sessions, log.clicks
    refuse(~(np.isfinite(sessions) & (sessions > 0)), sessions, "sessions is {}, but must be above 0")
    for column in columns_of(log):
        if column.field.merge == "sum":
            counts = column.values
            refuse(counts >= LARGEST_COUNT, counts, f"{{}} {column}: counts of 2^53 or more are not exact")
            refuse(~np.isfinite(counts) | (counts < 0), counts, f"{column} is {{}}, but must be 0 or more")
            if column.field.per == "place":
                refuse((counts != 0) & ~log.mask, counts, f"{column} is {{}} in padding, but must be 0 there")
    if log.display_probabilities is not None:
        chances = log.display_probabilities
        possible = np.isnan(chances) | ((chances > 0) & (chances <= 1))
        refuse(~possible & log.mask, chances, f"display probability is {{}}: {PROBABLE}")
    unknown = [kind for kind in log.grades if kind != "click" and kind not in log.events]
    if unknown:
        raise ValueError(f"grades name '{unknown[0]}', but the log has no such events: add them, or leave it out")
    if log.seen is not None and log.seen_sessions is not None:
        most = log.seen_sessions * (1 + ROUNDING)
        enough = log.seen_sessions <= sessions * (1 + ROUNDING)
        refuse(~enough, log.seen_sessions, "examination was recorded in {} sessions, more than the list has")
        refuse(log.seen > most[:, None], log.seen, "seen in {} sessions, more than recorded examination")
    if not log.graded:
        too_many = clicks > sessions[:, None] * (1 + ROUNDING)
        refuse(too_many, clicks, "{} clicks, more than the list has sessions (for dwell times, pass graded=True)")


def _check_positions(log: ClickLog) -> None:
    shown = np.where(log.mask, log.positions, LAST_POSITION)
    if shown.min(initial=0) < 0:
        row = int(np.argwhere(shown < 0)[0][0])
        raise ValueError(f"list {row}: position {shown[row].min()} is below 0; positions count from 0 at the top")
    disordered = (log.mask[:, 1:] & (log.positions[:, 1:] <= log.positions[:, :-1])).any(1)
    if disordered.any():
        row = int(np.argmax(disordered))
        places = log.positions[row][log.mask[row]].tolist()
        raise ValueError(f"list {row}: positions are {places}, but must increase: each position holds one document")


def _check_patterns(log: ClickLog) -> None:
    patterns = log.patterns
    assert patterns is not None
    n_patterns = len(patterns.lists)
    if patterns.clicks.shape != (n_patterns, log.n_docs) or patterns.sessions.shape != (n_patterns,):
        raise ValueError(
            f"patterns have clicks of shape {patterns.clicks.shape} and sessions of shape {patterns.sessions.shape}, "
            f"but must have {(n_patterns, log.n_docs)} and {(n_patterns,)}"
        )
    if (np.diff(patterns.lists) < 0).any():
        raise ValueError("patterns are not sorted by list: sort them")
    outside = n_patterns and not 0 <= patterns.lists[0] <= patterns.lists[-1] < log.n_lists
    weight = None if outside else np.bincount(patterns.lists, weights=patterns.sessions, minlength=log.n_lists)
    if weight is None or not np.allclose(weight, log.sessions, rtol=ROUNDING):
        raise ValueError("patterns do not add up to the sessions of the lists: every session has one pattern")


def position_features(log: ClickLog) -> list[str]:
    """Names of features that have one value per position in all lists, and different ones at different positions."""
    positions, rows = log.positions[log.mask], log.versions[log.mask]
    if not len(rows):
        return []
    pairs = np.unique(np.column_stack([positions, rows]), axis=0)
    _, places = np.unique(pairs[:, 0], return_inverse=True)
    counts = np.bincount(places)
    if len(counts) < 3 or np.median(counts) < LEAST_ROWS:
        return []
    values = log.features[pairs[:, 1]]
    low, high = (np.full((len(counts), log.n_features), end, dtype=np.float32) for end in (np.inf, -np.inf))
    np.minimum.at(low, places, values)
    np.maximum.at(high, places, values)
    one_value = (low == high).all(0) & ((low != low[:1]).sum(0) > 1)
    return [name for name, is_it in zip(log.named_features, one_value, strict=True) if is_it]


def refuse_positions(log: ClickLog) -> None:
    """An error if a feature is the position."""
    found = position_features(log)
    if found:
        raise ValueError(
            f"feature '{found[0]}' is the position, or a function of it: a ranker does not know it when it ranks. "
            "Ingest again without it, or pass --allow-position"
        )
