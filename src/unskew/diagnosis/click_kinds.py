r"""The click matrix of a log without judgements: documents that moved show the effect of positions on each kind.

Only documents that were shown at several positions count, moved by an intervention or by different rankers. In a log
with a single order, position and document are confounded, and nothing is identified.

Half of the impressions groups the documents into kinds by their attractiveness under $P(c) = a_d\,\theta_k$. The other
half gives each kind its own curve: $a_d\,\theta^g_k$ is fitted with one $a_d$ per document, so that it does not matter
which documents were shown where. If scalar examination holds, the curves are equal up to noise, and the matrix
$\bar a_g\,\theta^g_k$ has rank one. The fit maximizes the Poisson likelihood, which only requires the right means, and
its covariance is that of the scores of queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import sparse

from unskew.data.clicks.click_log import ClickLog
from unskew.diagnosis.click_matrix import ClickMatrix, Index, Matrix, check_counts
from unskew.propensities.curve import NotIdentified
from unskew.propensities.position_pairs import components, counted_impressions, spell

FIT_STEPS = 1_000
CLOSE = 1e-7


@dataclass(frozen=True, eq=False)
class Showings:
    """Clicks and impressions of documents at each position."""

    queries: Index  # [documents]
    positions: Index  # [positions]
    clicks: sparse.csr_array  # [documents, positions]
    shown: sparse.csr_array  # [documents, positions]

    def select(self, documents: NDArray) -> Showings:
        """Some of the documents; their queries count from 0 without gaps."""
        _, queries = np.unique(self.queries[documents], return_inverse=True)
        return Showings(queries, self.positions, self.clicks[documents], self.shown[documents])

    @property
    def moved(self) -> NDArray[np.bool_]:
        """Which documents were shown at several positions."""
        return np.diff(self.shown.indptr) > 1

    def links(self) -> list[tuple[int, ...]]:
        """Groups of positions that are linked by documents that moved."""
        here = sparse.csr_array((self.shown > 0).astype(np.float64))
        return components((here.T @ here).toarray() > 0, self.positions)


def click_matrix_without_grades(
    log: ClickLog, *, n_kinds: int = 5, seed: int = 0, counted: NDArray[np.bool_] | None = None
) -> ClickMatrix:
    """Click rates of more and less attractive documents at each position, from documents shown at several positions.

    Args:
        n_kinds: number of kinds, with equally many impressions; fewer if some would not link all positions.
        seed: seed of the two halves.
        counted: impressions that count, `[lists, docs]`; default: all.
    """
    check_counts(log)
    first, second = _halves(_moved_documents(log, counted), np.random.default_rng(seed))
    seen = _fit_curve(first)
    if not (seen > 0).all():
        raise NotIdentified(
            f"documents that moved were never clicked at {spell(first.positions[seen == 0])}: swap or shuffle more "
            "sessions, or leave it out (counted=…)"
        )
    # Shrunk to the mean by half a click: a document without clicks need not be worthless.
    exposed, clicks = np.asarray(first.shown @ seen), _sums(first.clicks, 1)
    attraction = (clicks + 0.5) / (exposed + 0.5 * exposed.sum() / clicks.sum())
    weights = _sums(second.shown, 1)
    for n in range(n_kinds, 1, -1):
        kind = _equal_parts(attraction, weights, n)
        parts = [second.select(kind == number) for number in range(int(kind.max()) + 1)]
        if len(parts) > 1 and all(_tells_all_positions(part) for part in parts):
            return _matrix_of(parts)
    raise NotIdentified(
        "fewer than two kinds of documents moved between all positions and were clicked at each: swap or shuffle more "
        "sessions, leave the last positions out (counted=…), or pass grades"
    )


def _matrix_of(parts: list[Showings]) -> ClickMatrix:
    curves = [_fit_curve(part) for part in parts]
    levels = [_sums(part.clicks, 0).sum() / (part.shown @ seen).sum() for part, seen in zip(parts, curves, strict=True)]
    return ClickMatrix(
        kinds=tuple(f"kind {number + 1} of {len(parts)}" for number in range(len(parts))),
        positions=parts[0].positions,
        rates=np.array([level * seen for level, seen in zip(levels, curves, strict=True)]),
        impressions=np.array([_sums(part.shown, 0) for part in parts]),
        covariances=np.array([_covariance(part, seen) for part, seen in zip(parts, curves, strict=True)]),
    )


def showings_of(log: ClickLog, counted: NDArray[np.bool_] | None = None) -> Showings:
    """The showings of every version of a document."""
    chosen = counted_impressions(log, counted)
    positions, places = np.unique(log.positions[chosen].astype(np.int64), return_inverse=True)
    shape = (len(log.features), len(positions))
    where = (log.versions[chosen].astype(np.int64), places)
    sessions = np.broadcast_to(log.sessions[:, None], chosen.shape)[chosen].astype(np.float64)
    shown = sparse.csr_array(sparse.coo_array((sessions, where), shape=shape))
    clicks = sparse.csr_array(sparse.coo_array((log.clicks[chosen].astype(np.float64), where), shape=shape))
    return Showings(log.version_queries, positions, clicks, shown)


def _moved_documents(log: ClickLog, counted: NDArray[np.bool_] | None) -> Showings:
    showings = showings_of(log, counted)
    found = showings.select(showings.moved)
    if not found.shown.shape[0]:
        raise NotIdentified(
            "every document was shown at only one position, so the effects of position and document cannot be "
            "separated. Pass grades, or a log in which the order was changed (interventions, several rankers)"
        )
    groups = found.links()
    if len(groups) > 1:
        raise NotIdentified(
            f"no document moved between {spell(groups[0])} and {spell(groups[1])}: pass grades, or count only "
            "positions between which documents moved (counted=…)"
        )
    return found


def _halves(showings: Showings, rng: Generator) -> tuple[Showings, Showings]:
    """Two random halves of the impressions."""
    # Counts have the same structure, so that clicks and impressions of a cell have the same index.
    shown = showings.shown.tocoo()
    cells = np.rint(shown.data).astype(np.int64)
    clicks = np.rint(np.asarray(showings.clicks[shown.coords])).reshape(-1).astype(np.int64)
    first = rng.binomial(cells, 0.5)
    clicked = rng.hypergeometric(clicks, cells - clicks, first)

    def part(clicks: NDArray, cells: NDArray) -> Showings:
        new = [sparse.csr_array(sparse.coo_array((data, shown.coords), shape=shown.shape)) for data in (clicks, cells)]
        return Showings(showings.queries, showings.positions, *(counts.astype(np.float64) for counts in new))

    return part(clicked, first), part(clicks - clicked, cells - first)


def _fit_curve(showings: Showings) -> Matrix:
    r"""$\theta$ of $a_d\,\theta_k$ by maximum likelihood (Poisson), the largest is 1; 0 if nothing was clicked."""
    clicks_of, clicks_at = _sums(showings.clicks, 1), _sums(showings.clicks, 0)
    seen = np.ones(len(showings.positions))
    for _ in range(FIT_STEPS):
        attraction = _ratio(clicks_of, showings.shown @ seen)
        updated = _ratio(clicks_at, showings.shown.T @ attraction)
        updated = updated / max(updated.max(), np.finfo(float).tiny)
        done = np.abs(updated - seen).max() < CLOSE
        seen = updated
        if done:
            break
    return seen


def _covariance(showings: Showings, seen: Matrix) -> Matrix:
    r"""Covariance of $\log\theta$ around its mean over positions, from the scores of queries."""
    exposed = sparse.csr_array(showings.shown * seen)
    clicks = _sums(showings.clicks, 1)
    share = sparse.diags_array(_ratio(np.ones(len(clicks)), np.asarray(exposed.sum(axis=1)).reshape(-1))) @ exposed
    expected = sparse.diags_array(clicks) @ share
    information = np.diag(_sums(expected, 0)) - (expected.T @ share).toarray()
    of_query = sparse.coo_array((np.ones(len(clicks)), (showings.queries, np.arange(len(clicks)))))
    scores = (of_query @ (showings.clicks - expected)).toarray()
    n_positions = len(seen)
    mean = np.full((n_positions, n_positions), 1 / n_positions)
    inverse = np.linalg.inv(information + mean * np.trace(information)) - mean / np.trace(information)  # no level
    covariance = inverse @ (scores.T @ scores) @ inverse
    return (covariance + covariance.T) / 2


def _tells_all_positions(showings: Showings) -> bool:
    clicked = showings.select(_sums(showings.clicks, 1) > 0)  # a document without clicks links no positions
    return bool((_sums(clicked.clicks, 0) > 0).all()) and len(clicked.links()) == 1


def _equal_parts(values: NDArray, weights: NDArray, n_parts: int) -> Index:
    """The part of each value, from the lowest, of nearly equal weight; equal values share a part."""
    _, member = np.unique(values, return_inverse=True)
    mass = np.bincount(member, weights=weights)
    middle = (np.cumsum(mass) - mass / 2) / mass.sum()
    _, part = np.unique(np.minimum((middle * n_parts).astype(np.int64), n_parts - 1), return_inverse=True)
    return part[member]


def _sums(counts: sparse.sparray, axis: int) -> Matrix:
    return np.asarray(counts.sum(axis=axis), dtype=np.float64).reshape(-1)


def _ratio(above: NDArray, below: NDArray) -> Matrix:
    """Ratios; 0 if the denominator is 0."""
    return np.divide(above, below, out=np.zeros(len(above)), where=np.asarray(below) > 0)
