"""ClickLog: what was shown and what was clicked, the one form in which clicks exist here, simulated or real.

A document is a query and a document together; its features stand once in a matrix. A list is a row of document
numbers in shown order. Sessions that showed the same list, with the same bias columns, are one row with clicks and
impressions: losses that are linear in clicks have the same gradient on it as on the single sessions. A log that also
keeps which documents were clicked *together* is `joint`: it holds the distinct click patterns of each list and their
multiplicity. Positions count from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from unskew.data.checks import check_log
from unskew.data.clicks.impressions import BiasColumn, Patterns
from unskew.data.clicks.log_to_table import log_to_table
from unskew.data.judged.judged_set import chosen_numbers, ragged_rows


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
    codes: NDArray[np.int64] | None = None  # [documents, 3], numbers of a model's vocabulary (`vocabulary.encode`)

    def __post_init__(self) -> None:
        def default(name: str, value: Callable[[], NDArray]) -> None:
            if getattr(self, name) is None:
                object.__setattr__(self, name, value())

        places = np.arange(self.documents.shape[-1], dtype=np.int16)
        default("positions", lambda: np.where(self.mask, places, np.int16(0)))
        default("document_queries", lambda: _queries_by_lists(self.documents, self.mask, len(self.features)))
        default("query_ids", lambda: np.arange(int(self.document_queries.max(initial=-1)) + 1))
        default("document_ids", lambda: np.arange(len(self.features)))
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
        rows = chosen_numbers(lists, self.n_lists, "lists")
        return replace(
            self,
            documents=self.documents[rows],
            mask=self.mask[rows],
            clicks=self.clicks[rows],
            sessions=self.sessions[rows],
            positions=self.positions[rows],
            patterns=None if self.patterns is None else _select_patterns(self.patterns, rows, self.n_lists),
            bias={name: column.select(rows) for name, column in self.bias.items()},
            policy_scores=None if self.policy_scores is None else self.policy_scores[rows],
            interventions=None if self.interventions is None else self.interventions.select(rows),
            first_shown=None if self.first_shown is None else self.first_shown[rows],
        )

    def of_queries(self, queries: ArrayLike) -> ClickLog:
        """The log of these queries only, by number or boolean mask, with their documents only, shown or not."""
        kept = np.zeros(len(self.query_ids), dtype=bool)
        kept[chosen_numbers(queries, len(self.query_ids), "queries")] = True
        documents = np.flatnonzero(kept[self.document_queries])
        new_number = np.zeros(len(self.features), dtype=np.int32)
        new_number[documents] = np.arange(len(documents), dtype=np.int32)
        lists = self.select(kept[self.queries])
        return replace(
            lists,
            features=self.features[documents],
            documents=np.where(lists.mask, new_number[lists.documents], 0).astype(np.int32),
            document_queries=(np.cumsum(kept) - 1)[self.document_queries[documents]],
            query_ids=self.query_ids[kept],
            document_ids=self.document_ids[documents],
            codes=None if self.codes is None else self.codes[documents],
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
        X: Any,
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
            X: a matrix or table of features; columns of a table name the features.
            clicks: 0 or 1 for each row, counts with `sessions`, feedback such as dwell time if `graded`.
            group: number of rows of each list, list after list.
            position: 0-based place of each row; default: rows of a list stand in shown order.
            sessions: how often each list was shown, when clicks are counts.
            query: instead of `group`, the list's id in each row, in any order.
            weight: weight of each list's one session, when sessions do not count alike.
        """
        from unskew.data.clicks.log_from_arrays import log_from_arrays  # which builds a ClickLog itself

        return log_from_arrays(X, clicks, group, position, sessions, query, weight, graded=graded)

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
        sessions: str | None = None,
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
            policy_score: column with the score by which the document was ranked.
            intervention: column that names what changed the order; its value for "nothing did" is `none`.
            sessions: column that says how often the list was shown, when clicks are counts; such a log is not joint.
            weight: column with the weight of the session, when sessions do not count alike.
            time: column with the time of the showing, a timestamp or microseconds since 1970.
            first_position: what the log calls the top position, 0 or 1.
            graded: `click` holds feedback such as dwell time rather than 0 and 1.
            joint: keep which documents were clicked together.
        """
        from unskew.data.clicks.log_from_table import TableColumns, log_from_table  # which builds a ClickLog itself

        columns = TableColumns(
            session=session,
            query=query,
            document=document,
            position=position,
            click=click,
            features=features,
            bias=bias,
            policy_score=policy_score,
            intervention=intervention,
            sessions=sessions,
            weight=weight,
            time=time,
        )
        return log_from_table(table, columns, first_position=first_position, graded=graded, joint=joint)

    @classmethod
    def from_parquet(cls, path: str | Path, **columns: Any) -> ClickLog:
        """A log from a parquet file, or a folder of them, with one row per impression; arguments as in `from_table`."""
        try:
            table = pq.read_table(path)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{path} does not exist: name a parquet file, or a folder of them") from error
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ValueError(f"{path} cannot be read as parquet: {error}") from error
        try:
            return cls.from_table(table, **columns)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def to_table(self, *, features: bool = False) -> pa.Table:
        """A pyarrow table with one row per shown document.

        Columns: list (its number), query, document, position, clicks and sessions of the list; where the log has them
        policy_score, intervention, first_shown; a column for each bias column and, if asked, for each feature. Which
        documents were clicked together is not in it. `from_table(..., session="list", click="clicks",
        sessions="sessions")` reads it back.
        """
        return log_to_table(self, features=features)


def _queries_by_lists(documents: NDArray, mask: NDArray[np.bool_], n_documents: int) -> NDArray[np.int64]:
    """The query of each document where none is given: lists that share a document answer the same query."""
    n_lists = len(documents)
    lists = np.repeat(np.arange(n_lists), mask.sum(1))
    links = coo_array(
        (np.ones(len(lists), dtype=bool), (lists, documents[mask] + n_lists)), shape=(n_lists + n_documents,) * 2
    )
    _, part = connected_components(links, directed=False)
    queries = part[n_lists:].astype(np.int64)
    shown = np.zeros(n_documents, dtype=bool)
    shown[documents[mask]] = True
    return np.where(shown, queries, 0)  # what was never shown belongs somewhere


def _select_patterns(patterns: Patterns, rows: NDArray, n_lists: int) -> Patterns:
    offsets = np.searchsorted(patterns.lists, np.arange(n_lists + 1))
    chosen, new_offsets = ragged_rows(offsets, rows)
    owner = np.repeat(np.arange(len(rows)), np.diff(new_offsets))
    return Patterns(lists=owner, clicks=patterns.clicks[chosen], sessions=patterns.sessions[chosen])
