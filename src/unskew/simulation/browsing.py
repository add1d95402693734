r"""Browsing: the base classes of simulated users, and the arithmetic that they share.

A user gets lists `[lists, docs]` of grades with a mask and computes two things: expectations (`expect`, exact
probabilities, never sampled) and single sessions (`browse`). Padding is never examined and never clicked. Positions
count from 0. The examination curve is as long as in the eye-tracking study; positions below use its last value.

Users are dataclasses whose fields are their hyper-parameters. `fit` returns a fitted copy and does not change the
original; a user that needs nothing from the data returns itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from unskew.data.judged.judged_set import JudgedSet
from unskew.options import Positive, Probability, check_fields

Matrix = NDArray[np.float64]
Flags = NDArray[np.bool_]

# How often the results of a page were examined, from the top down (Joachims et al. 2005, by eye tracking).
EYE_TRACKING = (0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06)


@dataclass(frozen=True, eq=False)
class Shown:
    """Lists as a user sees them."""

    grades: Matrix  # [lists, docs]
    mask: Flags  # [lists, docs]; False = padding
    traits: Matrix | None = None  # [lists, docs], visual attraction besides relevance; None: there is none

    @property
    def n_docs(self) -> int:
        return self.mask.shape[1]


@dataclass(frozen=True, eq=False)
class Expectation:
    """Exact probabilities of each shown document, 0 in padding."""

    examination: Matrix  # [lists, docs], of examination
    attraction: Matrix  # [lists, docs], of being relevant to the user
    clicks: Matrix  # [lists, docs], of a click
    # [lists, docs], of a click if it were swapped with the first document; None: depends on the page
    clicks_on_top: Matrix | None = None


@dataclass(frozen=True, eq=False)
class Browsing:
    """The outcome of single sessions."""

    clicks: Flags  # [sessions, docs]
    seen: Flags  # [sessions, docs]


class Fittable:
    """A user or a policy, which may need training data."""

    __post_init__ = check_fields

    @property
    def fitted(self) -> bool:
        """Whether it is fitted, or needs no fitting."""
        return True

    def fit(self, train: JudgedSet) -> Self:  # noqa: ARG002  most need nothing from the data
        """The same, fitted to the data if necessary."""
        return self


class User(Fittable, ABC):
    """A user model: examines lists and clicks."""

    independent: ClassVar[bool]  # whether clicks of one session are independent given the list

    def check(self, grades: NDArray) -> None:
        """Refuse grades that the user model does not cover."""

    def document_traits(self, judged: JudgedSet) -> Matrix | None:  # noqa: ARG002
        """Visual attraction besides relevance, one number per document; None: there is none."""
        return None

    def position_curve(self, n_positions: int) -> Matrix | None:  # noqa: ARG002
        """Probability of examination at each position, if it depends on nothing else; otherwise None."""
        return None

    @abstractmethod
    def expect(self, shown: Shown) -> Expectation:
        """The exact expectation."""

    @abstractmethod
    def browse(self, shown: Shown, lists: NDArray[np.int64], rng: Generator) -> Browsing:
        """One session per entry of `lists`, the numbers of the lists to show."""


class IndependentUser(User):
    """A user whose clicks are independent given the list, so that they can be counted without drawing sessions."""

    independent = True

    def browse(self, shown: Shown, lists: NDArray[np.int64], rng: Generator) -> Browsing:
        expected = self.expect(shown)
        draws = rng.random((shown.n_docs, len(lists)))
        seen, clicks = np.empty_like(draws, dtype=bool), np.empty_like(draws, dtype=bool)
        for place, draw in enumerate(draws):
            # One draw decides both: given u < P(seen), u < P(click) has probability P(click) / P(seen).
            seen[place] = draw < expected.examination[:, place][lists]
            clicks[place] = draw < expected.clicks[:, place][lists]
        return Browsing(clicks=clicks.T, seen=seen.T)


def count_sessions(
    expected: Expectation, sessions: NDArray[np.int64], rng: Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Clicks and examination `[lists, docs]` over all sessions of each list, drawn at once for an independent user."""
    clicks = rng.binomial(sessions[:, None], expected.clicks)
    tiny = np.finfo(np.float64).tiny  # if a click is certain, no session remains without one
    seen_unclicked = (expected.examination - expected.clicks) / np.maximum(1 - expected.clicks, tiny)
    return clicks, clicks + rng.binomial(sessions[:, None] - clicks, np.minimum(seen_unclicked, 1.0))


@dataclass(kw_only=True, eq=False)
class GradedUser(User):
    r"""Finds a document of grade $y$ relevant with probability $\epsilon + (1-\epsilon)\frac{2^y-1}{2^{y_{max}}-1}$.

    Attributes:
        noise: $\epsilon$, probability that a document of grade 0 is found relevant.
        max_grade: $y_{max}$, the highest grade of the scale.
    """

    noise: Probability = 0.1
    max_grade: Positive = 4.0

    def check(self, grades: NDArray) -> None:
        check_grades(grades, self.max_grade)

    def usefulness(self, grades: NDArray) -> Matrix:
        """Relevance without noise, 0 for grade 0 and 1 for the highest grade."""
        return (np.exp2(grades, dtype=np.float64) - 1) / (np.exp2(self.max_grade) - 1)

    def attraction(self, shown: Shown) -> Matrix:
        """Probability of being found relevant, 0 in padding."""
        return np.where(shown.mask, self.noise + (1 - self.noise) * self.usefulness(shown.grades), 0.0)


def extend(curve: float | Sequence[float] | Matrix, n_positions: int) -> Matrix:
    """A curve for this many positions: truncated, or extended by its last value; one number is used for all."""
    values = np.atleast_1d(np.asarray(curve, dtype=np.float64))
    return values[np.minimum(np.arange(n_positions), len(values) - 1)]


def check_grades(grades: NDArray, max_grade: float) -> None:
    """Refuse grades outside the scale."""
    bad = ~((grades >= 0) & (grades <= max_grade))
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"document {row} has grade {grades[row]:g}, outside the scale 0 to {max_grade:g}: "
            "pass the highest grade of the data as max_grade"
        )
