"""Users whose clicks are independent given the list: position-based, trusting, from real clicks, distracted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from unskew.options import Count, Limits, NotEmpty, NotNegative, Probabilities, Probability
from unskew.simulation.browsing import (
    EYE_TRACKING,
    Expectation,
    GradedUser,
    IndependentUser,
    Matrix,
    Shown,
    check_grades,
    extend,
)

# P(click | grade, position) in TianGong-ST, rows grades 0 to 4 (Chen et al., KDD 2022, Figure 1).
REAL_CLICKS = np.array(
    [
        [0.590531, 0.086794, 0.085829, 0.066219, 0.022320, 0.003409, 0.004000, 0.002324, 0.001468, 0.002286],
        [0.496226, 0.151815, 0.014456, 0.066909, 0.003719, 0.006607, 0.005155, 0.003054, 0.002560, 0.002574],
        [0.541645, 0.097210, 0.035203, 0.021631, 0.014229, 0.007217, 0.011511, 0.014283, 0.008545, 0.004123],
        [0.611413, 0.123859, 0.074209, 0.029114, 0.055367, 0.050326, 0.004774, 0.007994, 0.028296, 0.014935],
        [0.742062, 0.162621, 0.241987, 0.039747, 0.013889, 0.032051, 0.008333, 0.002058, 0.009756, 0.003932],
    ]
)
Row = Annotated[int, Limits(0, 4)]


@dataclass(kw_only=True, eq=False)
class PositionBased(GradedUser, IndependentUser):
    r"""Examines position $k$ with probability $\theta_k^\eta$; clicks what is examined and relevant.

    Attributes:
        power: $\eta$, severity of the bias; 0: everything is examined.
        curve: $\theta$ from the top down; further positions use its last value.
    """

    power: NotNegative = 1.0
    curve: Probability | Probabilities = EYE_TRACKING

    def position_curve(self, n_positions: int) -> Matrix | None:
        return self.base_curve(n_positions)

    def base_curve(self, n_positions: int) -> Matrix:
        """Probability of examination if it depends on the position alone."""
        return extend(self.curve, n_positions) ** self.power

    def examined(self, curve: Matrix, shown: Shown) -> Matrix:  # noqa: ARG002
        """Probability of examination, from that of the position."""
        return curve

    def expect(self, shown: Shown) -> Expectation:
        curve, attraction = self.base_curve(shown.n_docs), self.attraction(shown)
        examination = np.where(shown.mask, self.examined(curve, shown), 0.0)
        on_top = self.examined(curve[:1], shown) * attraction
        return Expectation(examination, attraction, examination * attraction, on_top)


@dataclass(kw_only=True, eq=False)
class Trust(PositionBased):
    r"""Also clicks documents because they are ranked high (Agarwal et al. 2019; Vectorization, Eq. 12 to 14).

    $P(c) = \theta_k (\epsilon^+_k \gamma + \epsilon^-_k (1 - \gamma))$, where $\gamma$ is relevance without noise, and
    by default $\epsilon^+_k = 1 - (k+1)/100$ and $\epsilon^-_k = 0.65/k$ with $k$ counted from 1.

    Attributes:
        clicks_if_relevant: $\epsilon^+$, probability that an examined relevant document is clicked, from the top down.
        clicks_if_not: $\epsilon^-$, the same for an irrelevant document.
    """

    noise: Probability = 0.0
    clicks_if_relevant: Probabilities | None = None
    clicks_if_not: Probabilities | None = None

    def trust(self, n_positions: int) -> tuple[Matrix, Matrix]:
        """Probabilities that an examined document is clicked, if relevant and if not, at each position."""
        rank = np.arange(1, n_positions + 1)
        relevant, irrelevant = self.clicks_if_relevant, self.clicks_if_not
        return (
            np.maximum(1 - (rank + 1) / 100, 0.0) if relevant is None else extend(relevant, n_positions),
            0.65 / rank if irrelevant is None else extend(irrelevant, n_positions),
        )

    def expect(self, shown: Shown) -> Expectation:
        curve = self.base_curve(shown.n_docs)
        relevant, irrelevant = self.trust(shown.n_docs)
        attraction = self.attraction(shown)
        examination = np.where(shown.mask, curve, 0.0)
        clicks = examination * (relevant * attraction + irrelevant * (1 - attraction))
        on_top = curve[0] * (relevant[0] * attraction + irrelevant[0] * (1 - attraction))
        return Expectation(examination, attraction, clicks, np.where(shown.mask, on_top, 0.0))


@dataclass(kw_only=True, eq=False)
class RealClick(IndependentUser):
    """Clicks at the rate of a real log, by grade and position.

    Such rates do not determine examination. As the truth, the top position counts as always examined: attraction is the
    rate there, and examination is the rate at a position relative to it (at most 1, because the top has the highest
    rate of every row). There is no position curve, because that ratio depends on the grade.

    Attributes:
        rows: row of the matrix for grade 0, 1, 2, …; data with grades 0 to 2 may use (0, 2, 4).
    """

    rows: Annotated[Sequence[Row], NotEmpty] = (0, 1, 2, 3, 4)

    def check(self, grades: NDArray) -> None:
        check_grades(grades, len(self.rows) - 1)
        if (grades != np.floor(grades)).any():
            raise ValueError("the real click matrix has one row per whole grade, but some grades are fractions")

    def expect(self, shown: Shown) -> Expectation:
        places = np.minimum(np.arange(shown.n_docs), REAL_CLICKS.shape[1] - 1)
        rows = np.asarray(self.rows)[shown.grades.astype(np.int64)]
        clicks = np.where(shown.mask, REAL_CLICKS[rows, places], 0.0)
        attraction = np.where(shown.mask, REAL_CLICKS[rows, 0], 0.0)
        examination = np.where(shown.mask, REAL_CLICKS[rows, places] / REAL_CLICKS[rows, 0], 0.0)
        return Expectation(examination, attraction, clicks, attraction)


@dataclass(kw_only=True, eq=False)
class PageContext(PositionBased):
    r"""Examines less next to attractive neighbors: $P(o) = \theta_k^{\max(1 + s\,\bar a, 0)}$.

    $\bar a$ is the mean attraction of the shown neighbors without the document itself, so that only a method that uses
    the whole list can find the bias.

    Attributes:
        influence: $s$; 0 is the position-based user; below 0, attractive neighbors increase examination instead.
        window: number of neighbors on either side.
    """

    influence: float = 2.0
    window: Count = 1

    def position_curve(self, n_positions: int) -> Matrix | None:
        return self.base_curve(n_positions) if self.influence == 0 else None

    def expect(self, shown: Shown) -> Expectation:
        attraction = self.attraction(shown)
        exponent = np.maximum(1 + self.influence * neighbours_mean(attraction, shown.mask, self.window), 0.0)
        examination = np.where(shown.mask, self.base_curve(shown.n_docs) ** exponent, 0.0)
        return Expectation(examination, attraction, examination * attraction)


def neighbours_mean(values: Matrix, mask: NDArray[np.bool_], window: int) -> Matrix:
    """Mean over the shown documents up to `window` positions away, without the document itself; 0 if there are none."""
    sums, counts = np.zeros_like(values), np.zeros_like(values)
    for distance in range(1, min(window, values.shape[1] - 1) + 1):
        for here, there in (
            (slice(distance, None), slice(None, -distance)),
            (slice(None, -distance), slice(distance, None)),
        ):
            sums[:, here] += np.where(mask[:, there], values[:, there], 0.0)
            counts[:, here] += mask[:, there]
    return sums / np.maximum(counts, 1)
