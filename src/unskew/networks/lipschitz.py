r"""A network whose outputs cannot change faster than a given constant, for any weights.

Every hidden layer is part of an orthogonal matrix, every activation is 1-Lipschitz, every row of the last layer has at
most unit length: each output is then 1-Lipschitz in the Euclidean norm, and is multiplied by the constant. Orthogonal
matrices come from the Cayley map $Q = (I + A)^{-1}(I - A)$ of a skew-symmetric $A$, which is exact for every $A$; power
iteration would only estimate a spectral norm, from below. The activation sorts pairs of units (MaxMin; Anil, Lucas and
Grosse, ICML 2019): unlike ELU or ReLU it preserves the norm of a gradient, so that the constant can be reached.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
