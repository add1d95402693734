"""Checks of input data: every error names the column and row, or the list, and says what to do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

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


def check_values(values: NDArray, allowed: NDArray, column: str, rule: str, rows: NDArray | None = None) -> None:
    """Refuse the first value that is not allowed; `rows` are their numbers in messages."""
    if not allowed.all():
        place = int(np.argmin(allowed))
        row = place if rows is None else rows[place]
        raise ValueError(f"column '{column}', row {row}: {values[place]} is not allowed; {rule}")


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
