r"""Coupling: does examination depend on the document's features, and how much?

Documents that were shown at several positions show this: if examination depends on the position alone, a document's
clicks are distributed over its positions as $p_{dk} \propto n_{dk}\theta_k$, whatever its relevance; $n_{dk}$ are its
impressions. Coupling changes that: $p_{dk} \propto n_{dk}\,\theta_k^{1 + u(x_d)}$, the form of the paper (LBD, section
6.1), where the pull $u$ is linear in standardized features. The direction of $u$ is learned on one half of the queries,
by one step of ridge regression from no coupling. The other half tests it: it fits its own curve, and a score test
decides whether the clicks follow $u$. Then the halves are exchanged. The test only requires the right means, not
independent clicks, because its variance is that between queries.

Limits: a pull that is not linear in the features, or that is the same at all positions (and so indistinguishable from
relevance), is not found. Trust bias changes the curve by relevance, which features predict, so it is found
here as coupling too.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.transformed import plain_numbers
from unskew.diagnosis.click_kinds import showings_of
from unskew.diagnosis.click_matrix import check_counts
from unskew.diagnosis.click_rank import NONE, Trust
from unskew.diagnosis.leaks import feature_name
from unskew.propensities.curve import NotIdentified
from unskew.reporting.answers import BAD, GOOD, PLAIN

Matrix = NDArray[np.float64]
Index = NDArray[np.int64]

NOTABLE = 0.1  # of the position's own effect: with less, a curve by position corrects nine tenths of the bias
MOST_CELLS = 4_000_000  # documents x positions to use; more would not improve the answer
EXPECTED_PULL = 0.3  # standard deviation of the pull that the ridge expects
WIDEST_FEATURE = 3.0  # standardized features are clipped here: one outlier must not determine the direction
FEWEST_QUERIES = 20  # in each half, for a variance between queries
NEWTON_STEPS = 50
N_STRONGEST = 3  # features that are named


@dataclass(frozen=True)
class Coupling:
    """How much the exponent of examination varies with the features of documents."""

    found: bool  # whether the held-out test rejects "position alone"
    p_value: float  # one-sided
    strength: float  # standard deviation of the pull u in theta^(1 + u), from held-out queries
    low: float
    high: float
    level: float
    features: tuple[str, ...]  # with the strongest pull, strongest first
    n_documents: int  # shown at several positions and clicked
    n_queries: int

    @property
    def notable(self) -> bool | None:
        """Whether it is large enough to matter; None: the log can neither show nor exclude it."""
        if self.found or self.high < NOTABLE:
            return self.found and self.strength >= NOTABLE
        return None

    def answer(self, trust: Trust | None = None) -> tuple[str, str]:
        """Whether examination depends on the document; `trust`: what the log shows of trust bias."""
        number = f"strength {self.strength:.2f} ({self.low:.2f} to {self.high:.2f}), held-out p = {self.p_value:.2g}"
        if not self.found:
            return f"not found; {number}", GOOD
        if not self.notable:
            return f"yes, but {self.strength:.0%} of the effect of the position, which changes little; {number}", PLAIN
        also = " (or trust bias: the signs are the same)" if trust is not None and trust.sign != NONE else ""
        return f"yes{also}; {number}; strongest features: {', '.join(self.features)}", BAD


@dataclass(frozen=True, eq=False)
class _Moved:
    """Documents shown at several positions and clicked."""

    shown: Matrix  # [documents, positions]
    clicks: Matrix  # [documents, positions]
    features: Matrix  # [documents, features], standardized
    queries: Index  # [documents]

    def select(self, rows: NDArray[np.bool_]) -> _Moved:
        return _Moved(self.shown[rows], self.clicks[rows], self.features[rows], self.queries[rows])

    @property
    def totals(self) -> Matrix:
        return self.clicks.sum(axis=1)

    def shares(self, logs: Matrix) -> Matrix:
        """The expected distribution of each document's clicks over positions, `[documents, positions]`."""
        weights = self.shown * np.exp(logs - logs.max())
        return weights / weights.sum(axis=1, keepdims=True)


class _Tested(NamedTuple):
    """The test of one half's direction on the other half."""

    z: float
    strength: float
    error: float


