"""Interventions: small deliberate changes of the shown order, so that bias can be measured.

Each happens in a given share of the sessions and is recorded in the log. A session of `swap_top` draws the other
position from all positions, including the top (LBD, section 6.3): sessions without a change are its control group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Real

import numpy as np
from numpy.random import Generator

from unskew.options import check_choice
from unskew.simulation.showings import Index, Showings, concatenate, in_slabs


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
