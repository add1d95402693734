"""Showings: orders in which candidates are shown, and how often each of them is.

Candidates of a block of queries are padded rows. A shown list is a row of indices into the candidates of its query,
from the top down; it is as wide as the number shown, and shorter if the query has fewer candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from unskew.data.grouping import unique_rows
from unskew.data.judged.judged_set import JudgedSet, padded_rows

# Numbers drawn at a time if every session has its own order. A constant, because it changes what is drawn.
SLAB = 2**21
MOST_DRAFTED = 62  # positions whose teams fit into one number

Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Candidates:
    """Documents of a block of queries that may be shown."""

    documents: Index  # [queries, docs], rows of the judged set
    mask: NDArray[np.bool_]  # [queries, docs]; True first, then padding
    scores: NDArray[np.float64]  # [queries, docs] or [queries, docs, loggers]

    @property
    def sizes(self) -> Index:
        return self.mask.sum(axis=1)

    @classmethod
    def of(cls, judged: JudgedSet, queries: Index, scores: NDArray[np.float64]) -> Self:
        """Candidates of these queries, with the scores of a logging policy for all documents of the set."""
        documents, mask = padded_rows(judged.offsets, queries)
        return cls(documents=documents, mask=mask, scores=scores[documents])

    def select(self, queries: Index) -> Self:
        return replace(self, documents=self.documents[queries], mask=self.mask[queries], scores=self.scores[queries])


@dataclass(frozen=True, eq=False)
class Showings:
    """Shown lists of a block of queries."""

    queries: Index  # [lists], row of the candidates
    places: Index  # [lists, shown], column of the candidates from the top down; 0 in padding
    sessions: Index  # [lists]
    loggers: Index  # [lists], which of several loggers showed it
    interventions: Index  # [lists], 0: none

    @classmethod
    def plain(cls, queries: Index, places: Index, sessions: Index) -> Self:
        """Lists of one logger, without intervention."""
        nothing = np.zeros(len(queries), dtype=np.int64)
        return cls(queries=queries, places=places, sessions=sessions, loggers=nothing, interventions=nothing)

    @property
    def n_lists(self) -> int:
        return len(self.queries)

    def select(self, lists: Index) -> Self:
        return replace(self, **{name: values[lists] for name, values in vars(self).items()})

    def merged(self) -> Self:
        """The same lists with equal ones counted together, sorted by query."""
        if (np.diff(self.queries) > 0).all():  # one list per query: nothing to merge or sort
            return self
        key = np.column_stack([self.queries, self.loggers, self.interventions, self.places])
        first, kind = unique_rows(key)
        sessions = np.bincount(kind, weights=self.sessions, minlength=len(first)).astype(np.int64)
        once = replace(self.select(first), sessions=sessions)
        return once.select(np.argsort(once.queries, kind="stable"))


def concatenate(parts: list[Showings]) -> Showings:
    """All lists of all parts."""
    return Showings(**{name: np.concatenate([vars(part)[name] for part in parts]) for name in vars(parts[0])})


def top(scores: NDArray[np.float64], sizes: Index, n_shown: int) -> Index:
    """Indices of the highest scores from the top down, `[lists, n_shown]`; equal scores keep their order."""
    n_docs = scores.shape[1]
    real = np.where(np.arange(n_docs) < sizes[:, None], scores, -np.inf)
    places = np.zeros((len(scores), n_shown), dtype=np.int64)
    places[:, :n_docs] = np.argsort(-real, axis=1, kind="stable")[:, :n_shown]
    return np.where(np.arange(n_shown) < sizes[:, None], places, 0)


def one_order(candidates: Candidates, sessions: Index, n_shown: int) -> Showings:
    """Show every query in the order of its scores, in all its sessions."""
    queries = np.flatnonzero((sessions > 0) & (candidates.sizes > 0))
    chosen = candidates.select(queries)
    return Showings.plain(queries, top(chosen.scores, chosen.sizes, n_shown), sessions[queries])


def sampled_orders(
    candidates: Candidates, sessions: Index, n_shown: int, orders_per_query: int | None, rng: Generator
) -> Showings:
    r"""Show every query in orders from the Plackett-Luce model of its scores, $P(\text{next} = i) \propto e^{s_i}$.

    Args:
        orders_per_query: number of orders that the sessions share evenly; None: each session has its own.
    """
    shown = np.where(candidates.sizes > 0, sessions, 0)
    n_orders = shown if orders_per_query is None else np.minimum(shown, orders_per_query)
    parts = [Showings.plain(shown[:0], np.zeros((0, n_shown), dtype=np.int64), shown[:0])]
    for slab, number in in_slabs(n_orders, candidates.mask.shape[1]):
        share, rest = np.divmod(shown[slab], n_orders[slab])
        chosen = candidates.select(slab)
        # The order of log E - s, with E exponential, is a draw from the model: a race that the smallest wins.
        waiting = np.log(rng.standard_exponential(chosen.mask.shape)) - chosen.scores
        places = top(-waiting, chosen.sizes, n_shown)
        parts.append(Showings.plain(slab, places, share + (number < rest)).merged())
    return concatenate(parts)


def team_draft(candidates: Candidates, sessions: Index, n_shown: int, rng: Generator) -> Showings:
    """Show every session in its own team draft of two rankers; bit k of `loggers` is the team of position k."""
    if n_shown > MOST_DRAFTED:
        raise ValueError(f"team draft shows at most {MOST_DRAFTED} documents, got n_shown={n_shown}")
    shown = np.where(candidates.sizes > 0, sessions, 0)
    parts = [Showings.plain(shown[:0], np.zeros((0, n_shown), dtype=np.int64), shown[:0])]
    for slab, _ in in_slabs(shown, candidates.mask.shape[1]):
        chosen = candidates.select(slab)
        left, rows = chosen.mask.copy(), np.arange(len(slab))
        places, teams = np.zeros((len(slab), n_shown), dtype=np.int64), np.zeros(len(slab), dtype=np.int64)
        coin = rng.integers(0, 2, size=(len(slab), (n_shown + 1) // 2))
        for place in range(n_shown):
            team = coin[:, place // 2] ^ (place % 2)
            scores = np.take_along_axis(chosen.scores, team[:, None, None], axis=2)[:, :, 0]
            drawn = np.where(left, scores, -np.inf).argmax(axis=1)
            open_places = left.any(axis=1)
            places[:, place] = np.where(open_places, drawn, 0)
            teams |= np.where(open_places, team, 0) << place
            left[rows, drawn] = False
        once = Showings.plain(slab, places, np.ones(len(slab), dtype=np.int64))
        parts.append(replace(once, loggers=teams).merged())
    return concatenate(parts)


def in_slabs(repeats: Index, width: int, size: int = SLAB) -> Iterator[tuple[Index, Index]]:
    """Repeat each index, with the number of the repetition, in slabs of at most `size` numbers."""
    ends = np.cumsum(repeats)
    total = int(ends[-1]) if len(ends) else 0
    step = max(1, size // max(width, 1))
    for start in range(0, total, step):
        numbers = np.arange(start, min(start + step, total))
        index = np.searchsorted(ends, numbers, side="right")
        yield index, numbers - (ends[index] - repeats[index])
