r"""Limits of an observation that depends on the document: a penalty on its slope, and cancelling (Chen et al., 2022).

The slope is the length of the gradient with respect to the features. Documents and positions to be penalized can be
drawn at random; the estimate has the right mean. Cancelling leaves observation out of the click logit now and then, so
that relevance learns to explain clicks without it as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from unskew.lists import ClickedLists

CANCELLED_TOGETHER: dict[str, Callable[[Tensor], tuple[int, ...]]] = {
    "document": lambda mask: tuple(mask.shape),
    "list": lambda mask: (mask.shape[0], 1),
}


def showings(lists: ClickedLists) -> Tensor:
    """How often each document was shown, `[batch, docs]`; 0 in padding."""
    return lists.sessions.unsqueeze(-1) * lists.mask


def weighted_mean(values: Tensor, weights: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The mean over these dimensions; 0 where there are no weights."""
    return (weights * values).sum(dims) / weights.sum(dims).clamp(min=torch.finfo(values.dtype).tiny)


def penalized_rows(mask: Tensor, n_positions: int, *, share: float, exact: bool) -> tuple[Tensor, Tensor, float]:
    """Documents, a position for each, and how many such pairs each one stands for."""
    real = mask.flatten().nonzero().squeeze(-1)
    if exact:
        places = torch.arange(n_positions, device=mask.device).repeat(len(real))
        return real.repeat_interleave(n_positions), places, 1.0
    n_drawn = math.ceil(share * len(real))
    drawn = real[torch.randperm(len(real), device=mask.device)[:n_drawn]]
    places = torch.randint(n_positions, (n_drawn,), device=mask.device)
    return drawn, places, n_positions * len(real) / max(n_drawn, 1)


def slope_lengths(function: Callable[[Tensor], Tensor], features: Tensor) -> Tensor:
    r"""$\lVert\nabla_x f(x)\rVert_2$ of one number a document, `[documents]`; gradients pass."""
    with torch.enable_grad():
        inputs = features.detach().requires_grad_()
        (slopes,) = torch.autograd.grad(function(inputs).sum(), inputs, create_graph=True)
    return torch.linalg.vector_norm(slopes, dim=-1)


def draw_kept(mask: Tensor, cancel: float, together: str) -> Tensor:
    """False where observation is cancelled, each with chance `cancel`; fits `[batch, docs]`."""
    return torch.rand(CANCELLED_TOGETHER[together](mask), device=mask.device) >= cancel
