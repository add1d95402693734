"""Lists: padded tensors of documents, the currency of the package.

A batch of lists is `[batch, docs, features]` with a boolean mask `[batch, docs]` that is False where a list has
ended. No value of a feature, grade or click ever means "padding". Clicks and grades live in different types, so
that a method for clicks cannot see a label by accident.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Lists:
    """Documents to be ranked."""

    features: Tensor  # [batch, docs, features] float32
    mask: Tensor  # [batch, docs] bool; False = padding

    @property
    def n_lists(self) -> int:
        return self.mask.shape[0]

    @property
    def n_docs(self) -> int:
        return self.mask.shape[1]

    def to(self, device: torch.device | str) -> Self:
        """The same lists on another device."""
        moved: dict[str, Any] = {}
        for name in (entry.name for entry in fields(self)):
            value = getattr(self, name)
            if isinstance(value, Tensor):
                moved[name] = value.to(device)
            elif isinstance(value, Mapping):
                moved[name] = {key: tensor.to(device) for key, tensor in value.items()}
        return replace(self, **moved)


@dataclass(frozen=True, eq=False)
class ClickedLists(Lists):
    """Documents as they were shown, top first, and how often each was clicked.

    A row is one session (`sessions` = 1), one click pattern (`sessions` = its multiplicity) or all showings of one
    list; in every case `0 <= clicks <= sessions`, unless feedback is graded.
    """

    positions: Tensor  # [batch, docs] int64, 0-based, as shown; 0 in padding
    clicks: Tensor  # [batch, docs] float32; 0 in padding
    sessions: Tensor  # [batch] float32
    bias: Mapping[str, Tensor] = field(default_factory=dict)  # name -> [batch, docs]; int64 levels or float32
    policy_scores: Tensor | None = None  # [batch, docs] float32, of the ranker that showed the list
    pairs: Tensor | None = None  # [batch, docs, docs]: sessions in which i was clicked and j was not


@dataclass(frozen=True, eq=False)
class JudgedLists(Lists):
    """Documents with their judged relevance."""

    grades: Tensor  # [batch, docs] float32; 0 in padding


def shared_tensor(array: NDArray) -> Tensor:
    """A tensor on the array's memory, to be read only: behind it may be a file that is mapped read-only."""
    whole = np.ascontiguousarray(array)
    _, read_only = whole.__array_interface__["data"]
    return torch.from_numpy(np.asarray(_Unlocked(whole)) if read_only else whole)


class _Unlocked:
    """The memory of a read-only array, kept alive: torch warns of such arrays, whatever is done with them."""

    def __init__(self, array: NDArray):
        self.array = array
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}
