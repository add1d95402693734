r"""Limits of an observation that depends on the document: a penalty on its slope, and cancelling (Chen et al., 2022).

The slope is the norm of the gradient with respect to the features. Documents and positions to penalize can be drawn at
random; the estimate is unbiased. Cancelling randomly leaves observation out of the click logit, so that relevance also
learns to explain clicks without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from unskew.lists import ClickedLists
from unskew.processes import new_salt, total, uniform

CANCELLED_TOGETHER: dict[str, Callable[[ClickedLists], int]] = {
    "document": lambda lists: lists.n_docs,
    "list": lambda _: 1,
}


def showings(lists: ClickedLists) -> Tensor:
    """Number of showings of each document, `[batch, docs]`; 0 in padding."""
    return lists.sessions.unsqueeze(-1) * lists.mask


def weighted_mean(values: Tensor, weights: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The mean over these dimensions, including the batch, over all processes; 0 if the weights are 0."""
    sums, total_weight = total((weights * values).sum(dims)), total(weights.sum(dims))
    return sums / total_weight.clamp(min=torch.finfo(values.dtype).tiny)


@dataclass(frozen=True)
class Penalized:
    """Documents with one position each, whose slopes represent those of all documents at all positions."""

    features: Tensor  # [n, features]
    positions: Tensor  # [n] int64
    weights: Tensor  # [n], weight of each slope in the sum over all showings
    bias: Mapping[str, Tensor]  # name -> [n], bias columns of a showing of the document


def penalized_pairs(
    lists: ClickedLists, bias: Mapping[str, Tensor], n_positions: int, *, share: float, exact: bool
) -> Penalized:
    """All pairs of document and position if `exact`, otherwise one random position of a random share of the documents.

    Each document is drawn independently, with probability `share`. A document in several lists counts once, with all
    its showings. If bias columns distinguish these, an exact sum uses all of them, and a random one draws one; pass no
    `bias` if slopes do not depend on it.
    """
    shown = showings(lists).flatten()
    if lists.distinct is None or (exact and bias):
        features, weights = lists.features.flatten(0, 1), shown
        real = lists.mask.flatten().nonzero().squeeze(-1)
        showing = torch.arange(len(shown), device=shown.device)
        keys = lists.place_keys
    else:
        features, numbers = lists.distinct.rows, lists.distinct.places.flatten()
        weights = shown.new_zeros(len(features)).index_add(0, numbers, shown)
        real = numbers[lists.mask.flatten()].unique()
        showing = _one_each(numbers, shown, len(features), lists.place_keys) if bias else torch.zeros_like(numbers)
        keys = lists.distinct.row_keys
    if exact:
        times = 1.0
        chosen = real.repeat_interleave(n_positions)
        positions = torch.arange(n_positions, device=real.device).repeat(len(real))
    else:
        times = n_positions / share
        chosen = real[uniform(new_salt(), keys[real]) < share]
        positions = (n_positions * uniform(new_salt(), keys[chosen])).long()
    levels = {name: values.flatten()[showing[chosen]] for name, values in bias.items()}
    return Penalized(features[chosen], positions, times * weights[chosen], levels)


def _one_each(numbers: Tensor, weights: Tensor, n: int, keys: Tensor) -> Tensor:
    """One place per number, drawn in proportion to its weight, `[n]`."""
    race = weights / -torch.log1p(-uniform(new_salt(), keys)).clamp(max=-torch.finfo(torch.float64).tiny)
    fastest = race.new_zeros(n).scatter_reduce(0, numbers, race, "amax")
    wins = (race == fastest[numbers]).nonzero().squeeze(-1)
    return torch.zeros(n, dtype=torch.long, device=numbers.device).index_copy(0, numbers[wins], wins)


def slope_lengths(function: Callable[[Tensor], Tensor], features: Tensor) -> Tensor:
    r"""$\lVert\nabla_x f(x)\rVert_2$ of one number per document, `[documents]`; differentiable."""
    with torch.enable_grad():
        inputs = features.detach().requires_grad_()
        (slopes,) = torch.autograd.grad(function(inputs).sum(), inputs, create_graph=True)
    return torch.linalg.vector_norm(slopes, dim=-1)


def draw_kept(lists: ClickedLists, cancel: float, together: str) -> Tensor:
    """False if observation is cancelled, each with probability `cancel`; broadcasts to `[batch, docs]`."""
    parts = torch.arange(CANCELLED_TOGETHER[together](lists), device=lists.mask.device)
    return uniform(new_salt(), lists.row_keys.unsqueeze(-1), parts) >= cancel
