r"""User browsing model (Dupret and Piwowarski, SIGIR 2008).

$P(c_k \mid \text{last click at } j) = \gamma_{kj}\,a_d$: examination depends on the position and on where the last
click above was, nowhere included. $\gamma$ is a table; its logits are those of the position (and bias columns) plus a
residual of standard deviation `table_spread`, so that a rare distance is examined like its position. The scale of
$\gamma$ and $a$ is free. The ranker is $a$. With a residual of 0 it is `pbm`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.lists import ClickedLists
from unskew.methods.click_model import ClickModel
from unskew.networks.click_parts import DocumentPart
from unskew.networks.click_sequences import Chances, browsing_examination, independent, last_clicks
from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Problem


class UBM(ClickModel):
    """Examination by position and last click, times attraction by document.

    Args:
        attraction: a network of `features`, a table of `ids`, or `both`; auto: features where the log has some.
        spread: standard deviation of a document's logit around that of its url and query; small: shrunk strongly.
        url_spread, query_spread: the same of urls and of queries; 0: none.
        table_spread: standard deviation of the logits of examination around those of their position.
    """

    paper = "Dupret and Piwowarski, SIGIR 2008"
    assumes = "examination depends on position and on the last click above"

    def __init__(
        self,
        problem: Problem,
        *,
        attraction: str = "auto",
        spread: float = 1.0,
        url_spread: float = 0.5,
        query_spread: float = 0.5,
        table_spread: float = 1.0,
    ):
        super().__init__()
        spreads = (spread, url_spread, query_spread)
        self.attraction = DocumentPart(problem, attraction, spreads, "attraction")
        self.observation = PositionObservation(problem)
        self.table = nn.Parameter(torch.zeros(problem.n_positions, problem.n_positions + 1))  # in units of the spread
        self.table_spread = table_spread

    def conditional(self, lists: ClickedLists) -> Chances:
        attraction, examination = self.logits(lists)
        return independent(attraction, F.logsigmoid(examination))

    def logits(self, lists: ClickedLists) -> list[Tensor]:
        """Of attraction, and of examination given the last click above."""
        last = last_clicks(lists.positions, lists.clicks > 0)
        return [self.attraction.of(lists), self._examination(lists, last)]

    def marginal(self, lists: ClickedLists) -> Chances:
        attraction = self.attraction.of(lists)
        n_docs = lists.mask.shape[1]
        last = F.pad(lists.positions + 1, (1, 0)).unsqueeze(1).expand(-1, n_docs, -1)
        examination = F.logsigmoid(self._examination(lists, last))
        return independent(attraction, browsing_examination(attraction, examination))

    def penalty(self) -> Tensor:
        return super().penalty() + self.table.square().sum() / 2

    def examination(self) -> Tensor:
        """Before the first click, at the average of all levels of bias columns."""
        curve = (self.observation.average_logits() + self.table_spread * self.table.detach()[:, 0]).sigmoid()
        return curve / curve[0]

    def ranking_parts(self) -> list[DocumentPart]:
        return [self.attraction]

    def _examination(self, lists: ClickedLists, last: Tensor) -> Tensor:
        """Logits given the last click, of the shape of `last`: `[batch, docs]` or `[batch, docs, 1 + docs]`."""
        lowest = len(self.table) - 1
        places = lists.positions.clamp(max=lowest)
        logits = self.observation(lists.positions, lists.bias)
        if last.ndim > places.ndim:
            places, logits = places.unsqueeze(-1), logits.unsqueeze(-1)
        return logits + self.table_spread * self.table[places, last.clamp(max=lowest + 1)]
