r"""Display probabilities: how likely a policy shows each document at each position.

Probabilities are `[queries, docs, shown]`: of a document to be at a position, whatever the other documents.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from unskew.simulation.showings import Candidates, Index, top

Chances = NDArray[np.float64]

STEP = 0.25  # step of the integral; its error is about e^(-pi^2 / STEP)
BEFORE, AFTER = 34.0, 4.0  # margins of the integral before the fastest and after the slowest document, in log time


def of_one_order(candidates: Candidates, n_shown: int) -> Chances:
    """Probabilities of the order of the scores: 1 at the position of a document, otherwise 0."""
    places = top(candidates.scores, candidates.sizes, n_shown)
    queries, positions = np.nonzero(np.arange(n_shown) < candidates.sizes[:, None])
    found = np.zeros((*candidates.mask.shape, n_shown))
    found[queries, places[queries, positions], positions] = 1.0
    return found


def of_sampled_orders(candidates: Candidates, n_shown: int) -> Chances:
    """Probabilities of orders drawn from the Plackett-Luce model of the scores, see `plackett_luce`."""
    found = np.zeros((*candidates.mask.shape, n_shown))
    for query, size in enumerate(candidates.sizes):
        found[query, :size] = plackett_luce(candidates.scores[query, :size], n_shown)
    return found


def plackett_luce(scores: Chances, n_shown: int) -> Chances:
    r"""Probability of each document at each position, `[docs, shown]`, in the Plackett-Luce model.

    The model is a race: document $i$ arrives at a time $T_i$, exponential with rate $e^{s_i}$. It gets position $k$ if
    it arrives at a time $t$ at which exactly $k$ of the others have arrived:
    $\int_0^\infty P(\#\{j \ne i : T_j < t\} = k)\,e^{s_i} e^{-t e^{s_i}}\,dt$. In $\log t$ the trapezoidal rule is
    exact up to rounding, because the integrand is smooth and vanishes at both ends.

    >>> plackett_luce(np.log([3.0, 1.0]), 2).round(6).tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    """
    scores = np.asarray(scores, dtype=np.float64)
    n_docs, n_places = len(scores), min(n_shown, len(scores))
    found = np.zeros((n_docs, n_shown))
    if not n_docs:
        return found
    start, end = -np.logaddexp.reduce(scores) - BEFORE, -scores.min() + AFTER
    times = np.arange(start, end + STEP, STEP)
    pace = np.exp(np.minimum(scores[:, None] + times, 700.0))  # [docs, times], rate times time
    waiting = np.exp(-pace)
    arrived = -np.expm1(-pace)
    before = _arrivals(arrived, waiting, n_places)
    after = _arrivals(arrived[::-1], waiting[::-1], n_places)[::-1]
    others = np.zeros((n_docs, n_places, len(times)))  # probability that this many of the other documents have arrived
    for one in range(n_places):
        for other in range(n_places - one):
            others[:, one + other] += before[:-1, one] * after[1:, other]
    found[:, :n_places] = STEP * np.einsum("dkt,dt->dk", others, pace * waiting)
    return np.clip(found, 0.0, 1.0)


def _arrivals(arrived: Chances, waiting: Chances, n_places: int) -> Chances:
    """Probability that this many of the first documents have arrived, `[1 + docs, places, times]`."""
    n_docs, n_times = arrived.shape
    found = np.zeros((n_docs + 1, n_places, n_times))
    found[0, 0] = 1.0
    for document in range(n_docs):
        found[document + 1] = found[document] * waiting[document]
        found[document + 1, 1:] += found[document, :-1] * arrived[document]
    return found


def after_interventions(chances: Chances, sizes: Index, shares: Mapping[str, float]) -> Chances:
    """Display probabilities after interventions in these shares of the sessions.

    An intervention moves the document at one position to another with a probability that depends only on the length of
    the list, so probabilities are multiplied by a matrix.
    """
    if not shares:
        return chances
    mixed = chances.copy()
    for size in np.unique(sizes[sizes > 0]):
        moves = (1 - sum(shares.values())) * np.eye(size)
        for name, share in shares.items():
            moves += share * MOVES[name](int(size))
        of_size = sizes == size
        mixed[of_size, :, :size] = chances[of_size, :, :size] @ moves
    return mixed


def _swap_top(size: int) -> Chances:
    return sum((_swap(size, 0, partner) for partner in range(size)), np.zeros((size, size))) / size


def _swap_neighbours(size: int) -> Chances:
    if size == 1:
        return np.eye(1)
    return sum((_swap(size, upper, upper + 1) for upper in range(size - 1)), np.zeros((size, size))) / (size - 1)


def _shuffle(size: int) -> Chances:
    return np.full((size, size), 1 / size)


def _swap(size: int, one: int, other: int) -> Chances:
    order = np.arange(size)
    order[[one, other]] = order[[other, one]]
    return np.eye(size)[order]


MOVES = {"swap_top": _swap_top, "swap_neighbours": _swap_neighbours, "shuffle": _shuffle}
