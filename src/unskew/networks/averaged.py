"""An average of rankers is one ranker: a weighted sum of scores."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unskew.networks.documents import Ranker


class AveragedRanker(Ranker):
    """The weighted sum of the scores of several rankers of the same features.

    Args:
        weights: one per ranker; divide by the spread of a ranker's scores to give rankers equal influence.
    """

    weights: Tensor

    def __init__(self, rankers: Sequence[Ranker], weights: Sequence[float]):
        super().__init__()
        if not rankers or len(rankers) != len(weights):
            raise ValueError(f"an average needs one weight per ranker: got {len(weights)} for {len(rankers)}")
        self.rankers = nn.ModuleList(rankers)
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float32))

    @property
    def pointwise(self) -> bool:
        return all(bool(ranker.pointwise) for ranker in self.rankers)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        scores = [weight * ranker(features, mask) for weight, ranker in zip(self.weights, self.rankers, strict=True)]
        return torch.stack(scores).sum(0)
