"""Ranking: grades in descending order of score, and the groups of documents with tied scores.

Metrics are computed from a `Ranking`, so that several of them share one sort. Documents with equal scores form a group;
a metric takes the mean over all orders of each group.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Ties:
    """Groups of documents with equal scores, in the lists that have ties."""

    lists: Tensor  # [tied] int64, which lists these are
    first: Tensor  # [tied, docs] int64, 0-based rank at which the group of this rank begins
    size: Tensor  # [tied, docs] int64, documents in the group of this rank

    def total(self, values: Tensor) -> Tensor:
        """At each rank, the sum of `values` [tied, docs] over its group."""
        return torch.zeros_like(values).scatter_add_(1, self.first, values).gather(1, self.first)

    def mean(self, values: Tensor) -> Tensor:
        return self.total(values) / self.size

    @property
    def offset(self) -> Tensor:
        """0-based place of each rank within its group [tied, docs]."""
        return torch.arange(self.first.shape[1], device=self.first.device) - self.first


@dataclass(frozen=True, eq=False)
class RankedGrades:
    """Grades in descending order of score."""

    grades: Tensor  # [batch, docs] as given; 0 past the end of a list
    ties: Ties | None

    def top(self, cutoff: int | None = None) -> Tensor:
        """Grades that can be among the first `cutoff`, float64; with ties these may be all of them."""
        return self.grades[:, : cutoff if self.ties is None else None].double()

    def ideal(self, cutoff: int | None = None) -> Tensor:
        """The first `cutoff` of the same grades, highest first, float64."""
        return -self._rising[:, :cutoff].double()

    @cached_property
    def highest(self) -> Tensor:
        """The highest grade of each list [batch]; 0 in an empty one."""
        return self.grades.amax(-1) if self.grades.shape[1] else self.grades.new_zeros(len(self.grades))

    @cached_property
    def _rising(self) -> Tensor:
        return _sorted(-self.grades)

    @cached_property
    def ranks(self) -> Tensor:
        """1, 2, 3, ... [docs], float64."""
        return torch.arange(1, self.grades.shape[1] + 1, dtype=torch.float64, device=self.grades.device)

    def expected(self, values: Tensor, in_ties: Callable[[Tensor, Ties], Tensor]) -> Tensor:
        """`values` [batch, docs], replaced by `in_ties` of them in the lists that have ties."""
        if self.ties is None:
            return values
        return values.index_copy(0, self.ties.lists, in_ties(values[self.ties.lists], self.ties))


def rank_grades(scores: Tensor, grades: Tensor, mask: Tensor) -> RankedGrades:
    """Sort each list by descending score and find its ties."""
    _check(scores, grades, mask)
    scores, grades = _as_floats(scores), _as_floats(grades)
    falling = torch.where(mask, -scores, math.inf)  # padding last
    order = _argsorted(falling)
    falling = falling.gather(1, order)
    ordered = torch.where(mask, grades, 0).gather(1, order)
    same = (falling[:, 1:] == falling[:, :-1]) & (falling[:, 1:] < math.inf)  # as the document before it
    tied = same.any(-1).nonzero().squeeze(-1)
    return RankedGrades(ordered, _ties(same[tied], tied) if len(tied) else None)


def _ties(same: Tensor, lists: Tensor) -> Ties:
    begins = torch.nn.functional.pad(~same, (1, 0), value=True)
    ranks = torch.arange(begins.shape[1], device=begins.device).expand(begins.shape)
    first = ranks.masked_fill(~begins, 0).cummax(-1).values
    size = torch.zeros_like(first).scatter_add_(1, first, torch.ones_like(first)).gather(1, first)
    return Ties(lists, first, size)


def _as_floats(values: Tensor) -> Tensor:
    """float32 or float64 values, the types that numpy can sort, exact for integers up to 2^53."""
    if values.dtype in (torch.float32, torch.float64):
        return values.detach()
    return values.detach().to(torch.float32 if values.is_floating_point() else torch.float64)


def _argsorted(keys: Tensor) -> Tensor:
    if keys.device.type == "cpu":  # numpy sorts many short rows several times faster than torch
        return torch.from_numpy(keys.numpy().argsort(axis=-1))
    return keys.argsort(-1)


def _sorted(keys: Tensor) -> Tensor:
    if keys.device.type == "cpu":
        keys.numpy().sort(axis=-1)
        return keys
    return keys.sort(-1).values


def _check(scores: Tensor, grades: Tensor, mask: Tensor) -> None:
    if scores.ndim != 2 or scores.shape != grades.shape or scores.shape != mask.shape:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (scores, grades, mask))
        raise ValueError(f"scores, grades and mask must share one shape [batch, docs], got {shapes}")
    if mask.dtype != torch.bool:
        raise ValueError(f"the mask must be boolean (False = padding), got {mask.dtype}")
    if (wrong := _first_wrong(scores, mask, lambda values: values.isfinite())) is not None:
        raise ValueError(
            f"the score of document {wrong[1]} of list {wrong[0]} is {scores[wrong]}: scores must be finite; check for "
            "a diverged training run or for NaN in the features"
        )
    if (wrong := _first_wrong(grades, mask, lambda values: values.isfinite() & (values >= 0))) is not None:
        raise ValueError(
            f"the grade of document {wrong[1]} of list {wrong[0]} is {grades[wrong]}: grades start at 0; "
            "mask documents that were not judged"
        )


def _first_wrong(values: Tensor, mask: Tensor, right: Callable[[Tensor], Tensor]) -> tuple[int, int] | None:
    """List and document of the first invalid value, ignoring padding."""
    extremes = torch.stack(torch.aminmax(values)) if values.numel() else values  # NaN appears in both
    if right(extremes).all():  # the common case needs no mask and one cheap pass
        return None
    wrong = (~right(values) & mask).nonzero()
    return (int(wrong[0, 0]), int(wrong[0, 1])) if len(wrong) else None
