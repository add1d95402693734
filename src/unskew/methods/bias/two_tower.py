r"""Two towers: an additive position logit besides relevance (Guo et al., RecSys 2019; Yan et al., KDD 2022).

Assumes $P(c) \propto e^{r(x)} \, e^{o_k}$, the product of relevance and observation in log space, fitted jointly by a
listwise softmax; the ranker is $r$ alone.

`observation_rate` is the learning rate of the position's logits relative to the ranker's. A score moves with all
weights of a network at once, a position's logit alone: at equal rates the ranker absorbs part of the position's effect
first.

Relation to others: with a constant observation it is `naive`. It is the case of `lbd` in which observation does not
depend on the document (0-Lipschitz), and of `affine_softmax` in which no position scales relevance. `dla` and
`regression_em` fit the same assumption with other losses.
"""

from __future__ import annotations

from torch import Tensor

from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.method import Method, Stage, Terms
from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Problem
from unskew.options import NotNegative


class TwoTower(Method):
    """Listwise softmax on relevance plus a logit of the position.

    Args:
        observation_rate: learning rate of the position logits relative to the ranker's.
    """

    paper = "Guo et al., RecSys 2019 (PAL); Yan et al., KDD 2022"
    assumes = "examination depends on position (and bias columns) only; P(click) = examination × relevance"
    click_model = "softmax"

    def __init__(self, problem: Problem, *, observation_rate: NotNegative = 10.0):
        super().__init__()
        self.relevance = problem.new_ranker()
        self.observation = PositionObservation(problem)
        self.observation_rate = observation_rate

    def stages(self) -> list[Stage]:
        return [Stage("train", self.loss, {self.relevance: 1.0, self.observation: self.observation_rate})]

    def loss(self, lists: ClickedLists) -> Terms:
        return {"clicks": losses.softmax(self.click_logits(lists), lists.clicks, lists.mask)}

    def click_logits(self, lists: ClickedLists) -> Tensor:
        return lists.apply(self.relevance) + self.observation(lists.positions, lists.bias)

    def examination(self) -> Tensor:
        return self.observation.curve()
