r"""Choose numbers on few lists: a line search that ignores small differences.

Lists are scored once; then a score is a function of one or a few unknown numbers, and each list has a value for each
choice of them. The best choice on a few lists is partly luck. So candidates are ordered by preference, the most
cautious first, and the first candidate is chosen that is at most `caution` standard errors worse than the best. The
standard error is that of the paired difference, list by list, because the difficulty of a list is the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unskew.data.judged.metrics import measure
from unskew.data.judged.metrics import metric as parse_metric
from unskew.lists import ClickedLists, JudgedLists
from unskew.methods import losses

PLAUSIBLE = 2.0  # standard errors; about a 95% interval
LENGTHS = (0.0, *(sign * 2 ** (step / 2) for step in range(-8, 5) for sign in (1, -1)))  # 0 to ±4, by steps of √2
PASSES = 2  # over several axes, because the best value on one depends on the others

Score = Callable[[Tensor, Tensor, Tensor], Tensor]  # relevance [b, d], traits [b, d, R], numbers [n] -> scores [b, d]


@dataclass(frozen=True, eq=False)
class ScoredLists:
    """Lists whose networks have been run."""

    relevance: Tensor  # [batch, docs]
    traits: Tensor  # [batch, docs, R], weighted by the unknown numbers
    mask: Tensor  # [batch, docs]
    value: Callable[[Tensor], Tensor]  # scores -> one value per informative list; higher is better


@dataclass(frozen=True, eq=False)
class Axis:
    """A direction in which numbers may be moved, and the candidate lengths, the most cautious first."""

    direction: Tensor  # [n]
    lengths: Tensor  # [candidates]


@dataclass(frozen=True, eq=False)
class Found:
    """Numbers, and along each axis the chosen length and the ends of the plausible interval."""

    numbers: Tensor  # [n]
    lengths: Tensor  # [3, axes]: low, chosen, high


def of_metric(lists: JudgedLists, metric: str) -> Callable[[Tensor], Tensor]:
    """A metric of each list with a relevant document, with its sign changed if lower is better."""
    entry = parse_metric(metric)
    sign = 1.0 if entry.higher_is_better else -1.0

    def value(scores: Tensor) -> Tensor:
        measured = measure([entry], scores, lists.grades, lists.mask)[str(entry)]
        return sign * measured.values[measured.defined]

    return value


def of_clicks(lists: ClickedLists) -> Callable[[Tensor], Tensor]:
    """Log-likelihood of the clicks of each list that has some, if clicks depend only on scores."""
    clicked = lists.clicks.sum(-1) > 0

    def value(scores: Tensor) -> Tensor:
        return (lists.clicks * losses.log_shares(scores, lists.mask)).sum(-1)[clicked].double()

    return value


def best_with_caution(values: Tensor, caution: float) -> tuple[int, Tensor]:
    """The chosen candidate, and which ones are plausible, from values `[candidates, lists]`."""
    best = int(values.mean(1).argmax())
    lost = values[best] - values
    if values.shape[1] < 2:  # one list has no standard error
        return (best if caution == 0 else 0), torch.ones(len(values), dtype=torch.bool)
    error = lost.std(1) / values.shape[1] ** 0.5
    taken = int((lost.mean(1) <= caution * error).nonzero()[0])
    return taken, lost.mean(1) <= PLAUSIBLE * error


@torch.no_grad()
def search(parts: Sequence[ScoredLists], score: Score, axes: Sequence[Axis], caution: float) -> Found:
    """The best numbers for the lists, axis by axis."""
    directions = torch.stack([axis.direction for axis in axes])
    lengths = torch.zeros(3, len(axes), dtype=directions.dtype, device=directions.device)
    for _ in range(1 if len(axes) == 1 else PASSES):
        for number, axis in enumerate(axes):
            trials = lengths[1].repeat(len(axis.lengths), 1)
            trials[:, number] = axis.lengths
            values = torch.stack([_values(parts, score, trial @ directions) for trial in trials])
            if values.shape[1]:
                taken, plausible = best_with_caution(values, caution)
                within = axis.lengths[plausible]
                lengths[:, number] = torch.stack([within.min(), axis.lengths[taken], within.max()])
    return Found(lengths[1] @ directions, lengths)


def _values(parts: Sequence[ScoredLists], score: Score, numbers: Tensor) -> Tensor:
    return torch.cat([part.value(score(part.relevance, part.traits, numbers)) for part in parts])


def spread_axes(parts: Sequence[ScoredLists]) -> list[Axis]:
    """Principal axes of the traits within lists; a length of 1 changes scores as much as relevance varies."""
    weights = torch.cat([part.mask.flatten() for part in parts]).double()
    relevance = torch.cat([_within(part.relevance.unsqueeze(-1), part.mask) for part in parts])
    traits = torch.cat([_within(part.traits, part.mask) for part in parts])
    covariance = traits.T @ traits / weights.sum().clamp(min=1)
    variances, vectors = torch.linalg.eigh(covariance)
    spread = relevance.square().sum().div(weights.sum().clamp(min=1)).sqrt()
    tiny = torch.finfo(torch.float32).tiny
    scale = torch.where(variances > tiny, spread / variances.clamp(min=tiny).sqrt(), 0.0)  # 0: it changes nothing
    # The sign of an eigenvector means nothing: making its largest entry positive makes runs comparable.
    signs = vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
    rows = (vectors * signs * scale).T.flip(0)  # the widest first
    lengths = parts[0].traits.new_tensor(LENGTHS)
    return [Axis(row.to(lengths), lengths) for row in rows]


def _within(values: Tensor, mask: Tensor) -> Tensor:
    """Values `[batch, docs, n]` minus their mean over the list, as rows; 0 in padding."""
    real = mask.unsqueeze(-1).double()
    kept = values.double().masked_fill(~mask.unsqueeze(-1), 0.0)
    mean = kept.sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)
    return ((kept - mean) * real).flatten(0, 1)
