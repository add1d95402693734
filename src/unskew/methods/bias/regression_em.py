r"""Regression EM (Wang et al., WSDM 2018).

Assumes $P(c) = \theta_k \gamma(x)$ with $\gamma = \sigma(s)$. E-step, for a document that was not clicked:

$P(E{=}1, R{=}0 \mid c{=}0) = \frac{\theta(1-\gamma)}{1-\theta\gamma}$ and
$P(E{=}0, R{=}1 \mid c{=}0) = \frac{(1-\theta)\gamma}{1-\theta\gamma}$; a click means both examined and relevant.

M-step: $s$ by cross-entropy with the posterior of relevance, $\theta_k$ by the running mean of that of examination.
The paper samples labels from the posterior (`sample=True`); the posterior itself is the same in expectation and less
noisy, and is the default. $\theta$ and $\gamma$ are identified up to a common scale. Lists without clicks must be in
the log: without them $\theta$ is too large. The reference programs start at $\theta = .9$ with steps of .05; EM is slow
from there, and counted clicks have little enough noise for larger steps.

Relation to others: the click model of `pbm`, `dla` and `two_tower`, fitted by expectation maximization. `affine`
extends this EM to trust bias.
"""

from __future__ import annotations

from typing import Annotated

import torch
from scipy.stats import binom
from torch import Tensor

from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.method import Method, Terms
from unskew.networks.observation import RunningEstimate, sum_per_position
from unskew.networks.registry import Problem
from unskew.options import Limits, Share
from unskew.processes import new_salt, uniform

Inside = Annotated[float, Limits(above=0, below=1)]
SMALLEST = 1e-6


class RegressionEM(Method):
    """Relevance and examination by expectation maximization.

    Args:
        sample: draw labels from the posterior, as in the paper, instead of learning the posterior itself.
        step_size: weight of a batch in the running mean of examination.
        start: examination of every position before training.
    """

    paper = "Wang et al., WSDM 2018"
    assumes = (
        "examination depends on position only; P(click) = examination × relevance; lists without clicks are in the log"
    )
    click_model = "bernoulli"
    counts_only = True

    def __init__(
        self,
        problem: Problem,
        *,
        sample: bool = False,
        step_size: Share = 0.3,
        start: Annotated[float, Limits(above=0, below=1)] = 0.5,
    ):
        super().__init__()
        self.relevance = problem.new_ranker()
        self.sample = sample
        self.seen = RunningEstimate(torch.full((problem.n_positions,), start), step_size)

    @property
    def exempt(self) -> dict[str, str]:
        if not self.sample:
            return {}
        return {
            "padding_changes_nothing": "a wider batch draws other numbers from the posterior",
            "counts_teach_like_sessions": "draws from the posterior: both agree in expectation only",
        }

    def loss(self, lists: ClickedLists) -> Terms:
        scores = lists.apply(self.relevance)
        seen, relevant = self.posteriors(scores.detach(), lists)
        if self.training:
            self._update(seen, lists)
        if self.sample:
            unclicked = lists.sessions.unsqueeze(-1) - lists.clicks
            share = ((relevant - lists.clicks) / unclicked.clamp(min=SMALLEST)).clamp(0, 1)
            draws = unclicked.ceil().clamp(min=1)  # weighted sessions need not be whole
            relevant = lists.clicks + _binomial(draws, share, lists) * unclicked / draws
        return {"relevance": losses.sigmoid(scores, relevant, lists.sessions, lists.mask)}

    def posteriors(self, scores: Tensor, lists: ClickedLists) -> tuple[Tensor, Tensor]:
        """Expected sessions in which each document was examined, and in which it was relevant, given the clicks."""
        theta = self._theta(lists.positions)
        gamma = scores.sigmoid()
        neither = (1 - theta * gamma).clamp(min=SMALLEST)
        unclicked = lists.sessions.unsqueeze(-1) - lists.clicks
        seen = lists.clicks + unclicked * theta * (1 - gamma) / neither
        relevant = lists.clicks + unclicked * (1 - theta) * gamma / neither
        return seen, relevant

    def click_logits(self, lists: ClickedLists) -> Tensor:
        scores = lists.apply(self.relevance)
        clicked = (self._theta(lists.positions) * scores.sigmoid()).clamp(SMALLEST, 1 - SMALLEST)
        return clicked.logit()

    def examination(self) -> Tensor:
        return self.seen.value / self.seen.value[0]

    def _theta(self, positions: Tensor) -> Tensor:
        return self.seen.value[positions.clamp(max=len(self.seen.value) - 1)]

    def _update(self, seen: Tensor, lists: ClickedLists) -> None:
        n_positions = len(self.seen.value)
        shown = lists.sessions.unsqueeze(-1).expand_as(seen)
        total = sum_per_position(shown, lists.positions, lists.mask, n_positions)
        mean = sum_per_position(seen, lists.positions, lists.mask, n_positions) / total
        self.seen.update(mean.clamp(SMALLEST, 1 - SMALLEST), total > 0)


def _binomial(draws: Tensor, share: Tensor, lists: ClickedLists) -> Tensor:
    """Binomial successes, drawn by the row of the global batch."""
    places = torch.arange(lists.n_docs, device=share.device)
    quantile = uniform(new_salt(), lists.row_keys.unsqueeze(-1), places)
    found = binom.ppf(quantile.cpu().numpy(), draws.cpu().numpy(), share.cpu().double().numpy())
    return torch.as_tensor(found).clamp(min=0.0).to(share)
