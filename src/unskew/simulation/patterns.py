"""Patterns: draw single sessions in slabs of bounded memory, count them by click pattern, and record examination."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from unskew.data.grouping import unique_rows
from unskew.options import Probability, Share, check_fields
from unskew.simulation.browsing import Shown, User
from unskew.simulation.showings import Index, in_slabs

# Sessions drawn at a time. A constant, because it changes what is drawn.
SLAB = 65_536


def _none() -> Index:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Counted:
    """Counts over all sessions of some lists, with patterns if single sessions were drawn."""

    clicks: Index  # [lists, docs]
    seen: Index  # [lists, docs]
    sessions: Index  # [lists]
    pattern_lists: Index = field(default_factory=_none)  # [patterns], sorted
    pattern_bits: NDArray[np.uint8] | None = None  # [patterns, bytes], one bit per document
    pattern_sessions: Index = field(default_factory=_none)  # [patterns]

    def pattern_clicks(self, n_docs: int) -> NDArray[np.float32]:
        """Clicks of the patterns, `[patterns, docs]`."""
        if self.pattern_bits is None:
            return np.zeros((0, n_docs), dtype=np.float32)
        return np.unpackbits(self.pattern_bits, axis=1, count=n_docs).astype(np.float32)


def count_patterns(
    user: User, shown: Shown, sessions: Index, rng: Generator, *, drop_clickless: bool = False
) -> Counted:
    """Draw every session of every list and count the distinct click patterns."""
    n_lists = len(sessions)
    seen = np.zeros(shown.mask.shape, dtype=np.int64)
    slabs = []
    for lists, _ in in_slabs(sessions, 1, SLAB):
        browsing = user.browse(shown, lists, rng)
        clicks, views = browsing.clicks, browsing.seen
        if drop_clickless:
            kept = clicks.any(axis=1)
            lists, clicks, views = lists[kept], clicks[kept], views[kept]
        for place in range(shown.n_docs):
            seen[:, place] += np.bincount(lists[views[:, place]], minlength=n_lists)
        slabs.append(_distinct(lists, np.packbits(clicks, axis=1), np.ones(len(lists), dtype=np.int64)))
    lists, bits, counts = _merge(slabs, (shown.n_docs + 7) // 8)
    clicked = np.zeros(shown.mask.shape, dtype=np.int64)
    single = np.unpackbits(bits, axis=1, count=shown.n_docs)
    for place in range(shown.n_docs):
        weights = counts * single[:, place]
        clicked[:, place] = np.bincount(lists, weights=weights, minlength=n_lists)
    kept_sessions = np.bincount(lists, weights=counts, minlength=n_lists).astype(np.int64)
    return Counted(clicked, seen, kept_sessions, lists, bits, counts)


def _merge(slabs: list[tuple[Index, NDArray[np.uint8], Index]], n_bytes: int) -> tuple[Index, NDArray[np.uint8], Index]:
    if not slabs:
        return _none(), np.zeros((0, n_bytes), dtype=np.uint8), _none()
    if len(slabs) == 1:
        return slabs[0]
    lists, bits, counts = (np.concatenate(entries) for entries in zip(*slabs, strict=True))
    return _distinct(lists, bits, counts)


def _distinct(lists: Index, bits: NDArray[np.uint8], counts: Index) -> tuple[Index, NDArray[np.uint8], Index]:
    """Distinct patterns of each list, sorted by list and pattern, and their counts."""
    n_bytes = bits.shape[1]
    if n_bytes <= 4:  # list and pattern fit into one number
        code = lists.copy()
        for column in range(n_bytes):
            code = (code << 8) | bits[:, column]
        _, first, kind = np.unique(code, return_index=True, return_inverse=True)
    else:
        first, kind = unique_rows(np.column_stack([lists, bits]))
        order = np.lexsort((*bits[first].T[::-1], lists[first]))
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        first, kind = first[order], rank[kind]
    total = np.bincount(kind, weights=counts, minlength=len(first)).astype(np.int64)
    return lists[first], bits[first], total


@dataclass(frozen=True, kw_only=True)
class Record:
    r"""How examination is recorded: for each session with probability `share`, then for each document.

    Attributes:
        share: share of the sessions in which examination is recorded.
        misses: probability that the examination of a document is not recorded.
        false_alarms: probability that a document that was not examined is recorded as examined.
        interest: $\iota$, how much the record grows with interest: examination of a document that is relevant with
            probability $a$ is recorded $1 - \iota + \iota a$ times as often. 0: not at all; 1: in proportion.
        on_click: a click is always recorded, because a mouse that clicks also hovers.
    """

    share: Share = 1.0
    misses: Probability = 0.0
    false_alarms: Probability = 0.0
    interest: Probability = 0.0
    on_click: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    def draw(
        self, counted: Counted, attraction: NDArray[np.float64], mask: NDArray[np.bool_], rng: Generator
    ) -> tuple[Index, Index]:
        """Recorded examination `[lists, docs]`, and the sessions `[lists]` that recorded it."""
        recorded = rng.binomial(counted.sessions, self.share)
        shown, unseen = recorded[:, None], counted.sessions[:, None] - counted.seen
        clicked = rng.hypergeometric(counted.clicks, counted.sessions[:, None] - counted.clicks, shown)
        looked = rng.hypergeometric(counted.seen - counted.clicks, unseen, shown - clicked)
        noticed = (1 - self.misses) * (1 - self.interest + self.interest * attraction)
        looks = clicked if self.on_click else rng.binomial(clicked, noticed)
        looks = looks + rng.binomial(looked, noticed) + rng.binomial(shown - clicked - looked, self.false_alarms)
        return np.where(mask, looks, 0), recorded
