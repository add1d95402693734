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

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.method import Method, Stage, Terms
from unskew.networks.documents import Ranker, mlp, resized, starting_at
from unskew.networks.embeddings import RelevanceEmbedding, observation_embedding
from unskew.networks.registry import Problem
from unskew.networks.running import RunningEstimate
from unskew.processes import total

LARGEST_LOG_VARIANCE = 4.0  # of either sign; embeddings are of order 1, and σ stays between e^-2 and e^2
BASE_SIZES = (256, 64)  # the paper's base network


class Vectorization(Method):
    """Listwise softmax on the dot product of relevance and observation embeddings.

    Args:
        dimensions: $d$, size of the embeddings.
        base: source of the base vector: head (on the ranker's trunk), network (as in the paper), or one vector for all
            lists: position, mean or pca.
        base_position: the position whose embedding is the base vector, for `base="position"`.
        base_decay: weight decay of the base model.
        base_rate: learning rate of the base model relative to the ranker's.
        observation_rate: learning rate of observation relative to the ranker's; none: 3 for a table, 1 for a network.
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
        dimensions: int = 2,
        base: str = "head",
        base_position: int = 0,
        base_decay: float = 0.001,
        base_rate: float = 0.3,
        observation_rate: float | None = None,
        warm_up_steps: int = 100,
        base_steps: int = 200,
    ):
        super().__init__()
        _check(problem, dimensions, base, base_position)
        start = F.one_hot(torch.tensor(0), dimensions).float()  # 1, 0, 0, …
        self.embedding = RelevanceEmbedding(problem, dimensions, constant=1)
        self.observation = observation_embedding(problem, start)
        self.base = LEARNT_BASES[base](problem, self.embedding, start) if base in LEARNT_BASES else None
        self.fixed_base = FIXED_BASES.get(base)
        self.moments = RunningEstimate(torch.eye(dimensions + 1), rate=0.02) if base == "pca" else None
        self.base_position = base_position
        self.base_decay = base_decay
        self.base_rate = base_rate
        self.observation_rate = self.observation.usual_rate if observation_rate is None else observation_rate
        self.warm_up_steps = warm_up_steps
        self.base_steps = base_steps

    def stages(self) -> list[Stage]:
        relevance: dict[nn.Module, float] = {self.embedding: 1.0}
        if self.moments is not None:
            relevance[self.moments] = 1.0
        both = {**relevance, self.observation: self.observation_rate}
        # Observation starts the same at all positions; relevance must settle before it is trained.
        warm_up = Stage("warm-up", self.click_loss, relevance, steps=self.warm_up_steps, selects=False)
        if self.base is None:
            return [warm_up, Stage("joint", self.loss, both)]
        return [
            warm_up,
            Stage("joint", self.loss, {**both, self.base: self.base_rate}),
            Stage("base", self.base_loss, {self.base: self.base_rate}, steps=self.base_steps),
        ]

    def loss(self, lists: ClickedLists) -> Terms:
        observed = self.observation(lists.positions, lists.bias)
        if self.base is None:
            return self._click_terms(lists.apply(self.embedding), observed, lists)
        relevance, mean, log_variance = lists.apply(self._embed, pointwise=self.embedding.pointwise)
        clicks = self._click_terms(relevance, observed, lists)
        return {**clicks, **self._base_terms(mean, log_variance, observed, lists)}

    def click_loss(self, lists: ClickedLists) -> Terms:
        """Eq. 9."""
        return self._click_terms(lists.apply(self.embedding), self.observation(lists.positions, lists.bias), lists)

    def base_loss(self, lists: ClickedLists) -> Terms:
        """Eq. 10; the penalty counts once per session."""
        observed = self.observation(lists.positions, lists.bias)
        mean, log_variance = lists.apply(self._bases, pointwise=self.embedding.pointwise)
        return self._base_terms(mean, log_variance, observed, lists)

    def _embed(self, features: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """Embeddings of documents, and mean and log variance of their base, whose gradient reaches only the base."""
        assert self.base is not None
        trunk = self.embedding.trunk(features, mask)
        return (self.embedding.last(trunk), *self.base(features, trunk.detach()))

    def _bases(self, features: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """Mean and log variance of the documents' base."""
        assert self.base is not None
        with torch.no_grad():
            trunk = self.embedding.trunk(features, mask)
        return self.base(features, trunk)

    def _click_terms(self, relevance: Tensor, observed: Tensor, lists: ClickedLists) -> Terms:
        if self.training and self.moments is not None:
            self.moments.update(_moments(relevance.detach(), lists))
        return {"clicks": losses.softmax((relevance * observed).sum(-1), lists.clicks, lists.mask)}

    def _base_terms(self, mean: Tensor, log_variance: Tensor, observed: Tensor, lists: ClickedLists) -> Terms:
        assert self.base is not None
        impressions = lists.sessions.unsqueeze(-1) * lists.mask
        squares = torch.stack([parameter.square().sum() for parameter in self.base.parameters()]).sum()
        return {
            "base": gaussian(mean, log_variance, observed.detach(), impressions),
            "base decay": self.base_decay * squares * lists.sessions.sum(),
        }

    def click_logits(self, lists: ClickedLists) -> Tensor:
        return (lists.apply(self.embedding) * self.observation(lists.positions, lists.bias)).sum(-1)

    def ranker(self) -> ProjectedRanker:
        if self.base is not None:
            return ProjectedRanker(self.embedding, self.base)
        assert self.fixed_base is not None
        return ProjectedRanker(self.embedding, FixedBase(self.fixed_base(self)))


