r"""Simplified dynamic Bayesian network (Chapelle and Zhang, WWW 2009): `dbn` in which the user never gives up.

The user scans down the list and leaves only if satisfied by a clicked document, with probability $s_d$. The paper ranks
by $a\,s$, attraction times satisfaction (`rank_by=relevance`); the default here is $a$, for the reason that `dbn`
gives: where few clicks satisfy, $\log s$ is mostly noise.

Relation to others: `dbn` with $\gamma = 1$. With $s \equiv 1$ it is `cascade`. `dcm` lets the position, not the
document, decide whether the user continues after a click.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from unskew.lists import ClickedLists
from unskew.methods.click_models.click_model import SatisfactionModel


class SDBN(SatisfactionModel):
    """From the top down until a clicked document satisfies."""

    paper = "Chapelle and Zhang, WWW 2009"
    assumes = "users scan down the list until a clicked document satisfies them; nobody gives up"

    def browsing(self, lists: ClickedLists) -> tuple[Tensor, Tensor, Tensor]:
        attraction = self.attraction.of(lists)
        return attraction, F.logsigmoid(-self.satisfaction.of(lists)), torch.zeros_like(attraction)
