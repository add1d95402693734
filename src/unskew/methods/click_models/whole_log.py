"""Whole-log fitting: a smooth objective over all of a log, minimized by L-BFGS in double precision.

Tables of ids have one parameter per document and few showings of each. Here an exact gradient over counted patterns and
a curvature estimate need tens of passes, while steps on batches would need thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor, nn


@dataclass(frozen=True)
class WholeLogFit:
    """The result of the minimization."""

    passes: int
    objective: float
    converged: bool


def minimize_whole(
    parameters: Sequence[nn.Parameter],
    add_gradients: Callable[[], float],
    *,
    curvature: Sequence[Tensor],
    scale: float,
    most_passes: int,
    tolerance: float,
) -> WholeLogFit:
    """Minimize in place.

    Args:
        add_gradients: goes over the log, calls `backward` on every part of the objective and returns their sum.
        curvature: approximate, positive second derivative of the objective by each parameter, so that parameters with
            much data and parameters with little data are equally easy to fit.
        scale: divisor of the objective, such as the number of impressions.
        tolerance: relative gain of a step at which it stops.
    """

    def objective(vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        _assign(parameters, vector * units)
        for parameter in parameters:
            parameter.grad = None
        value = add_gradients()
        gradient = torch.cat([_gradient(parameter) for parameter in parameters])
        return value / scale, (gradient / scale).numpy() * units

    units = torch.cat([entry.detach().reshape(-1) for entry in curvature]).double().rsqrt().numpy()
    start = torch.cat([parameter.detach().reshape(-1) for parameter in parameters]).double().numpy() / units
    options = {"maxfun": most_passes, "maxiter": most_passes, "ftol": tolerance, "gtol": 0.0, "maxcor": 10}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    _assign(parameters, found.x * units)
    for parameter in parameters:
        parameter.grad = None
    return WholeLogFit(int(found.nfev), float(found.fun * scale), bool(found.success))


@torch.no_grad()
def _assign(parameters: Sequence[nn.Parameter], vector: NDArray[np.float64]) -> None:
    place = 0
    for parameter in parameters:
        values = torch.from_numpy(vector[place : place + parameter.numel()])
        parameter.copy_(values.view_as(parameter))
        place += parameter.numel()


def _gradient(parameter: nn.Parameter) -> Tensor:
    return (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).reshape(-1).double()
