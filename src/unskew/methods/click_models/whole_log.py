"""Whole-log fitting: a smooth objective over all of a log, minimized by L-BFGS in double precision.

Tables of ids have one parameter per document and few showings of each. Here an exact gradient over counted patterns and
a curvature estimate need tens of passes, while steps on batches would need thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor, nn

from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.shard_batches import ShardBatches
from unskew.lists import ClickedLists

if TYPE_CHECKING:
    from unskew.methods.click_models.click_model import ClickModel

LEAST_GAIN = 0.02  # of the log-likelihood of the whole log in a step; a number's sampling error costs about 0.5
ROWS_AT_ONCE = 8192
INFORMATION = 0.3  # of a click about a logit: a click is examination and attraction together
COARSE = 10  # how much earlier the fit stops while a part waits


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


def fit_tables(model: ClickModel, source: Any) -> WholeLogFit:
    """Fit all parameters except networks to the whole log; networks run once, or in every pass over shards."""
    frozen = {id(entry) for network in model.networks() for entry in network.parameters()}
    waiting = {id(entry) for part in model.waiting() for entry in part.parameters()}
    model.eval()
    batches = _all_batches(model, source)
    model.double()
    for network in model.networks():
        network.float()

    def add_gradients() -> float:
        value = _backward(model.penalty())
        return value + sum(_backward(model.loss(lists)["clicks"]) for lists in batches())

    sessions = sum(float(lists.sessions.sum()) for lists in batches())
    curvature = _curvature(model, batches())

    def minimize(held: Set[int], least_gain: float) -> WholeLogFit:
        for entry in model.parameters():
            entry.requires_grad_(id(entry) not in held)
        parameters = [entry for entry in model.parameters() if entry.requires_grad and entry.numel()]
        return minimize_whole(
            parameters,
            add_gradients,
            curvature=[curvature[id(entry)] for entry in parameters],
            scale=sessions,
            most_passes=model.most_passes,
            tolerance=least_gain / sessions,
        )

    coarse = minimize(frozen | waiting, COARSE * LEAST_GAIN) if waiting else None
    fine = minimize(frozen, LEAST_GAIN)
    model.float()
    for part in model.parts():
        part.release()
    return fine if coarse is None else replace(fine, passes=coarse.passes + fine.passes)


def _all_batches(model: ClickModel, source: Any) -> Callable[[], Iterable[ClickedLists]]:
    """All rows; outputs of networks are kept for a log in memory, otherwise for the batch in use."""

    def in_turn() -> Iterator[ClickedLists]:
        for lists in source.all(ROWS_AT_ONCE):
            for part in model.parts():
                part.hold([lists])
            yield lists

    if isinstance(source, ShardBatches):
        return in_turn
    rows = list(ClickBatches(source, detail="patterns").all(ROWS_AT_ONCE))
    for part in model.parts():
        part.hold(rows)
    return lambda: rows


def _curvature(model: ClickModel, batches: Iterable[ClickedLists]) -> dict[int, Tensor]:
    """Approximate second derivative of the objective for each parameter: 1 from the prior, the rest from clicks."""
    for entry in model.parameters():
        entry.requires_grad_()
    model.zero_grad()
    for lists in batches:
        terms = [(INFORMATION * lists.clicks * logits).sum() for logits in model.logits(lists)]
        _backward(sum(terms, start=torch.zeros(())))
    curvature = {
        id(entry): 1 + (torch.zeros_like(entry) if entry.grad is None else entry.grad.abs())
        for entry in model.parameters()
    }
    model.zero_grad()
    return curvature


def _backward(term: Tensor) -> float:
    """Add the gradient of a term, and return its value."""
    if term.requires_grad:
        term.backward()
    return float(term.detach())
