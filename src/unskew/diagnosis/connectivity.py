"""Connectivity: does this log identify relevance and examination at all?

If examination depends on a bias factor alone (the position, or the position together with a bias column) and relevance
on the document alone, then both are identified up to a common scale if and only if a graph is connected: its nodes are
the factors, and its edges are documents shown under both (Chen et al., Identifiability Matters, arXiv:2309.15560, for
equal feature vectors). Two graphs are checked: one by documents, which needs no model, and one by equal features, which
is valid only if relevance is a function of the features. A ranker with continuous features links more than that, by
similarity, but the log cannot check that assumption.

A disconnected graph can be repaired by showing documents under both parts (an intervention), or by treating two factors
as one (merging), which is wrong by as much as their examination differs. The number of sessions to change follows from
`ENOUGH_CLICKS` clicks on moved documents at the position with fewer clicks: a standard error of about a tenth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from unskew.data.clicks.click_log import ClickLog
from unskew.diagnosis.click_rates import ClickRates, click_rates, row_keys
from unskew.propensities.estimate import ENOUGH_CLICKS
from unskew.propensities.position_pairs import (
    Coverage,
    counted_impressions,
    intervention_coverage,
)
from unskew.reporting.answers import BAD, GOOD

Groups = tuple[tuple[str, ...], ...]

ENOUGH_LINKED = 100  # impressions on the weakest link
MOST_FACTORS = 2_000  # positions x levels; more are not checked


@dataclass(frozen=True)
class Link:
    """Two positions that an intervention, or a merge, would link."""

    one: int
    other: int
    share: float  # of as many sessions as the log has, to be swapped; above 1: the log is too short
    rate_ratio: float  # of their click rates, the smaller over the larger; 1: merging them seems harmless


@dataclass(frozen=True)
class WeakestLink:
    """The pair of positions whose shared documents limit the comparison of all positions most."""

    one: int
    other: int
    impressions: float  # of documents shown at both, at the position where they were shown less


@dataclass(frozen=True, eq=False)
class Connectivity:
    """Which bias factors can be compared through documents that were shown under several of them."""

    factor: str  # position, or position and a bias column
    groups: Groups  # factors that are linked by documents
    groups_by_features: Groups  # the same, when documents with equal features count as one
    links: tuple[Link, ...] = ()  # swaps that would connect all positions, cheapest first
    merges: tuple[Link, ...] = ()  # merges that would connect all positions, most similar first
    shuffle_share: float | None = None  # share of the sessions to shuffle instead of swapping
    weakest: WeakestLink | None = None  # of a connected graph of positions

    @property
    def connected(self) -> bool:
        """Whether relevance and examination are identified up to scale, for any ranker."""
        return len(self.groups) == 1

    @property
    def connected_by_features(self) -> bool:
        """The same, if relevance is a function of the features."""
        return len(self.groups_by_features) == 1

    def answer(self) -> tuple[str, str]:
        """Whether the positions are linked."""
        if not self.connected:
            by_features = "link them all" if self.connected_by_features else "do not link them either"
            return f"no: {len(self.groups)} groups that no document links; equal features {by_features}", BAD
        text, weak = f"yes: documents link all {len(self.groups[0])} positions", self.weakest
        if weak is None:
            return text, GOOD
        text += f"; weakest link {weak.one + 1}–{weak.other + 1}, {weak.impressions:,.0f} shared impressions"
        return text, GOOD if weak.impressions >= ENOUGH_LINKED else BAD


def connectivity(
    log: ClickLog,
    *,
    rates: ClickRates | None = None,
    coverage: Coverage | None = None,
    n_sessions: float | None = None,
) -> Connectivity:
    """Whether documents link the positions, and otherwise how to link them.

    Args:
        rates: click rates of this log, if already known.
        coverage: coverage of this log, if already known.
        n_sessions: number of sessions that the shares of interventions refer to; default: those of the log.
    """
    n_sessions = log.n_sessions if n_sessions is None else n_sessions
    rates = click_rates(log) if rates is None else rates
    groups, by_features = _both_graphs(log)
    if len(groups) == 1:
        coverage = intervention_coverage(log) if coverage is None else coverage
        return Connectivity("position", groups, by_features, weakest=_weakest(coverage))
    parts = [[int(name) for name in group] for group in groups]
    links = _tree(rates, parts, n_sessions, by="share")
    merges = _tree(rates, parts, n_sessions, by="merge")
    return Connectivity(
        "position",
        groups,
        by_features,
        links=links,
        merges=merges,
        shuffle_share=_share(float(rates.rates.min()), n_sessions),
    )


def connectivity_by(log: ClickLog, column: str) -> Connectivity:
    """Whether documents link the combinations of positions and levels of a bias column."""
    if column not in log.bias:
        raise ValueError(f"'{column}' is not a bias column of the log; there are: {', '.join(log.bias) or 'none'}")
    levels = log.bias[column].levels
    if levels is None:
        raise ValueError(f"bias column '{column}' holds numbers: group them into a few levels to compare them")
    if len(levels) * log.n_positions > MOST_FACTORS:
        raise ValueError(
            f"bias column '{column}' has {len(levels):,} levels, which makes more than {MOST_FACTORS:,} factors with "
            "the positions: merge rare levels"
        )
    groups, by_features = _both_graphs(log, column)
    return Connectivity(f"position and {column}", groups, by_features)


def _both_graphs(log: ClickLog, column: str | None = None) -> tuple[Groups, Groups]:
    """Groups of factors by documents, and by equal features."""
    chosen = counted_impressions(log, None)
    code = log.positions[chosen].astype(np.int64)
    levels: tuple[str, ...] = ("",)
    if column is not None:
        levels = log.bias[column].levels or ()
        code = code * len(levels) + log.bias[column].per_document(log.n_docs)[chosen].astype(np.int64)
    found, factor = np.unique(code, return_inverse=True)
    cells = [divmod(value, len(levels)) for value in found.tolist()]
    names = tuple(f"{position}, {levels[level]}".removesuffix(", ") for position, level in cells)
    documents = log.versions[chosen]
    groups = _groups(documents, factor, len(log.features), names)
    if len(groups) == 1 or not log.n_features:
        return groups, groups
    bits = np.ascontiguousarray(log.features.T + np.float32(0)).view(np.uint32)  # -0 is 0
    alike = np.unique(row_keys(bits), return_inverse=True)[1]
    return groups, _groups(alike[documents], factor, len(log.features), names)


def _groups(documents: NDArray, factor: NDArray[np.int64], n_documents: int, names: tuple[str, ...]) -> Groups:
    """Groups of linked factors, in order."""
    size = n_documents + len(names)
    ones = np.ones(len(documents), dtype=bool)
    graph = sparse.coo_array((ones, (documents.astype(np.int64), factor + n_documents)), shape=(size, size))
    _, part = csgraph.connected_components(graph.tocsr(), directed=False)
    part = part[n_documents:]
    order = dict.fromkeys(part.tolist())
    return tuple(tuple(name for name, own in zip(names, part, strict=True) if own == number) for number in order)


def _share(rate: float, n_sessions: float) -> float:
    """The share of the sessions that gives enough clicks at a position with this click rate."""
    return ENOUGH_CLICKS / max(rate * n_sessions, 1.0)  # a position without clicks counts as if it had one


def _tree(rates: ClickRates, parts: list[list[int]], n_sessions: float, *, by: str) -> tuple[Link, ...]:
    """The cheapest links that connect all parts."""
    rate = dict(zip(rates.positions.tolist(), rates.rates.tolist(), strict=True))
    costs = np.zeros((len(parts), len(parts)))
    chosen: dict[tuple[int, int], Link] = {}
    for first in range(len(parts)):
        for second in range(first + 1, len(parts)):
            links = [_link(a, b, rate, n_sessions) for a in parts[first] for b in parts[second]]
            cost = {"share": lambda link: link.share, "merge": lambda link: 2 - link.rate_ratio}[by]
            # Among equally good pairs, prefer neighbors: swapping them does the least harm.
            best = min(links, key=lambda link: (cost(link), abs(link.one - link.other)))
            chosen[first, second] = best
            costs[first, second] = cost(best) * (1 + 1e-6 * abs(best.one - best.other))
    tree = csgraph.minimum_spanning_tree(costs).tocoo()
    links = [chosen[min(a, b), max(a, b)] for a, b in zip(tree.row.tolist(), tree.col.tolist(), strict=True)]
    return tuple(sorted(links, key=lambda link: (link.share if by == "share" else -link.rate_ratio, link.one)))


def _link(one: int, other: int, rate: dict[int, float], n_sessions: float) -> Link:
    small, large = sorted((rate[one], rate[other]))
    return Link(one, other, _share(small, n_sessions), small / large if large > 0 else 1.0)


def _weakest(coverage: Coverage) -> WeakestLink | None:
    """The weakest link of the maximum spanning tree over all positions."""
    if len(coverage.positions) < 2:
        return None
    strength = np.where(coverage.documents > 0, coverage.impressions, 0.0)
    np.fill_diagonal(strength, 0.0)
    thin = np.divide(1.0, strength, out=np.zeros_like(strength), where=strength > 0)
    tree = csgraph.minimum_spanning_tree(thin).tocoo()
    number = int(np.argmax(tree.data))
    one, other = sorted((int(tree.row[number]), int(tree.col[number])))
    return WeakestLink(int(coverage.positions[one]), int(coverage.positions[other]), float(strength[one, other]))
