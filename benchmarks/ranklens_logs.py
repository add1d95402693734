"""Shared by the study of RankLens: logs and held-out lists made of the real clicks.

RankLens (Metarank, CC BY-SA 4.0): people marked the movies that they would watch, in lists of 24 in random order. So
click rates by position are examination, and a held-out list judges any ranker without bias.

Splits are five folds of people. A **thinned** list keeps a movie with probability $e^{-|k - r| / w}$, for its position
$k$ and its rank $r$ in the list by a made-up production ranker. So the top is where production puts what it ranks high,
as in any log, while every click stays that of a person, at the position where it was made. Context is what the same
person liked in her earlier lists: the share of these movies in each genre, and how many they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import unskew
from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.catalogue import data_folder
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.public_logs.id_pages import IdPages

NAME = "ranklens"
FOLDS = 5
# Production rankers: a feature, and its sign.
ORDERS = {
    "popular": ("vote_cnt", 1),
    "unpopular": ("vote_cnt", -1),
    "newest": ("release_date", 1),
    "longest": ("runtime", 1),
}
WIDTHS = {"weak": 6.0, "strong": 2.0}
FEW = (1, 3)  # clicks of a list in which the fall of examination is steep
Rows = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Marks:
    """Every shown movie, list by list, top first."""

    lists: NDArray[np.int64]  # [rows], a number per list, in the order in which they were shown
    people: NDArray  # [rows]
    movies: NDArray  # [rows]
    positions: NDArray[np.int64]  # [rows], from 0
    clicks: NDArray[np.float32]  # [rows]
    features: NDArray[np.float32]  # [rows, features]
    names: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]]  # the values of features that are text, which hold numbers of these
    context: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)  # [rows]

    def of(self, kept: Rows) -> Marks:
        """These rows only."""
        rows = ("lists", "people", "movies", "positions", "clicks", "features")
        context = {name: values[kept] for name, values in self.context.items()}
        return replace(self, context=context, **{name: getattr(self, name)[kept] for name in rows})

    @property
    def clicks_of_list(self) -> NDArray:
        """Clicks of the list of each row."""
        return np.bincount(self.lists, self.clicks)[self.lists]

    def few(self) -> Marks:
        """The lists with one to three clicks."""
        return self.of((self.clicks_of_list >= FEW[0]) & (self.clicks_of_list <= FEW[1]))

    def log(self) -> ClickLog:
        """A log whose queries are people."""
        table = {"list": self.lists, "person": self.people, "movie": self.movies, "position": self.positions}
        columns = {name: self._column(name, values) for name, values in zip(self.names, self.features.T, strict=True)}
        return ClickLog.from_table(
            pa.table({**table, "click": self.clicks, **columns, **self.context}),
            session="list",
            query="person",
            document="movie",
            features=list(self.names),
            context=list(self.context),
        )

    def _column(self, name: str, values: NDArray[np.float32]) -> pa.Array:
        if name not in self.categories:
            return pa.array(values)
        known = np.isfinite(values)
        codes = pa.array(np.where(known, values, 0).astype(np.int32), mask=~known)
        return pa.DictionaryArray.from_arrays(codes, pa.array(self.categories[name])).cast(pa.string())

    def pages(self) -> IdPages:
        """Complete lists, as pages of one query that everybody asks, so that movies are compared across lists."""
        _, sizes = np.unique(self.lists, return_counts=True)
        whole = np.repeat(sizes == sizes.max(), sizes)
        shown = self.movies[whole].astype(np.int64).reshape(-1, sizes.max())
        every = np.zeros(len(shown), np.int64)
        return IdPages(every, shown, self.clicks[whole].reshape(shown.shape), every)

    def judged(self) -> JudgedSet:
        """Each list as a query with its clicks as grades."""
        listed, sizes = np.unique(self.lists, return_counts=True)
        return JudgedSet(
            features=np.column_stack([self.features, *self.context.values()]).astype(np.float32),
            grades=self.clicks,
            offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            query_ids=listed,
            document_ids=self.movies,
            feature_names=(*self.names, *self.context),
            categories=self.categories,
        )


@cache
def marks() -> Marks:
    """All marks, with the columns that `ingest` makes; movies without metadata leave their position empty."""
    log = unskew.ingest(data_folder() / NAME / "events.jsonl.gz", form="metarank", progress=False).log
    log = log.select(np.argsort(log.times, kind="stable"))
    lists = np.nonzero(log.mask)[0]
    return Marks(
        lists,
        log.query_ids[log.queries][lists],
        log.document_ids[log.documents[log.mask]],
        log.positions[log.mask].astype(np.int64),
        (log.clicks[log.mask] > 0).astype(np.float32),
        log.features[log.versions[log.mask]],
        log.feature_names,
        log.categories,
    )


def folds(seen: Marks) -> NDArray[np.int64]:
    """The fold in which each row is tested, by person."""
    people, number = np.unique(seen.people, return_inverse=True)
    return (np.random.default_rng(2026).permutation(len(people)) % FOLDS)[number]


def thinned(seen: Marks, order: str, strength: str) -> Marks:
    """The marks as if a production ranker had made the lists."""
    name, sign = ORDERS[order]
    values = sign * seen.features[:, seen.names.index(name)]
    by_rank = np.lexsort((-values, seen.lists))  # missing values are last
    starts = np.flatnonzero(np.diff(seen.lists, prepend=-1))
    ranks = np.empty(len(values), np.int64)
    ranks[by_rank] = np.arange(len(values)) - np.repeat(starts, np.diff(starts, append=len(values)))
    chance = np.random.default_rng(2026).random(len(values))
    return seen.of(chance < np.exp(-np.abs(seen.positions - ranks) / WIDTHS[strength]))


def with_context(seen: Marks) -> Marks:
    """The marks with what the same person liked in earlier lists."""
    genres = [place for place, name in enumerate(seen.names) if name.startswith("genres=")]
    _, first = np.unique(seen.lists, return_index=True)
    _, person = np.unique(seen.people[first], return_inverse=True)
    liked = seen.clicks[:, None] * np.nan_to_num(np.column_stack([seen.features[:, genres], np.ones(len(seen.lists))]))
    of_lists = np.add.reduceat(liked, first)
    order = np.argsort(person, kind="stable")  # lists of a person, in the order in which they were shown
    passed = np.cumsum(of_lists[order], axis=0) - of_lists[order]
    begins = np.flatnonzero(np.diff(person[order], prepend=-1))
    before = np.empty_like(passed)
    before[order] = passed - np.repeat(passed[begins], np.diff(begins, append=len(order)), axis=0)
    shares = before[:, :-1] / np.maximum(before[:, -1:], 1)
    row = np.repeat(np.arange(len(first)), np.diff(first, append=len(seen.lists)))
    context = {f"liked {seen.names[place]}": shares[row, number] for number, place in enumerate(genres)}
    context["liked"] = before[row, -1]
    return replace(seen, context={name: values.astype(np.float32) for name, values in context.items()})
