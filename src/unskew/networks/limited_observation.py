r"""Limited observation: the probability that a document is examined, which depends only weakly on the document.

$\hat o_k(x) = \sigma(\mathrm{logit}\,p_k + g_k(x))$ with $p$ a table of positions whose largest entry is fixed
(`top_seen`), and $g$ a network minus its mean over the documents of the batch (outside training: a running mean). So
$\hat o \le 1$ by construction, $p_k$ is the examination probability of the average document, and neither $p$ nor $g$
can drift to 0 as a whole. What limits $g$ is the norm of its gradient with respect to the features, as a penalty
(`steepness`) or by construction (`LipschitzNetwork`).

A Lipschitz network cannot change faster than a constant, for any weights: every hidden layer is part of an orthogonal
matrix, every activation is 1-Lipschitz, every row of the last layer has at most unit length. Orthogonal matrices come
from the Cayley map $Q = (I + A)^{-1}(I - A)$ of a skew-symmetric $A$, which is exact; power iteration would only
estimate a spectral norm, from below. The activation sorts pairs of units (MaxMin; Anil, Lucas and Grosse, ICML 2019):
unlike ELU or ReLU it preserves the norm of a gradient, so that the constant can be reached.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.lists import ClickedLists
from unskew.networks.documents import split_inputs
from unskew.networks.observation import PositionObservation, RunningEstimate, showings, weighted_mean
from unskew.networks.registry import Problem
from unskew.processes import new_salt, uniform

ROUNDING = 1e-6  # upper bound of what float32 rounding may add to a norm in one layer


class MaxMin(nn.Module):
    """The larger and the smaller unit of each pair."""

    def forward(self, units: Tensor) -> Tensor:
        one, other = units.chunk(2, dim=-1)
        return torch.cat([torch.maximum(one, other), torch.minimum(one, other)], dim=-1)


class OrthogonalLinear(nn.Module):
    """A linear layer that never increases norms: rows or columns of an orthogonal matrix."""

    def __init__(self, n_inputs: int, n_outputs: int):
        super().__init__()
        self.shape = (n_outputs, n_inputs)
        size = max(self.shape)
        self.upper = nn.Parameter(torch.randn(size, size) / size**0.5)  # only the part above the diagonal is used
        self.bias = nn.Parameter(torch.zeros(n_outputs))

    @property
    def weight(self) -> Tensor:
        """`[outputs, inputs]`, of spectral norm 1."""
        upper = self.upper.double().triu(1)  # in float32 the solution would be orthogonal only up to 1e-5
        skew = upper - upper.T
        identity = torch.eye(len(skew), dtype=skew.dtype, device=skew.device)
        whole = torch.linalg.solve(identity + skew, identity - skew)
        return whole[: self.shape[0], : self.shape[1]].to(self.upper.dtype)

    def forward(self, inputs: Tensor) -> Tensor:
        return F.linear(inputs, self.weight, self.bias)


class ShortRows(nn.Linear):
    """A linear layer whose rows are clipped to unit norm; initially zero."""

    def __init__(self, n_inputs: int, n_outputs: int):
        super().__init__(n_inputs, n_outputs)
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(self.weight, dim=1, keepdim=True)
        return F.linear(inputs, self.weight / length.clamp(min=1.0), self.bias)


class LipschitzNetwork(nn.Module):
    """A network whose outputs are each Lipschitz in the inputs with this constant; initially zero."""

    def __init__(self, n_inputs: int, hidden: Sequence[int], n_outputs: int, *, constant: float):
        super().__init__()
        odd = [size for size in hidden if size % 2]
        if odd:
            raise ValueError(f"a certified network sorts pairs of units, but {odd[0]} is odd: use an even number")
        layers: list[nn.Module] = []
        size = n_inputs
        for next_size in hidden:
            layers += [OrthogonalLinear(size, next_size), MaxMin()]
            size = next_size
        self.layers = nn.Sequential(*layers, ShortRows(size, n_outputs))
        self.constant = constant * (1 - ROUNDING) ** (len(hidden) + 1)

    def forward(self, features: Tensor) -> Tensor:
        return self.constant * self.layers(features)


STEEPEST_SIGMOID = 0.25
CENTRE_RATE = 0.05
# Not 0: otherwise the penalty would start at 0, and its normal values later would look like divergence.
START = 0.3  # factor of the usual initial weights of the last layer


class LimitedObservation(nn.Module):
    r"""The table $p$ and the centre of $g$; the outputs of $g$ come from a network of a document at all positions."""

    def __init__(self, problem: Problem, top_seen: float):
        super().__init__()
        self.log_top = math.log(top_seen)
        self.positions = PositionObservation(problem)
        self.mean = RunningEstimate(torch.zeros(problem.n_positions), CENTRE_RATE)

    def forward(self, deviations: Tensor, lists: ClickedLists) -> Tensor:
        r"""$\log \hat o$ of each document at its position, `[batch, docs]`.

        Args:
            deviations: $g$ of each document at all positions, `[batch, docs, positions]`.
        """
        places = lists.positions.clamp(max=len(self.mean.value) - 1)
        deviation = deviations.gather(-1, places.unsqueeze(-1)).squeeze(-1)
        return F.logsigmoid(log_odds(self.log_average(places, lists.bias)) + deviation)

    def centre(self, outputs: Tensor, lists: ClickedLists) -> Tensor:
        """Mean outputs of the showings of the batch, `[positions]`; outside training the running mean."""
        if not self.training:
            return self.mean.value
        centre = weighted_mean(outputs, showings(lists).unsqueeze(-1), (0, 1))
        self.mean.update(centre.detach(), lists.mask.any())
        return centre

    def log_average(self, places: Tensor, bias: Mapping[str, Tensor]) -> Tensor:
        r"""$\log p_k$, log probability that the average document is examined at these positions."""
        tables = self.positions
        highest = (tables.logits + sum(table.amax(0) for table in tables.levels)).amax()
        relative = tables(places, bias) - highest
        if len(tables.slopes):
            relative = relative.clamp(max=0.0)  # a numeric column has no largest value to normalize by
        return relative + self.log_top

    def at_all_positions(self, deviations: Tensor) -> Tensor:
        r"""$\hat o$ of documents from their $g$, `[..., positions]`, at the average of all levels of bias columns."""
        curve = self.positions.curve()
        return log_odds((curve / curve.max()).log() + self.log_top).add(deviations).sigmoid()

    def steepness(
        self, network: nn.Module, centre: Tensor, lists: ClickedLists, *, share: float, exact: bool
    ) -> Tensor:
        r"""$\sum_x \sum_k \lVert\nabla_x \hat o_k(x)\rVert_2$ over the showings of the batch, exact or estimated.

        It trains only $g$: because $\nabla \hat o = \hat o\,\nabla \log \hat o$ it would also change the table.

        Args:
            network: its last outputs are those of $g$.
        """
        chosen = penalized_pairs(lists, lists.bias, len(centre), share=share, exact=exact)
        average = log_odds(self.log_average(chosen.positions, chosen.bias).detach()) - centre[chosen.positions]
        inputs, layers = split_inputs(network)
        with torch.enable_grad():
            numbers = inputs(chosen.features).detach().requires_grad_()
            outputs = layers(numbers)[..., -len(centre) :].gather(-1, chosen.positions.unsqueeze(-1)).squeeze(-1)
            (slopes,) = torch.autograd.grad((average + outputs).sigmoid().sum(), numbers, create_graph=True)
        return (chosen.weights * torch.linalg.vector_norm(slopes, dim=-1)).sum()


def dependence_network(problem: Problem, hidden: Sequence[int] | None, beta: float | None) -> nn.Module:
    r"""The network of $g$; nearly flat at the start. With `beta`, $\hat o_k$ is $\beta$-Lipschitz for any weights."""
    if beta is not None:
        if hidden is None:
            hidden = () if problem.network.kind == "linear" else problem.network.hidden
        limited = LipschitzNetwork(problem.n_inputs, hidden, problem.n_positions, constant=beta / STEEPEST_SIGMOID)
        return nn.Sequential(problem.new_inputs(), limited) if problem.categories else limited
    return problem.new_layers(problem.n_positions, hidden, start=START)


def log_odds(log_probability: Tensor) -> Tensor:
    r"""$\log\frac{p}{1 - p}$ of $\log p < 0$."""
    return log_probability - torch.log(-torch.expm1(log_probability))


@dataclass(frozen=True)
class Penalized:
    """Documents with one position each, whose slopes represent those of all documents at all positions."""

    features: Tensor  # [n, features]
    positions: Tensor  # [n] int64
    weights: Tensor  # [n], weight of each slope in the sum over all showings
    bias: Mapping[str, Tensor]  # name -> [n], bias columns of a showing of the document


def penalized_pairs(
    lists: ClickedLists, bias: Mapping[str, Tensor], n_positions: int, *, share: float, exact: bool
) -> Penalized:
    """All pairs of document and position if `exact`, otherwise one random position of a random share of the documents.

    Each document is drawn independently, with probability `share`. A document in several lists counts once, with all
    its showings. If bias columns distinguish these, an exact sum uses all of them, and a random one draws one; pass no
    `bias` if slopes do not depend on it.
    """
    shown = showings(lists).flatten()
    if lists.distinct is None or (exact and bias):
        features, weights = lists.features.flatten(0, 1), shown
        real = lists.mask.flatten().nonzero().squeeze(-1)
        showing = torch.arange(len(shown), device=shown.device)
        keys = lists.place_keys
    else:
        features, numbers = lists.distinct.rows, lists.distinct.places.flatten()
        weights = shown.new_zeros(len(features)).index_add(0, numbers, shown)
        real = numbers[lists.mask.flatten()].unique()
        showing = _one_each(numbers, shown, len(features), lists.place_keys) if bias else torch.zeros_like(numbers)
        keys = lists.distinct.row_keys
    if exact:
        times = 1.0
        chosen = real.repeat_interleave(n_positions)
        positions = torch.arange(n_positions, device=real.device).repeat(len(real))
    else:
        times = n_positions / share
        chosen = real[uniform(new_salt(), keys[real]) < share]
        positions = (n_positions * uniform(new_salt(), keys[chosen])).long()
    levels = {name: values.flatten()[showing[chosen]] for name, values in bias.items()}
    return Penalized(features[chosen], positions, times * weights[chosen], levels)


def _one_each(numbers: Tensor, weights: Tensor, n: int, keys: Tensor) -> Tensor:
    """One place per number, drawn in proportion to its weight, `[n]`."""
    race = weights / -torch.log1p(-uniform(new_salt(), keys)).clamp(max=-torch.finfo(torch.float64).tiny)
    fastest = race.new_zeros(n).scatter_reduce(0, numbers, race, "amax")
    wins = (race == fastest[numbers]).nonzero().squeeze(-1)
    return torch.zeros(n, dtype=torch.long, device=numbers.device).index_copy(0, numbers[wins], wins)
