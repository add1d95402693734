"""Checks of input data: every error names the column and row, or the list, and says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

if TYPE_CHECKING:
    from unskew.data.clicks.click_log import ClickLog

LAST_POSITION = int(np.iinfo(np.int16).max)
LARGEST_COUNT = 2.0**53  # in float64, 2^53 + 1 is the same number
INFINITE = "a feature must be finite or missing (NaN); clip the value or leave it empty"
NOTHING_MISSING = "features must be finite here; impute missing values first"
PROBABLE = "it must be above 0 and at most 1; leave it empty where it was not recorded"
ROUNDING = 1e-6  # weighted clicks may exceed weighted sessions by this share


def check_columns(table: pa.Table, needed: Sequence[str], *, holes: bool = False) -> None:
    """Refuse a table that lacks a column, has it twice or, unless `holes`, has missing values in it."""
    for name in needed:
        times = table.column_names.count(name)
        if times == 0:
            raise ValueError(f"no column '{name}' in the table. Found: {', '.join(table.column_names)}")
        if times > 1:
            raise ValueError(f"column '{name}' occurs {times} times: rename all but one")
        if not holes:
            check_present(table, name)


def check_present(table: pa.Table, name: str) -> None:
    """Refuse a column with missing values."""
    if table[name].null_count:
        row = int(np.argmax(pc.is_null(table[name]).to_numpy(zero_copy_only=False)))
        raise ValueError(f"column '{name}', row {row}: missing value; fill it or drop the row")


def check_features(
    features: NDArray, names: Sequence[str] = (), what: str = "document", *, missing: bool = True
) -> None:
    """Refuse infinite values, and NaN if nothing may be missing."""
    with np.errstate(invalid="ignore", over="ignore"):
        if np.isfinite(features.sum()):  # one fast pass; if it fails, a slow one finds the value
            return
    for start in range(0, len(features), 65_536):
        block = features[start : start + 65_536]
        bad = np.isinf(block) if missing else ~np.isfinite(block)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            name = f"'{names[column]}'" if len(names) else f"number {column}"
            rule = INFINITE if missing else NOTHING_MISSING
            raise ValueError(f"feature {name} of {what} {start + row} is {features[start + row, column]}: {rule}")


def check_values(values: NDArray, allowed: NDArray, column: str, rule: str) -> None:
    """Refuse the first value that is not allowed."""
    if not allowed.all():
        row = int(np.argmin(allowed))
        raise ValueError(f"column '{column}', row {row}: {values[row]} is not allowed; {rule}")


def check_same(values: NDArray, representative: NDArray[np.int64], column: str, rule: str) -> None:
    """Refuse the first row whose value differs from that of its representative row."""
    same = (values == values[representative]) | ((values != values) & (values != values)[representative])
    if not same.all():
        row = int(np.argmin(same))
        other = representative[row]
        raise ValueError(f"column '{column}', row {row}: {values[row]}, but row {other} has {values[other]}; {rule}")


def check_places(places: NDArray, column: str, first_position: int, advice: str) -> None:
    """Refuse positions, counted from 0, that are below 0 or too large, or that never include the top."""
    rule = f"positions must be from {first_position} to {LAST_POSITION}"
    check_values(places + first_position, (places >= 0) & (places <= LAST_POSITION), column, rule)
    if len(places) and places.min() > 0:
        raise ValueError(
            f"column '{column}': nothing is at position {first_position}, the lowest position is "
            f"{places.min() + first_position}: does the log count from {places.min() + first_position}? {advice}"
        )


def check_one_a_place(places: NDArray, rows: NDArray[np.int64], mask: NDArray[np.bool_], column: str) -> None:
    """Refuse two documents at one position of a showing; `rows` is `[showings, docs]`, sorted by position."""
    shown = places[rows]
    twice = mask[:, 1:] & (shown[:, 1:] == shown[:, :-1])
    if twice.any():
        showing, place = np.argwhere(twice)[0]
        one, other = sorted((int(rows[showing, place]), int(rows[showing, place + 1])))
        raise ValueError(
            f"column '{column}', rows {one} and {other}: two documents at position {shown[showing, place]} (from 0) of "
            "one showing; each position holds one document, and a list that was shown twice is two sessions"
        )


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
    per_document = {"mask": log.mask, "clicks": log.clicks, "positions": log.positions}
    per_document |= {f"events '{kind}'": counts for kind, counts in log.events.items()}
    per_list = {"sessions": log.sessions}
    for name in ("policy_scores", "display_probabilities", "seen"):
        if getattr(log, name) is not None:
            per_document[name] = getattr(log, name)
    for name in ("first_shown", "periods", "seen_sessions"):
        if getattr(log, name) is not None:
            per_list[name] = getattr(log, name)
    if log.interventions is not None:
        per_list["interventions"] = log.interventions.values
    for name, column in log.bias.items():
        (per_list if column.values.ndim == 1 else per_document)[f"bias column '{name}'"] = column.values
    shape = log.versions.shape
    for name, values in per_document.items():
        if values.shape != shape:
            raise ValueError(f"{name} has shape {values.shape}, versions has {shape}: they must agree")
    for name, values in per_list.items():
        if values.shape != shape[:1]:
            raise ValueError(f"{name} has shape {values.shape}, but must have one value per list, {shape[:1]}")
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
    refuse(sessions >= LARGEST_COUNT, sessions, "{} sessions: counts of 2^53 or more are not exact")
    refuse(clicks >= LARGEST_COUNT, clicks, "{} clicks: counts of 2^53 or more are not exact")
    refuse(~(np.isfinite(sessions) & (sessions > 0)), sessions, "sessions is {}, but must be above 0")
    refuse(~np.isfinite(clicks) | (clicks < 0), clicks, "clicks is {}, but must be 0 or more")
    refuse((clicks != 0) & ~log.mask, clicks, "clicks is {} in padding, but must be 0 there")
    for kind, counts in log.events.items():
        refuse(counts >= LARGEST_COUNT, counts, f"{{}} events '{kind}': counts of 2^53 or more are not exact")
        refuse(~np.isfinite(counts) | (counts < 0), counts, f"events '{kind}' is {{}}, but must be 0 or more")
        refuse((counts != 0) & ~log.mask, counts, f"events '{kind}' is {{}} in padding, but must be 0 there")
    if log.display_probabilities is not None:
        chances = log.display_probabilities
        possible = np.isnan(chances) | ((chances > 0) & (chances <= 1))
        refuse(~possible & log.mask, chances, f"display probability is {{}}: {PROBABLE}")
    unknown = [kind for kind in log.grades if kind != "click" and kind not in log.events]
    if unknown:
        raise ValueError(f"grades name '{unknown[0]}', but the log has no such events: add them, or leave it out")
    if log.seen is not None and log.seen_sessions is not None:
        looked, recorded = log.seen, log.seen_sessions
        enough = (recorded >= 0) & (recorded <= sessions * (1 + ROUNDING))
        refuse(~enough, recorded, "examination was recorded in {} sessions, more than the list has")
        refuse(~np.isfinite(looked) | (looked < 0), looked, "seen is {}, but must be 0 or more")
        refuse((looked != 0) & ~log.mask, looked, "seen is {} in padding, but must be 0 there")
        refuse(
            looked > recorded[:, None] * (1 + ROUNDING), looked, "seen in {} sessions, more than recorded examination"
        )
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
