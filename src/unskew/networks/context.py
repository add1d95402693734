"""Examination in a context: observation that varies between lists at one position, and its average."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unskew.lists import ClickedLists
from unskew.networks.running import RunningEstimate, sum_per_position


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
