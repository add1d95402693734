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
from unskew.methods.click_models.click_model import ClickModel
from unskew.methods.click_models.parts import DocumentPart
from unskew.methods.click_models.sequences import (
    Chances,
    downward,
    downward_examination,
    downward_likelihood,
    independent,
)
from unskew.networks.registry import Problem

RANKED_BY = ("relevance", "attraction")
UNSATISFIED = -2.0  # initial logit of satisfaction: few clicks end a search


class SDBN(ClickModel):
    """From the top down until a clicked document satisfies.

    Args:
        attraction, satisfaction: a network of `features`, a table of `ids`, or `both`; auto: features
            where the log has some.
        spread: standard deviation of a document's logit around that of its url and query; small: shrunk strongly.
        url_spread, query_spread: the same of urls and of queries; 0: none.
        rank_by: attraction, or relevance (attraction times satisfaction, as in the paper): if few clicks are
            informative about satisfaction, a network of it ranks badly (docs/click_models.md).
    """

    paper = "Chapelle and Zhang, WWW 2009"
    assumes = "users scan down the list until a clicked document satisfies them; nobody gives up"

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
    ):
        super().__init__()
        if rank_by not in RANKED_BY:
            raise ValueError(f"rank_by must be one of {', '.join(RANKED_BY)}, got '{rank_by}'")
        self.rank_by = rank_by
        spreads = (spread, url_spread, query_spread)
        self.attraction = DocumentPart(problem, attraction, spreads, "attraction")
        self.satisfaction = DocumentPart(problem, satisfaction, spreads, "satisfaction", start=UNSATISFIED)

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
        attraction = self.attraction.of(lists)
        return attraction, F.logsigmoid(-self.satisfaction.of(lists)), torch.zeros_like(attraction)
