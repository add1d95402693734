r"""Dynamic Bayesian network (Chapelle and Zhang, WWW 2009).

The user scans down the list, leaves if satisfied by a clicked document, with probability $s_d$, and otherwise continues
with probability $\gamma$ (per level of bias columns, if there are any; per position with `by_position`). The paper
ranks by $a\,s$, attraction times satisfaction (`rank_by=relevance`); the default here is $a$. Every examined document
informs $a$. Only clicked ones inform $s$, and only through what is clicked below them. Where few clicks satisfy, $s$ is
near 0, an error in its logit moves $\log s$ by the same amount, and that noise enters the order of $a\,s$. Where clicks
often satisfy, $a\,s$ can be the better order: compare both on held-out queries (docs/click_models.md).

Relation to others: with $\gamma = 1$ it is `sdbn`. `ccm` uses attraction as satisfaction. `dcm` is `sdbn` with the
position in place of the document.
"""

from __future__ import annotations

from dataclasses import replace

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

RANKED_BY = ("relevance", "attraction")
UNSATISFIED = -2.0  # initial logit of satisfaction: few clicks end a search


class DBN(ClickModel):
    """From the top down until a clicked document satisfies, or patience ends.

    Args:
        attraction, satisfaction: a network of `features`, a table of `ids`, or `both`; auto: features
            where the log has some.
        spread: standard deviation of a document's logit around that of its url and query; small: shrunk strongly.
        url_spread, query_spread: the same of urls and of queries; 0: none.
        rank_by: attraction, or relevance (attraction times satisfaction, as in the paper): if few clicks are
            informative about satisfaction, a network of it ranks badly (docs/click_models.md).
        by_position: estimate the probability of continuing per position, not one for all.
    """

    paper = "Chapelle and Zhang, WWW 2009"
    assumes = "users scan down the list until a clicked document satisfies them or they give up"

    def __init__(
        self,
        problem: Problem,
        *,
        attraction: str = "auto",
        satisfaction: str = "auto",
        spread: float = 1.0,
        url_spread: float = 0.5,
        query_spread: float = 0.5,
        rank_by: str = "attraction",
        by_position: bool = False,
    ):
        super().__init__()
        if rank_by not in RANKED_BY:
            raise ValueError(f"rank_by must be one of {', '.join(RANKED_BY)}, got '{rank_by}'")
        self.rank_by = rank_by
        spreads = (spread, url_spread, query_spread)
        self.attraction = DocumentPart(problem, attraction, spreads, "attraction")
        self.satisfaction = DocumentPart(problem, satisfaction, spreads, "satisfaction", start=UNSATISFIED)
        self.continuation = PositionObservation(problem if by_position else replace(problem, n_positions=1))

    def conditional(self, lists: ClickedLists) -> Chances:
        return downward(*self._browsing(lists), lists.clicks > 0)

    def log_likelihood(self, lists: ClickedLists) -> Tensor:
        return downward_likelihood(*self._browsing(lists), lists.clicks > 0, lists.mask)

    def marginal(self, lists: ClickedLists) -> Chances:
        attraction, after_click, after_skip = self._browsing(lists)
        return independent(attraction, downward_examination(attraction, after_click, after_skip))

    def waiting(self) -> list[DocumentPart]:
        return [self.satisfaction]

    def ranking_parts(self) -> list[DocumentPart]:
        return [self.attraction, self.satisfaction] if self.rank_by == "relevance" else [self.attraction]

    def _browsing(self, lists: ClickedLists) -> tuple[Tensor, Tensor, Tensor]:
        """Attraction, and the log-probabilities to continue after a click and after a skip."""
        go_on = F.logsigmoid(self.continuation(lists.positions, lists.bias))
        return self.attraction.of(lists), go_on + F.logsigmoid(-self.satisfaction.of(lists)), go_on
