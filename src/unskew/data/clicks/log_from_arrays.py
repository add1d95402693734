"""A click log from flat arrays with one row per shown document, as in LightGBM and scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from unskew.data.checks import check_features, check_places, check_values
from unskew.data.clicks.build import Documents, Impressions, log_fields, shown_order
from unskew.data.columns import as_features
from unskew.data.grouping import number_ids


def fields_from_arrays(
    X: Any,
    clicks: ArrayLike,
    group: ArrayLike | None,
    position: ArrayLike | None,
    sessions: ArrayLike | None,
    query: Any,
    weight: ArrayLike | None,
    *,
    graded: bool,
) -> dict[str, Any]:
    """The fields of a log from flat arrays; `ClickLog.from_arrays` documents the arguments."""
    features, names, categories = as_features(X)
    check_features(features, names, "row")
    ids, lists = lists_of_rows(len(features), group, query)
    values, shown = _feedback(clicks, lists, len(ids), sessions, weight, graded=graded)
    rows = np.arange(len(features))
    impressions = Impressions(
        showings=lists,
        positions=shown_order(lists) if position is None else _places(position, len(features)),
        versions=rows,
        clicks=values,
        sessions=shown,
        counted=sessions is not None,
        about={"graded": graded},
    )
    documents = Documents(
        features, names, document_ids=rows, document_queries=lists, query_ids=ids, categories=categories
    )
    return log_fields(impressions, documents, joint=True, distinct=True)[0]


def _feedback(
    clicks: ArrayLike,
    lists: NDArray[np.int64],
    n_lists: int,
    sessions: ArrayLike | None,
    weight: ArrayLike | None,
    *,
    graded: bool,
) -> tuple[NDArray, NDArray]:
    """Clicks of each row, and the number of sessions of each list, or the weight of its single session."""
    if sessions is not None and weight is not None:
        raise ValueError("pass sessions (clicks are counts) or weight (one session per list), not both")
    values = _vector(clicks, len(lists), "clicks", "per row")
    check_values(values, np.isfinite(values) & (values >= 0), "clicks", "clicks must be 0 or more")
    shown = np.ones(n_lists)
    if sessions is not None:
        shown = _positive(sessions, n_lists, "sessions")
    if not graded:
        rule = "a click is 0 or 1 (for counts, pass sessions; for dwell times, graded=True)"
        rule = rule if sessions is None else "a document cannot have more clicks than its list has sessions"
        check_values(values, values <= shown[lists], "clicks", rule)
    return values, shown if weight is None else _positive(weight, n_lists, "weight")


def vector(values: Any) -> NDArray:
    """A column from numpy, pandas, polars, pyarrow or a list."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.to_numpy(zero_copy_only=False)
    return np.asarray(values).reshape(-1)


def _vector(values: Any, length: int, name: str, each: str) -> NDArray[np.float64]:
    numbers = vector(values).astype(np.float64)
    if len(numbers) != length:
        raise ValueError(f"{name} has {len(numbers)} values, but must have {length}: one {each}")
    return numbers


def _positive(values: ArrayLike, length: int, name: str) -> NDArray[np.float64]:
    vector = _vector(values, length, name, "per list")
    check_values(vector, np.isfinite(vector) & (vector > 0), name, "every list needs a number above 0")
    return vector


def _places(position: ArrayLike, n_rows: int) -> NDArray[np.int64]:
    values = _vector(position, n_rows, "position", "per row")
    check_values(
        values, np.isfinite(values) & (values == np.floor(values)), "position", "positions must be whole numbers"
    )
    places = values.astype(np.int64)
    check_places(places, "position", 0, "If so, subtract it")
    return places


def lists_of_rows(n_rows: int, group: Any, query: Any) -> tuple[NDArray, NDArray[np.int64]]:
    """Ids of the lists and the list of each row."""
    if n_rows == 0:
        raise ValueError("X has no rows: pass one row per shown document")
    if (group is None) == (query is None):
        raise ValueError(
            "pass either group (number of rows per list) or query (the list id of each row); cross-validation of "
            "scikit-learn passes query by metadata routing (see UnbiasedRanker)"
        )
    if group is None:
        ids, lists = number_ids(
            query if isinstance(query, pa.Array | pa.ChunkedArray | list) else np.asarray(query).reshape(-1)
        )
        if len(lists) != n_rows:
            raise ValueError(f"query has {len(lists)} values, but there are {n_rows} rows: give one per row")
        return ids, lists
    sizes = vector(group)
    if sizes.dtype.kind not in "iuf" or (sizes != np.floor(sizes)).any():
        raise ValueError(
            "group must hold whole numbers, the number of rows of each list, as in LightGBM: pass the list id of each "
            "row as query"
        )
    sizes = sizes.astype(np.int64)
    check_values(sizes, sizes > 0, "group", "a list must have at least one row")
    if sizes.sum() != n_rows:
        raise ValueError(f"group sizes add up to {sizes.sum()}, but X has {n_rows} rows: each row must be in one list")
    return np.arange(len(sizes)), np.repeat(np.arange(len(sizes)), sizes)
