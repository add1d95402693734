"""Users whose clicks depend on each other: cascade, dependent click, dynamic Bayesian and user browsing.

They scan down the list, and what they did above decides whether they continue. Single sessions are drawn position by
position, all sessions at once; expectations are computed exactly by recursion over positions.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from unskew.options import NotNegative, Probabilities, Probability
from unskew.simulation.browsing import EYE_TRACKING, Browsing, Expectation, GradedUser, Matrix, Shown, extend

# Probability that the document at a rank is examined, by the distance to the last click: one position, two, …; last: no
# click yet (Dupret and Piwowarski, SIGIR 2008).
BROWSING_TABLE = (
    (1.0,),
    (0.98, 1.0),
    (1.0, 0.62, 0.95),
    (1.0, 0.77, 0.42, 0.82),
    (1.0, 0.92, 0.55, 0.31, 0.69),
    (1.0, 0.96, 0.63, 0.40, 0.22, 0.54),
    (1.0, 0.99, 0.73, 0.46, 0.29, 0.17, 0.47),
    (1.0, 1.0, 0.89, 0.52, 0.35, 0.24, 0.14, 0.43),
    (1.0, 1.0, 0.95, 0.68, 0.40, 0.29, 0.19, 0.12, 0.41),
    (1.0, 1.0, 1.0, 0.96, 0.52, 0.36, 0.27, 0.18, 0.12, 0.43),
)


class DownwardUser(GradedUser):
    """Starts at the top; after each document, examines the next one or leaves."""

    independent = False

    @abstractmethod
    def continuation(self, shown: Shown) -> tuple[Matrix, Matrix]:
        """Probability of continuing after a click and after a skip, each `[lists, docs]`."""

    def expect(self, shown: Shown) -> Expectation:
        attraction = self.attraction(shown)
        after_click, after_skip = self.continuation(shown)
        looking_on = attraction * after_click + (1 - attraction) * after_skip
        still_there = np.cumprod(looking_on[:, :-1], axis=1)
        reached = np.concatenate([np.ones((len(attraction), 1)), still_there], axis=1)
        examination = np.where(shown.mask, reached[:, : shown.n_docs], 0.0)
        return Expectation(examination, attraction, examination * attraction)

    def browse(self, shown: Shown, lists: NDArray[np.int64], rng: Generator) -> Browsing:
        attraction = self.attraction(shown)
        after_click, after_skip = self.continuation(shown)
        # One draw u per document decides everything: a click if u < a; then u/a is uniform, otherwise (u-a)/(1-a) is.
        stay_clicked = attraction * after_click
        stay_skipped = attraction + (1 - attraction) * after_skip
        draws = rng.random((shown.n_docs, len(lists)))
        seen, clicks = np.empty_like(draws, dtype=bool), np.empty_like(draws, dtype=bool)
        looking = np.ones(len(lists), dtype=bool)
        for place, draw in enumerate(draws):
            wanted = draw < attraction[:, place][lists]
            seen[place] = looking & shown.mask[:, place][lists]
            clicks[place] = looking & wanted
            stays = draw < np.where(wanted, stay_clicked[:, place][lists], stay_skipped[:, place][lists])
            looking = looking & stays
        return Browsing(clicks=clicks.T, seen=seen.T)


@dataclass(kw_only=True, eq=False)
class Cascade(DownwardUser):
    """Scans down the list until the first click (Craswell et al. 2008).

    Attributes:
        persistence: probability of continuing after a document that was not clicked.
    """

    persistence: Probability = 1.0

    def continuation(self, shown: Shown) -> tuple[Matrix, Matrix]:
        return np.zeros(shown.mask.shape), np.full(shown.mask.shape, self.persistence)


@dataclass(kw_only=True, eq=False)
class DependentClick(DownwardUser):
    r"""Continues after a click at rank $k$ with probability $\lambda_k = (k+1)^{-\eta}$, always after a skip (DCM).

    Attributes:
        power: $\eta$; 0: everything is examined.
        looks_on: $\lambda$ from the top down, instead of that formula.
    """

    power: NotNegative = 1.0
    looks_on: Probabilities | None = None

    def continuation(self, shown: Shown) -> tuple[Matrix, Matrix]:
        rank = np.arange(1, shown.n_docs + 1)
        after_click = (rank + 1.0) ** -self.power if self.looks_on is None else extend(self.looks_on, shown.n_docs)
        return np.broadcast_to(after_click, shown.mask.shape), np.ones(shown.mask.shape)


@dataclass(kw_only=True, eq=False)
class DynamicBayesian(DownwardUser):
    r"""Leaves when a clicked document satisfies, else continues with fixed probability (DBN, Chapelle and Zhang 2009).

    Attributes:
        satisfaction: probability that a clicked document of the highest grade satisfies; others in proportion to
            their relevance without noise.
        persistence: probability of continuing if not satisfied.
    """

    satisfaction: Probability = 0.5
    persistence: Probability = 0.9

    def continuation(self, shown: Shown) -> tuple[Matrix, Matrix]:
        unsatisfied = 1 - self.satisfaction * self.usefulness(shown.grades)
        return self.persistence * unsatisfied, np.full(shown.mask.shape, self.persistence)


@dataclass(kw_only=True, eq=False)
class UserBrowsing(GradedUser):
    r"""Examines by rank and by the distance to the last click (UBM, Dupret and Piwowarski 2008).

    $P(o_k \mid \text{last click at } j) = d\,\gamma_{kj}^\eta + (1-d)\,\theta_k^\eta$ with the published $\gamma$.

    Attributes:
        power: $\eta$, severity of the bias; 0: everything is examined.
        dependence: $d$, how much the last click counts; 0 is the position-based user.
    """

    power: NotNegative = 1.0
    dependence: Probability = 1.0
    independent = False

    def position_curve(self, n_positions: int) -> Matrix | None:
        return extend(EYE_TRACKING, n_positions) ** self.power if self.dependence == 0 else None

    def table(self, n_positions: int) -> Matrix:
        """Probability of examination `[positions, last click]`; the last click is 0 for none, otherwise its rank."""
        gamma = np.ones((n_positions, n_positions + 1))
        for place in range(n_positions):
            known = BROWSING_TABLE[min(place, len(BROWSING_TABLE) - 1)]
            gamma[place, 0] = known[-1]
            for last in range(1, place + 1):
                distance = place + 1 - last
                gamma[place, last] = known[min(distance, len(known) - 1) - 1]
        curve = extend(EYE_TRACKING, n_positions)[:, None]
        return self.dependence * gamma**self.power + (1 - self.dependence) * curve**self.power

    def expect(self, shown: Shown) -> Expectation:
        attraction = self.attraction(shown)
        table = self.table(shown.n_docs)
        last = np.zeros((len(attraction), shown.n_docs + 1))  # probability of each position of the last click so far
        last[:, 0] = 1.0
        examination = np.zeros_like(attraction)
        for place in range(shown.n_docs):
            examination[:, place] = last @ table[place]
            last *= 1 - attraction[:, place, None] * table[place]
            last[:, place + 1] = examination[:, place] * attraction[:, place]
        examination = np.where(shown.mask, examination, 0.0)
        return Expectation(examination, attraction, examination * attraction)

    def browse(self, shown: Shown, lists: NDArray[np.int64], rng: Generator) -> Browsing:
        attraction = self.attraction(shown)
        table = self.table(shown.n_docs)
        draws = rng.random((shown.n_docs, len(lists)))
        seen, clicks = np.empty_like(draws, dtype=bool), np.empty_like(draws, dtype=bool)
        last = np.zeros(len(lists), dtype=np.int64)
        for place, draw in enumerate(draws):
            examination = table[place][last]
            seen[place] = (draw < examination) & shown.mask[:, place][lists]
            clicks[place] = draw < examination * attraction[:, place][lists]
            last = np.where(clicks[place], place + 1, last)
        return Browsing(clicks=clicks.T, seen=seen.T)
