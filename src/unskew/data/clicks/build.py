"""Build a click log from impressions: rows are padded into lists, and equal lists are counted together.

Tables, arrays and ingestion each read and check their input; then all of them build the log here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.data.checks import check_one_a_place
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.impressions import (
    BiasColumn,
    Patterns,
    add_showings,
    compact_counts,
    count_patterns,
    pad,
)
from unskew.data.grouping import unique_rows

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Documents:
    """Documents of a log, shown or not, with their versions; a document is a (query, document) pair."""

    features: NDArray[np.float32]  # [versions, features]
    feature_names: tuple[str, ...]
    document_ids: NDArray  # [documents]
    document_queries: Integers  # [documents], of query_ids
    query_ids: NDArray
    version_documents: Integers | None = None  # [versions]; None: each document has one
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Impressions:
    """Rows of shown documents, in any order, and the showings they belong to."""

    showings: Integers  # [rows], the showing of each row
    positions: Integers  # [rows], from 0
    versions: Integers  # [rows], rows of the features
    clicks: NDArray  # [rows], of one session, or summed over the sessions of the showing
    sessions: NDArray  # [showings], the number of sessions, or the weight of a single session
    counted: bool = False
    bias: Mapping[str, BiasColumn] = field(default_factory=dict)  # [rows]
    policy_scores: NDArray | None = None  # [rows]
    display_probabilities: NDArray | None = None  # [rows]; NaN: not recorded
    events: Mapping[str, NDArray] = field(default_factory=dict)  # kind -> [rows], counted as clicks are
    grades: Mapping[str, float] = field(default_factory=dict)  # weights of kinds in training
    seen: NDArray | None = None  # [rows], examined or not, or in how many sessions; NaN: not recorded
    interventions: BiasColumn | None = None  # [showings]
    shuffled: Mapping[str, int] = field(default_factory=dict)  # number of positions that each intervention shuffles
    times: Integers | None = None  # [showings], microseconds since 1970
    periods: Integers | None = None  # [showings], start of the period in which the showing counts
    context: NDArray[np.float32] | None = None  # [showings, context]
    context_names: tuple[str, ...] = ()
    position_name: str = "position"  # in messages

    @property
    def single(self) -> bool:
        """Whether clicks are those of single sessions, so that it is known which were made together."""
        return not self.counted or bool((self.sessions == 1).all())


@dataclass(frozen=True, eq=False)
class _Grid:
    """Rows arranged as `[showings, docs]`, top first, and which showings have the same list."""

    rows: Integers
    mask: NDArray[np.bool_]
    first: Integers  # [lists], the first showing of each list
    kind: Integers  # [showings], the list of each showing

    def spread(self, values: NDArray) -> NDArray:
        """Values of rows as `[showings, docs]`."""
        return np.where(self.mask, values[self.rows], values.dtype.type(0))

    def once(self, values: NDArray) -> NDArray:
        """Values of rows as `[lists, docs]`, taken from the first showing of each list."""
        return np.where(self.mask[self.first], values[self.rows[self.first]], values.dtype.type(0))

    def sums(self, values: NDArray) -> NDArray[np.float64]:
        """Values of showings summed over the showings of each list."""
        return add_showings(self.kind, len(self.first), values)


def build_log(
    shown: Impressions, documents: Documents, *, joint: bool, graded: bool = False, distinct: bool = False
) -> ClickLog:
    """The log of these impressions.

    Args:
        joint: keep which documents were clicked together, if that is known.
        distinct: no two showings have the same list, so skip the search for equal lists.
    """
    rows, mask = pad(shown.showings, shown.positions, len(shown.sessions))
    check_one_a_place(shown.positions, rows, mask, shown.position_name)
    bias = {name: _column(column, shown.showings, rows, mask) for name, column in shown.bias.items()}
    everyone = np.arange(len(rows))
    first, kind = (everyone, everyone) if distinct else unique_rows(_key(shown, rows, mask, bias))
    grid = _Grid(rows, mask, first, kind)
    clicks, sessions = grid.spread(shown.clicks), np.asarray(shown.sessions, dtype=np.float64)

    def in_all_sessions(values: NDArray) -> NDArray:
        spread = grid.spread(values)
        return compact_counts(grid.sums(spread if shown.counted else spread * sessions[:, None]))

    seen, recorded = _looks(shown, grid, sessions)
    return ClickLog(
        features=documents.features,
        versions=grid.once(shown.versions).astype(np.int32),
        mask=mask[first],
        clicks=in_all_sessions(shown.clicks),
        sessions=compact_counts(grid.sums(sessions)),
        positions=grid.once(shown.positions).astype(np.int16),
        document_queries=documents.document_queries,
        query_ids=documents.query_ids,
        document_ids=documents.document_ids,
        version_documents=documents.version_documents,  # type: ignore[arg-type]  # None: the default
        feature_names=documents.feature_names,
        categories=documents.categories,
        context=None if shown.context is None else shown.context[first],  # type: ignore[arg-type]
        context_names=shown.context_names,
        patterns=_patterns(kind, clicks, sessions, distinct=distinct) if joint and shown.single else None,
        bias={name: column.select(first) for name, column in bias.items()},
        policy_scores=_mean_scores(grid, shown.policy_scores, sessions),
        display_probabilities=_harmonic_mean(grid, shown.display_probabilities, sessions),
        interventions=None if shown.interventions is None else shown.interventions.select(first),
        first_shown=None if shown.times is None else _earliest(shown.times, kind, len(first)),
        periods=None if shown.periods is None else shown.periods[first],
        events={name: in_all_sessions(values) for name, values in shown.events.items()},
        grades=shown.grades,
        shuffled=shown.shuffled,
        seen=seen,
        seen_sessions=recorded,
        graded=graded,
    )


def _column(column: BiasColumn, showings: Integers, rows: Integers, mask: NDArray[np.bool_]) -> BiasColumn:
    """One value per list if all documents of each list have the same value, otherwise one per document."""
    top = column.values[rows[:, 0]]
    if np.array_equal(column.values, top[showings]):
        return BiasColumn(top, column.levels)
    return BiasColumn(np.where(mask, column.values[rows], column.values.dtype.type(0)), column.levels)


def _key(shown: Impressions, rows: Integers, mask: NDArray[np.bool_], bias: Mapping[str, BiasColumn]) -> NDArray:
    """A key that is equal for showings of the same list."""
    parts = [np.where(mask, values[rows], -1) for values in (shown.versions, shown.positions)]
    columns = [*bias.values(), *([] if shown.interventions is None else [shown.interventions])]
    others = [values for values in (shown.periods, shown.context) if values is not None]
    if shown.display_probabilities is not None:  # lists with and without a record may come from different rankers
        others.append(np.isnan(shown.display_probabilities[rows]) & mask)
    parts += [values.reshape(len(rows), -1) for values in (*(column.values for column in columns), *others)]
    return np.concatenate([part.astype(np.float64) for part in parts], axis=1)


def _looks(shown: Impressions, grid: _Grid, sessions: NDArray) -> tuple[NDArray | None, NDArray | None]:
    """Sessions in which each document was examined, and sessions that recorded examination, for whole lists."""
    if shown.seen is None:
        return None, None
    spread = grid.spread(shown.seen.astype(np.float64))
    recorded = ~np.isnan(spread).any(axis=1)
    looks = np.where(recorded[:, None], spread, 0.0)
    looks = looks if shown.counted else looks * sessions[:, None]
    return compact_counts(grid.sums(looks)), compact_counts(grid.sums(np.where(recorded, sessions, 0.0)))


def _patterns(kind: Integers, clicks: NDArray, sessions: NDArray, *, distinct: bool) -> Patterns:
    if distinct:
        return Patterns(kind, clicks.astype(np.float32), compact_counts(sessions))
    return count_patterns(kind, clicks, sessions)


def _mean_scores(grid: _Grid, scores: NDArray | None, sessions: NDArray) -> NDArray[np.float32] | None:
    """Mean over the sessions of a list: the scores of a stochastic policy vary between sessions."""
    if scores is None:
        return None
    sums = grid.sums(grid.spread(scores.astype(np.float64, copy=False)) * sessions[:, None])
    return (sums / grid.sums(sessions)[:, None]).astype(np.float32)


def _harmonic_mean(grid: _Grid, chances: NDArray | None, sessions: NDArray) -> NDArray[np.float32] | None:
    """Harmonic mean over the sessions of a list: its inverse is the mean inverse-propensity weight of an impression."""
    if chances is None:
        return None
    inverse = grid.spread(1 / chances.astype(np.float64))
    with np.errstate(divide="ignore"):
        mean = grid.sums(sessions)[:, None] / grid.sums(inverse * sessions[:, None])
    return np.where(grid.mask[grid.first], mean, 0.0).astype(np.float32)


def _earliest(times: Integers, kind: Integers, n_lists: int) -> Integers:
    first = np.full(n_lists, np.iinfo(np.int64).max)
    np.minimum.at(first, kind, times)
    return first
