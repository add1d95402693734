r"""Vectorization (Chen et al., KDD 2022, arXiv:2206.01702): clicks as a dot product, ranked by a base vector.

Assumes $P(c) \propto \exp(r(x)^\top o(t))$ with a relevance embedding $r(x) \in \mathbb{R}^d$ and an observation
embedding $o(t) \in \mathbb{R}^d$ of the bias factors $t$: the position, and bias columns where the log has them. The
product is in an exponent (Eq. 9), so that $d = 1$ is the logit $r(x)\,o_k$, which does not contain position-based
clicks (except in the limit of ever longer vectors); they are $[\log\gamma, 1]^\top [1, \log\theta_k]$, $d = 2$.

Vectors cannot be sorted. A base model learns the distribution of observation embeddings given the document, as a
Gaussian $\mathcal{N}(\mu(x), \sigma^2(x))$ (Eq. 10), and the documents of a query are projected onto the vector that is
most probable for all of them (Eq. 8):

$\tilde o_q = \frac{\sum_i \mu(x_i) / \sigma^2(x_i)}{\sum_i 1 / \sigma^2(x_i)}$, $s(x_i) = r(x_i)^\top \tilde o_q$.

The ranker therefore takes whole lists. Training: relevance first while observation is frozen, then both, then the base
model alone. The base model also learns in the joint stage, from embeddings without gradient, so that every state that
validation can choose has a matching base model.

Our additions: the base model may be a head on the ranker's trunk (gradient stopped), which costs almost nothing; its
$\log\sigma^2$ is squashed into a safe range; training starts from $[r(x), 1, \dots]^\top [1, 0, \dots]$, a naive ranker
close to the position-based model, rather than from observations of ones, where chance alone distinguishes the
dimensions. `observation_rate` and `base_rate` are learning rates relative to the ranker's: a table of numbers needs a
higher one (10 by default, 1 for a network of bias columns), a variance a lower one, or it collapses at first.

Relation to others: with two dimensions it contains `two_tower` and `affine_softmax`. `low_rank` is the case of $R + 2$
dimensions with one entry of each vector fixed at 1: $[r, 1, e]^\top [1, b_k, a_k]$.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.method import Method, Stage, Terms
from unskew.networks.documents import Ranker
from unskew.networks.embeddings import BASES, BaseModel, RelevanceEmbedding, observation_embedding
from unskew.networks.observation import RunningEstimate, showings
from unskew.networks.registry import Problem
from unskew.options import Count, Limits, NotNegative
from unskew.processes import total


class Vectorization(Method):
    """Listwise softmax on the dot product of relevance and observation embeddings.

    Args:
        dimensions: $d$, size of the embeddings.
        base: source of the base vector: head (on the ranker's trunk), network (as in the paper), or one vector for all
            lists: position (the observation embedding of the first), mean or pca.
        base_decay: weight decay of the base model.
        base_rate: learning rate of the base model relative to the ranker's.
        observation_rate: learning rate of observation relative to the ranker's; none: 10 for a table, 1 for a network.
        warm_up_steps: training steps of relevance alone, before observation is trained.
        base_steps: training steps of the base model alone, at the end.
    """

    paper = "Chen et al., KDD 2022"
    assumes = "the click rate is any function of the document and the position (and bias columns)"
    click_model = "softmax"

    def __init__(
        self,
        problem: Problem,
        *,
        dimensions: Count = 2,
        base: Literal["head", "network", "position", "mean", "pca"] = "head",
        base_decay: NotNegative = 0.001,
        base_rate: NotNegative = 0.3,
        observation_rate: NotNegative | None = None,
        warm_up_steps: Annotated[int, Limits(0)] = 100,
        base_steps: Annotated[int, Limits(0)] = 200,
    ):
        super().__init__()
        start = F.one_hot(torch.tensor(0), dimensions).float()  # 1, 0, 0, …
        self.embedding = RelevanceEmbedding(problem, dimensions, constant=1)
        self.observation = observation_embedding(problem, start)
        self.base = BASES[base](problem, self.embedding, start) if base in BASES else None
        self.moments = RunningEstimate(torch.eye(dimensions + 1), rate=0.02) if base == "pca" else None
        self.fixed_base, self.base_decay, self.base_rate = base, base_decay, base_rate
        self.observation_rate = self.observation.usual_rate if observation_rate is None else observation_rate
        self.warm_up_steps, self.base_steps = warm_up_steps, base_steps

    def stages(self) -> list[Stage]:
        relevance: dict[nn.Module, float] = {self.embedding: 1.0}
        if self.moments is not None:
            relevance[self.moments] = 1.0
        both = {**relevance, self.observation: self.observation_rate}
        # Observation starts the same at all positions; relevance must settle before it is trained.
        warm_up = Stage("warm-up", self.click_loss, relevance, steps=self.warm_up_steps, selects=False)
        if self.base is None:
            return [warm_up, Stage("joint", self.click_loss, both)]
        return [
            warm_up,
            Stage("joint", self.loss, {**both, self.base: self.base_rate}),
            Stage("base", self.base_loss, {self.base: self.base_rate}, steps=self.base_steps),
        ]

    def loss(self, lists: ClickedLists) -> Terms:
        """Eq. 9 and Eq. 10; the gradient of the second reaches only the base model."""
        if self.base is None:
            return self.click_loss(lists)
        r, mean, log_variance = lists.apply(self._embed, pointwise=self.embedding.pointwise)
        o = self.observation(lists.positions, lists.bias)
        return {**self._click_terms(r, o, lists), **self._base_terms(mean, log_variance, o, lists)}

    def click_loss(self, lists: ClickedLists) -> Terms:
        """Eq. 9."""
        return self._click_terms(lists.apply(self.embedding), self.observation(lists.positions, lists.bias), lists)

    def base_loss(self, lists: ClickedLists) -> Terms:
        """Eq. 10; the penalty counts once per session."""
        with torch.no_grad():
            o = self.observation(lists.positions, lists.bias)
        _, mean, log_variance = lists.apply(self._embed, pointwise=self.embedding.pointwise)
        return self._base_terms(mean, log_variance, o, lists)

    def _embed(self, features: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """Embeddings of documents, and mean and log variance of their base, whose gradient reaches only the base."""
        assert self.base is not None
        trunk = self.embedding.trunk(features, mask)
        return (self.embedding.last(trunk), *self.base(features, trunk.detach()))

    def _click_terms(self, r: Tensor, o: Tensor, lists: ClickedLists) -> Terms:
        if self.training and self.moments is not None:
            self.moments.update(_moments(r.detach(), lists))
        return {"clicks": losses.softmax((r * o).sum(-1), lists.clicks, lists.mask)}

    def _base_terms(self, mean: Tensor, log_variance: Tensor, o: Tensor, lists: ClickedLists) -> Terms:
        assert self.base is not None
        squares = torch.stack([parameter.square().sum() for parameter in self.base.parameters()]).sum()
        return {
            "base": gaussian(mean, log_variance, o.detach(), showings(lists)),
            "base decay": self.base_decay * squares * lists.sessions.sum(),
        }

    def click_logits(self, lists: ClickedLists) -> Tensor:
        return (lists.apply(self.embedding) * self.observation(lists.positions, lists.bias)).sum(-1)

    def ranker(self) -> ProjectedRanker:
        return ProjectedRanker(self.embedding, FixedBase(self._one_vector()) if self.base is None else self.base)

    def _one_vector(self) -> Tensor:
        """The base vector of all lists."""
        at_positions = self.observation.at_positions().detach()
        if self.moments is None:
            return at_positions[0] if self.fixed_base == "position" else at_positions.mean(0)
        moments = self.moments.value
        mean = moments[-1, :-1]
        _, directions = torch.linalg.eigh(moments[:-1, :-1] - mean.outer(mean))  # ascending
        direction = directions[:, -1]  # in which relevance embeddings vary most
        return torch.where(at_positions.mean(0) @ direction >= 0, direction, -direction)  # more of it, more clicks


class FixedBase(nn.Module):
    """One base vector for all lists."""

    value: Tensor

    def __init__(self, value: Tensor):
        super().__init__()
        self.register_buffer("value", value.detach().clone())

    def vector(self, features: Tensor, trunk: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        """The base vector, `[1, d]`."""
        return self.value.unsqueeze(0)


class ProjectedRanker(Ranker):
    """Scores of relevance embeddings projected onto the base vector of their list (Algorithm 2)."""

    def __init__(self, embedding: RelevanceEmbedding, base: BaseModel | FixedBase):
        super().__init__()
        self.embedding = embedding
        self.base = base

    @property
    def pointwise(self) -> bool:
        return isinstance(self.base, FixedBase) and self.embedding.encoder is None

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        trunk = self.embedding.trunk(features, mask)
        base = self.base.vector(features, trunk, mask)
        return (self.embedding.last(trunk) * base.unsqueeze(1)).sum(-1)


def gaussian(mean: Tensor, log_variance: Tensor, observed: Tensor, weights: Tensor) -> Tensor:
    r"""$\frac{1}{2} \sum_i w_i \left(\frac{(\mu_i - o_i)^2}{\sigma_i^2} + \log\sigma_i^2\right)$, all dimensions."""
    cost = (mean - observed).square() * (-log_variance).exp() + log_variance
    return 0.5 * (weights * cost.sum(-1)).sum()


def _moments(relevance: Tensor, lists: ClickedLists) -> Tensor:
    """Mean of [r, 1] [r, 1]^T over impressions, `[d + 1, d + 1]`."""
    weights = showings(lists).reshape(-1, 1)
    vectors = F.pad(relevance, (0, 1), value=1.0).flatten(0, 1)
    return total((weights * vectors).T @ vectors) / total(weights.sum())
