r"""Affine softmax: the joint Affine baseline of Vectorization (Chen et al., KDD 2022, section 4.4).

Trust bias as two dimensions of `vectorization`: $r(x) = [r(x), 1]$, $o_k = [\alpha_k, \beta_k]$, so that the click
logit is $\alpha_k r(x) + \beta_k$, and the base vector is $[1, 0]$: documents are ranked by $r$.

$\alpha$ starts at 1 and $\beta$ at 0, which is `naive`; relevance settles before they are trained. `observation_rate`
is their learning rate relative to the ranker's.

Relation to others: `vectorization` with two dimensions, of which one is fixed. With $\alpha \equiv 1$ it is
`two_tower`. `affine` corrects clicks rather than logits.
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.method import Method, Stage, Terms
from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Problem
from unskew.options import Limits, NotNegative


class AffineSoftmax(Method):
    """Listwise softmax on relevance, scaled and shifted at each position.

    Args:
        observation_rate: learning rate of both tables relative to the ranker's.
        warm_up_steps: training steps of relevance alone, before the tables move.
    """

    paper = "Chen et al., KDD 2022 (section 4.4)"
    assumes = "the click logit is an affine function of relevance at each position (and level of bias columns)"
    click_model = "softmax"

    def __init__(
        self, problem: Problem, *, observation_rate: NotNegative = 10.0, warm_up_steps: Annotated[int, Limits(0)] = 100
    ):
        super().__init__()
        self.relevance = problem.new_ranker()
        self.stretch = PositionObservation(problem)  # alpha - 1
        self.shift = PositionObservation(problem)  # beta
        self.observation_rate = observation_rate
        self.warm_up_steps = warm_up_steps

    def stages(self) -> list[Stage]:
        rates = {self.relevance: 1.0, self.stretch: self.observation_rate, self.shift: self.observation_rate}
        return [
            Stage("warm-up", self.loss, {self.relevance: 1.0}, steps=self.warm_up_steps, selects=False),
            Stage("joint", self.loss, rates),
        ]

    def loss(self, lists: ClickedLists) -> Terms:
        return {"clicks": losses.softmax(self.click_logits(lists), lists.clicks, lists.mask)}

    def click_logits(self, lists: ClickedLists) -> Tensor:
        alpha = 1 + self.stretch(lists.positions, lists.bias)
        beta = self.shift(lists.positions, lists.bias)
        return alpha * lists.apply(self.relevance) + beta
