r"""Cascade model (Craswell et al., WSDM 2008).

The user scans down the list, clicks the first attractive document and leaves: $P(c_k) = a_k \prod_{j<k} (1 - a_j)$.
The ranker is $a$. Under the model a second click is impossible, but real logs have them. So documents below the first
click are clicked with a separate probability, `stray`, the same for all and learned from the log: probabilities of
patterns still sum to one, and no log-likelihood is infinite. Attraction learns only from documents down to the first
click, as in the paper.

Relation to others: `dcm` with $\lambda \equiv 0$, `sdbn` with $s \equiv 1$ and `ccm` with $\alpha = (1, 0, 0)$, except
for the stray clicks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from unskew.lists import ClickedLists
from unskew.methods.click_models.click_model import DocumentModel
from unskew.methods.click_models.sequences import Chances, last_clicks
from unskew.networks.registry import Problem

STRAY_LOGIT = -4.0  # initial logit of `stray`


class Cascade(DocumentModel):
    """From the top down to the first click."""

    paper = "Craswell et al., WSDM 2008"
    assumes = "users scan down the list and leave after the first click"

    def __init__(self, problem: Problem, **shared: Any):
        super().__init__(problem, **shared)
        self.stray = nn.Parameter(torch.full((), STRAY_LOGIT))

    def conditional(self, lists: ClickedLists) -> Chances:
        above = last_clicks(lists.positions, lists.clicks > 0) > 0
        return Chances.of(torch.where(above, F.logsigmoid(self.stray), F.logsigmoid(self.attraction.of(lists))))

    def marginal(self, lists: ClickedLists) -> Chances:
        attraction = self.attraction.of(lists)
        unclicked = F.pad(F.logsigmoid(-attraction)[:, :-1].cumsum(1), (1, 0))
        clicked = Chances.of(unclicked).log_skip
        return Chances.of(torch.logaddexp(unclicked + F.logsigmoid(attraction), clicked + F.logsigmoid(self.stray)))
