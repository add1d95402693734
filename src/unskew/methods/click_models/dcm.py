r"""Dependent click model (Guo et al., WSDM 2009).

The user scans down the list, and continues with probability $\lambda_k$ after a click at position $k$ (per level of
bias columns, if there are any), and always after a skip. The ranker is $a$.

Relation to others: with $\lambda \equiv 0$ it is `cascade`, with $\lambda \equiv 1$ `dctr`. In `sdbn` the document, not
the position, decides whether the user continues after a click.
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
from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Problem


class DCM(ClickModel):
    """From the top down; after a click the position decides whether the user continues.

    Args:
        attraction: a network of `features`, a table of `ids`, or `both`; auto: features where the log has some.
        spread: standard deviation of a document's logit around that of its url and query; small: shrunk strongly.
        url_spread, query_spread: the same of urls and of queries; 0: none.
    """

    paper = "Guo et al., WSDM 2009"
    assumes = "users scan down the list and may leave only after a click, depending on its position"

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
        self.continuation = PositionObservation(problem)

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
        after_click = F.logsigmoid(self.continuation(lists.positions, lists.bias))
        return attraction, after_click, torch.zeros_like(attraction)
