r"""The rank of a click matrix: is one number for the document and one for the position enough for this log?

If clicks are $P(c) = a\,\theta_k$, the matrix of click rates (kind of document × position) has rank one; trust bias
has rank two. `vectorization` puts the dot product into an exponent, so what it needs is the rank of the matrix of
*log* rates: position-based clicks have rank one in rates and two in logs, $\log a + \log\theta_k$. Both are measured;
the second recommends the number of dimensions.

Counted rates are noisy, and a noisy matrix has full rank: small singular values are biased upwards. So rank $d$ is
tested by parametric bootstrap. Clicks are drawn from the nearest matrix of rank $d$, and the singular value $d + 1$ is
compared with that of the drawn clicks. The variance of the drawn clicks is that observed between queries
(`ClickMatrix.dispersion`).

Trust bias: do less attractive documents gain more from a high position than more attractive ones?

With scalar examination, $P(c) = a_d\,\theta_k$, the click rates of any two kinds of documents have the same ratio at
all positions. With trust bias, $P(c) = \alpha_k\gamma_d + \beta_k$ and $\beta_k/\alpha_k$ decreases with $k$: at the
top people click what they would not click below, so the less attractive kind is closer to the more attractive one
there. The sign is that of the slope of $\sum_g w_g \log c_{gk}$ over $\log(1 + k)$, with weights $w_g$ that increase
with the kind's attraction: above 0 means trust, below 0 means that attractive documents gain more from a high position.
Kinds come from one half of the impressions and rates from the other (`click_kinds`), so that chance does not make a
document attractive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.random import Generator
from numpy.typing import NDArray

from unskew.diagnosis.click_matrix import ClickMatrix
from unskew.display import Displayed, Screen
from unskew.propensities.curve import NotIdentified
from unskew.reporting.answers import BAD, GOOD

Matrix = NDArray[np.float64]

SMALLEST_RATE = 1e-6
COLUMNS = (("singular_value", "values"), ("low", "low"), ("high", "high"), ("share", "shares"), ("p", "p_values"))
Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Singular values of one matrix, from the largest, and the test of each rank."""

    values: Matrix  # [dimensions]
    low: Matrix  # [dimensions], of the interval; corrected for the bias of noise
    high: Matrix
    shares: Matrix  # [dimensions], of the sum of squares
    p_values: Matrix  # [dimensions], that the rank is d = 1, 2, …; NaN for the full rank, which cannot be rejected
    rank: int  # the smallest that is not rejected

    def cells(self, number: int) -> list[str]:
        """Value, interval, share and p of one dimension."""
        p = self.p_values[number]
        interval = f"{self.low[number]:.3f} to {self.high[number]:.3f}"
        return [f"{self.values[number]:.3f}", interval, f"{self.shares[number]:.2%}", "" if np.isnan(p) else f"{p:.3f}"]


@dataclass(frozen=True, eq=False, repr=False)
class ClickRank(Displayed):
    """The test of the examination hypothesis on a click matrix."""

    matrix: ClickMatrix
    rates: Spectrum  # of click rates, as in the paper
    log_rates: Spectrum  # of log rates, rows and columns weighted by their clicks
    level: float
    significance: float

    @property
    def scalar_is_enough(self) -> bool:
        """Whether the examination hypothesis, rank one in rates, is not rejected."""
        return self.rates.rank == 1

    @property
    def dimensions(self) -> int:
        """Dimensions for `vectorization`: the rank of the log rates."""
        return self.log_rates.rank

    def answer(self) -> tuple[str, str]:
        """Whether scalar examination is enough."""
        p = self.rates.p_values[0]
        if self.scalar_is_enough:
            return f"not rejected: click rates may have rank 1 (p = {p:.3f})", GOOD
        return f"no: click rates have rank {self.rates.rank} (p = {p:.3f})", BAD

    def to_json(self) -> dict[str, Any]:
        """The test, its numbers and the matrix as plain values."""
        return {
            "scalar_is_enough": self.scalar_is_enough,
            "dimensions": self.dimensions,
            "rank": self.rates.rank,
            "spectrum": self.to_table().to_pylist(),
            "matrix": self.matrix.rows(),
        }

    def to_table(self) -> pa.Table:
        """One row per dimension, of both spectra."""
        spectra = {"rate": self.rates, "log": self.log_rates}
        columns = {f"{of}_{name}": getattr(each, field) for of, each in spectra.items() for name, field in COLUMNS}
        return pa.table({"dimension": np.arange(1, len(self.rates.values) + 1), **columns})

    def screen(self) -> Screen:
        interval = f"{self.level:.0%} interval"
        columns = ("dimension", "of rates", interval, "share", "p", "of log rates", interval, "share", "p")
        rows = [
            [str(number + 1), *self.rates.cells(number), *self.log_rates.cells(number)]
            for number in range(len(self.rates.values))
        ]
        return Screen("Singular values of click rates and of weighted log click rates", columns, rows, [self.summary()])

    def summary(self) -> str:
        """The verdict in words."""
        first = self.rates.p_values[0]
        if self.scalar_is_enough:
            verdict = f"The click rates do not contradict rank 1 (p = {first:.3f}): a scalar examination is enough."
        else:
            verdict = (
                f"The click rates are not of rank 1 (p = {first:.3f}) but of rank {self.rates.rank}: no scalar "
                "examination fits this log."
            )
        left_out = f" Left out: {', '.join(self.matrix.left_out)}." if self.matrix.left_out else ""
        return f"{verdict} vectorization needs dimensions={self.dimensions} (rank of the log rates).{left_out}"


