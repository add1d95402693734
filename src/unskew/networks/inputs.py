"""Inputs of networks: numbers unchanged, then a learned vector for the value of each category.

A column of a category holds the place of its value in a table (`data.raw_columns`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

VECTOR = 8  # size of a category's vector


class Inputs(nn.Module):
    """Numbers, and vectors in place of categories."""

    numbers: Tensor  # [numbers] columns
    places: Tensor  # [categories] columns
    first: Tensor  # [categories] start of each category in the common table

    def __init__(self, n_features: int, categories: Sequence[tuple[int, int]]):
        """
        Args:
            categories: column and number of values of each category.
        """
        super().__init__()
        columns, sizes = [column for column, _ in categories], [size for _, size in categories]
        self.vectors = nn.Embedding(sum(sizes), VECTOR)
        nn.init.normal_(self.vectors.weight, std=VECTOR**-0.5)
        numbers = [column for column in range(n_features) if column not in columns]
        for name, values in {"numbers": numbers, "places": columns, "first": [0, *sizes[:-1]]}.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.int64), persistent=False)
        self.first = self.first.cumsum(0)

    def forward(self, features: Tensor) -> Tensor:
        """`[..., numbers + 8 · categories]` of features `[..., numbers + categories]`."""
        vectors = self.vectors(features[..., self.places].long() + self.first).flatten(-2)
        return torch.cat([features[..., self.numbers], vectors], -1)


def split_inputs(layers: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The input stage and the layers after it; slopes are taken with respect to the output of the input stage."""
    if isinstance(layers, nn.Sequential) and isinstance(layers[0], Inputs):
        return layers[0], layers[1:]
    return nn.Identity(), layers


def n_inputs(n_features: int, n_categories: int) -> int:
    """The output size of `Inputs`."""
    return n_features + (VECTOR - 1) * n_categories
