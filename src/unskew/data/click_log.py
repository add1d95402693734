"""ClickLog: what was shown and what was clicked, the one form in which clicks exist here, simulated or real.

A document is a query and a document together; its features stand once in a matrix. A list is a row of document
numbers in shown order. Sessions that showed the same list, with the same bias columns, are one row with clicks and
impressions: losses that are linear in clicks have the same gradient on it as on the single sessions. A log that also
keeps which documents were clicked *together* is `joint`: it holds the distinct click patterns of each list and their
multiplicity. Positions count from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray

from unskew.data import impressions
from unskew.data.checks import check_columns, check_features, check_log, check_top, check_values
from unskew.data.grouping import number_ids
from unskew.data.impressions import BiasColumn, Patterns
from unskew.data.judged_set import ragged_rows


@dataclass(frozen=True, eq=False)
class ClickLog:
    """Shown lists with counted clicks. Build one with `from_arrays`, `from_table`, `from_parquet` or `read_log`."""

    features: NDArray[np.float32]  # [documents, features]
    documents: NDArray[np.int32]  # [lists, docs], rows of `features`; 0 in padding
    mask: NDArray[np.bool_]  # [lists, docs]; False = padding
    clicks: NDArray  # [lists, docs], over all sessions of the list; 0 in padding
    sessions: NDArray  # [lists], how often the list was shown
    positions: NDArray[np.int16] = field(default=None)  # type: ignore[arg-type]  # [lists, docs]; default: 0, 1, 2, …
    document_queries: NDArray[np.int64] = field(default=None)  # type: ignore[arg-type]  # [documents], of query_ids
    query_ids: NDArray = field(default=None)  # type: ignore[arg-type]  # [queries]
    document_ids: NDArray = field(default=None)  # type: ignore[arg-type]  # [documents]
    feature_names: tuple[str, ...] = ()
    patterns: Patterns | None = None
    bias: Mapping[str, BiasColumn] = field(default_factory=dict)
    policy_scores: NDArray[np.float32] | None = None  # [lists, docs]
    interventions: BiasColumn | None = None  # per list, which intervention changed it; its first level is "none"
    first_shown: NDArray[np.int64] | None = None  # [lists], microseconds since 1970
    graded: bool = False  # feedback such as dwell time instead of 0/1 clicks

    def __post_init__(self) -> None:
        def default(name: str, value: NDArray) -> None:
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

        n_lists, n_docs = self.documents.shape
        default("positions", np.broadcast_to(np.arange(n_docs, dtype=np.int16), (n_lists, n_docs)))
        if self.document_queries is None:  # without ids, every list is a query of its own
            owner = np.zeros(len(self.features), dtype=np.int64)
            owner[self.documents[self.mask]] = np.repeat(np.arange(n_lists), self.mask.sum(1))
            default("document_queries", owner)
            default("query_ids", np.arange(n_lists))
        default("query_ids", np.arange(int(self.document_queries.max(initial=-1)) + 1))
        default("document_ids", np.arange(len(self.features)))
        check_log(self)

    @property
    def n_lists(self) -> int:
        return self.documents.shape[0]

    @property
    def n_docs(self) -> int:
        """Width of the padded lists."""
        return self.documents.shape[1]

    @property
    def n_features(self) -> int:
        return self.features.shape[1]

    @property
    def n_positions(self) -> int:
        """One more than the lowest place shown."""
        return int(self.positions[self.mask].max(initial=-1)) + 1

    @property
    def n_sessions(self) -> float:
        return float(self.sessions.sum(dtype=np.float64))

    @property
    def n_clicks(self) -> float:
        return float(self.clicks.sum(dtype=np.float64))

    @property
    def joint(self) -> bool:
        """Whether it is known which documents were clicked together."""
        return self.patterns is not None

    @property
    def compaction(self) -> float:
        """Sessions per row: real logs may compact little, and nothing relies on it being large."""
        return self.n_sessions / max(self.n_lists, 1)

    @property
    def queries(self) -> NDArray[np.int64]:
        """Number of each list's query, `[lists]`."""
        return self.document_queries[self.documents[:, 0]] if self.n_docs else np.zeros(self.n_lists, dtype=np.int64)

    def select(self, lists: ArrayLike) -> ClickLog:
        """The log of these lists only, by index or boolean mask; features are shared, not copied."""
        rows = np.asarray(lists)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows

        def column(entry: BiasColumn) -> BiasColumn:
            return replace(entry, values=entry.values[rows])

        return replace(
            self,
            documents=self.documents[rows],
            mask=self.mask[rows],
            clicks=self.clicks[rows],
            sessions=self.sessions[rows],
            positions=self.positions[rows],
            patterns=None if self.patterns is None else _select_patterns(self.patterns, rows, self.n_lists),
            bias={name: column(entry) for name, entry in self.bias.items()},
            policy_scores=None if self.policy_scores is None else self.policy_scores[rows],
            interventions=None if self.interventions is None else column(self.interventions),
            first_shown=None if self.first_shown is None else self.first_shown[rows],
        )

    def split(self, share: float, seed: int = 0) -> tuple[ClickLog, ClickLog]:
        """Two logs without a query in common; the second has about this share of the queries.

        With timestamps the second holds the queries that were first seen last, otherwise a random choice. A list's
        sessions never stand on both sides.
        """
        if not 0 < share < 1:
            raise ValueError(f"share must be between 0 and 1, got {share}")
        distinct, member = np.unique(self.queries, return_inverse=True)
        if len(distinct) < 2:
            raise ValueError("a log of one query cannot be split by query: validate on judged data instead")
        if self.first_shown is None:
            order = np.random.default_rng(seed).permutation(len(distinct))
        else:
            first = np.full(len(distinct), np.iinfo(np.int64).max)
            np.minimum.at(first, member, self.first_shown)
            order = np.argsort(first, kind="stable")
        n_held_out = min(max(1, round(share * len(distinct))), len(distinct) - 1)
        held_out = np.zeros(len(distinct), dtype=bool)
        held_out[order[len(distinct) - n_held_out :]] = True
        return self.select(~held_out[member]), self.select(held_out[member])

    def intervened(self) -> ClickLog:
        """The lists that an intervention changed."""
        if self.interventions is None:
            raise ValueError("the log records no interventions: simulate some, or name the column that marks them")
        return self.select(self.interventions.values > 0)

    def marginal(self) -> ClickLog:
        """The same counts without the patterns."""
        return replace(self, patterns=None)

    def __repr__(self) -> str:
        kind = "joint" if self.joint else "counted"
        return (
            f"ClickLog({self.n_sessions:,.0f} sessions in {self.n_lists:,} {kind} lists, {self.n_clicks:,.0f} clicks, "
            f"{len(self.features):,} documents, {self.n_features} features, {self.n_positions} positions)"
        )

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,
        clicks: ArrayLike,
        group: ArrayLike | None = None,
        position: ArrayLike | None = None,
        sessions: ArrayLike | None = None,
        *,
        query: Any = None,
        weight: ArrayLike | None = None,
        graded: bool = False,
    ) -> ClickLog:
        """A log from a row for each shown document, as LightGBM takes them; every list is a query of its own.

        Args:
            group: number of rows of each list, list after list.
            position: 0-based place of each row; default: rows of a list stand in shown order.
            sessions: how often each list was shown, when clicks are counts.
            query: instead of `group`, the list's id in each row, in any order.
            weight: weight of each list's one session, when sessions do not count alike.
        """
        features = np.ascontiguousarray(X, dtype=np.float32)
        check_features(features, what="row")
        ids, lists = _lists_of_rows(len(features), group, query)
        n_lists = len(ids)
        counts = _vector(clicks, len(features), "clicks", "a row")
        places = (
            _shown_order(lists) if position is None else _whole(_vector(position, len(features), "position", "a row"))
        )
        check_top(places)
        if sessions is not None and weight is not None:
            raise ValueError("pass sessions (clicks are counts) or weight (one session a list), not both")
        one_each = np.ones(n_lists)
        shown = one_each if sessions is None else _vector(sessions, n_lists, "sessions", "a list")
        if weight is not None:
            shown = _vector(weight, n_lists, "weight", "a list")
            counts = counts * shown[lists]
        rows, mask = impressions.pad(lists, places, n_lists)
        total = np.where(mask, counts[rows], 0.0)
        joint = sessions is None or bool((shown == 1).all())
        patterns = Patterns(np.arange(n_lists), (total / shown[:, None]).astype(np.float32), shown) if joint else None
        return cls(
            features=features,
            documents=np.where(mask, rows, 0).astype(np.int32),
            mask=mask,
            clicks=impressions.compact_counts(total),
            sessions=impressions.compact_counts(shown),
            positions=np.where(mask, places[rows], 0).astype(np.int16),
            document_queries=lists,
            query_ids=ids,
            patterns=patterns,
            graded=graded,
        )

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        session: str = "session",
        query: str = "query",
        document: str = "document",
        position: str = "position",
        click: str = "click",
        features: Sequence[str] | None = None,
        bias: Sequence[str] = (),
        policy_score: str | None = None,
        intervention: str | None = None,
        weight: str | None = None,
        time: str | None = None,
        first_position: int = 0,
        graded: bool = False,
        joint: bool = True,
    ) -> ClickLog:
        """A log from a pyarrow, pandas or polars table with one row per impression.

        Args:
            session: names the column that tells showings of a page apart; a session may hold several queries.
            features: feature columns; default: every numeric column that no other argument names.
            bias: columns besides position that may change what is seen; text and integers are levels.
            intervention: column that names what changed the order; its value for "nothing did" is `none`.
            first_position: what the log calls the top position, 0 or 1.
            graded: `click` holds feedback such as dwell time rather than 0 and 1.
            joint: keep which documents were clicked together.
        """
        data = impressions.as_arrow(table)
        named = [session, query, document, position, click, *bias]
        named += [name for name in (policy_score, intervention, weight, time) if name is not None]
        check_columns(data, named)
        if features is None:
            features = [name for name in data.column_names if name not in named and _is_numeric(data, name)]
        check_columns(data, features)

        query_ids, queries = number_ids(data[query])
        document_names, document_numbers = number_ids(data[document])
        _, documents = number_ids(queries * len(document_names) + document_numbers)
        first_row = _first_rows(documents)
        columns = [impressions.numbers(data, name) for name in features]
        matrix = impressions.distinct_documents(columns, features, first_row, documents)
        check_features(matrix, features)

        session_numbers = number_ids(data[session])[1]
        _, showings = number_ids(session_numbers * len(query_ids) + queries)
        n_showings = int(showings.max(initial=-1)) + 1
        places = impressions.whole_numbers(data, position) - first_position
        check_values(places + first_position, places >= 0, position, f"positions count from {first_position}")
        check_top(places)
        clicked = impressions.numbers(data, click)
        rule = "feedback is at least 0" if graded else "a click is 0 or 1 (graded=True takes dwell times and the like)"
        allowed = clicked >= 0 if graded else np.isin(clicked, (0, 1))
        check_values(clicked, allowed, click, rule)
        rows, mask = impressions.pad(showings, places, n_showings)
        _check_one_a_place(places, rows, mask, position)

        shown = np.ones(n_showings)
        if weight is not None:
            weights = impressions.numbers(data, weight)
            check_values(weights, np.isfinite(weights) & (weights > 0), weight, "weights are positive")
            shown = weights[rows[:, 0]]
        columns_of_lists = {name: _bias_column(data, name, rows, mask) for name in bias}
        interventions = None if intervention is None else _intervention_column(data, intervention, rows)
        key = [np.where(mask, documents[rows], -1), np.where(mask, places[rows], -1)]
        key += [column.values.reshape(n_showings, -1) for column in columns_of_lists.values()]
        key += [] if interventions is None else [interventions.values[:, None]]
        total = np.where(mask, clicked[rows], 0.0) * shown[:, None]
        first, kind, clicks, sessions, patterns = impressions.count_sessions(
            np.concatenate([part.astype(np.float64) for part in key], axis=1), total, shown, joint=joint
        )

        def of_lists(column: BiasColumn) -> BiasColumn:
            return replace(column, values=column.values[first])

        kept_rows, kept_mask = rows[first], mask[first]
        return cls(
            features=matrix,
            documents=np.where(kept_mask, documents[kept_rows], 0).astype(np.int32),
            mask=kept_mask,
            clicks=clicks,
            sessions=sessions,
            positions=np.where(kept_mask, places[kept_rows], 0).astype(np.int16),
            document_queries=queries[first_row],
            query_ids=query_ids,
            document_ids=document_names[document_numbers[first_row]],
            feature_names=tuple(features),
            patterns=patterns,
            bias={name: of_lists(column) for name, column in columns_of_lists.items()},
            policy_scores=None if policy_score is None else _mean_scores(data, policy_score, rows, mask, kind, shown),
            interventions=None if interventions is None else of_lists(interventions),
            first_shown=None if time is None else _first_times(data, time, rows, kind, len(first)),
            graded=graded,
        )

    @classmethod
    def from_parquet(cls, path: str | Path, **columns: Any) -> ClickLog:
        """A log from a parquet file with one row per impression; arguments as in `from_table`."""
        try:
            table = pq.read_table(path)
        except (OSError, ValueError) as error:
            raise ValueError(f"{path} cannot be read as parquet: {error}") from error
        try:
            return cls.from_table(table, **columns)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def _vector(values: ArrayLike, length: int, name: str, each: str) -> NDArray[np.float64]:
    vector = np.asarray(values, dtype=np.float64).reshape(-1)
    if len(vector) != length:
        raise ValueError(f"{name} has {len(vector)} values, {length} are needed: one {each}")
    return vector


