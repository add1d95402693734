"""Embeddings: documents and bias factors as vectors whose dot product is a click logit."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.networks.documents import PointwiseRanker, mlp, resized, starting_at
from unskew.networks.listwise import ListwiseRanker
from unskew.networks.observation import Table
from unskew.networks.registry import Problem

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
