"""Embeddings: documents and bias factors as vectors whose dot product is a click logit.

A base model predicts the vector of observation from the document, to rank by the product with one vector per list.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.networks.documents import PointwiseRanker, mlp, resized, starting_at
from unskew.networks.listwise import ListwiseRanker
from unskew.networks.observation import Table
from unskew.networks.registry import Problem

LARGEST_LOG_VARIANCE = 4.0  # of either sign; embeddings are of order 1, and σ stays between e^-2 and e^2
BASE_SIZES = (256, 64)  # the base network of the Vectorization paper
CONTEXT_SIZES = (32,)  # hidden layers of the observation network, if the log has bias columns


class RelevanceEmbedding(nn.Module):
    """Documents as vectors: the network of a scalar ranker whose last layer is wider.

    Args:
        constant: index of a dimension that starts at 1 for every document; ignored if there are not that many.
    """

    def __init__(self, problem: Problem, dimensions: int, constant: int | None = None):
        super().__init__()
        ranker = problem.new_ranker()
        if isinstance(ranker, ListwiseRanker):
            layers, ranker.score = ranker.score, nn.Sequential()
            self.encoder: ListwiseRanker | None = ranker
        elif isinstance(ranker, PointwiseRanker) and isinstance(ranker.layers, nn.Sequential):
            layers, self.encoder = ranker.layers, None
        else:
            raise ValueError(f"network '{problem.network.kind}' has no embeddings: choose another")
        self.pointwise = self.encoder is None
        *hidden, last = layers
        assert isinstance(last, nn.Linear)
        self.hidden = nn.Sequential(*hidden)
        self.last = resized(last, dimensions)
        if constant is not None and constant < dimensions:
            with torch.no_grad():
                self.last.weight[constant], self.last.bias[constant] = 0.0, 1.0

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """Embeddings `[batch, docs, d]`."""
        return self.last(self.trunk(features, mask))

    def trunk(self, features: Tensor, mask: Tensor) -> Tensor:
        """The input of the last layer, `[batch, docs, size]`."""
        return self.hidden(features if self.encoder is None else self.encoder.encode(features, mask))


class PositionEmbedding(nn.Module):
    """Observation embedding as a table, one row per position."""

    usual_rate = 10.0  # relative to a network's, which has many weights to move a score by

    def __init__(self, problem: Problem, start: Tensor):
        super().__init__()
        self.table = Table(start.repeat(problem.n_positions, 1))

    def forward(self, positions: Tensor, bias: Mapping[str, Tensor]) -> Tensor:  # noqa: ARG002
        """Embeddings `[batch, docs, d]`."""
        return self.table[positions.clamp(max=len(self.table) - 1)]  # positions beyond the last known count as the last

    def at_positions(self) -> Tensor:
        """Embedding of each position, `[positions, d]`."""
        return self.table


class ContextEmbedding(nn.Module):
    """Observation embedding as a small network of position and bias columns."""

    usual_rate = 1.0

    def __init__(self, problem: Problem, start: Tensor):
        super().__init__()
        self.n_positions = problem.n_positions
        self.columns = {name: None if levels is None else len(levels) for name, levels in problem.bias.items()}
        n_inputs = self.n_positions + sum(1 if size is None else size for size in self.columns.values())
        self.layers = starting_at(start, mlp(n_inputs, CONTEXT_SIZES, len(start), norm=False))

    def forward(self, positions: Tensor, bias: Mapping[str, Tensor]) -> Tensor:
        """Embeddings `[batch, docs, d]`."""
        inputs = [F.one_hot(positions.clamp(max=self.n_positions - 1), self.n_positions)]
        for name, size in self.columns.items():
            # A number may have any scale, which is unknown here: asinh keeps sign and order.
            inputs.append(bias[name].asinh().unsqueeze(-1) if size is None else F.one_hot(bias[name], size))
        dtype = next(self.parameters()).dtype
        return self.layers(torch.cat([values.to(dtype) for values in inputs], -1))

    def at_positions(self) -> Tensor:
        """Embedding of each position at the average of all levels and 0 of numeric columns, `[positions, d]`."""
        average = [[0.0] if size is None else [1 / size] * size for size in self.columns.values()]
        context = torch.tensor([value for column in average for value in column]).expand(self.n_positions, -1)
        inputs = torch.cat([torch.eye(self.n_positions), context], -1)
        return self.layers(inputs.to(next(self.parameters())))


def observation_embedding(problem: Problem, start: Tensor) -> PositionEmbedding | ContextEmbedding:
    """A table for position alone, a network if the log has bias columns; initially `start` everywhere."""
    return ContextEmbedding(problem, start) if problem.bias else PositionEmbedding(problem, start)


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


def base_vector(mean: Tensor, log_variance: Tensor, mask: Tensor) -> Tensor:
    r"""Eq. 8 over the real documents of each list: means weighted by $1/\sigma^2$, `[batch, d]`."""
    precision = (-log_variance).exp() * mask.unsqueeze(-1)
    return (precision * mean).sum(1) / precision.sum(1).clamp(min=torch.finfo(precision.dtype).tiny)


BASES: dict[str, Callable[[Problem, RelevanceEmbedding, Tensor], BaseModel]] = {
    "network": BaseNetwork,
    "head": BaseHead,
}
