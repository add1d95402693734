"""Networks of examination that several methods use."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TypeVar

import torch
from torch import Tensor, nn

from unskew.networks.registry import Problem

M = TypeVar("M", bound=nn.Module)


class PositionObservation(nn.Module):
    r"""Observation as a table of logits, one per position; initially 0.

    A bias column changes the curve: every level adds its own table, a numeric column a slope at every position. (A
    column that is the same for a whole list could not matter otherwise: constants cancel within a list.)
    """

    def __init__(self, problem: Problem):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(problem.n_positions))
        sizes = {name: len(levels) for name, levels in problem.bias.items() if levels is not None}
        # Lists, not dictionaries: torch refuses names such as "type" or "result.type" in a ParameterDict.
        self.level_columns = tuple(sizes)
        self.levels = nn.ParameterList([Table(torch.zeros(size, problem.n_positions)) for size in sizes.values()])
        self.slope_columns = tuple(name for name, levels in problem.bias.items() if levels is None)
        self.slopes = nn.ParameterList([torch.zeros(problem.n_positions) for _ in self.slope_columns])

    def forward(self, positions: Tensor, bias: Mapping[str, Tensor]) -> Tensor:
        """Logits of examination, `[batch, docs]`."""
        places = positions.clamp(max=len(self.logits) - 1)  # positions beyond the last known count as the last
        logits = self.logits[places]
        for name, table in zip(self.level_columns, self.levels, strict=True):
            logits = logits + table[bias[name], places]
        for name, slope in zip(self.slope_columns, self.slopes, strict=True):
            logits = logits + slope[places] * bias[name]
        return logits

    def average_logits(self) -> Tensor:
        """Logits at the average of all levels and 0 of numeric columns, `[positions]`."""
        return self.logits.detach() + sum(table.detach().mean(0) for table in self.levels)

    def curve(self) -> Tensor:
        """Examination relative to the top, at the average of all levels and 0 of numeric columns, `[positions]`."""
        logits = self.average_logits()
        return (logits - logits[0]).exp()


def at_level(module: M, column: str, level: int) -> M | None:
    """A copy in which every level of a bias column equals this one, so that averages over levels are those of this one.

    None: nothing in the module depends on the column.
    """
    found = deepcopy(module)
    tables = [
        table
        for part in found.modules()
        if isinstance(part, PositionObservation)
        for name, table in zip(part.level_columns, part.levels, strict=True)
        if name == column
    ]
    for table in tables:
        table.data[:] = table.data[level].clone()
    return found if tables else None


class Table(nn.Parameter):
    """A parameter without weight decay, which would flatten what was learned about positions or levels."""


def decays(module: nn.Module, parameter: nn.Parameter) -> bool:
    """Whether weight decay applies to a module's own parameter: to matrices, but not to offsets, norms and tables."""
    return parameter.ndim >= 2 and not isinstance(parameter, Table) and not isinstance(module, nn.Embedding)
