r"""Losses: pure functions of scores and counted clicks, each a sum over sessions.

Scores are `[batch, docs]`, targets are clicks summed over the sessions of a row, mask is False in padding. The
training loop divides by the number of sessions of the batch; nothing else does. $s$ are scores, $c$ clicks, $n$
sessions; document 1 is the top of the list.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

LARGEST_EXPONENT = 30.0  # e^30 is 1e13: a larger weight leads to overflow and carries no information


def log_shares(scores: Tensor, mask: Tensor) -> Tensor:
    r"""$\log \frac{e^{s_i}}{\sum_j e^{s_j}}$ over real documents; 0 in padding."""
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest).log_softmax(-1).masked_fill(~mask, 0.0)


def softmax(scores: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    r"""Listwise softmax cross-entropy: $-\sum_i y_i \log \frac{e^{s_i}}{\sum_j e^{s_j}}$."""
    return -(targets * log_shares(scores, mask)).sum()


def sigmoid(scores: Tensor, targets: Tensor, sessions: Tensor, mask: Tensor) -> Tensor:
    r"""Pointwise cross-entropy: $-\sum_i y_i \log \sigma(s_i) + (n - y_i) \log(1 - \sigma(s_i))$."""
    cost = targets * F.softplus(-scores) + (sessions.unsqueeze(-1) - targets) * F.softplus(scores)
    return cost.masked_fill(~mask, 0.0).sum()


def squared(scores: Tensor, targets: Tensor, sessions: Tensor, mask: Tensor) -> Tensor:
    r"""Pointwise squared error, up to a constant: $\sum_i n s_i^2 - 2 y_i s_i$.

    Linear in the target, so an unbiased estimate of relevance, negative values included, gives an unbiased gradient.
    """
    cost = sessions.unsqueeze(-1) * scores.square() - 2 * targets * scores
    return cost.masked_fill(~mask, 0.0).sum()


def preference_pairs(scores: Tensor) -> Tensor:
    r"""Logistic loss of every ordered pair: $\log(1 + e^{-(s_i - s_j)})$, `[batch, i, j]`."""
    return F.softplus(scores.unsqueeze(1) - scores.unsqueeze(2))


def inverse_share(scores: Tensor, mask: Tensor, max_weight: float | None = None) -> Tensor:
    r"""Weights relative to the top: $\frac{e^{s_1}}{e^{s_i}}$, without gradient, at most `max_weight`; 0 in padding."""
    scores = scores.detach()
    weights = (scores[:, :1] - scores).clamp(max=LARGEST_EXPONENT).exp()
    if max_weight is not None:
        weights = weights.clamp(max=max_weight)
    return weights.masked_fill(~mask, 0.0)


def weighted(scores: Tensor, others: Tensor, clicks: Tensor, mask: Tensor, max_weight: float | None = None) -> Tensor:
    r"""Softmax of clicks over the other shares $g$, $-\sum_i c_i \frac{g_1}{g_i} \log f_i$."""
    return softmax(scores, clicks * inverse_share(others, mask, max_weight), mask)


def likelihood(
    scores: Tensor,
    others: Tensor,
    clicks: Tensor,
    mask: Tensor,
    max_weight: float | None = None,  # noqa: ARG001
) -> Tensor:
    r"""Softmax of clicks on the sum of both logits, $-\sum_i c_i \log \frac{e^{s_i + l_i}}{\sum_j e^{s_j + l_j}}$."""
    return softmax(others.detach() + scores, clicks, mask)


OBSERVED_BY = {"likelihood": likelihood, "weights": weighted}  # how observation learns, given relevance


def dual(
    relevance: Tensor,
    observation: Tensor,
    clicks: Tensor,
    mask: Tensor,
    max_weight: float | None = None,
    observed_by: str = "weights",
) -> dict[str, Tensor]:
    """Dual learning: relevance from clicks over observation; observation from clicks over relevance, or given it."""
    return {
        "relevance": weighted(relevance, observation, clicks, mask, max_weight),
        "observation": OBSERVED_BY[observed_by](observation, relevance, clicks, mask, max_weight),
    }


def distillation(student: Tensor, teacher: Tensor, sessions: Tensor, mask: Tensor) -> Tensor:
    r"""Listwise distillation: $-n \sum_i f_i \log h_i$, with shares $f$ of the teacher and $h$ of the student.

    The teacher is a constant. Less $n$ times its entropy this is $n \, \mathrm{KL}(f \Vert h)$; the gradient is
    $n\,(h_i - f_i)$.
    """
    shares = log_shares(teacher.detach(), mask).exp()
    return softmax(student, sessions.unsqueeze(-1) * shares, mask)  # padding has log share 0


def _softmax_of_all(scores: Tensor, targets: Tensor, sessions: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG001
    return softmax(scores, targets, mask)


# Losses (scores, targets, sessions, mask) that are linear in the target: an unbiased target gives an unbiased gradient.
LINEAR_IN_TARGET = {"softmax": _softmax_of_all, "squared": squared}