def coupling(log: ClickLog, *, significance: float = 0.01, level: float = 0.95, seed: int = 0) -> Coupling:
    """Whether and how much examination depends on the features of documents, tested on held-out queries.

    Args:
        significance: level of the test for coupling; small, because it is one of many tests.
        level: level of the interval of the strength.
        seed: seed of the two halves.
    """
    check_counts(log)
    if not log.n_features:
        raise NotIdentified("the log has no features that examination could depend on")
    rng = np.random.default_rng(seed)
    moved = _moved(log, rng)
    first = rng.permutation(int(moved.queries.max()) + 1)[moved.queries] % 2 == 0
    halves = moved.select(first), moved.select(~first)
    if min(len(np.unique(half.queries)) for half in halves) < FEWEST_QUERIES:
        raise NotIdentified(
            f"only {len(np.unique(moved.queries))} queries have a clicked document that was shown at several "
            f"positions, but a test on held-out queries needs {2 * FEWEST_QUERIES}"
        )
    directions = [_direction(half) for half in halves]
    tests = [_test(halves[1], *directions[0]), _test(halves[0], *directions[1])]
    # The two tests give nearly the same number, because it is the product of the scores of both halves either way. So
    # they are averaged, not added as if they were independent.
    z, strength, error = (float(np.mean(values)) for values in zip(*tests, strict=True))
    p_value = 1 - NormalDist().cdf(z)
    strongest = np.argsort(-np.abs(directions[0][0] + directions[1][0]), kind="stable")[:N_STRONGEST]
    half_width = NormalDist().inv_cdf((1 + level) / 2) * error
    return Coupling(
        found=p_value < significance,
        p_value=p_value,
        strength=max(strength, 0.0),
        low=max(strength - half_width, 0.0),
        high=max(strength + half_width, 0.0),
        level=level,
        features=tuple(feature_name(log, column) for column in strongest.tolist()),
        n_documents=len(moved.shown),
        n_queries=len(np.unique(moved.queries)),
    )


def _moved(log: ClickLog, rng: Generator) -> _Moved:
    showings = showings_of(log)
    several = np.flatnonzero(showings.moved & (showings.clicks.sum(axis=1) > 0))
    if not len(several):
        raise NotIdentified(
            "no clicked document was shown at several positions, so the effect of a position on different documents "
            "is not identified. Swap or shuffle a share of the sessions"
        )
    most = max(1, MOST_CELLS // len(showings.positions))
    if len(several) > most:  # a random sample of whole queries
        order = rng.permutation(len(log.query_ids))[log.version_queries[several]]
        several = np.sort(several[np.argsort(order, kind="stable")[:most]])
    chosen, features = showings.select(several), plain_numbers(log)[several].astype(np.float64)
    centred, spread = features - features.mean(axis=0), features.std(axis=0)
    return _Moved(
        shown=chosen.shown.toarray(),
        clicks=chosen.clicks.toarray(),
        features=np.clip(centred / np.where(spread > 0, spread, 1.0), -WIDEST_FEATURE, WIDEST_FEATURE),
        queries=chosen.queries,
    )


def _fit_curve(moved: _Moved) -> Matrix:
    r"""$\log\theta$ around its mean, by Newton's method; half a click keeps positions without clicks finite."""
    totals = moved.totals
    at = moved.clicks.sum(axis=0)
    logs = np.zeros(len(at))
    for _ in range(NEWTON_STEPS):
        shares = moved.shares(logs)
        expected = totals @ shares
        information = np.diag(expected) - (shares * totals[:, None]).T @ shares
        ridge = 1e-6 * np.trace(information) / len(at) + 0.5  # half a click that shrinks towards the mean
        step = np.linalg.solve(information + ridge * np.eye(len(at)), at - expected - 0.5 * logs)
        step = np.clip(step, -1.0, 1.0)
        logs = logs + step - step.mean()
        if np.abs(step).max() < 1e-8:
            break
    return logs


def _direction(moved: _Moved) -> tuple[Matrix, Matrix]:
    """Weights of the features in the pull, and the logarithms of the curve that they change."""
    logs = _fit_curve(moved)
    shares = moved.shares(logs)
    middle = shares @ logs
    score = (moved.clicks * logs).sum(axis=1) - moved.totals * middle
    information = moved.totals * (shares @ logs**2 - middle**2)
    centred = moved.features - information @ moved.features / max(information.sum(), np.finfo(float).tiny)
    n_features = centred.shape[1]
    ridge = n_features / EXPECTED_PULL**2
    curvature = (centred * information[:, None]).T @ centred + ridge * np.eye(n_features)
    return np.linalg.solve(curvature, centred.T @ score), logs


def _test(moved: _Moved, weights: Matrix, bent: Matrix) -> _Tested:
    """Score test of a direction from other queries; the curve is fitted on this half, and its error accounted for."""
    pull = moved.features @ weights
    totals = moved.totals
    shares = moved.shares(_fit_curve(moved))
    rest = moved.clicks - totals[:, None] * shares
    middle = shares @ bent
    both = (pull * totals)[:, None] * shares * (bent - middle[:, None])  # cross terms of pull and curve, [documents, k]
    of_curve = np.diag(totals @ shares) - (shares * totals[:, None]).T @ shares
    cross = both.sum(axis=0)
    taken_off = np.linalg.pinv(of_curve, hermitian=True) @ cross
    scores = pull * (rest @ bent) - rest @ taken_off
    by_query = np.bincount(moved.queries, weights=scores)
    information = float((pull**2 * totals * (shares @ bent**2 - middle**2)).sum() - cross @ taken_off)
    error = float(np.sqrt((by_query**2).sum()))
    if information <= 0 or error == 0:
        return _Tested(0.0, 0.0, 0.0)
    spread = float(np.sqrt(np.average((pull - np.average(pull, weights=totals)) ** 2, weights=totals)))
    total = float(by_query.sum())
    return _Tested(total / error, total / information * spread, error / information * spread)
