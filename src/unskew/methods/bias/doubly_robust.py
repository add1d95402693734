r"""Doubly robust training (Oosterhuis, TOIS 2023, arXiv:2203.17118).

Assumes $P(c) = P(o \mid k)\,P(r \mid x)$ with known or estimated propensities $\theta_k = P(o \mid k)$, relative to the
top. A regression $\hat r(x) = \sigma(m(x))$ predicts relevance, and clicks correct it. With
$\rho(x) = \mathrm{E}\,\theta_k$ over the ranks at which the log shows a document, its expected examination, the target
of a document at position $k$ in $n$ sessions with $c$ clicks is

$$ n\,\hat r + \frac{c - n\,\theta_k\,\hat r}{\rho}. $$

Summed over the showings of a document it is unbiased if $\theta$ is right, whatever $\hat r$; where $\hat r$ is right,
the correction has mean 0. `least` bounds $\rho$ from below: documents that are rarely examined then rest on $\hat r$,
not on few clicks with large weights.

The regression learns first, by the cross-entropy
$-\sum \frac{c}{\rho} \log \hat r + \frac{n\,\theta_k - c}{\rho} \log (1 - \hat r)$, an unbiased estimate of that of
relevance. Then the ranker learns from the targets, by a loss that is linear in them.

Differences: the paper's loss is a bound of DCG, and it also ranks documents that were never shown, with $\hat r$ alone;
here the lists of the log are ranked. Trust bias (its $\beta_k$) is not modelled.

Relation to others: with `least` near 0, documents that never move ($\rho = \theta_k$) have the targets of `ipw`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.row_fields import BiasColumn
from unskew.data.clicks.shard_batches import ShardBatches
from unskew.lists import ClickedLists
from unskew.methods.bias.ipw import IPW
from unskew.methods.method import Stage, Terms
from unskew.networks.registry import Problem
from unskew.options import Limits, Positive, Share

EXPECTED = "expected examination"  # a column that is added to the log in training


class DoublyRobust(IPW):
    """A regression of relevance, corrected by clicks over expected examination.

    Args:
        propensities: examination by position; with `by`, one row per level. none: estimated from the log.
        by: bias column with a separate curve per level.
        estimator: estimator of propensities that you do not pass; `seen` uses recorded examination.
        least: smallest expected examination, relative to the top, by which clicks are divided.
        regression_steps: training steps of the regression.
        loss: softmax or squared.
    """

    paper = "Oosterhuis, TOIS 2023"

    def __init__(
        self,
        problem: Problem,
        *,
        propensities: Sequence[Positive] | Sequence[Sequence[Positive]] | None = None,
        by: str | None = None,
        estimator: str = "auto",
        least: Share = 0.1,
        regression_steps: Annotated[int, Limits(0)] = 300,
        loss: Literal["softmax", "squared"] = "softmax",
    ):
        super().__init__(problem, propensities=propensities, by=by, estimator=estimator, loss=loss)
        self.regression = problem.new_ranker()
        self.least = least
        self.regression_steps = regression_steps

    def stages(self) -> list[Stage]:
        regression = Stage(
            "regression", self.regression_loss, {self.regression: 1.0}, steps=self.regression_steps, selects=False
        )
        return [regression, Stage("ranking", self.loss, {self.relevance: 1.0})]

    def regression_loss(self, lists: ClickedLists) -> Terms:
        """The cross-entropy of the regression."""
        scores, expected = lists.apply(self.regression), self.expected(lists)
        relevant = lists.clicks / expected
        irrelevant = (lists.sessions.unsqueeze(-1) * self.propensity(lists) - lists.clicks) / expected
        cost = relevant * F.softplus(-scores) + irrelevant * F.softplus(scores)
        return {"regression": cost.masked_fill(~lists.mask, 0.0).sum()}

    def loss(self, lists: ClickedLists) -> Terms:
        scores = lists.apply(self.relevance)
        return {"clicks": self.weighted_loss(scores, self.targets(lists), lists.sessions, lists.mask)}

    @torch.no_grad()
    def targets(self, lists: ClickedLists) -> Tensor:
        """Estimated relevance times sessions, `[batch, docs]`."""
        believed = lists.sessions.unsqueeze(-1) * lists.apply(self.regression).sigmoid()
        found = believed + (lists.clicks - self.propensity(lists) * believed) / self.expected(lists)
        return found.masked_fill(~lists.mask, 0.0)

    def expected(self, lists: ClickedLists) -> Tensor:
        """Expected examination of each document, `[batch, docs]`; without that column, as if it never moved."""
        known = lists.bias.get(EXPECTED)
        return (self.propensity(lists) if known is None else known).clamp(min=max(self.least, 1e-6))

    def prepare(self, logs: Mapping[str, Any]) -> Mapping[str, Any]:
        clicks = logs["clicks"]
        if isinstance(clicks, ClickLog):
            return {**logs, "clicks": self._with_expected(clicks)}
        if isinstance(clicks, ShardBatches):  # all lists of a query are in one shard
            usual = clicks.prepare
            clicks.prepare = lambda shard: self._with_expected(usual(shard))
        return logs

    def _with_expected(self, log: ClickLog) -> ClickLog:
        """The log with the mean propensity of each document over its showings."""
        curves = self.propensities.cpu().numpy().astype(np.float64)
        level = 0 if self.by is None else log.bias[self.by].per_document(log.mask.shape[1])[log.mask]
        seen = curves[level, np.minimum(log.positions[log.mask], curves.shape[1] - 1)]
        shown = np.broadcast_to(log.sessions[:, None], log.mask.shape)[log.mask].astype(np.float64)
        documents, n = log.versions[log.mask], len(log.features)
        times = np.bincount(documents, shown, n)
        mean = np.bincount(documents, shown * seen, n) / np.where(times > 0, times, 1.0)
        values = np.ones(log.mask.shape, dtype=np.float32)
        values[log.mask] = mean[documents]
        return replace(log, bias={**log.bias, EXPECTED: BiasColumn(values)})
