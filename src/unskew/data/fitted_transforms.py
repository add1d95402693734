"""Fitting of feature transforms, on the training split only.

`fit_transform(name, train.features)` gives a module that a ranker carries. Names are keys of `TRANSFORMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from unskew.data.checks import check_features
from unskew.data.moments import moments
from unskew.data.transforms import (
    Chain,
    Clip,
    HeavyTailLog,
    Identity,
    Impute,
    MinMax,
    Offsets,
    PerQueryMinMax,
    Reciprocal,
    SignedLog,
    Standard,
    Transform,
    cut,
    from_spec,
)

__all__ = ["IMPUTATIONS", "TRANSFORMS", "Transform", "fit_transform", "from_spec"]

TINY = 1e-30  # a spread below this is none: its inverse would leave float32

# One pass over the blocks gives one fitted step.
Blocks = Iterable[NDArray]
Fit = Callable[[Blocks], Transform]


def fit_standard(blocks: Blocks) -> Transform:
    """Columns with mean 0 and standard deviation 1."""
    found = moments(blocks)
    return Standard.of(mean=found.mean, inverse_deviation=_inverse(found.deviation))


def fit_minmax(blocks: Blocks) -> Transform:
    """Columns from -1 to 1."""
    found = moments(blocks)
    radius = (found.greatest - found.least) / 2
    return MinMax.of(centre=found.least + radius, inverse_radius=_inverse(radius))


def fit_automatic(blocks: Blocks) -> Transform:
    """A signed logarithm on heavy-tailed columns only, then mean 0 and deviation 1, clipped to ±10.

    A column is heavy-tailed if its farthest value lies more than 8 standard deviations from the mean and the logarithm
    at least halves that: a rare flag is as far away, but no logarithm helps it. The logarithm bends at 1, or at the
    typical size (geometric mean of what is not 0) of columns where that is less.
    """
    raw = moments(blocks)
    typical_size = np.exp(moments(_log_sizes(block) for block in blocks).mean)
    unit = np.clip(typical_size, 1e-9, 1.0)
    bend = HeavyTailLog.of(heavy=np.ones(len(unit), bool), unit=unit)
    bent = moments(bend.apply_to(block) for block in blocks)
    heavy = (raw.tail > 8.0) & (bent.tail < raw.tail / 2)
    standard = Standard.of(
        mean=np.where(heavy, bent.mean, raw.mean),
        inverse_deviation=_inverse(np.where(heavy, bent.deviation, raw.deviation)),
    )
    return Chain([HeavyTailLog.of(heavy=heavy, unit=unit), standard, Clip(10.0)])


def _log_sizes(block: NDArray) -> NDArray:
    """Logarithms of |x|; -inf, which moments leave out, where x is 0."""
    with np.errstate(divide="ignore"):
        return np.log(np.abs(block))


def fit_mean(blocks: Blocks) -> Transform:
    """What is missing becomes the mean of the column, or 0 where a column has no value at all."""
    return Impute.of(fill=moments(blocks).mean)


def fit_zero(blocks: Blocks) -> Transform:
    """What is missing becomes 0."""
    return Impute.of(fill=np.zeros(next(iter(blocks)).shape[1]))


# Every name is a chain of steps, fitted one after the other: each sees what the ones before it made.
TRANSFORMS: dict[str, tuple[Fit, ...]] = {
    "identity": (lambda _: Identity(),),
    "log1p": (lambda _: SignedLog(),),
    "minmax": (fit_minmax,),
    "standard": (fit_standard,),
    "log+minmax": (lambda _: SignedLog(), fit_minmax),
    "log+standard": (lambda _: SignedLog(), fit_standard),
    "per_query_minmax": (lambda _: PerQueryMinMax(),),
    "per_query_minmax+standard": (lambda _: PerQueryMinMax(), fit_standard),
    "reciprocal": (lambda _: Reciprocal(),),
    "automatic": (fit_automatic,),
}
TAKES_MISSING = {"reciprocal"}  # knows what to do with NaN
IMPUTATIONS: dict[str, Fit] = {"mean": fit_mean, "zero": fit_zero}


def fit_transform(
    name: str,
    features: NDArray | Iterable[NDArray],
    offsets: Offsets | None = None,
    *,
    impute: str | None = None,
    columns: Sequence[str] = (),
) -> Transform:
    """Fit a transform on the training split.

    Args:
        features: A matrix `[documents, features]`, or blocks of one that is larger than memory: an iterable that
            starts anew each time it is read, as there are several passes.
        offsets: Of the queries among the rows of a matrix; needed when a step looks at whole queries before another
            is fitted.
        impute: "mean" or "zero" puts that in place of NaN and infinity, which are refused otherwise.
        columns: Names of the columns, for messages.
    """
    if name not in TRANSFORMS:
        raise ValueError(f"unknown feature transform '{name}': choose one of {', '.join(TRANSFORMS)}")
    if impute is not None and impute not in IMPUTATIONS:
        raise ValueError(f"unknown imputation '{impute}': choose one of {', '.join(IMPUTATIONS)}")
    if isinstance(features, Iterator):
        raise TypeError("an iterator can be read only once, but fitting takes several passes: pass a list of blocks")
    if offsets is not None and not isinstance(features, np.ndarray):
        raise TypeError("offsets belong to the rows of one matrix: leave them out, or pass a matrix and not blocks")
    blocks = _Blocks([features] if isinstance(features, np.ndarray) else features, offsets)
    if impute is None and name not in TAKES_MISSING:
        blocks.check(columns)
    steps = TRANSFORMS[name] if impute is None else (IMPUTATIONS[impute], *TRANSFORMS[name])
    fitted: list[Transform] = []
    for fit in steps:
        fitted.append(fit(blocks.after(fitted)))
    return fitted[0] if len(fitted) == 1 else Chain(fitted)


class _Blocks:
    """Rows for fitting, in blocks that can be read again and again, as some transforms leave them."""

    def __init__(self, matrices: Iterable[NDArray], offsets: Offsets | None, before: Transform | None = None):
        self.matrices = matrices
        self.offsets = offsets
        self.before = before

    def after(self, steps: Sequence[Transform]) -> _Blocks:
        """The same rows after these steps."""
        return _Blocks(self.matrices, self.offsets, Chain(steps) if steps else None)

    def __iter__(self) -> Iterator[NDArray]:
        for matrix in self.matrices:
            for start, stop, inner in cut(matrix, self.offsets):
                queries = None if self.offsets is None else inner
                block = matrix[start:stop]
                yield block if self.before is None else self.before.apply_to(block, queries)

    def check(self, columns: Sequence[str]) -> None:
        """Refuse NaN and infinity, naming column and row."""
        for number, matrix in enumerate(self.matrices):
            check_features(matrix, columns, what="row" if number == 0 else f"block {number}, row")


def _inverse(spread: NDArray) -> NDArray:
    """One over the spread of each column; 0 where there is none."""
    return np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > TINY)
