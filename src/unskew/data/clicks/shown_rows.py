"""Convert arrays with one row per shown document, as `UnbiasedRanker` takes them, to a click log."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.data.checks import check_places, check_same, check_values
from unskew.data.clicks.build import first_rows, shown_order
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.log_from_arrays import lists_of_rows, vector
from unskew.data.columns import as_arrow, as_features, is_table

# Names of the columns with roles in the converted table; no feature can have such a name.
ROLES = ("session", "query", "document", "position", "click", "sessions", "policy_score", "intervention", "weight")
ROLE_COLUMNS = {role: f"\N{WORD JOINER}{role}" for role in ROLES}
LONGEST_LIST = 1_000  # rows that can be one list where nothing says which rows were shown together
ONE_LIST = "neither group nor query was passed: all {} rows are one list"


@dataclass(frozen=True)
class ShownRows:
    """The arguments that describe each row; `UnbiasedRanker.fit` documents them."""

    clicks: Any
    group: Any = None
    position: Any = None
    sessions: Any = None
    query: Any = None
    session: Any = None
    document: Any = None
    bias: Any = None
    policy_score: Any = None
    intervention: Any = None
    weight: Any = None

    def log(self, X: Any) -> ClickLog:
        """A log of the rows; it keeps the column names of a table. What is assumed of them is a warning."""
        if self.clicks is None:
            raise ValueError(
                "fit requires y to be passed, but the target y is None: pass clicks or graded feedback, "
                "fit(X, y, group=sizes, position=positions)"
            )
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        if self.group is self.query is self.session is None and 0 < n_rows <= LONGEST_LIST:
            assume(ONE_LIST.format(n_rows))
            return replace(self, group=[n_rows]).log(X)
        if self.position is None:
            assume("position was not passed: the rows of a list are taken to be in the order shown, from the top")
        elif len(places := vector(self.position)) and places.dtype.kind in "iuf" and places.min() == 1:
            assume("no position is 0: positions count from 1")
            return replace(self, position=places - 1).log(X)
        by_ids = any(value is not None for value in (self.document, self.bias, self.policy_score, self.intervention))
        if not by_ids and self.session is not None and self.query is not None:
            raise ValueError("session and query can be combined only with document ids: pass document as well")
        lists = self._lists(n_rows, by_ids=by_ids)
        clicks, weight, graded = self._feedback(lists)
        if by_ids:
            return self._log_of_table(X, lists, clicks, weight, graded=graded)
        sessions = None
        if self.sessions is not None:
            rows = vector(_per_row(self.sessions, lists, "sessions"))
            check_same(rows, first_rows(lists)[lists], "sessions", "it must be the same in all rows of a list")
            sessions = rows[first_rows(lists)]
        weight = None if weight is None else weight[first_rows(lists)]
        return ClickLog.from_arrays(X, clicks, None, self.position, sessions, query=lists, weight=weight, graded=graded)

    def _feedback(self, lists: NDArray[np.int64]) -> tuple[NDArray, NDArray | None, bool]:
        """Clicks, the weight of each row's list, and whether clicks are graded.

        Weights that are equal within each list are those of the lists; others multiply the feedback of their rows.
        """
        clicks = vector(self.clicks)
        try:
            clicks = clicks if clicks.dtype.kind in "iufb" else clicks.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"y must hold numbers, clicks of 0 and 1 or graded feedback ({error})") from error
        graded = self.sessions is None and not np.isin(clicks, (0, 1)).all()
        if graded and (clicks > 1).any():
            assume("y has values above 1, and sessions was not passed: y is graded feedback, not counts of clicks")
        if self.weight is None:
            return clicks, None, graded
        given = vector(_per_row(self.weight, lists, "sample_weight")).astype(np.float64)
        check_values(given, np.isfinite(given) & (given >= 0), "sample_weight", "weights must be numbers from 0")
        if not given.any():
            raise ValueError("Sample weights must contain at least one non-zero number")
        if (given == given[first_rows(lists)[lists]]).all():
            return clicks, given, graded
        if self.sessions is not None or len(clicks) != len(given):
            raise ValueError("sample_weight must be the same in all rows of a list if sessions is passed")
        return clicks * given, None, True

    def _log_of_table(
        self, X: Any, lists: NDArray[np.int64], clicks: NDArray, weight: NDArray | None, *, graded: bool
    ) -> ClickLog:
        """Convert by way of a table, which recognizes rows with the same document of the same query."""
        n_rows = len(lists)
        columns = {
            "session": lists,
            "query": lists if self.query is None else _ids(self.query),
            "document": np.arange(n_rows) if self.document is None else _ids(self.document),
            "position": shown_order(lists) if self.position is None else vector(self.position),
            "click": clicks,
        }
        of_lists = {"sessions": self.sessions, "intervention": self.intervention}
        columns |= {name: _per_row(each, lists, name) for name, each in of_lists.items() if each is not None}
        columns |= {} if self.policy_score is None else {"policy_score": vector(self.policy_score)}
        columns |= {} if weight is None else {"weight": weight}
        for name, values in columns.items():
            if len(values) != n_rows:
                raise ValueError(f"{name} has {len(values)} values, X has {n_rows} rows: give one per row")
        check_places(columns["position"], "position", 0, "If so, subtract it")
        bias = {name: _per_row(values, lists, f"bias column '{name}'") for name, values in _bias(self.bias).items()}
        table, names = _features(X)
        twice = [name for name in bias if name in table]
        if twice:
            raise ValueError(f"'{twice[0]}' is a feature and a bias column: leave it out of X, or rename one of them")
        table |= {name: pa.array(values) for name, values in bias.items()}
        table |= {ROLE_COLUMNS[role]: pa.array(values) for role, values in columns.items()}
        roles: dict[str, Any] = {role: ROLE_COLUMNS[role] for role in columns}
        log = ClickLog.from_table(pa.table(table), **roles, features=names[0], bias=tuple(bias), graded=graded)
        return log if names[1] else replace(log, feature_names=())

    def _lists(self, n_rows: int, *, by_ids: bool) -> NDArray[np.int64]:
        """The list of each row, by size or by id; with neither, the rows of a query are one list."""
        if not by_ids or self.group is self.session is None:
            return lists_of_rows(n_rows, self.group, self.query if self.session is None else self.session)[1]
        if self.document is not None and self.query is None:
            raise ValueError("document ids need query ids: pass query, the query id of each row")
        return lists_of_rows(n_rows, self.group, self.session)[1]


def assume(text: str, stacklevel: int = 4) -> None:
    """Warn of what a call leaves open and what is made of it."""
    warnings.warn(text, RuntimeWarning, stacklevel=stacklevel)


def _features(X: Any) -> tuple[dict[str, Any], tuple[list[str], bool]]:
    """Feature columns by name, with the names, and whether the names are X's own."""
    if is_table(X):
        table = as_arrow(X)
        return {name: table[name] for name in table.column_names}, (table.column_names, True)
    matrix, _, _ = as_features(X)
    names = [f"feature_{number}" for number in range(matrix.shape[1])]
    return {name: pa.array(matrix[:, number]) for number, name in enumerate(names)}, (names, False)


def _bias(bias: Any) -> dict[str, Any]:
    """Bias columns by name, from a dictionary or a table."""
    if bias is None or isinstance(bias, Mapping):
        return dict(bias or {})
    if is_table(bias):
        table = as_arrow(bias)
        return {name: table[name] for name in table.column_names}
    raise TypeError(f"bias must be a dictionary or table of columns by name, got {type(bias).__name__}")


def _ids(values: Any) -> Any:
    return values if isinstance(values, pa.Array | pa.ChunkedArray) else np.asarray(values).reshape(-1)


def _per_row(values: Any, lists: NDArray[np.int64], name: str) -> Any:
    """One value per row, from one per row or one per list."""
    known = _ids(values)
    n_lists = int(lists.max(initial=-1)) + 1
    if len(known) == len(lists):
        return known
    if len(known) != n_lists:
        raise ValueError(f"{name} has {len(known)} values: give one per list ({n_lists}) or one per row ({len(lists)})")
    return known.take(pa.array(lists)) if isinstance(known, pa.Array | pa.ChunkedArray) else known[lists]
