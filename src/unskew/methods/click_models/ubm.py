r"""User browsing model (Dupret and Piwowarski, SIGIR 2008).

$P(c_k \mid \text{last click at } j) = \gamma_{kj}\,a_d$: examination depends on the position and on the last click
above, if there is one. $\gamma$ is a table; its logits are those of the position (and bias columns) plus a residual of
standard deviation `table_spread`, so that a rare distance is examined like its position. The scale of $\gamma$ and $a$
is free. The ranker is $a$.

Queries may differ in how far down their users examine (`depth_spread`), and users in where they examine (`user_types`):
then $P(\text{pattern}) = \sum_z \pi_z P(\text{pattern} \mid \gamma^z)$, with a separate table for each type.

Relation to others: with one row of $\gamma$ for all last clicks (a residual of 0) it is `pbm`. `iobm` lets examination
depend on all other clicks and learns relevance as `dla` does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.lists import ClickedLists
from unskew.methods.click_models.click_model import DocumentModel
from unskew.methods.click_models.parts import QueryDepth
from unskew.methods.click_models.sequences import Chances, browsing_examination, independent, last_clicks, mixture
from unskew.networks.observation import PositionObservation, Table
from unskew.networks.registry import Problem
from unskew.options import Count, NotNegative


class UBM(DocumentModel):
    """Examination by position and last click, times attraction by document.

    Args:
        table_spread: standard deviation of the logits of examination around those of their position.
        depth_spread: standard deviation of a query's slope of examination over ln(1 + position), which needs ids; 0:
            none, as in the paper; default: 0.3 with ids, otherwise 0.
        user_types: number of types of users; 1: one type, as in the paper.
    """

    paper = "Dupret and Piwowarski, SIGIR 2008"
    assumes = "examination depends on position and on the last click above"

    def __init__(
        self,
        problem: Problem,
        *,
        table_spread: NotNegative = 1.0,
        depth_spread: NotNegative | None = None,
        user_types: Count = 1,
        **shared: Any,
    ):
        super().__init__(problem, **shared)
        self.observation = PositionObservation(problem)
        self.depth = QueryDepth(problem, depth_spread, self.attraction)
        self.table = Table(_first_tables(user_types, problem.n_positions))  # in units of the spread
        self.shares = nn.Parameter(torch.zeros(user_types))  # of types, as logits
        self.table_spread = table_spread

    def conditional(self, lists: ClickedLists) -> Chances:
        return self._mixed(self._types(lists), lists.clicks > 0)

    def log_likelihood(self, lists: ClickedLists) -> Tensor:
        clicked = lists.clicks > 0
        found = [
            torch.where(clicked, chances.log_click, chances.log_skip).masked_fill(~lists.mask, 0.0).sum(1)
            for chances in self._types(lists)
        ]
        return torch.logsumexp(self.shares.log_softmax(0).unsqueeze(1) + torch.stack(found), 0)

    def marginal(self, lists: ClickedLists) -> Chances:
        attraction = self.attraction.of(lists)
        n_docs = lists.mask.shape[1]
        last = F.pad(lists.positions + 1, (1, 0)).unsqueeze(1).expand(-1, n_docs, -1)
        examination = [F.logsigmoid(logits) for logits in self._examination(lists, last)]
        return self._mixed([independent(attraction, browsing_examination(attraction, part)) for part in examination])

    def logits(self, lists: ClickedLists) -> list[Tensor]:
        """Logits of attraction, and of examination given the last click above, for each type of users."""
        last = last_clicks(lists.positions, lists.clicks > 0)
        return [self.attraction.of(lists), *self._examination(lists, last)]

    def penalty(self) -> Tensor:
        return super().penalty() + (self.table.square().sum() + self.shares.square().sum()) / 2

    def examination(self) -> Tensor:
        """Before the first click, at the average of all levels of bias columns, for an average query and user."""
        logits = self.observation.average_logits() + self.table_spread * self.table.detach()[:, :, 0]
        curve = self.shares.detach().softmax(0) @ logits.sigmoid()
        return curve / curve[0]

    def _types(self, lists: ClickedLists) -> list[Chances]:
        """Chances for each type of users, given the clicks above."""
        attraction, *examination = self.logits(lists)
        return [independent(attraction, F.logsigmoid(logits)) for logits in examination]

    def _mixed(self, types: list[Chances], clicked: Tensor | None = None) -> Chances:
        return types[0] if len(types) == 1 else mixture(self.shares.log_softmax(0), types, clicked)

    def _examination(self, lists: ClickedLists, last: Tensor) -> list[Tensor]:
        """Logits given the last click, of the shape of `last`: `[batch, docs]` or `[batch, docs, 1 + docs]`."""
        lowest = self.table.shape[1] - 1
        places = lists.positions.clamp(max=lowest)
        logits = self.observation(lists.positions, lists.bias) + self.depth(lists)
        if last.ndim > places.ndim:
            places, logits = places.unsqueeze(-1), logits.unsqueeze(-1)
        return [logits + self.table_spread * table[places, last.clamp(max=lowest + 1)] for table in self.table]


def _first_tables(n_types: int, n_positions: int) -> Tensor:
    """`[types, positions, 1 + positions]`: 0, except that types examine to different depths, to tell them apart."""
    depths = torch.arange(n_positions).log1p().view(-1, 1).expand(-1, n_positions + 1)
    return torch.linspace(-0.5, 0.5, n_types).view(-1, 1, 1) * depths if n_types > 1 else torch.zeros(1, *depths.shape)
