r"""Click chain model (Guo et al., WWW 2009).

Users scan down the list. After a skip they continue with probability $\alpha_1$, after a click with $\alpha_2 (1 -
a_d) + \alpha_3 a_d$: attraction also stands for satisfaction. (The paper integrates over the posterior of $a$;
here it is a point estimate, as in later work.) Each $\alpha$ may depend on bias columns. The ranker is $a$.

Relation to others: with $\alpha = (1, 1, 0)$ it is `sdbn` with $s = a$, with $\alpha = (1, 0, 0)$ `cascade`. `dbn` has
a separate satisfaction for each document.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from unskew.lists import ClickedLists
from unskew.methods.click_models.click_model import DownwardModel
from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Problem


class CCM(DownwardModel):
    """From the top down; whether the user continues depends on clicks and on relevance."""

    paper = "Guo et al., WWW 2009"
    assumes = "users scan down the list; whether they continue depends on the click and its relevance"

    def __init__(self, problem: Problem, **shared: Any):
        super().__init__(problem, **shared)
        one = replace(problem, n_positions=1)
        self.after_skip = PositionObservation(one)
        self.unsatisfied = PositionObservation(one)
        self.satisfied = PositionObservation(one)

    def browsing(self, lists: ClickedLists) -> tuple[Tensor, Tensor, Tensor]:
        attraction = self.attraction.of(lists)
        parts = (self.after_skip, self.unsatisfied, self.satisfied)
        skip, worse, better = (F.logsigmoid(part(lists.positions, lists.bias)) for part in parts)
        after_click = torch.logaddexp(worse + F.logsigmoid(-attraction), better + F.logsigmoid(attraction))
        return attraction, after_click, skip