class BaseModel(nn.Module, ABC):
    """The distribution of observation embeddings given a document: mean and log variance of each dimension.

    Its initial value is that of observation, so that every state of training has a ranker.
    """

    def __init__(self, layers: nn.Sequential, start: Tensor):
        super().__init__()
        self.layers = starting_at(torch.cat([start, torch.zeros_like(start)]), layers)

    def forward(self, features: Tensor, trunk: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance, `[batch, docs, d]` each."""
        mean, free = self.layers(self.inputs(features, trunk)).chunk(2, -1)
        # Squashed rather than clipped: a clipped value has no gradient to return.
        return mean, LARGEST_LOG_VARIANCE * (free / LARGEST_LOG_VARIANCE).tanh()

    @abstractmethod
    def inputs(self, features: Tensor, trunk: Tensor) -> Tensor:
        """The input of the layers."""

    def vector(self, features: Tensor, trunk: Tensor, mask: Tensor) -> Tensor:
        """The base vector of each list, `[batch, d]`."""
        mean, log_variance = self(features, trunk)
        return base_vector(mean, log_variance, mask)


class BaseNetwork(BaseModel):
    """The base model of the paper: a separate network on the features."""

    def __init__(self, problem: Problem, embedding: RelevanceEmbedding, start: Tensor):  # noqa: ARG002
        layers = mlp(problem.n_inputs, BASE_SIZES, 2 * len(start), norm=False)
        super().__init__(layers.insert(0, problem.new_inputs()) if problem.categories else layers, start)

    def inputs(self, features: Tensor, trunk: Tensor) -> Tensor:  # noqa: ARG002
        return features


class BaseHead(BaseModel):
    """A linear layer on the ranker's trunk; the ranker does not learn from it."""

    def __init__(self, problem: Problem, embedding: RelevanceEmbedding, start: Tensor):  # noqa: ARG002
        super().__init__(nn.Sequential(resized(embedding.last, 2 * len(start))), start)

    def inputs(self, features: Tensor, trunk: Tensor) -> Tensor:  # noqa: ARG002
        return trunk


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


def base_vector(mean: Tensor, log_variance: Tensor, mask: Tensor) -> Tensor:
    r"""Eq. 8 over the real documents of each list: means weighted by $1/\sigma^2$, `[batch, d]`."""
    precision = (-log_variance).exp() * mask.unsqueeze(-1)
    return (precision * mean).sum(1) / precision.sum(1).clamp(min=torch.finfo(precision.dtype).tiny)


def gaussian(mean: Tensor, log_variance: Tensor, observed: Tensor, weights: Tensor) -> Tensor:
    r"""$\frac{1}{2} \sum_i w_i \left(\frac{(\mu_i - o_i)^2}{\sigma_i^2} + \log\sigma_i^2\right)$, all dimensions."""
    cost = (mean - observed).square() * (-log_variance).exp() + log_variance
    return 0.5 * (weights * cost.sum(-1)).sum()


def _moments(relevance: Tensor, lists: ClickedLists) -> Tensor:
    """Mean of [r, 1] [r, 1]^T over impressions, `[d + 1, d + 1]`."""
    weights = (lists.sessions.unsqueeze(-1) * lists.mask).reshape(-1, 1)
    vectors = F.pad(relevance, (0, 1), value=1.0).flatten(0, 1)
    return total((weights * vectors).T @ vectors) / total(weights.sum())


def _principal_direction(method: Vectorization) -> Tensor:
    """The direction in which relevance embeddings vary most, with the sign that increases clicks."""
    assert method.moments is not None
    moments = method.moments.value
    mean = moments[-1, :-1]
    _, directions = torch.linalg.eigh(moments[:-1, :-1] - mean.outer(mean))  # ascending
    direction = directions[:, -1]
    clicks_grow = method.observation.at_positions().detach().mean(0) @ direction >= 0
    return torch.where(clicks_grow, direction, -direction)


LEARNT_BASES: dict[str, Callable[[Problem, RelevanceEmbedding, Tensor], BaseModel]] = {
    "network": BaseNetwork,
    "head": BaseHead,
}
FIXED_BASES: dict[str, Callable[[Vectorization], Tensor]] = {
    "position": lambda method: method.observation.at_positions()[method.base_position],
    "mean": lambda method: method.observation.at_positions().mean(0),
    "pca": _principal_direction,
}


def _check(problem: Problem, dimensions: int, base: str, base_position: int) -> None:
    known = [*LEARNT_BASES, *FIXED_BASES]
    if dimensions < 1:
        raise ValueError(f"dimensions must be at least 1, got {dimensions}")
    if base not in known:
        raise ValueError(f"unknown base '{base}': choose from {', '.join(known)}")
    if not 0 <= base_position < problem.n_positions:
        raise ValueError(f"base_position must be one of 0 to {problem.n_positions - 1}, got {base_position}")
