r"""Click chain model (Guo et al., WWW 2009).

Users scan down the list. After a skip they continue with probability $\alpha_1$, after a click with $\alpha_2 (1 -
a_d) + \alpha_3 a_d$: attraction also stands for satisfaction. (The paper integrates over the posterior of $a$;
here it is a point estimate, as in later work.) Each $\alpha$ may depend on bias columns. The ranker is $a$.

Relation to others: with $\alpha = (1, 1, 0)$ it is `sdbn` with $s = a$, with $\alpha = (1, 0, 0)$ `cascade`. `dbn` has
a separate satisfaction for each document.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from unskew.lists import ClickedLists
from unskew.methods.click_models.click_model import ClickModel
from unskew.methods.click_models.parts import DocumentPart
from unskew.methods.click_models.sequences import (
    Chances,
    downward,
    downward_examination,
    downward_likelihood,
    independent,
)
from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Problem


class CCM(ClickModel):
    """From the top down; whether the user continues depends on clicks and on relevance.

    Args:
        attraction: a network of `features`, a table of `ids`, or `both`; auto: features where the log has some.
        spread: standard deviation of a document's logit around that of its url and query; small: shrunk strongly.
        url_spread, query_spread: the same of urls and of queries; 0: none.
    """

    paper = "Guo et al., WWW 2009"
    assumes = "users scan down the list; whether they continue depends on the click and its relevance"

    def __init__(
        self,
        problem: Problem,
        *,
        attraction: str = "auto",
        spread: float = 1.0,
        url_spread: float = 0.5,
        query_spread: float = 0.5,
    ):
        super().__init__()
        spreads = (spread, url_spread, query_spread)
        self.attraction = DocumentPart(problem, attraction, spreads, "attraction")
        one = replace(problem, n_positions=1)
        self.after_skip = PositionObservation(one)
        self.unsatisfied = PositionObservation(one)
        self.satisfied = PositionObservation(one)

    def conditional(self, lists: ClickedLists) -> Chances:
        return downward(*self._browsing(lists), lists.clicks > 0)

    def log_likelihood(self, lists: ClickedLists) -> Tensor:
        return downward_likelihood(*self._browsing(lists), lists.clicks > 0, lists.mask)

    def marginal(self, lists: ClickedLists) -> Chances:
        attraction, after_click, after_skip = self._browsing(lists)
        return independent(attraction, downward_examination(attraction, after_click, after_skip))

    def ranking_parts(self) -> list[DocumentPart]:
        return [self.attraction]

    def _browsing(self, lists: ClickedLists) -> tuple[Tensor, Tensor, Tensor]:
        """Attraction, and the log-probabilities to continue after a click and after a skip."""
        attraction = self.attraction.of(lists)
        parts = (self.after_skip, self.unsatisfied, self.satisfied)
        skip, worse, better = (F.logsigmoid(part(lists.positions, lists.bias)) for part in parts)
        after_click = torch.logaddexp(worse + F.logsigmoid(-attraction), better + F.logsigmoid(attraction))
        return attraction, after_click, skip
