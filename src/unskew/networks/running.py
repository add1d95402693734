"""State that is learned by averaging instead of by gradient, and sums over the documents of all processes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unskew.lists import ClickedLists
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
