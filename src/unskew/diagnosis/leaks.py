r"""Leaks: features that contain the position or the clicks.

**Position.** A feature whose order within a list is almost always the shown order is the production score, its rank, or
a copy. A ranker with this feature learns to repeat production, and position and relevance cannot be separated.

**Clicks.** A feature computed from clicks reintroduces their bias, and if it was computed from the clicks of this log,
the ranker learns the answer by heart. Noise limits the correlation of *any* property of a document with its counted
click rate: two random halves of the sessions give two rates, and if they correlate by $\rho$, the rate of all sessions
correlates with the true rate by at most $\sqrt{2\rho/(1+\rho)}$. A feature above that limit contains the noise too: it
was computed from these clicks. A feature that nearly reaches the limit, and correlates with clicks more than the
position does, was probably computed from clicks of similar sessions. All correlations are rank correlations.

Limits: a leak that is noisy, or spread over several features, is not found; and with very many sessions per document
the limit is 1, so that "these very clicks" and "earlier clicks" look the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.stats import spearmanr

from unskew.data.clicks.click_log import ClickLog
from unskew.data.transformed import plain_numbers
from unskew.diagnosis.click_kinds import showings_of
from unskew.diagnosis.click_matrix import check_counts
from unskew.diagnosis.logging_policy import shown_pairs
from unskew.propensities.curve import NotIdentified
from unskew.reporting.answers import BAD, GOOD

Vector = NDArray[np.float64]

ALMOST_ALWAYS = 0.95  # share of document pairs of a list in the feature's order
NEARLY = 0.8  # of the highest possible correlation
MOST_DOCUMENTS = 50_000
FEWEST_DOCUMENTS = 50


@dataclass(frozen=True)
class PositionLeak:
    """A feature that encodes the position."""

    feature: str
    agreement: float  # share of document pairs of a list in the feature's order, or in its reverse


@dataclass(frozen=True, eq=False)
class PositionLeaks:
    """Agreement of single features with the shown order."""

    leaks: tuple[PositionLeak, ...]  # the worst first
    closest: PositionLeak  # the feature that agrees most, leak or not
    agreement: Vector  # [features], from 0.5

    def answer(self) -> tuple[str, str]:
        if self.leaks:
            worst = ", ".join(f"{leak.feature} ({leak.agreement:.1%} of pairs)" for leak in self.leaks[:3])
            return f"yes: {worst}", BAD
        return f"no: {self.closest.feature} is closest, {self.closest.agreement:.0%} of pairs", GOOD


@dataclass(frozen=True)
class ClickLeak:
    """A feature that was probably computed from clicks."""

    feature: str
    correlation: float  # of ranks, with the click rate of documents
    of_these_clicks: bool  # above the limit for any property of the document


@dataclass(frozen=True, eq=False)
class ClickLeaks:
    """Correlation of single features with click rates."""

    leaks: tuple[ClickLeak, ...]  # the worst first
    ceiling: float  # highest correlation that a property of documents can have with counted click rates
    closest: ClickLeak  # the feature that correlates most with clicks, leak or not
    of_position: float  # correlation of the mean position with click rates
    n_documents: int

    def answer(self) -> tuple[str, str]:
        if not self.leaks:
            closest = f"{self.closest.feature} is closest, correlation {self.closest.correlation:.2f}"
            return f"no: {closest} of at most {self.ceiling:.2f}", GOOD
        worst = ", ".join(
            f"{leak.feature} (correlation {leak.correlation:.2f}"
            f"{', using these very clicks' if leak.of_these_clicks else ''})"
            for leak in self.leaks[:3]
        )
        return f"yes: {worst}; at most {self.ceiling:.2f} is plausible", BAD


def position_leaks(log: ClickLog, *, seed: int = 0) -> PositionLeaks:
    """Features whose order is the shown order, on lists that no intervention changed."""
    if not log.n_features:
        raise NotIdentified("the log has no features that could leak")
    pairs = shown_pairs(log, np.random.default_rng(seed))
    features = plain_numbers(log)
    upper, lower = features[pairs.upper], features[pairs.lower]
    agreement = (upper > lower).mean(axis=0) + 0.5 * (upper == lower).mean(axis=0)
    agreement = np.maximum(agreement, 1 - agreement)
    order = np.argsort(-agreement, kind="stable").tolist()
    ranked = [PositionLeak(feature_name(log, column), float(agreement[column])) for column in order]
    return PositionLeaks(
        tuple(leak for leak in ranked if leak.agreement >= ALMOST_ALWAYS), ranked[0], agreement.astype(np.float64)
    )


def click_leaks(log: ClickLog, *, seed: int = 0) -> ClickLeaks:
    """Features that correlate with counted clicks more than a property of the document should."""
    check_counts(log)
    if not log.n_features:
        raise NotIdentified("the log has no features that could leak")
    rng = np.random.default_rng(seed)
    documents, shown, clicks, position = _counted(log)
    some = np.flatnonzero(shown >= 2)
    if len(some) < FEWEST_DOCUMENTS:
        raise NotIdentified(
            f"only {len(some)} documents were shown twice or more: without repeated showings, noise and a feature "
            "computed from clicks cannot be separated"
        )
    if len(some) > MOST_DOCUMENTS:
        some = np.sort(rng.choice(some, MOST_DOCUMENTS, replace=False))
    shown, clicks = shown[some], clicks[some]
    if np.ptp(clicks / shown) == 0:
        raise NotIdentified("all documents are clicked equally often: no feature can correlate with that")
    ceiling = _ceiling(clicks, shown, rng)
    rates = clicks / shown
    of_position = abs(_correlation(position[some], rates))
    columns = plain_numbers(log)[documents[some]].T
    correlations = np.array([abs(_correlation(column, rates)) for column in columns])
    least = ceiling + 3 / np.sqrt(len(some)) if ceiling < 1 else np.inf  # three standard errors
    ranked = [
        ClickLeak(feature_name(log, column), float(correlations[column]), bool(correlations[column] > least))
        for column in np.argsort(-correlations, kind="stable").tolist()
    ]
    leaks = tuple(leak for leak in ranked if leak.correlation >= max(NEARLY * ceiling, of_position))
    return ClickLeaks(leaks, ceiling, ranked[0], of_position, len(some))


def feature_name(log: ClickLog, column: int) -> str:
    """The name of a feature."""
    return log.feature_names[column] if log.feature_names else f"feature {column}"


def _counted(log: ClickLog) -> tuple[NDArray, Vector, Vector, Vector]:
    """Shown documents, with their impressions, clicks and mean position."""
    showings = showings_of(log)
    shown, clicks = (np.rint(counts.sum(axis=1)) for counts in (showings.shown, showings.clicks))
    places = showings.shown @ showings.positions
    documents = np.flatnonzero(shown > 0)
    return documents, shown[documents], np.minimum(clicks, shown)[documents], places[documents] / shown[documents]


def _ceiling(clicks: Vector, shown: Vector, rng: Generator) -> float:
    """The highest correlation of counted rates with anything that is independent of their noise."""
    first = shown.astype(np.int64) // 2
    clicked = rng.hypergeometric(clicks.astype(np.int64), (shown - clicks).astype(np.int64), first)
    half = max(_correlation(clicked / first, (clicks - clicked) / (shown - first)), 0.0)
    return float(np.sqrt(2 * half / (1 + half)))


def _correlation(one: NDArray, other: NDArray) -> float:
    """Rank correlation; 0 for a constant."""
    constant = np.ptp(one) == 0 or np.ptp(other) == 0
    return 0.0 if constant else float(spearmanr(one, other).statistic)
