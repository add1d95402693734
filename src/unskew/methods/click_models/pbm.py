r"""Position-based model (Richardson et al., WWW 2007; Craswell et al., WSDM 2008).

Assumes $P(c) = \theta_k\,a_d$: a document is clicked if it is examined, which the position (and bias columns) decide,
and attractive. The scale of $\theta$ and $a$ is free; `examination` is relative to the top. The ranker is $a$.
Queries may differ in how far down their users examine (`depth_spread`).

Relation to others: `regression_em` fits the same model by EM, `two_tower` and `dla` with a listwise softmax. `ubm` adds
the last click above; `rctr` and `dctr` are its two halves.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from unskew.lists import ClickedLists
from unskew.methods.click_models.click_model import DocumentModel
from unskew.methods.click_models.parts import QueryDepth
from unskew.methods.click_models.sequences import Chances, independent
from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Problem
from unskew.options import NotNegative


class PBM(DocumentModel):
    """Examination by position times attraction by document.

    Args:
        depth_spread: standard deviation of a query's slope of examination over ln(1 + position), which needs ids; 0:
            none, as in the papers; default: 0.3 with ids, otherwise 0.
    """

    paper = "Richardson et al., WWW 2007; Craswell et al., WSDM 2008"
    assumes = "examination depends on position (and bias columns) only; clicks of a list are independent"

    def __init__(
        self,
        problem: Problem,
        *,
        depth_spread: NotNegative | None = None,
        **shared: Any,
    ):
        super().__init__(problem, **shared)
        self.observation = PositionObservation(problem)
        self.depth = QueryDepth(problem, depth_spread, self.attraction)

    def conditional(self, lists: ClickedLists) -> Chances:
        attraction, examination = self.logits(lists)
        return independent(attraction, F.logsigmoid(examination))

    def logits(self, lists: ClickedLists) -> list[Tensor]:
        """Of attraction, and of examination."""
        return [self.attraction.of(lists), self.observation(lists.positions, lists.bias) + self.depth(lists)]

    marginal = conditional

    def examination(self) -> Tensor:
        """At the average of all levels of bias columns, for an average query."""
        curve = self.observation.average_logits().sigmoid()
        return curve / curve[0]
