r"""Click models as probabilities of clicks down a list, in log space.

Documents are in shown order, $a$ is attraction, $e$ the probability that a document is examined. Two views of a
model:

* conditional: $P(c_k \mid c_1, \dots, c_{k-1})$, given the clicks above. Their product over a list is the probability
  of its click pattern, so patterns of a list sum to one, and the sum of logarithms is the exact log-likelihood.
* marginal: $P(c_k)$, before anything was clicked.

All functions take and return logarithms `[batch, docs]`. Values of padding mean nothing. None are infinite: a
probability is at least the smallest step of its number format away from 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True, eq=False)
class Chances:
    """Log-probabilities that a document is clicked, and that it is not."""

    log_click: Tensor  # [batch, docs]
    log_skip: Tensor  # [batch, docs]

    @classmethod
    def of(cls, log_click: Tensor) -> Chances:
        """Bounded away from 0 and 1, so that no log-likelihood is infinite."""
        limits = torch.finfo(log_click.dtype)
        bounded = log_click.clamp(min=torch.log(torch.tensor(limits.tiny)).item(), max=-limits.eps)
        return cls(bounded, log_complement(bounded))

    def logits(self) -> Tensor:
        return self.log_click - self.log_skip

    def log_likelihood(self, clicks: Tensor, sessions: Tensor, mask: Tensor) -> Tensor:
        """Log-likelihood of each document over all sessions of its row, `[batch, docs]`; 0 in padding."""
        value = clicks * self.log_click + (sessions.unsqueeze(-1) - clicks) * self.log_skip
        return value.masked_fill(~mask, 0.0)


def log_complement(log_probability: Tensor) -> Tensor:
    r"""$\log(1 - p)$ from $\log p < 0$."""
    near_one = log_probability > -0.5
    small = torch.where(near_one, -1.0, log_probability)
    large = torch.where(near_one, log_probability, -1.0)
    return torch.where(near_one, torch.log(-torch.expm1(large)), torch.log1p(-torch.exp(small)))


def independent(attraction: Tensor, log_examination: Tensor | None = None) -> Chances:
    r"""$P(c_k) = e_k\,a_k$, independent of other clicks; without examination, $P(c_k) = a_k$.

    Args:
        attraction: logits of $a$.
    """
    log_click = F.logsigmoid(attraction)
    return Chances.of(log_click if log_examination is None else log_click + log_examination)


def mixture(log_shares: Tensor, types: Sequence[Chances], clicked: Tensor | None = None) -> Chances:
    """Chances averaged over types of users; given clicks, over the posterior of the type given the clicks above.

    Args:
        log_shares: log share of each type among all users, `[types]`.
        clicked: clicks, for conditional chances; None: for marginal ones.
    """
    log_click = torch.stack([chances.log_click for chances in types])  # [types, batch, docs]
    log_type = log_shares.view(-1, 1, 1)
    if clicked is not None:
        happened = torch.where(clicked, log_click, torch.stack([chances.log_skip for chances in types]))
        log_type = (log_type + F.pad(happened[..., :-1].cumsum(-1), (1, 0))).log_softmax(0)
    return Chances.of(torch.logsumexp(log_type + log_click, 0))


def downward(attraction: Tensor, log_after_click: Tensor, log_after_skip: Tensor, clicked: Tensor) -> Chances:
    r"""Conditional chances of a user who scans from the top down and, after each document, continues or leaves.

    With $e_1 = 1$: $P(c_k \mid \cdot) = e_k a_k$; then $e_{k+1}$ is the chance to continue after a click, or after a
    skip $\frac{e_k (1 - a_k)}{1 - e_k a_k}$ (the posterior of having examined $k$) times that after a skip.
    """
    columns = (F.logsigmoid(attraction), F.logsigmoid(-attraction), log_after_click, log_after_skip, clicked)
    log_examined = torch.zeros_like(attraction[:, 0])
    clicks, skips = [], []
    for wanted, unwanted, after_click, after_skip, click in zip(*(part.unbind(1) for part in columns), strict=True):
        chances = Chances.of(log_examined + wanted)
        clicks.append(chances.log_click)
        skips.append(chances.log_skip)
        still_there = log_examined + unwanted - chances.log_skip
        log_examined = torch.where(click, after_click, still_there + after_skip).clamp(max=0.0)
    return Chances(torch.stack(clicks, 1), torch.stack(skips, 1))


def downward_likelihood(
    attraction: Tensor, log_after_click: Tensor, log_after_skip: Tensor, clicked: Tensor, mask: Tensor
) -> Tensor:
    r"""Log-likelihood of each row's click pattern for users of `downward`, `[batch]`: the sum of its log chances.

    Down to the last click everything was examined. Below it the user left somewhere or skipped everything:
    $t_k = 1 - g_k + g_k (1 - a_{k+1})\,t_{k+1}$, where $g$ is the probability of continuing. This takes fewer steps.
    """
    log_wanted, log_unwanted = F.logsigmoid(attraction), F.logsigmoid(-attraction).masked_fill(~mask, 0.0)
    log_go_on = torch.where(clicked, log_after_click, log_after_skip)
    clicks_below = F.pad(clicked.flip(1).cumsum(1).flip(1), (0, 1)) > 0  # at or below a position; False at the end
    own = torch.where(clicked, log_wanted, log_unwanted)
    known = (own * clicks_below[:, :-1] + log_go_on * clicks_below[:, 1:]).sum(1)
    leaves, skips_next = -torch.expm1(log_go_on[:, :-1]), (log_go_on[:, :-1] + log_unwanted[:, 1:]).exp()
    tails = [torch.ones_like(known)]
    for leave, skip in zip(reversed(leaves.unbind(1)), reversed(skips_next.unbind(1)), strict=True):
        tails.append(leave + skip * tails[-1])
    last = clicks_below.sum(1) - 1  # -1: nothing was clicked
    tail = torch.stack(tails[::-1], 1).gather(1, last.clamp(min=0).unsqueeze(1)).squeeze(1)
    unclicked = torch.where(last < 0, log_unwanted[:, 0], 0.0)
    return known + unclicked + tail.clamp(min=torch.finfo(tail.dtype).tiny).log()


def downward_examination(attraction: Tensor, log_after_click: Tensor, log_after_skip: Tensor) -> Tensor:
    """Log-probability that each document is examined, for users of `downward`."""
    log_go_on = torch.logaddexp(F.logsigmoid(attraction) + log_after_click, F.logsigmoid(-attraction) + log_after_skip)
    return F.pad(log_go_on[:, :-1].cumsum(1), (1, 0)).clamp(max=0.0)


def last_clicks(positions: Tensor, clicked: Tensor) -> Tensor:
    """One more than the position of the last click above each document, 0 if there is none, `[batch, docs]`."""
    so_far = torch.where(clicked, positions + 1, 0).cummax(1).values
    return F.pad(so_far[:, :-1], (1, 0))


def browsing_examination(attraction: Tensor, log_examination: Tensor) -> Tensor:
    r"""Log-probability that each document is examined, if examination depends on the last click.

    Args:
        log_examination: `[batch, docs, 1 + docs]`, given that there was no click (0), or that the last click was on the
            document of that number, counted from 1.
    """
    wanted, table = attraction.sigmoid(), log_examination.exp()
    last = F.one_hot(torch.zeros_like(attraction[:, 0], dtype=torch.int64), table.shape[2]).to(attraction.dtype)
    examined = []
    for place in range(attraction.shape[1]):
        seen = last * table[:, place]
        examined.append(seen.sum(1))
        clicked = seen * wanted[:, place, None]
        here = F.one_hot(torch.tensor(place + 1, device=last.device), table.shape[2])
        last = last - clicked + clicked.sum(1, keepdim=True) * here
    return torch.stack(examined, 1).clamp(min=torch.finfo(attraction.dtype).tiny).log().clamp(max=0.0)
