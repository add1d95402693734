r"""Click-through rate by rank: $P(c) = \rho_k$, for every document at position $k$ (and by bias columns).

Relation to others: `pbm` in which all documents are equally attractive; `gctr` if positions are equal too.
"""

from __future__ import annotations

from unskew.lists import ClickedLists
from unskew.methods.click_models.click_model import ClickModel
from unskew.methods.click_models.sequences import Chances, independent
from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Problem


class RCTR(ClickModel):
    """One click rate per position; it has no ranker."""

    paper = "Craswell et al., WSDM 2008 (baseline)"
    assumes = "the click rate depends on position (and bias columns) alone"
    has_ranker = False

    def __init__(self, problem: Problem):
        super().__init__()
        self.rate = PositionObservation(problem)

    def conditional(self, lists: ClickedLists) -> Chances:
        return independent(self.rate(lists.positions, lists.bias))

    marginal = conditional
