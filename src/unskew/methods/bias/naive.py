r"""Click Data: clicks taken at face value.

Assumes that a click means relevance and no click means irrelevance. The baseline of every paper, which a debiased
ranker must beat to be worth its cost.

Relation to others: the baseline of all others. `two_tower` with a constant observation, `ipw` with equal propensities
and `lbd` with `cancel=1` are `naive`. `dctr` trusts clicks as well, but predicts a click probability per document.
"""

from __future__ import annotations

from torch import Tensor

from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.method import Method, Terms
from unskew.networks.registry import Problem


class Naive(Method):
    """Listwise softmax on clicks."""

    paper = "baseline"
    assumes = "clicks are relevance: examination is the same everywhere"
    click_model = "softmax"

    def __init__(self, problem: Problem):
        super().__init__()
        self.relevance = problem.new_ranker()

    def loss(self, lists: ClickedLists) -> Terms:
        scores = lists.apply(self.relevance)
        return {"clicks": losses.softmax(scores, lists.clicks, lists.mask)}

    def click_logits(self, lists: ClickedLists) -> Tensor:
        return lists.apply(self.relevance)
