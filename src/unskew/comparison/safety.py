"""How far a ranker is from production, what is at stake, and how to make the choice of `auto` more certain.

All is read on held-out queries, without labels.

A document at rank $k$ has exposure $1 / \\log_2(k + 1)$. What a ranking is worth if a model is right is the mean over
queries of $\\sum_k p_k / \\log_2(k + 1)$, where $p$ is the model's softmax of relevance over the documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.comparison.against_production import TO_RANK_PRODUCTION, Standing
from unskew.comparison.choice import MEMBERS, Step
from unskew.data.clicks.click_log import ClickLog
from unskew.evaluation.criteria import CRITERIA
from unskew.evaluation.held_out import HeldOut, Vector

TOP = 3


@dataclass(frozen=True)
class Stakes:
    """A ranker beside production and beside raw clicks."""

    n_queries: int
    moved: float | None  # exposure that moves to other documents, as a share of all; None: production is unknown
    top_changed: float | None  # share of the queries in which other documents are among the first three
    if_wrong: float  # what it loses to the order of raw clicks, if they are right
    if_right: float  # what raw clicks lose to it, if it is right

    @property
    def lines(self) -> list[str]:
        """Both in words."""
        known = self.moved is not None and self.top_changed is not None
        near = (
            f"On {self.n_queries:,} held-out queries it moves {self.moved:.1%} of the exposure to other documents than "
            f"production does, and changes which documents are the first three in {self.top_changed:.0%}."
        )
        stakes = (
            f"If the correction is wrong and raw clicks are right, it ranks {self.if_wrong:.1%} below them; if it is "
            f"right, raw clicks rank {self.if_right:.1%} below it (expected discounted relevance)."
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


SWAPPED = 0.1  # share of the sessions in which the first document is swapped with another: a usual start


def surer_lines(
    log: ClickLog,
    standings: dict[str, Standing],
    steps: Sequence[Step],
    *,
    open_number: bool,
    criteria: bool,
    varied: bool,
) -> list[str]:
    """Advice, the most useful first.

    Args:
        standings: the choice against production, by criterion.
        steps: models that were compared by held-out clicks.
        open_number: the choice depends on a parameter that clicks do not identify.
        criteria: some criterion could rank production, or none may be used.
        varied: documents were shown at several positions.
    """
    lines = []
    if not criteria:
        lines.append(f"{TO_RANK_PRODUCTION}.")
    if not varied:
        lines.append(swapping(log))
    for name, entry in standings.items():
        if entry.verdict == "no clear difference" and entry.difference and entry.least is not None:
            more = ((entry.difference - entry.least) / entry.difference) ** 2
            lines.append(
                f"If the difference in {CRITERIA[name].title} is real, about {more:,.1f} times as many held-out "
                "queries would show it."
            )
    for step in steps:
        if not step.accepted and step.gain > 0:
            more = ((step.gain - step.low) / step.gain) ** 2
            lines.append(
                f"If the gain by {MEMBERS[step.method].part} is real, about {more:,.1f} times as many queries would "
                "show it."
            )
    if open_number:
        lines.append(
            "Clicks cannot separate a relevant document from one that attracts attention: judge 20 to 50 queries "
            "(low_rank, choose=judged), or record which documents were examined (attention)."
        )
    return lines


def swapping(log: ClickLog) -> str:
    """How much traffic to swap, and an upper bound on its cost.

    A swap moves the top document down and another one up: no session can lose more than its click at the top.
    """
    shown = np.broadcast_to(log.sessions[:, None], log.mask.shape)[log.mask]
    places = log.positions[log.mask]
    clicks = np.bincount(places, log.clicks[log.mask])
    rates = clicks / np.maximum(np.bincount(places, shown, minlength=len(clicks)), 1)
    cost = SWAPPED * rates[0] / max(float(rates.sum()), 1e-12)
    return (
        f"Swap the first document with one at a random position in {SWAPPED:.0%} of the sessions "
        f"({SWAPPED * log.n_sessions:,.0f} of {log.n_sessions:,.0f} in a log like this), and mark them. This costs at "
        f"most {cost:.1%} of the clicks (every click at the top in those sessions), and makes propensities, pair "
        "agreement and a verdict on production possible."
    )
