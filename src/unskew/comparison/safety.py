"""How far a ranker is from production, and what is at stake: read on held-out queries, without labels.

A document at rank $k$ has exposure $1 / \\log_2(k + 1)$. What a ranking is worth if a model is right is the mean over
queries of $\\sum_k p_k / \\log_2(k + 1)$, where $p$ is the model's softmax of relevance over the documents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.evaluation.held_out import HeldOut, Vector

TOP = 3


@dataclass(frozen=True)
class Stakes:
    """A ranker beside production and beside plain clicks."""

    n_queries: int
    moved: float | None  # exposure that moves to other documents, as a share of all; None: production is unknown
    top_changed: float | None  # share of the queries in which other documents are among the first three
    if_wrong: float  # what it loses to the order of plain clicks, if they are right
    if_right: float  # what plain clicks lose to it, if it is right

    @property
    def lines(self) -> list[str]:
        """Both in words."""
        known = self.moved is not None and self.top_changed is not None
        near = (
            f"On {self.n_queries:,} held-out queries it moves {self.moved:.1%} of the exposure to other documents than "
            f"production does, and changes which documents are the first three in {self.top_changed:.0%}."
        )
        stakes = (
            f"If the correction is wrong and plain clicks are right, it ranks {self.if_wrong:.1%} below them; if it is "
            f"right, plain clicks rank {self.if_right:.1%} below it (expected discounted relevance)."
        )
        return [*([near] if known else []), stakes]


def stakes(scores: Vector, plain: Vector, production: Vector | None, held_out: HeldOut) -> Stakes:
    """Compare scores of held-out documents, `[documents]`."""
    documents, queries = held_out.candidates("shown")
    own, clicked = _ranks(scores[documents], queries), _ranks(plain[documents], queries)
    moved = changed = None
    if production is not None:
        known = np.nan_to_num(production[documents], nan=np.nanmin(production, initial=0.0) - 1)
        shown = _ranks(known, queries)
        exposure = np.abs(discount(own) - discount(shown)).sum() / 2
        moved = float(exposure / discount(shown).sum())
        differs = (own < TOP) != (shown < TOP)
        changed = float((np.bincount(queries, differs, held_out.n_queries) > 0).mean())
    return Stakes(
        held_out.n_queries,
        moved,
        changed,
        _loss(clicked, own, shares(plain[documents], queries)),
        _loss(own, clicked, shares(scores[documents], queries)),
    )


def _loss(best: NDArray, other: NDArray, relevance: Vector) -> float:
    worth = float((discount(best) * relevance).sum())
    return 1 - float((discount(other) * relevance).sum()) / worth


def discount(ranks: NDArray) -> Vector:
    """Exposure of ranks that count from 0."""
    return 1 / np.log2(ranks + 2)


def shares(scores: Vector, queries: NDArray[np.int64]) -> Vector:
    """Softmax within queries."""
    highest = np.full(queries.max(initial=0) + 1, -np.inf)
    np.maximum.at(highest, queries, scores)
    odds = np.exp(scores - highest[queries])
    return odds / np.bincount(queries, odds)[queries]


def _ranks(scores: Vector, queries: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ranks within queries, from 0; queries are sorted."""
    order = np.lexsort((-scores, queries))
    starts = np.searchsorted(queries, queries)
    ranks = np.empty(len(scores), dtype=np.int64)
    ranks[order] = np.arange(len(scores)) - starts[order]
    return ranks
