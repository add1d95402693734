"""Networks of being seen, as several methods use them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from unskew.networks.problem import Problem


class PositionObservation(nn.Module):
    r"""Observation as a table of logits, one a position; 0 at the start.

    A bias column bends the curve: every level has a table of its own that is added, a numeric column a slope at every
    position. (A column that is the same for a whole list could not matter otherwise: constants cancel in a list.)
    """

    def __init__(self, problem: Problem):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(problem.n_positions))
        self.levels = nn.ParameterDict()
        self.slopes = nn.ParameterDict()
        for name, levels in problem.bias.items():
            if levels is None:
                self.slopes[name] = nn.Parameter(torch.zeros(problem.n_positions))
            else:
                self.levels[name] = nn.Parameter(torch.zeros(len(levels), problem.n_positions))

    def forward(self, positions: Tensor, bias: Mapping[str, Tensor]) -> Tensor:
        """Logits of being seen, `[batch, docs]`."""
        places = positions.clamp(max=len(self.logits) - 1)  # below the last known place it is as dark as there
        logits = self.logits[places]
        for name, table in self.levels.items():
            logits = logits + table[bias[name], places]
        for name, slope in self.slopes.items():
            logits = logits + slope[places] * bias[name]
        return logits

    def curve(self) -> Tensor:
        """Examination relative to the top, at the average of all levels, `[positions]`."""
        logits = self.logits.detach() + sum(table.detach().mean(0) for table in self.levels.values())
        return (logits - logits[0]).exp()