def click_rank(
    matrix: ClickMatrix,
    *,
    n_bootstrap: int = 500,
    level: float = 0.95,
    significance: float = 0.05,
    seed: int = 0,
) -> ClickRank:
    """Singular values of click rates and of log rates, with intervals, and the smallest rank that is not rejected.

    Args:
        level: level of the intervals.
        significance: a rank is rejected if its p-value is smaller.
    """
    rng = np.random.default_rng(seed)
    rates, logs = (_spectrum(matrix, space, n_bootstrap, level, significance, rng) for space in _spaces(matrix))
    return ClickRank(matrix, rates, logs, level, significance)


@dataclass(frozen=True, eq=False)
class _Space:
    """A function of click rates whose rank is tested, and its inverse."""

    of_rates: Callable[[Matrix], Matrix]
    to_rates: Callable[[Matrix], Matrix]


def _spaces(matrix: ClickMatrix) -> tuple[_Space, _Space]:
    """Rates and log rates. Rows and columns of log rates are weighted by their clicks, which keeps the rank."""
    half_a_click = 0.5 / matrix.impressions  # the logarithm of a rate of 0 would be infinite
    clicks = (matrix.rates + half_a_click) * matrix.impressions
    weights = np.sqrt(clicks.mean(axis=1, keepdims=True) * clicks.mean(axis=0)) / clicks.mean()
    return (
        _Space(lambda rates: rates, lambda values: values),
        _Space(lambda rates: weights * np.log(rates + half_a_click), lambda values: np.exp(values / weights)),
    )


def _spectrum(
    matrix: ClickMatrix, space: _Space, n_bootstrap: int, level: float, significance: float, rng: Generator
) -> Spectrum:
    kinds, values, positions = np.linalg.svd(space.of_rates(matrix.rates), full_matrices=False)
    drawn = _drawn_values(matrix, space, matrix.rates, n_bootstrap, rng)
    lower, upper = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    p_values = np.full(len(values), np.nan)
    for rank in range(1, len(values)):
        nearest = (kinds[:, :rank] * values[:rank]) @ positions[:rank]
        drawn = _drawn_values(matrix, space, space.to_rates(nearest), n_bootstrap, rng)[:, rank]
        p_values[rank - 1] = (1 + np.count_nonzero(drawn >= values[rank])) / (1 + n_bootstrap)
    fits = np.flatnonzero(p_values >= significance)
    return Spectrum(
        values=values,
        # Noise raises the drawn values above the counted ones just as it raised the counted ones above the true ones.
        low=np.maximum(2 * values - upper, 0.0),
        high=np.maximum(2 * values - lower, 0.0),
        shares=values**2 / (values**2).sum(),
        p_values=p_values,
        rank=int(fits[0]) + 1 if len(fits) else len(values),
    )


def _drawn_values(matrix: ClickMatrix, space: _Space, rates: Matrix, n_draws: int, rng: Generator) -> Matrix:
    """Singular values `[draws, dimensions]` of rates that could have been counted if these were the true ones."""
    drawn = matrix.draw(np.clip(rates, SMALLEST_RATE, 1.0), n_draws, rng)
    return np.asarray(np.linalg.svd(space.of_rates(drawn), compute_uv=False), dtype=np.float64)


TRUST, NONE, REVERSED = "trust", "none seen", "reversed"


@dataclass(frozen=True, eq=False)
class Trust:
    """Whether clicks at the top need less attraction than below."""

    sign: str  # trust, none seen or reversed
    slope: float  # of log(attractive / unattractive) over log(1 + position)
    low: float
    high: float
    level: float
    positions: NDArray[np.int64]
    contrast: Vector  # [positions], log ratio of more to less attractive kinds, relative to its mean

    def answer(self) -> tuple[str, str]:
        words = {
            NONE: ("no sign", GOOD),
            TRUST: ("yes: at the top, less attractive documents are clicked too", BAD),
            REVERSED: ("the reverse: attractive documents gain most from the top", BAD),
        }
        text, tone = words[self.sign]
        return f"{text}; slope {self.slope:+.2f} ({self.low:+.2f} to {self.high:+.2f})", tone


def trust_bias(matrix: ClickMatrix, *, level: float = 0.99) -> Trust:
    """The sign of trust bias in a click matrix of `click_matrix_without_grades`."""
    if matrix.covariances is None:
        raise ValueError("the matrix has no covariances: use click_matrix_without_grades")
    if len(matrix.positions) < 2:
        raise NotIdentified("all documents were shown at one position: there is no slope to estimate")
    tiny = 0.5 / matrix.impressions
    logs = np.log(matrix.rates + tiny)
    attraction = logs.mean(axis=1)
    spread = attraction - attraction.mean()
    if not (np.abs(spread) > 0).any():
        raise NotIdentified("all kinds of documents are equally attractive: there is nothing to compare")
    weights = spread / np.abs(spread).sum() * 2  # for two kinds: the log ratio of their rates
    contrast = weights @ (logs - attraction[:, None])
    axis = np.log1p(matrix.positions) - np.log1p(matrix.positions).mean()
    axis = axis / (axis**2).sum()
    slope = float(contrast @ axis)
    variance = sum(weight**2 * axis @ part @ axis for weight, part in zip(weights, matrix.covariances, strict=True))
    half = NormalDist().inv_cdf((1 + level) / 2) * float(np.sqrt(variance))
    sign = TRUST if slope - half > 0 else REVERSED if slope + half < 0 else NONE
    return Trust(sign, slope, slope - half, slope + half, level, matrix.positions, contrast)
