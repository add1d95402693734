"""RunningEstimate: state that is learned by averaging instead of by gradient."""

from __future__ import annotations

import torch
from torch import Tensor, nn

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
