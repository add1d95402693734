r"""Affine correction for trust bias (Vardasbi, Oosterhuis and de Rijke, CIKM 2020, arXiv:2008.10242).

People click high-ranked documents even if they are not relevant:

$P(c \mid k, x) = \theta_k(\epsilon^+_k \gamma(x) + \epsilon^-_k (1 - \gamma(x))) = \alpha_k \gamma(x) + \beta_k$,

with $\alpha_k = \theta_k(\epsilon^+_k - \epsilon^-_k)$ and $\beta_k = \theta_k \epsilon^-_k$. Then
$(c - \beta_k) / \alpha_k$ is an unbiased estimate of $\gamma$ for every shown document, clicked or not.

The estimate can be negative, so it is not a distribution: the loss is squared error, which is linear in it and bounded
below. (`loss="softmax"` is linear too, but unbounded; it is for comparison with `ipw`.)

`alpha` and `beta` are given, or estimated by EM in a first stage. Clicks only depend on
$a_k = P(c \mid R{=}1, k) = \theta_k \epsilon^+_k$ and $b_k = P(c \mid R{=}0, k) = \theta_k \epsilon^-_k$, so the EM is
on them: the posterior of relevance is $\frac{a\gamma}{a\gamma + b(1-\gamma)}$ after a click and
$\frac{(1-a)\gamma}{(1-a)\gamma + (1-b)(1-\gamma)}$ after none; $a_k$ and $b_k$ are clicks per relevant and per
irrelevant showing, and $\gamma = \sigma(s)$ learns the posterior, as in regression EM. (Derived here from the model.)

Relation to others: with $\epsilon^- = 0$ and `loss="softmax"` it is `ipw` with propensities $\theta_k \epsilon^+_k$.
`affine_softmax` applies the affine function to the click logit, not to the click. The EM extends that of
`regression_em`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.method import Method, Stage, Terms
from unskew.networks.observation import RunningEstimate, sum_per_position
from unskew.networks.registry import Problem
from unskew.options import Count, Positive, Share

SMALLEST = 1e-4
RATE = 0.5  # learning rate relative to other methods: clicks divided by a small alpha give large gradients
LEAST_ALPHA = 0.01  # lower bound of an estimated alpha, so that no weight exceeds 100


class Affine(Method):
    """Relevance from clicks corrected by an affine function of the position.

    Args:
        alpha, beta: slope and offset by position; none: estimated from the log.
        loss: squared or softmax.
        step_size: weight of a batch in the running means of the EM.
        estimation_steps: training steps of the EM, if alpha and beta are estimated.
    """

    paper = "Vardasbi et al., CIKM 2020"
    assumes = "examination and trust depend on position only"
    counts_only = True

    alpha: Tensor
    beta: Tensor

    def __init__(
        self,
        problem: Problem,
        *,
        alpha: Sequence[Positive] | None = None,
        beta: Sequence[float] | None = None,
        loss: Literal["squared", "softmax"] = "squared",
        step_size: Share = 0.3,
        estimation_steps: Count = 500,
    ):
        super().__init__()
        if (alpha is None) != (beta is None):
            raise ValueError("pass both alpha and beta, or neither (then they are estimated)")
        self.relevance = problem.new_ranker()
        self.corrected_loss = losses.LINEAR_IN_TARGET[loss]
        self.given = alpha is not None
        self.estimation_steps = estimation_steps
        if alpha is not None and beta is not None:
            self.register_buffer("alpha", _curve(alpha, "alpha", problem.n_positions))
            self.register_buffer("beta", _curve(beta, "beta", problem.n_positions))
        else:
            self.estimate = TrustEstimate(problem, step_size)

    def stages(self) -> list[Stage]:
        correction = Stage("correction", self.loss, {self.relevance: RATE})
        if self.given:
            return [correction]
        estimation = Stage(
            "estimation", self.estimate.loss, {self.estimate: RATE}, steps=self.estimation_steps, selects=False
        )
        return [estimation, correction]

    def loss(self, lists: ClickedLists) -> Terms:
        alpha, beta = self.affine()
        places = lists.positions.clamp(max=len(alpha) - 1)
        estimate = (lists.clicks - lists.sessions.unsqueeze(-1) * beta[places]) / alpha[places]
        scores = lists.apply(self.relevance)
        return {
            "clicks": self.corrected_loss(scores, estimate.masked_fill(~lists.mask, 0.0), lists.sessions, lists.mask)
        }

    def affine(self) -> tuple[Tensor, Tensor]:
        r"""$\alpha$ and $\beta$ at each position."""
        if self.given:
            return self.alpha, self.beta
        relevant, irrelevant = self.estimate.click_rates()
        return (relevant - irrelevant).clamp(min=LEAST_ALPHA), irrelevant

    def examination(self) -> Tensor:
        alpha, _ = self.affine()
        return alpha / alpha[0]


class TrustEstimate(nn.Module):
    """Clicks of relevant and of irrelevant documents at each position, by EM."""

    def __init__(self, problem: Problem, step_size: float):
        super().__init__()
        self.relevance = problem.new_ranker()
        ones = torch.ones(problem.n_positions)
        self.relevant = RunningEstimate(ones, step_size)  # showings of relevant documents per session
        self.relevant_clicks = RunningEstimate(0.8 * ones, step_size)
        self.irrelevant = RunningEstimate(ones, step_size)
        self.irrelevant_clicks = RunningEstimate(0.2 * ones, step_size)

    def click_rates(self) -> tuple[Tensor, Tensor]:
        """P(click | relevant) and P(click | irrelevant), `[positions]`."""
        relevant = self.relevant_clicks.value / self.relevant.value.clamp(min=SMALLEST)
        irrelevant = self.irrelevant_clicks.value / self.irrelevant.value.clamp(min=SMALLEST)
        return relevant.clamp(SMALLEST, 1 - SMALLEST), irrelevant.clamp(SMALLEST, 1 - SMALLEST)

    def loss(self, lists: ClickedLists) -> Terms:
        scores = lists.apply(self.relevance)
        after_click, after_none = self.posteriors(scores.detach().sigmoid(), lists.positions)
        clicks = lists.clicks
        unclicked = lists.sessions.unsqueeze(-1) - clicks
        relevant = clicks * after_click + unclicked * after_none
        if self.training:
            shown = lists.sessions.unsqueeze(-1).expand_as(clicks)
            self._update(self.relevant, relevant, lists)
            self._update(self.relevant_clicks, clicks * after_click, lists)
            self._update(self.irrelevant, shown - relevant, lists)
            self._update(self.irrelevant_clicks, clicks * (1 - after_click), lists)
        return {"estimation": losses.sigmoid(scores, relevant, lists.sessions, lists.mask)}

    def posteriors(self, gamma: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """P(relevant | click) and P(relevant | no click) of each document."""
        relevant, irrelevant = self.click_rates()
        places = positions.clamp(max=len(relevant) - 1)
        a, b = relevant[places], irrelevant[places]
        click = a * gamma + b * (1 - gamma)
        return a * gamma / click, (1 - a) * gamma / (1 - click)

    def _update(self, estimate: RunningEstimate, values: Tensor, lists: ClickedLists) -> None:
        n_positions = len(estimate.value)
        shown = lists.sessions.unsqueeze(-1).expand_as(values)
        total = sum_per_position(shown, lists.positions, lists.mask, n_positions)
        estimate.update(sum_per_position(values, lists.positions, lists.mask, n_positions) / total, total > 0)


def _curve(values: Sequence[float], name: str, n_positions: int) -> Tensor:
    curve = torch.as_tensor(values, dtype=torch.float32, device="cpu")
    if curve.shape != (n_positions,):
        raise ValueError(f"{name} must be {n_positions} numbers, one per position, got {list(values)}")
    return curve
