"""Fit feature transforms, on the training split only.

`fit_transform(name, train.features)` returns a module that becomes part of a ranker. Names are keys of `TRANSFORMS` and
say how numbers are transformed. Missing values (NaN) are ignored in fitting and filled in serving; see `raw_columns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from unskew.data.moments import Blocks, Moments, Parts, one_part
from unskew.data.raw_columns import MISSING_PLACE, N_SPECIAL, RARE_PLACE, RawColumns
from unskew.data.transforms import (
    Chain,
    Clip,
    HeavyTailLog,
    Identity,
    MinMax,
    Offsets,
    PerQueryMinMax,
    Reciprocal,
    SignedLog,
    Standard,
    Transform,
)
from unskew.options import check_choice
from unskew.processes import total

COMMON = 5  # documents of a category; rarer values share a place with unseen ones
LARGEST_FLAG = 10.0  # limit of an indicator: one missing value in millions would become a huge number
TINY = 1e-30  # a smaller spread counts as 0: its inverse would overflow float32

Fit = Callable[[Blocks], Transform]


def fit_standard(blocks: Blocks) -> Transform:
    """Columns with mean 0 and standard deviation 1."""
    found = blocks.moments
    return Standard.of(mean=found.mean, inverse_deviation=_inverse(found.deviation))


def fit_minmax(blocks: Blocks) -> Transform:
    """Columns from -1 to 1."""
    found = blocks.moments
    radius = (found.greatest - found.least) / 2
    return MinMax.of(centre=found.least + radius, inverse_radius=_inverse(radius))


def fit_automatic(blocks: Blocks) -> Transform:
    """A signed logarithm on heavy-tailed columns only, then mean 0 and deviation 1, clipped to ±10.

    A column is heavy-tailed if its farthest value lies more than 8 standard deviations from the mean and the logarithm
    at least halves that: a rare flag is as far away, but a logarithm does not help it. The unit of the logarithm is 1,
    or the typical size of the column (geometric mean of its nonzero values) if that is less.
    """
    raw = blocks.moments
    typical_size = np.exp(blocks.moments_after(_log_sizes).mean)
    unit = np.clip(typical_size, 1e-9, 1.0)
    bend = HeavyTailLog.of(heavy=np.ones(len(unit), bool), unit=unit)
    bent = blocks.moments_after(bend.apply_to)
    heavy = (raw.tail > 8.0) & (bent.tail < raw.tail / 2)
    standard = Standard.of(
        mean=np.where(heavy, bent.mean, raw.mean),
        inverse_deviation=_inverse(np.where(heavy, bent.deviation, raw.deviation)),
    )
    return Chain([HeavyTailLog.of(heavy=heavy, unit=unit), standard, Clip(10.0)])


def _log_sizes(block: NDArray) -> NDArray:
    """Logarithms of |x|; -inf, which moments ignore, if x is 0."""
    with np.errstate(divide="ignore"):
        return np.log(np.abs(block))


# Every name is a chain of steps, fitted in order: each sees the output of the steps before it.
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


def fit_transform(
    name: str,
    features: NDArray | Iterable[NDArray] | Parts,
    offsets: Offsets | None = None,
    *,
    columns: Sequence[str] = (),
    categories: Mapping[str, Sequence[str]] | None = None,
) -> RawColumns:
    """Fit a transform on the training split.

    Args:
        features: A matrix `[documents, features]`, or blocks of one that is larger than memory: an iterable that can
            be read several times, once per pass; or parts that several processes share. NaN is a missing value.
        offsets: Offsets of the queries among the rows of a matrix; needed if a step that looks at whole queries comes
            before another step.
        columns: Names of the columns.
        categories: Vocabularies of columns that hold codes, by name.
    """
    check_choice(name, TRANSFORMS, "feature transform")
    if isinstance(features, Iterator):
        raise TypeError("an iterator can be read only once, but fitting needs several passes: pass a list of blocks")
    if offsets is not None and not isinstance(features, np.ndarray):
        raise TypeError("offsets belong to the rows of one matrix: leave them out, or pass a matrix instead of blocks")
    vocabularies = {list(columns).index(column): len(values) for column, values in (categories or {}).items()}
    blocks = Blocks(features if isinstance(features, Parts) else one_part(features), offsets, columns)
    found = blocks.moments
    numbers = np.setdiff1d(np.arange(len(found.count)), list(vocabularies))
    fitted: list[Transform] = []
    for fit in TRANSFORMS[name]:
        fitted.append(fit(blocks.after(numbers, fitted)))
    inner = fitted[0] if len(fitted) == 1 else Chain(fitted)
    places = _places(blocks, vocabularies)
    return _raw_columns(inner, found, numbers, places)


def _raw_columns(
    inner: Transform, found: Moments, numbers: NDArray, places: Mapping[int, NDArray[np.int64]]
) -> RawColumns:
    """The transform of numbers, wrapped with fill values, missing-value indicators and places of categories."""
    share = 1 - found.count[numbers] / found.n_rows
    flagged = np.flatnonzero((share > 0) & (share < 1))
    deviation = np.sqrt(share * (1 - share))[flagged]
    sizes = [int(table.max(initial=MISSING_PLACE)) + 1 for table in places.values()]
    codes = [len(table) - N_SPECIAL for table in places.values()]
    transform = RawColumns(inner, len(found.count), len(flagged), codes, sizes)
    for name, values in {
        "numbers": numbers,
        "fill": _typical(inner, found.mean[numbers]),
        "flagged": flagged,
        "flag_mean": share[flagged],
        "flag_scale": np.minimum(_inverse(deviation), LARGEST_FLAG),
        "category_columns": list(places),
        "first_entry": np.cumsum([0, *(len(table) for table in places.values())])[:-1],
        "places": np.concatenate([np.zeros(0, np.int64), *places.values()]),
    }.items():
        transform.get_buffer(name).copy_(torch.from_numpy(np.asarray(values)))
    sources = np.concatenate([numbers, numbers[flagged], list(places)]).astype(np.int64)
    transform.order.copy_(torch.from_numpy(np.argsort(sources, kind="stable")))
    return transform


def _typical(inner: Transform, mean: NDArray) -> NDArray:
    """The fill value: the mean, of logarithms if `inner` takes them; NaN if `inner` handles missing values itself."""
    steps = list(inner.steps) if isinstance(inner, Chain) else [inner]
    if isinstance(steps[0], Reciprocal):
        return np.full_like(mean, np.nan)
    if not isinstance(steps[0], HeavyTailLog):
        return mean
    assert isinstance(steps[1], Standard)
    bent = steps[1].mean.double().numpy()
    unbent = np.sign(bent) * np.expm1(np.minimum(np.abs(bent), 80.0)) * steps[0].unit.double().numpy()
    return np.where(steps[0].heavy.numpy(), unbent, mean)


def _places(blocks: Blocks, vocabularies: Mapping[int, int]) -> dict[int, NDArray[np.int64]]:
    """The place of each code of each category: of unseen values, of code 0, 1, …, and of missing values."""
    counts = {column: np.zeros(size + N_SPECIAL, np.int64) for column, size in vocabularies.items()}
    for block in chain.from_iterable(part for _, part in blocks) if counts else ():
        for column, count in counts.items():
            codes, missing = block[:, column], np.isnan(block[:, column])
            size = len(count) - N_SPECIAL
            if not ((codes >= 0) & (codes < size) | missing).all():
                raise ValueError(
                    f"column {column} holds codes beyond its vocabulary of {size} values: they count from 0"
                )
            entries = np.where(missing, size, codes).astype(np.int64) + 1
            count += np.bincount(entries, minlength=len(count))
    places = {}
    for column, mine in counts.items():
        count = total(torch.from_numpy(mine)).numpy()
        common = count[1:-1] >= COMMON
        table = np.full(len(count), RARE_PLACE, np.int64)
        table[1:-1][common] = N_SPECIAL + np.arange(common.sum())
        table[-1] = MISSING_PLACE if count[-1] else RARE_PLACE
        places[column] = table
    return places


def _inverse(spread: NDArray) -> NDArray:
    """One over the spread of each column; 0 for constant columns."""
    return np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > TINY)
