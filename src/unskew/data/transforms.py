"""Feature transforms, applied before a ranker sees the features, and part of the ranker.

A transform is a module without parameters: what it learned from the training split is in buffers, so that it is saved,
exported and served with the ranker, and a document gets the same numbers in training and in serving. Called with
`features [..., docs, f]` and `mask [..., docs]`, it returns transformed features, with 0 in the padding. `apply_to`
does the same for a matrix of documents, in blocks of bounded memory.

NaN is a missing value: `RawColumns`, which wraps the others, fills it. `apply_to` refuses infinite values, with column
and row; the module itself only computes, because ONNX cannot raise errors.

Columns that are constant in training become 0, whatever is served later: there was nothing to learn from them.
Columns and rows count from 0, in messages too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unskew.data.checks import check_features
from unskew.data.judged.judged_set import padded_rows
from unskew.data.memory import new_matrix

Matrix = NDArray[np.float32]  # [documents, features]
Offsets = NDArray[np.int64]  # [queries + 1]
Spec = dict[str, Any]

BLOCK_VALUES = 2**20  # values per block: 8 MB in float64


class Transform(nn.Module, ABC):
    """A function of features, the same in training and in serving."""

    kind: ClassVar[str]
    per_query: bool = False  # depends on the other documents of the query

    @abstractmethod
    def change(self, features: Tensor, mask: Tensor) -> Tensor:
        """The transformed features; padding may hold anything."""

    def width(self, n_features: int) -> int:
        """The number of output columns for this many input columns."""
        return n_features

    def spec(self) -> Spec:
        """What `from_spec` needs to build the module; its numbers are in the `state_dict`."""
        return {"kind": self.kind}

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """Transformed features, with 0 in the padding."""
        return self.change(features, mask).masked_fill(~mask.unsqueeze(-1), 0.0)

    @torch.no_grad()
    def apply_to(self, matrix: NDArray, offsets: Offsets | None = None) -> Matrix:
        """The transformed rows of a matrix; transforms that look at whole queries need the queries' offsets."""
        self._check(matrix, offsets)
        device = next((buffer.device for buffer in self.buffers()), torch.device("cpu"))
        changed = new_matrix(matrix, self.width(matrix.shape[1]))
        for start, stop, inner in cut(matrix, offsets if self.per_query else None):
            rows, mask = padded_rows(inner, np.arange(len(inner) - 1))
            block = matrix[start:stop].astype(np.float32, copy=False)[rows]
            lists = self(torch.from_numpy(block).to(device), torch.from_numpy(mask).to(device))
            changed[start:stop] = lists.cpu().numpy()[mask]
        return changed

    def _check(self, matrix: NDArray, offsets: Offsets | None) -> None:
        if self.per_query and offsets is None:
            raise ValueError("this transform works on whole queries: pass the offsets of the queries")
        if matrix.ndim != 2:
            raise ValueError(f"features must be a matrix [documents, features], got shape {matrix.shape}")
        fitted_on = self.fitted_on()
        if fitted_on is not None and fitted_on != matrix.shape[1]:
            raise ValueError(f"the transform was fitted on {fitted_on} columns, but the matrix has {matrix.shape[1]}")
        check_features(matrix, what="row")

    def fitted_on(self) -> int | None:
        """The number of columns it was fitted on; None: any."""
        return None


