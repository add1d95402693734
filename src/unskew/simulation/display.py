"""Display probabilities, and interventions: small deliberate changes of the shown order to measure bias.

Probabilities are `[queries, docs, shown]`: of a document to be at a position, whatever the other documents. An
intervention happens in a given share of the sessions and is recorded in the log. A session of `swap_top` draws the
other position from all positions, including the top (LBD, section 6.3): sessions without a change are its control
group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Real

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from unskew.options import check_choice
from unskew.simulation.showings import Candidates, Index, Showings, concatenate, in_slabs, top

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


def swap_top(showings: Showings, sizes: Index, rng: Generator) -> Showings:
    """Swap the first document with the one at a random position."""
    lists, partner, sessions = _spread(showings.sessions, sizes, rng)
    return _swapped(showings, lists, np.zeros_like(partner), partner, sessions)


def swap_neighbours(showings: Showings, sizes: Index, rng: Generator) -> Showings:
    """Swap two neighbors; a list of one document stays as it is."""
    lists, upper, sessions = _spread(showings.sessions, np.maximum(sizes - 1, 1), rng)
    return _swapped(showings, lists, upper, np.minimum(upper + 1, sizes[lists] - 1), sessions)


def shuffle(showings: Showings, sizes: Index, rng: Generator) -> Showings:
    """Show the documents in random order, a new one in each session."""
    n_shown = showings.places.shape[1]
    parts = [showings.select(showings.queries[:0])]
    for slab, _ in in_slabs(showings.sessions, n_shown):
        keys = np.where(np.arange(n_shown) < sizes[slab, None], rng.random((len(slab), n_shown)), np.inf)
        order = np.argsort(keys, axis=1)
        places = np.take_along_axis(showings.places[slab], order, axis=1)
        shown = replace(showings.select(slab), places=places, sessions=np.ones(len(slab), dtype=np.int64))
        parts.append(shown.merged())
    return concatenate(parts)


INTERVENTIONS: dict[str, Callable[[Showings, Index, Generator], Showings]] = {
    "swap_top": swap_top,
    "swap_neighbours": swap_neighbours,
    "shuffle": shuffle,
}


def check_interventions(shares: Mapping[str, float]) -> None:
    """Refuse unknown interventions and invalid shares."""
    for name, share in shares.items():
        check_choice(name, INTERVENTIONS, "intervention")
        if not isinstance(share, Real) or not 0 <= share <= 1:
            raise ValueError(f"the share of intervention '{name}' must be between 0 and 1, got {share}")
    if sum(shares.values()) > 1 + 1e-9:
        raise ValueError(f"the shares of interventions add up to {sum(shares.values()):g}, but may be at most 1")


def intervene(showings: Showings, sizes: Index, shares: Mapping[str, float], rng: Generator) -> Showings:
    """The lists after interventions, each in its share of the sessions; codes count from 1 in the order given.

    Args:
        sizes: shown documents of each list, `[lists]`.
    """
    if not shares:
        return showings
    chances = np.array([max(0.0, 1 - sum(shares.values())), *shares.values()])
    sessions = rng.multinomial(showings.sessions, chances / chances.sum())  # [lists, 1 + interventions]
    parts = [_nonempty(replace(showings, sessions=sessions[:, 0]))[0]]
    for code, name in enumerate(shares, start=1):
        drawn, lists = _nonempty(replace(showings, sessions=sessions[:, code]))
        changed = INTERVENTIONS[name](drawn, sizes[lists], rng)
        parts.append(replace(changed, interventions=np.full(changed.n_lists, code)))
    return concatenate(parts)


def _nonempty(showings: Showings) -> tuple[Showings, Index]:
    lists = np.flatnonzero(showings.sessions)
    return showings.select(lists), lists


def _spread(sessions: Index, n_choices: Index, rng: Generator) -> tuple[Index, Index, Index]:
    """Distribute the sessions of each list randomly over its choices: list, choice and number of sessions."""
    widest = int(n_choices.max(initial=1))
    chances = (np.arange(widest) < n_choices[:, None]) / n_choices[:, None]
    counts = rng.multinomial(sessions, chances)
    lists, choice = np.nonzero(counts)
    return lists, choice, counts[lists, choice]


def _swapped(showings: Showings, lists: Index, one: Index, other: Index, sessions: Index) -> Showings:
    places = showings.places[lists]
    rows = np.arange(len(lists))
    places[rows, one], places[rows, other] = showings.places[lists, other], showings.places[lists, one]
    return replace(showings.select(lists), places=places, sessions=sessions)
