r"""Dependent click model (Guo et al., WSDM 2009).

The user scans down the list, and continues with probability $\lambda_k$ after a click at position $k$ (per level of
bias columns, if there are any), and always after a skip. The ranker is $a$.

Relation to others: with $\lambda \equiv 0$ it is `cascade`, with $\lambda \equiv 1$ `dctr`. In `sdbn` the document, not
the position, decides whether the user continues after a click.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from unskew.lists import ClickedLists
from unskew.methods.click_models.click_model import DownwardModel
from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Problem


class DCM(DownwardModel):
    """From the top down; after a click the position decides whether the user continues."""

    paper = "Guo et al., WSDM 2009"
    assumes = "users scan down the list and may leave only after a click, depending on its position"

    def __init__(self, problem: Problem, **shared: Any):
        super().__init__(problem, **shared)
        self.continuation = PositionObservation(problem)

    def browsing(self, lists: ClickedLists) -> tuple[Tensor, Tensor, Tensor]:
        attraction = self.attraction.of(lists)
        after_click = F.logsigmoid(self.continuation(lists.positions, lists.bias))
        return attraction, after_click, torch.zeros_like(attraction)
