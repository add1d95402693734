r"""Global click-through rate: $P(c) = \rho$, the same for every document and position. The weakest baseline of all.

Relation to others: `rctr` adds the position, `dctr` the document; `pbm` has both.
"""

from __future__ import annotations

import torch
from torch import nn

from unskew.lists import ClickedLists
from unskew.methods.click_models.click_model import ClickModel
from unskew.methods.click_models.sequences import Chances, independent
from unskew.networks.registry import Problem


class GCTR(ClickModel):
    """One click rate for all; it has no ranker."""

    paper = "Craswell et al., WSDM 2008 (baseline)"
    assumes = "every document has the same click rate at every position"
    has_ranker = False

    def __init__(self, problem: Problem):  # noqa: ARG002
        super().__init__()
        self.rate = nn.Parameter(torch.zeros(()))

    def conditional(self, lists: ClickedLists) -> Chances:
        return independent(self.rate.expand(lists.mask.shape))

    marginal = conditional
