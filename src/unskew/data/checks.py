"""Checks of what users hand in: every refusal names column and row and says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def check_columns(table: pa.Table, needed: Sequence[str]) -> None:
    """Refuse a table that lacks a column or has holes in one."""
    missing = [name for name in needed if name not in table.column_names]
    if missing:
        raise ValueError(f"column '{missing[0]}' is missing; the table has: {', '.join(table.column_names)}")
    for name in needed:
        if table[name].null_count:
            row = int(np.argmax(pc.is_null(table[name]).to_numpy(zero_copy_only=False)))
            raise ValueError(f"column '{name}', row {row}: no value; fill it or drop the row")


def check_features(features: NDArray, names: Sequence[str] = (), what: str = "document") -> None:
    """Refuse NaN and infinity."""
    with np.errstate(invalid="ignore", over="ignore"):
        if np.isfinite(features.sum(dtype=np.float64)):  # one fast pass; the slow one only names the place
            return
    for start in range(0, len(features), 65_536):
        bad = ~np.isfinite(features[start : start + 65_536])
        if bad.any():
            row, column = np.argwhere(bad)[0]
            name = f"'{names[column]}'" if len(names) else f"number {column}"
            raise ValueError(
                f"feature {name} of {what} {start + row} is {features[start + row, column]}: features must be finite; "
                "impute them first, e.g. with fit_transform(..., impute='mean')"
            )


def check_values(values: NDArray, allowed: NDArray, column: str, rule: str) -> None:
    """Refuse the first value that is not allowed."""
    if not allowed.all():
        row = int(np.argmin(allowed))
        raise ValueError(f"column '{column}', row {row}: {values[row]} is not allowed; {rule}")


def check_top(positions: NDArray) -> None:
    """Refuse positions that never reach 0."""
    if len(positions) and positions.min() > 0:
        raise ValueError(
            f"nothing stands at position 0, the first position is {positions.min()}: "
            "does the log count from 1? Then pass first_position=1"
        )


def check_log(log: Any) -> None:
    """Refuse a `ClickLog` that cannot be true."""
    shape = log.documents.shape
    for name in ("mask", "clicks", "positions"):
        if getattr(log, name).shape != shape:
            raise ValueError(f"{name} has shape {getattr(log, name).shape}, documents has {shape}: they must agree")
    if log.sessions.shape != shape[:1]:
        raise ValueError(f"sessions has shape {log.sessions.shape}: one number a list is needed, {shape[:1]}")
    if log.features.ndim != 2:
        raise ValueError(f"features must be a matrix [documents, features], got shape {log.features.shape}")
    if log.mask.any() and int(log.documents[log.mask].max()) >= len(log.features):
        raise ValueError("documents points beyond the feature matrix: every shown document needs a row of features")
    _check_counts(log)
    _check_positions(log)


def _check_counts(log: Any) -> None:
    def refuse(bad: NDArray, values: NDArray, message: str) -> None:
        if bad.any():
            place = np.argwhere(bad)[0]
            where = f"list {place[0]}" + (f", document {place[1]} of it" if len(place) == 2 else "")
            raise ValueError(f"{where}: {message.format(values[tuple(place)])}")

    sessions, clicks = log.sessions, log.clicks
    refuse(~(np.isfinite(sessions) & (sessions > 0)), sessions, "sessions is {}, a list was shown at least once")
    refuse(~np.isfinite(clicks) | (clicks < 0), clicks, "clicks is {}, clicks are counted from 0")
    refuse((clicks != 0) & ~log.mask, clicks, "clicks is {} in padding, where no document stands")
    if not log.graded:
        too_many = clicks > sessions[:, None] * (1 + 1e-6)
        refuse(too_many, clicks, "{} clicks, more than the list was shown (graded=True takes dwell times and the like)")


def _check_positions(log: Any) -> None:
    if not log.mask.any():
        return
    shown = np.where(log.mask, log.positions, np.iinfo(np.int16).max)
    if shown.min() < 0:
        row = int(np.argwhere(shown < 0)[0][0])
        raise ValueError(f"list {row}: position {shown[row].min()} is below 0, positions count from 0 at the top")
    ordered = np.sort(shown, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (np.arange(1, log.n_docs) < log.mask.sum(1)[:, None])
    if twice.any():
        row, place = np.argwhere(twice)[0]
        raise ValueError(f"list {row}: two documents at position {ordered[row, place]}, each place holds one")