class Pointwise(Transform):
    """A transform of each document on its own."""

    @abstractmethod
    def change_each(self, features: Tensor) -> Tensor:
        """The transformed features."""

    def change(self, features: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        return self.change_each(features)


class Identity(Pointwise):
    """Features as they are."""

    kind = "identity"

    def change_each(self, features: Tensor) -> Tensor:
        return features


class Chain(Transform):
    """A sequence of transforms."""

    kind = "chain"

    def __init__(self, steps: Sequence[Transform]):
        super().__init__()
        self.steps = nn.ModuleList(steps)
        self.per_query = any(step.per_query for step in steps)

    def change(self, features: Tensor, mask: Tensor) -> Tensor:
        for step in self.steps:
            features = step.change(features, mask)  # type: ignore[operator]
        return features

    def fitted_on(self) -> int | None:
        return next((step.fitted_on() for step in self.steps if step.fitted_on() is not None), None)  # type: ignore[operator]

    def spec(self) -> Spec:
        return {"kind": self.kind, "steps": [step.spec() for step in self.steps]}  # type: ignore[operator]


class SignedLog(Pointwise):
    r"""$\operatorname{sign}(x) \log(1 + |x|)$."""

    kind = "log1p"

    def change_each(self, features: Tensor) -> Tensor:
        return features.sign() * features.abs().log1p()


class Clip(Pointwise):
    """Features clipped to ± a bound."""

    kind = "clip"

    def __init__(self, bound: float):
        super().__init__()
        self.bound = bound

    def change_each(self, features: Tensor) -> Tensor:
        return features.clamp(-self.bound, self.bound)

    def spec(self) -> Spec:
        return {"kind": self.kind, "bound": self.bound}


class Reciprocal(Pointwise):
    r"""$\frac{1}{c + x}$ of ranks that count from 0 or 1; missing ones (NaN) become 0, as if infinitely far down."""

    kind = "reciprocal"

    def __init__(self, constant: float = 10.0):
        super().__init__()
        if constant <= 0:
            raise ValueError(f"the constant of a reciprocal must be positive, got {constant}")
        self.constant = constant

    def change_each(self, features: Tensor) -> Tensor:
        known = ~features.isnan()
        ranks = torch.where(known, features, 0.0).clamp(min=0.0)
        return torch.where(known, 1.0 / (self.constant + ranks), 0.0)

    def spec(self) -> Spec:
        return {"kind": self.kind, "constant": self.constant}


class PerQueryMinMax(Transform):
    """Every column scaled per query from 0, the minimum over its documents, to 1, the maximum.

    The documents are those of the list in training (the shown ones) and all candidates in serving. A constant column
    cannot be scaled and is clipped to 0 to 1 instead.
    """

    kind = "per_query_minmax"
    per_query = True

    def change(self, features: Tensor, mask: Tensor) -> Tensor:
        limits = torch.finfo(features.dtype)
        unknown = ~mask.unsqueeze(-1) | features.isnan()
        least = features.masked_fill(unknown, limits.max).amin(-2, keepdim=True)
        greatest = features.masked_fill(unknown, limits.min).amax(-2, keepdim=True)
        spread = greatest - least
        scaled = (features - least) / torch.where(spread > 0, spread, 1.0)
        return torch.where(spread > 0, scaled, features.clamp(0.0, 1.0))


class _Fitted(Pointwise):
    """A transform with numbers for each column."""

    numbers: ClassVar[dict[str, torch.dtype]]

    def __init__(self, n_features: int):
        super().__init__()
        self.n_features = n_features
        for name, dtype in self.numbers.items():
            self.register_buffer(name, torch.zeros(n_features, dtype=dtype))

    @classmethod
    def of(cls, **numbers: NDArray) -> Self:
        """The transform with these numbers."""
        transform = cls(len(next(iter(numbers.values()))))
        for name, values in numbers.items():
            transform.get_buffer(name).copy_(torch.from_numpy(np.array(values)))
        return transform

    def fitted_on(self) -> int | None:
        return self.n_features

    def spec(self) -> Spec:
        return {"kind": self.kind, "n_features": self.n_features}


class Standard(_Fitted):
    """Columns with mean 0 and standard deviation 1 in training."""

    kind = "standard"
    mean: Tensor  # [features]
    inverse_deviation: Tensor  # [features]; 0 for constant columns
    numbers = {"mean": torch.float32, "inverse_deviation": torch.float32}

    def change_each(self, features: Tensor) -> Tensor:
        return (features - self.mean) * self.inverse_deviation


class MinMax(_Fitted):
    """Columns scaled from -1, the minimum in training, to 1, the maximum.

    Values outside the range of training are clipped: a network has not learned anything about them.
    """

    kind = "minmax"
    centre: Tensor  # [features]
    inverse_radius: Tensor  # [features]; 0 for constant columns
    numbers = {"centre": torch.float32, "inverse_radius": torch.float32}

    def change_each(self, features: Tensor) -> Tensor:
        return ((features - self.centre) * self.inverse_radius).clamp(-1.0, 1.0)


class HeavyTailLog(_Fitted):
    r"""$\operatorname{sign}(x) \log(1 + |x| / u)$ on heavy-tailed columns, with a unit $u$ for each; others stay."""

    kind = "heavy_tail_log"
    heavy: Tensor  # [features] bool
    unit: Tensor  # [features]
    numbers = {"heavy": torch.bool, "unit": torch.float32}

    def change_each(self, features: Tensor) -> Tensor:
        return torch.where(self.heavy, features.sign() * (features.abs() / self.unit).log1p(), features)


def cut(matrix: NDArray, offsets: Offsets | None) -> Iterator[tuple[int, int, Offsets]]:
    """Start, end and inner offsets of blocks of whole queries, small even if padded; without offsets, of any rows."""
    n_rows = max(1, BLOCK_VALUES // max(1, matrix.shape[1]))
    if offsets is None:
        for start in range(0, len(matrix), n_rows):
            stop = min(start + n_rows, len(matrix))
            yield start, stop, np.array([0, stop - start])
        return
    sizes = np.diff(offsets)
    first = 0
    while first < len(sizes):
        ahead = sizes[first : first + n_rows]
        padded = np.maximum.accumulate(ahead) * np.arange(1, len(ahead) + 1)
        last = first + max(1, int(np.searchsorted(padded, n_rows, side="right")))
        yield int(offsets[first]), int(offsets[last]), offsets[first : last + 1] - offsets[first]
        first = last
