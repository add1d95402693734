"""Networks of examination that several methods use, and estimates learned by averaging instead of by gradient."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TypeVar

import torch
from torch import Tensor, nn

from unskew.lists import ClickedLists
from unskew.networks.registry import Problem
from unskew.processes import total


class RunningEstimate(nn.Module):
    """An exponential average that is saved, loaded and moved with the method, as BatchNorm's statistics are."""

    value: Tensor

    def __init__(self, start: Tensor, rate: float):
        super().__init__()
        if not 0 < rate <= 1:
            raise ValueError(f"the rate of a running estimate must be above 0 and at most 1, got {rate}")
        self.rate = rate
        self.register_buffer("value", start.clone())

    @torch.no_grad()
    def update(self, observed: Tensor, known: Tensor | None = None) -> None:
        """Move towards the observed values; entries that are not `known` stay, as the batch has no data on them."""
        moved = torch.lerp(self.value, observed.to(self.value.dtype), self.rate)
        known = torch.isfinite(observed) if known is None else known & torch.isfinite(observed)
        self.value.copy_(torch.where(known, moved, self.value))


def sum_per_position(values: Tensor, positions: Tensor, mask: Tensor, n_positions: int) -> Tensor:
    """Sums of values `[batch, docs]` over the documents of all processes at each position, `[positions]`."""
    places = positions.clamp(max=n_positions - 1)[mask]
    return total(torch.zeros(n_positions, dtype=values.dtype, device=values.device).index_add(0, places, values[mask]))


class AverageCurve(nn.Module):
    """A running mean over sessions of the examination of each position, up to a common factor."""

    def __init__(self, n_positions: int, start: float = 1.0, rate: float = 0.05):
        super().__init__()
        self.seen = RunningEstimate(torch.full((n_positions,), start), rate)

    def update(self, seen: Tensor, lists: ClickedLists) -> None:
        """Move towards the mean of a batch, `[batch, docs]`."""
        n_positions = len(self.seen.value)
        weights = lists.sessions.unsqueeze(-1).expand_as(seen)
        sums = sum_per_position(weights * seen.detach(), lists.positions, lists.mask, n_positions)
        shown = sum_per_position(weights, lists.positions, lists.mask, n_positions)
        self.seen.update(sums / shown.clamp(min=torch.finfo(shown.dtype).tiny), shown > 0)

    def relative(self) -> Tensor:
        """The curve relative to the top position."""
        return self.seen.value / self.seen.value[0]


def showings(lists: ClickedLists) -> Tensor:
    """Number of showings of each document, `[batch, docs]`; 0 in padding."""
    return lists.sessions.unsqueeze(-1) * lists.mask


def weighted_mean(values: Tensor, weights: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The mean over these dimensions, including the batch, over all processes; 0 if the weights are 0."""
    sums, total_weight = total((weights * values).sum(dims)), total(weights.sum(dims))
    return sums / total_weight.clamp(min=torch.finfo(values.dtype).tiny)


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
