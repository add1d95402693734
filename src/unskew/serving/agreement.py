"""Agreement: exported files must score as torch does, on lists made to find differences.

The lists are random, of several sizes down to one document, with NaN in the padding, and some are padding only. Their
features are drawn where the model's transform does not clip: noise after the inverse transform; for trees, values
around the thresholds of their splits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unskew.data.raw_columns import RawColumns
from unskew.data.transforms import Chain, HeavyTailLog, MinMax, Reciprocal, SignedLog, Standard, Transform
from unskew.networks.trees import TreesRanker
from unskew.training.model import ModelRanker

Scores = Callable[[Tensor, Tensor], Tensor]  # features [batch, docs, f], mask [batch, docs] -> [batch, docs]

SHAPES = ((1, 1), (1, 6), (2, 1), (5, 12), (8, 40))  # lists and documents
PADDING_SHARE = 0.3
MISSING_SHARE = 0.1
TOLERANCE = 1e-4  # of the largest score: float32 sums in another order differ by less, a wrong graph by more
FLOOR = 1e-5  # scores close to 0 differ by rounding only
LARGEST_EXPONENT = 60.0  # float32 overflows at e^88


@dataclass(frozen=True)
class Agreement:
    """The agreement of two rankers."""

    largest: float  # largest difference of a score; NaN if one of them is not a number
    allowed: float
    n_documents: int

    @property
    def holds(self) -> bool:
        return self.largest <= self.allowed  # False for NaN

    def __str__(self) -> str:
        return (
            f"largest difference from torch {self.largest:.2g} on {self.n_documents} documents "
            f"(allowed: {self.allowed:.2g})"
        )


def compare(
    ranker: ModelRanker, other: Scores, n_features: int, rng: np.random.Generator, *, missing: bool = True
) -> Agreement:
    """The differences of another program's scores from torch's; lists have missing values unless it has none."""
    largest, size, n_documents = [], [], 0
    for features, mask in sample_lists(ranker, n_features, rng, MISSING_SHARE if missing else 0.0):
        with torch.inference_mode():
            expected = ranker(features, mask)
        difference = (other(features, mask) - expected).abs()
        # Scores of padding mean nothing, but must be numbers: a NaN would break the caller's sorting.
        largest.append(difference.masked_fill(~mask & difference.isfinite(), 0.0).max())
        size.append(expected.masked_fill(~mask, 0.0).abs().max())
        n_documents += int(mask.sum())
    allowed = max(TOLERANCE * float(torch.stack(size).max()), FLOOR)
    return Agreement(float(torch.stack(largest).max()), allowed, n_documents)


def sample_lists(
    ranker: ModelRanker, n_features: int, rng: np.random.Generator, missing_share: float = MISSING_SHARE
) -> Iterator[tuple[Tensor, Tensor]]:
    """Lists of raw features and their masks."""
    for n_lists, n_docs in SHAPES:
        mask = torch.from_numpy(rng.random((n_lists, n_docs)) >= PADDING_SHARE)
        mask[-1, 0] = True
        if n_lists > 1:
            mask[0] = False
        noise = torch.from_numpy(rng.standard_normal((n_lists, n_docs, n_features)))
        trees = ranker.ranker
        features = (
            trees.near_splits(noise) if isinstance(trees, TreesRanker) else undo(ranker.transform, noise)
        ).float()
        if isinstance(trees, TreesRanker) or isinstance(ranker.transform, RawColumns):
            missing = torch.from_numpy(rng.random(features.shape) < missing_share)
            features = features.masked_fill(missing, torch.nan)
        yield features.masked_fill(~mask.unsqueeze(-1), torch.nan), mask
    yield torch.full((1, 3, n_features), torch.nan), torch.zeros(1, 3, dtype=torch.bool)


def undo(transform: Transform, values: Tensor) -> Tensor:
    """Raw features that the transform maps to about these values; the values themselves if it has no inverse."""
    if isinstance(transform, Chain):
        for step in reversed(transform.steps):
            assert isinstance(step, Transform)
            values = undo(step, values)
        return values
    for kind, inverse in INVERSES.items():
        if isinstance(transform, kind):
            return inverse(transform, values)
    return values


def _undo_scale(values: Tensor, centre: Tensor, inverse: Tensor) -> Tensor:
    """The inverse of scaling; columns that were constant in training vary here, as they may in serving."""
    return centre + values / torch.where(inverse > 0, inverse, 1.0)


def _undo_log(values: Tensor) -> Tensor:
    return values.sign() * values.abs().clamp(max=LARGEST_EXPONENT).expm1()


def _undo_columns(step: RawColumns, values: Tensor) -> Tensor:
    """Numbers before their transform, and codes of categories, including unseen and out-of-range codes."""
    raw = values.clone()
    raw[..., step.numbers] = undo(step.inner, values[..., step.numbers])
    last = torch.tensor(step.codes, dtype=values.dtype)
    raw[..., step.category_columns] = (values[..., step.category_columns].abs() * 7 % (last + 2)).floor() - 1
    return raw


INVERSES: dict[type[Transform], Callable[..., Tensor]] = {
    RawColumns: _undo_columns,
    Standard: lambda step, values: _undo_scale(values, step.mean, step.inverse_deviation),
    MinMax: lambda step, values: _undo_scale(values, step.centre, step.inverse_radius),
    SignedLog: lambda _, values: _undo_log(values),
    HeavyTailLog: lambda step, values: torch.where(step.heavy, step.unit * _undo_log(values), values),
    Reciprocal: lambda step, values: step.constant * values.abs(),
}
