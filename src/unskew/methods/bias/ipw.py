r"""Inverse propensity weighting (Joachims et al., WSDM 2017; Wang et al., SIGIR 2016).

Assumes $P(c) = P(o \mid k)\,P(r \mid x)$ with a known $P(o \mid k)$: a click at position $k$ counts
$P(o \mid 1) / P(o \mid k)$ times, so that in expectation every document counts as if it had been shown at the top.
Propensities are given, or estimated from the log beforehand (`unskew.estimate_propensities`); only their ratios to
the top matter.

Relation to others: with equal propensities it is `naive`. `dla` learns the propensities along with the ranker. `affine`
adds trust bias, `doubly_robust` a regression of relevance. `attention` with `learn=weights` has one propensity per
document and position.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Literal, Self

import numpy as np
import torch
from torch import Tensor

from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.method import Method, Terms
from unskew.networks.registry import Problem
from unskew.options import Positive


class IPW(Method):
    """Clicks divided by the propensity of their position.

    Args:
        propensities: examination by position; with `by`, one row per level. none: estimated from the log.
        by: bias column with a separate curve per level.
        estimator: estimator of propensities that you do not pass; `seen` uses recorded examination.
        max_weight: largest weight of a click; none: no bound.
        loss: softmax or squared.
    """

    paper = "Joachims et al., WSDM 2017; Wang et al., SIGIR 2016"
    assumes = (
        "examination depends on position (or one bias column and position) only, with known or estimated propensities"
    )
    click_model = "softmax"
    estimated = ("propensities",)
    propensities: Tensor

    def __init__(
        self,
        problem: Problem,
        *,
        propensities: Sequence[Positive] | Sequence[Sequence[Positive]] | None = None,
        by: str | None = None,
        estimator: str = "auto",
        max_weight: Positive | None = None,
        loss: Literal["softmax", "squared"] = "softmax",
    ):
        super().__init__()
        if propensities is None:
            raise ValueError(
                "ipw and doubly_robust need propensities: pass them, or let fit estimate them from the log"
            )
        self.relevance = problem.new_ranker()
        self.by = by
        self.estimator = estimator  # of propensities that are not given; `seen`: from recorded examination
        self.max_weight = max_weight
        self.weighted_loss = losses.LINEAR_IN_TARGET[loss]
        curves = torch.atleast_2d(torch.as_tensor(np.asarray(propensities), dtype=torch.float32, device="cpu"))
        _check(curves, by, problem)
        # One scale for all levels: if levels differ within a list, their differences must not be divided out.
        self.register_buffer("propensities", curves / curves[:, 0].max())

    def loss(self, lists: ClickedLists) -> Terms:
        weights = 1 / self.propensity(lists)
        if self.max_weight is not None:
            weights = weights.clamp(max=self.max_weight)
        scores = lists.apply(self.relevance)
        return {"clicks": self.weighted_loss(scores, lists.clicks * weights, lists.sessions, lists.mask)}

    def propensity(self, lists: ClickedLists) -> Tensor:
        """Propensity of each shown document relative to the top, `[batch, docs]`."""
        places = lists.positions.clamp(max=self.propensities.shape[1] - 1)
        level = lists.bias[self.by] if self.by is not None else torch.zeros_like(places)
        return self.propensities[level, places]

    def click_logits(self, lists: ClickedLists) -> Tensor:
        return lists.apply(self.relevance) + self.propensity(lists).log()

    def examination(self) -> Tensor:
        curve = self.propensities.mean(0)
        return curve / curve[0]

    def at_level(self, column: str, level: int) -> Self | None:
        if column != self.by:
            return None
        found = deepcopy(self)
        found.propensities[:] = self.propensities[level]
        return found


def _check(curves: Tensor, by: str | None, problem: Problem) -> None:
    if curves.ndim != 2 or curves.shape[1] != problem.n_positions:
        raise ValueError(
            f"propensities have shape {tuple(curves.shape)}, but must have one value for each of {problem.n_positions} "
            "positions"
        )
    if by is None:
        if len(curves) != 1:
            raise ValueError(f"{len(curves)} propensity curves, but no bias column to distinguish them: pass by=…")
        return
    levels = problem.bias.get(by)
    if levels is None:
        raise ValueError(f"by='{by}' is not a bias column with levels. Found: {', '.join(problem.bias) or 'none'}")
    if len(curves) != len(levels):
        raise ValueError(f"{len(curves)} propensity curves for {len(levels)} levels of '{by}': pass one per level")
