r"""Dynamic Bayesian network (Chapelle and Zhang, WWW 2009).

The user scans down the list, leaves if satisfied by a clicked document, with probability $s_d$, and otherwise continues
with probability $\gamma$ (per level of bias columns, if there are any; per position with `by_position`). The paper
ranks by $a\,s$, attraction times satisfaction (`rank_by=relevance`); the default here is $a$. Every examined document
informs $a$. Only clicked ones inform $s$, and only through what is clicked below them. Where few clicks satisfy, $s$ is
near 0, an error in its logit moves $\log s$ by the same amount, and that noise enters the order of $a\,s$. Where clicks
often satisfy, $a\,s$ can be the better order: compare both on held-out queries (docs/click_models.md).

Relation to others: with $\gamma = 1$ it is `sdbn`. `ccm` uses attraction as satisfaction. `dcm` is `sdbn` with the
position in place of the document.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from unskew.lists import ClickedLists
from unskew.methods.click_models.click_model import SatisfactionModel
from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Problem


class DBN(SatisfactionModel):
    """From the top down until a clicked document satisfies, or patience ends.

    Args:
        by_position: estimate the probability of continuing per position, not one for all.
    """

    paper = "Chapelle and Zhang, WWW 2009"
    assumes = "users scan down the list until a clicked document satisfies them or they give up"

    def __init__(self, problem: Problem, *, by_position: bool = False, **shared: Any):
        super().__init__(problem, **shared)
        self.continuation = PositionObservation(problem if by_position else replace(problem, n_positions=1))

    def browsing(self, lists: ClickedLists) -> tuple[Tensor, Tensor, Tensor]:
        go_on = F.logsigmoid(self.continuation(lists.positions, lists.bias))
        return self.attraction.of(lists), go_on + F.logsigmoid(-self.satisfaction.of(lists)), go_on
