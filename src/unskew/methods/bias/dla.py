r"""Dual Learning Algorithm (Ai et al., SIGIR 2018, arXiv:1804.05938).

Assumes $P(c) = P(o \mid k)\,P(r \mid x)$. Relevance learns from clicks divided by observation, observation from clicks
divided by relevance, each relative to the top document of the list. The paper's propensity network on a one-hot
position is a table of logits, as here; only ratios of it are identified. Both networks keep their
optimizer's state from step to step, and `max_weight` bounds the weights.

**The observation's loss.** The paper trains observation as it trains relevance, on clicks divided by relevance
(`observed_by="weights"`). Those weights are exponentials of the ranker's errors, so their mean exceeds the truth, most
at low positions, where the ranker knows least; where features predict the position, the pair then drifts to a second
solution in which relevance has absorbed the positions and the curve is upside down. The default trains observation by
the likelihood of the clicks given relevance, $-\sum_i c_i \log \frac{e^{s_i + l_i}}{\sum_j e^{s_j + l_j}}$ with
constant $s$. It has the paper's solution where its assumption holds, $f \propto r$ and $g \propto o$; otherwise the
curve still gives every position as many clicks as the log. It cannot run away: the loss is convex, and a click has
weight 1. nDCG@10 on two worlds each (1,000 steps of Adagrad), by weights and by likelihood: trust bias .756 and .812,
.813 and .817; the click matrix .740 and .766, .740 and .775.

`observation_rate` is the learning rate of the table relative to the ranker's. A score moves with all weights of a
network at once, a position's logit alone: at equal rates the ranker, which sees features that predict the position,
absorbs part of the position's effect first.

Relation to others: `ipw` with propensities that are learned along with the ranker. `two_tower`, `regression_em` and
`pbm` fit the same assumption with other losses. `upe` corrects the propensities for the logging policy, `iobm` lets
them depend on other clicks, `cdla_ld` adds a listwise teacher.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.method import Method, Stage, Terms
from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Problem
from unskew.options import NotNegative, Positive


class DLA(Method):
    """Relevance and observation, each learning from clicks weighted by the other.

    Args:
        max_weight: largest weight of a click; none: no bound.
        observation_rate: learning rate of the position table relative to the ranker's.
        observed_by: how the position table learns: "likelihood" of the clicks, or "weights", as in the paper.
    """

    paper = "Ai et al., SIGIR 2018"
    assumes = "examination depends on position (and bias columns) only; P(click) = examination × relevance"
    click_model = "softmax"

    def __init__(
        self,
        problem: Problem,
        *,
        max_weight: Positive | None = None,
        observation_rate: NotNegative = 10.0,
        observed_by: Literal["likelihood", "weights"] = "likelihood",
    ):
        super().__init__()
        self.relevance = problem.new_ranker()
        self.observation = PositionObservation(problem)
        self.max_weight = max_weight
        self.observation_rate = observation_rate
        self.observed_by = observed_by

    def stages(self) -> Sequence[Stage]:
        return [Stage("train", self.loss, {self.relevance: 1.0, self.observation: self.observation_rate})]

    def loss(self, lists: ClickedLists) -> Terms:
        relevance = lists.apply(self.relevance)
        observation = self.observation(lists.positions, lists.bias)
        return losses.dual(relevance, observation, lists.clicks, lists.mask, self.max_weight, self.observed_by)

    def click_logits(self, lists: ClickedLists) -> Tensor:
        return lists.apply(self.relevance) + self.observation(lists.positions, lists.bias)

    def examination(self) -> Tensor:
        return self.observation.curve()
