r"""Parts of a low-rank observation: loadings of positions, and the links that make an observation of them.

A document has traits $e(x) \in \mathbb{R}^R$, a position a logit $b_k$ and loadings $a_k \in \mathbb{R}^R$. A link says
how $b_k + e \cdot a_k$ becomes $\log o_k(x)$, and which number the clicks then leave open, whatever the log: relevance
may be corrected by any value of it, and all clicks stay as they are (docs/low_rank.md has the proofs).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.networks.documents import Ranker

NEARLY_ONE = 0.95  # of what delta can take from the least visible documents
LEAST_VISIBLE = 0.95  # quantile of w: documents beyond it do not hold delta back, their correction is cut off
MOST_ON_TOP = 2.0  # times that observation may vary on top as much as it varies from there to the other positions
N_DELTAS = 41  # candidates, from one end of the interval to the other
MOST_HIDDEN = 30.0  # largest -u whose e^-u is computed: beyond it there is only overflow


class Loadings(nn.Module):
    r"""How much each direction of $e$ weighs at each position, `[directions, positions]`; from 0 on top down to -1.

    Args:
        pinned: 0 on top, whatever is learnt.
        monotone: no entry above the one before it.
    """

    def __init__(self, n_directions: int, n_positions: int, *, pinned: bool, monotone: bool):
        super().__init__()
        self.shape = (n_directions, n_positions)
        self.pinned = pinned
        self.monotone = monotone
        step = 1 / max(n_positions - 1, 1)
        if monotone:
            start = torch.full(self.shape, math.log(math.expm1(step)))
            start[:, :1] = 0.0
        else:
            # Waves of different length: directions that start alike would be told apart by chance alone.
            waves = torch.arange(1, n_directions + 1).unsqueeze(1) * torch.arange(n_positions) * step
            start = ((math.pi * waves).cos() - 1) / 2
        # Flat, since matrices are decayed in training, and tables of positions should not be.
        self.flat = nn.Parameter(start.flatten())

    def forward(self) -> Tensor:
        first, rest = self.flat.view(self.shape).tensor_split([1], dim=1)
        if self.pinned:
            first = torch.zeros_like(first)
        if self.monotone:
            rest = first - F.softplus(rest).cumsum(1)
        return torch.cat([first, rest], dim=1)


@dataclass(frozen=True)
class Average:
    """What is known of an observation as a whole, to choose the open number by."""

    logits: Tensor  # [positions], b
    table: Tensor  # [R, positions], a
    curve: Tensor  # [positions], log examination of the average document relative to the top
    moments: Tensor  # [m], means over showings of the link's moments


@dataclass(frozen=True)
class Link:
    """How tables and traits make an observation, and the number that clicks then leave open."""

    n_ones: int  # traits that weigh 1 at every position
    log_seen: Callable[[Tensor], Tensor]  # b + e a -> log o
    correction: Callable[[Tensor, Tensor], Tensor]  # traits [..., R], numbers -> what is added to relevance [...]
    moments: Callable[[Tensor, Tensor], Tensor]  # traits [..., R], b_1 -> what is averaged over showings [..., m]
    on_top: Callable[[Average], Tensor | None]  # the number that ranks by clicks on top; None: as it is
    by_examination: Callable[[Average, float], Tensor]  # the number that belongs to a mean examination of the top
    uncorrelated: Callable[[Average, Tensor, Tensor, Tensor], Tensor]  # .., relevance [lists, docs], traits, mask


class CorrectedRanker(Ranker):
    """Relevance, and what is added once the open number is chosen."""

    numbers: Tensor

    def __init__(self, relevance: Ranker, traits: nn.Module, link: Link, numbers: Tensor):
        super().__init__()
        self.relevance = relevance
        self.traits = traits
        self.link = link
        self.register_buffer("numbers", numbers.detach().clone())

    @property
    def pointwise(self) -> bool:
        return self.relevance.pointwise

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        return self.relevance(features, mask) + self.link.correction(self.traits(features), self.numbers)


def _identity(values: Tensor) -> Tensor:
    return values


def _weighed(traits: Tensor, numbers: Tensor) -> Tensor:
    r"""$c \cdot e$."""
    return (traits * numbers).sum(-1)


def _traits_alone(traits: Tensor, top: Tensor) -> Tensor:  # noqa: ARG001
    return traits


def _power_of_the_curve(average: Average, top: float) -> Tensor:
    r"""$c = -s \log \theta_1$ with $s$ the slope of $a$ in the average curve, both relative to the top."""
    curve = average.curve
    slope = average.table @ curve / curve.square().sum().clamp(min=torch.finfo(curve.dtype).eps)
    return -math.log(top) * slope


def hidden(traits: Tensor) -> Tensor:
    r"""$w = e^{-u}$ with $u = e_1$, how hard a document is to see."""
    return traits[..., 0].neg().clamp(max=MOST_HIDDEN).exp()


def _freed(traits: Tensor, numbers: Tensor) -> Tensor:
    r"""$-\log(1 - \delta w)$."""
    return -torch.log(1 - (numbers[0] * hidden(traits)).clamp(max=NEARLY_ONE))


def _seen_on_top(traits: Tensor, top: Tensor) -> Tensor:
    r"""$e$, $o_1 = \sigma(b_1 + u)$ and $w\,o_1$."""
    seen = (top + traits[..., 0]).sigmoid()
    return torch.cat([traits, torch.stack([seen, hidden(traits) * seen], -1)], -1)


def _delta_on_top(average: Average) -> Tensor:
    return -torch.exp(-average.logits[:1])


def _delta_by_examination(average: Average, top: float) -> Tensor:
    r"""Where the mean of $o_1 (1 - \delta w)$ is $\theta_1$; not below what ranks by clicks on top, where it is 1."""
    seen, unseen = average.moments[-2:].unsqueeze(1)
    delta = (seen - top) / unseen.clamp(min=torch.finfo(unseen.dtype).eps)
    return torch.maximum(delta, _delta_on_top(average))


def covariance(one: Tensor, other: Tensor, mask: Tensor) -> Tensor:
    """Covariance within lists of two values of each document, `[lists, docs]`."""
    sizes = mask.sum(1, keepdim=True).clamp(min=1)

    def within(values: Tensor) -> Tensor:
        return (values - (values * mask).sum(1, keepdim=True) / sizes) * mask

    return (within(one) * within(other)).sum() / mask.sum().clamp(min=1)


def _loading_apart(average: Average, relevance: Tensor, traits: Tensor, mask: Tensor) -> Tensor:
    r"""$c = \rho d$ with $d$ the mean of $a_1 - a_k$, and $r + \rho\,d \cdot e$ uncorrelated with $d \cdot e$."""
    top, below = average.table.tensor_split([1], dim=1)
    fall = (top - below).sum(1) / max(below.shape[1], 1)
    missed = traits @ fall  # how much less a document is seen further down, in logs
    ratio = -covariance(relevance, missed, mask) / covariance(missed, missed, mask).clamp(
        min=torch.finfo(fall.dtype).eps
    )
    return ratio.clamp(0.0, MOST_ON_TOP) * fall


def _delta_apart(average: Average, relevance: Tensor, traits: Tensor, mask: Tensor) -> Tensor:
    r"""The $\delta$ for which $r - \log(1 - \delta w)$ and the new $u$ are least correlated."""
    least, most = _delta_on_top(average), largest_delta(traits[mask])
    candidates = least + torch.linspace(0, 1, N_DELTAS).to(least) * (most - least)

    def correlation(delta: Tensor) -> Tensor:
        freed = _freed(traits, delta.unsqueeze(0))
        scores, visible = relevance + freed, traits[..., 0] - freed
        spreads = covariance(scores, scores, mask) * covariance(visible, visible, mask)
        return covariance(scores, visible, mask).abs() / spreads.clamp(min=torch.finfo(spreads.dtype).eps).sqrt()

    return candidates[torch.stack([correlation(delta) for delta in candidates]).argmin()].unsqueeze(0)


def largest_delta(traits: Tensor) -> Tensor:
    """What all but the least visible of these documents, `[n, R]`, allow."""
    unseen = hidden(traits)
    return NEARLY_ONE / unseen.double().quantile(LEAST_VISIBLE).to(unseen)


LINKS: dict[str, Link] = {
    "log_linear": Link(0, _identity, _weighed, _traits_alone, lambda _: None, _power_of_the_curve, _loading_apart),
    "logit": Link(1, F.logsigmoid, _freed, _seen_on_top, _delta_on_top, _delta_by_examination, _delta_apart),
}
