r"""Trust bias: do less attractive documents gain more from a high position than more attractive ones?

With scalar examination, $P(c) = a_d\,\theta_k$, the click rates of any two kinds of documents have the same ratio at
all positions. With trust bias, $P(c) = \alpha_k\gamma_d + \beta_k$ and $\beta_k/\alpha_k$ decreases with $k$: at the
top people click what they would not click below, so the less attractive kind is closer to the more attractive one
there. The sign is that of the slope of $\sum_g w_g \log c_{gk}$ over $\log(1 + k)$, with weights $w_g$ that increase
with the kind's attraction: above 0 means trust, below 0 means that attractive documents gain more from a high position.
Kinds come from one half of the impressions and rates from the other (`click_kinds`), so that chance does not make a
document attractive.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from unskew.diagnosis.estimators.click_matrix import ClickMatrix
from unskew.diagnosis.estimators.curve import NotIdentified

Vector = NDArray[np.float64]

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


def trust_bias(matrix: ClickMatrix, *, level: float = 0.99) -> Trust:
    """The sign of trust bias in a click matrix of `click_matrix_without_grades`."""
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
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