def _whole(values: NDArray[np.float64]) -> NDArray[np.int64]:
    check_values(values, (values == np.floor(values)) & (values >= 0), "position", "positions are 0, 1, 2, …")
    return values.astype(np.int64)


def _lists_of_rows(n_rows: int, group: ArrayLike | None, query: Any) -> tuple[NDArray, NDArray[np.int64]]:
    if (group is None) == (query is None):
        raise ValueError("pass group (rows of each list) or query (the list's id in each row), one of them")
    if group is None:
        ids, lists = number_ids(query)
        if len(lists) != n_rows:
            raise ValueError(f"query has {len(lists)} values, but there are {n_rows} rows")
        return ids, lists
    sizes = np.asarray(group)
    if sizes.ndim != 1 or (sizes < 1).any() or sizes.sum() != n_rows:
        raise ValueError(f"group sizes add up to {sizes.sum()}, but there are {n_rows} rows: each row is in one list")
    return np.arange(len(sizes)), np.repeat(np.arange(len(sizes)), sizes)


def _shown_order(lists: NDArray[np.int64]) -> NDArray[np.int64]:
    order = np.argsort(lists, kind="stable")
    sizes = np.bincount(lists)
    places = np.empty(len(lists), dtype=np.int64)
    places[order] = np.arange(len(lists)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return places


def _first_rows(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    first = np.empty(int(codes.max(initial=-1)) + 1, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return first


def _is_numeric(table: Any, name: str) -> bool:
    kind = str(table[name].type)
    return kind.startswith(("int", "uint", "float", "double", "halffloat", "bool"))


def _check_one_a_place(places: NDArray, rows: NDArray, mask: NDArray, column: str) -> None:
    shown = places[rows]
    twice = mask[:, 1:] & (shown[:, 1:] == shown[:, :-1])
    if twice.any():
        showing, place = np.argwhere(twice)[0]
        one, other = sorted((rows[showing, place], rows[showing, place + 1]))
        raise ValueError(
            f"column '{column}', rows {one} and {other}: two documents at position {shown[showing, place]} "
            "of one showing; each place holds one"
        )


def _bias_column(table: Any, name: str, rows: NDArray, mask: NDArray) -> BiasColumn:
    values, levels = impressions.levels_or_numbers(table, name)
    spread = np.where(mask, values[rows], values.dtype.type(0))
    of_list = spread[:, 0]
    if (np.where(mask, spread, of_list[:, None]) == of_list[:, None]).all():
        return BiasColumn(of_list, levels)
    return BiasColumn(spread, levels)


def _intervention_column(table: Any, name: str, rows: NDArray) -> BiasColumn:
    values, levels = impressions.levels_or_numbers(table, name)
    if levels is None:
        raise ValueError(f"column '{name}' holds fractions: it must name the intervention, or say none")
    names = ("none", *(level for level in levels if level != "none"))
    renumber = np.array([names.index(level) for level in levels])
    return BiasColumn(renumber[values][rows[:, 0]], names)


def _mean_scores(
    table: Any, name: str, rows: NDArray, mask: NDArray, kind: NDArray, weights: NDArray
) -> NDArray[np.float32]:
    scores = impressions.numbers(table, name)
    check_values(scores, np.isfinite(scores), name, "scores are finite")
    padded = np.where(mask, scores[rows], 0.0) * weights[:, None]
    sums = np.stack([np.bincount(kind, weights=column) for column in padded.T], axis=1)
    return (sums / np.bincount(kind, weights=weights)[:, None]).astype(np.float32)


def _first_times(table: Any, name: str, rows: NDArray, kind: NDArray, n_lists: int) -> NDArray[np.int64]:
    kind_of_time = str(table[name].type)
    column = table[name].cast("timestamp[us]") if kind_of_time.startswith(("timestamp", "date")) else table[name]
    times = np.asarray(column.to_numpy(zero_copy_only=False))
    if times.dtype.kind not in "iuM":
        raise ValueError(
            f"column '{name}' holds {kind_of_time}: timestamps or whole microseconds since 1970 are needed"
        )
    first = np.full(n_lists, np.iinfo(np.int64).max)
    np.minimum.at(first, kind, times.astype(np.int64)[rows[:, 0]])
    return first


def _select_patterns(patterns: Patterns, rows: NDArray, n_lists: int) -> Patterns:
    offsets = np.searchsorted(patterns.lists, np.arange(n_lists + 1))
    chosen, new_offsets = ragged_rows(offsets, rows)
    owner = np.repeat(np.arange(len(rows)), np.diff(new_offsets))
    return Patterns(lists=owner, clicks=patterns.clicks[chosen], sessions=patterns.sessions[chosen])
