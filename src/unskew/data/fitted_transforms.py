"""Fit feature transforms, on the training split only.

`fit_transform(name, train.features)` returns a module that becomes part of a ranker. Names are keys of `TRANSFORMS` and
say how numbers are transformed. Missing values (NaN) are ignored in fitting and filled in serving; see `raw_columns`.

Mean, deviation and range come from one pass over blocks of rows, in float64. Rows come in parts that can be read
repeatedly; the parts of a log on disk are its shards. Processes that train together read some parts each; the moments
of a part are exchanged and combined in the order of the parts, so any number of processes gets the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from unskew.data.checks import check_features
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
    cut,
)
from unskew.options import check_choice
from unskew.processes import share, total

COMMON = 5  # documents of a category; rarer values share a place with unseen ones
LARGEST_FLAG = 10.0  # limit of an indicator: one missing value in millions would become a huge number
TINY = 1e-30  # a smaller spread counts as 0: its inverse would overflow float32

Numbers = NDArray[np.float64]  # [features]
Matrices = Iterable[NDArray]


@dataclass(frozen=True)
class Moments:
    """Statistics of each column over its finite values."""

    count: Numbers
    mean: Numbers
    squares: Numbers  # sum of (x - mean)²
    least: Numbers  # minimum; +inf if nothing was finite
    greatest: Numbers
    n_rows: int

    @property
    def deviation(self) -> Numbers:
        """The standard deviation; exactly 0 for constant columns."""
        deviation = np.sqrt(self.squares / np.maximum(self.count, 1))
        return np.where(self.least < self.greatest, deviation, 0.0)

    @property
    def tail(self) -> Numbers:
        """How many standard deviations the farthest value lies from the mean; 0 for constant columns."""
        deviation = self.deviation
        varies = deviation > 0
        farthest = np.maximum(self.greatest - self.mean, self.mean - self.least)
        return np.divide(farthest, deviation, out=np.zeros_like(deviation), where=varies)

    @classmethod
    def of_block(cls, block: NDArray) -> Moments:
        """Moments of a matrix with at least one row."""
        known = np.isfinite(block)
        values = np.where(known, block, 0).astype(np.float64)
        count = known.sum(axis=0).astype(np.float64)
        mean = values.sum(axis=0) / np.maximum(count, 1)
        return cls(
            count=count,
            mean=mean,
            squares=(np.where(known, values - mean, 0.0) ** 2).sum(axis=0),
            least=np.where(known, values, np.inf).min(axis=0),
            greatest=np.where(known, values, -np.inf).max(axis=0),
            n_rows=len(block),
        )

    def join(self, other: Moments) -> Moments:
        """Moments of both parts together.

        Squares are combined by Chan's rule, which does not lose precision as E[x²] - E[x]² does if the mean is large.
        """
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        apart = other.mean - self.mean
        return Moments(
            count=count,
            mean=self.mean + apart * share,
            squares=self.squares + other.squares + apart**2 * self.count * share,
            least=np.minimum(self.least, other.least),
            greatest=np.maximum(self.greatest, other.greatest),
            n_rows=self.n_rows + other.n_rows,
        )


def moments(blocks: Iterable[NDArray]) -> Moments:
    """Moments of all rows of all blocks."""
    return _joined(Moments.of_block(block) for block in blocks if len(block))


def moments_of_parts(parts: Iterable[tuple[int, Iterable[NDArray]]], n_parts: int, n_columns: int) -> Moments:
    """Moments of all rows of all parts; each process passes the blocks of its own parts, with their numbers."""
    packed = torch.zeros(n_parts, 5 * n_columns + 1, dtype=torch.float64)
    for number, blocks in parts:
        filled = [Moments.of_block(block) for block in blocks if len(block)]
        if filled:
            part = _joined(filled)
            values = np.concatenate([part.count, part.mean, part.squares, part.least, part.greatest])
            packed[number] = torch.from_numpy(np.append(values, part.n_rows))
    rows = total(packed).numpy()
    return _joined(_unpacked(row) for row in rows if row[-1])


def _unpacked(row: Numbers) -> Moments:
    count, mean, squares, least, greatest = row[:-1].reshape(5, -1)
    return Moments(count, mean, squares, least, greatest, int(row[-1]))


def _joined(parts: Iterable[Moments]) -> Moments:
    joined: Moments | None = None
    for part in parts:
        joined = part if joined is None else joined.join(part)
    if joined is None:
        raise ValueError("there are no documents to fit a feature transform to: pass the training split")
    return joined


@dataclass(frozen=True)
class Parts:
    """Matrices `[documents, features]` in parts."""

    n_parts: int
    n_columns: int
    read: Callable[[Sequence[int]], Iterable[Matrices]]  # the matrices of each of these parts

    def __iter__(self) -> Iterator[tuple[int, Matrices]]:
        """The parts of this process, with their numbers."""
        numbers = range(share().number, self.n_parts, share().of)
        return zip(numbers, self.read(numbers), strict=True)


def one_part(features: NDArray | Matrices) -> Parts:
    """A matrix, or blocks of one, as a single part."""
    matrices = [features] if isinstance(features, np.ndarray) else features
    n_columns = next((matrix.shape[1] for matrix in matrices), 0)
    return Parts(1, n_columns, lambda numbers: [matrices for _ in numbers])


@dataclass(frozen=True)
class Blocks:
    """The rows of all parts in small blocks, after the transforms that are fitted so far."""

    parts: Parts
    offsets: Offsets | None  # of the queries, if there is one matrix
    names: Sequence[str] = ()  # of the columns, for messages
    numbers: NDArray | None = None  # columns that hold numbers; None: all columns, which are then checked
    before: Sequence[Transform] = ()

    def after(self, numbers: NDArray, steps: Sequence[Transform]) -> Blocks:
        """The numbers of the same rows after these steps; missing values stay missing."""
        if not steps and len(numbers) == self.parts.n_columns:
            return self
        return replace(self, numbers=numbers, before=tuple(steps))

    @cached_property
    def moments(self) -> Moments:
        """Moments of each column."""
        return self.moments_after(lambda block: block)

    def moments_after(self, change: Callable[[NDArray], NDArray]) -> Moments:
        """Moments of each column after a change of the blocks; one pass."""
        n_columns = self.parts.n_columns if self.numbers is None else len(self.numbers)
        parts = ((number, map(change, blocks)) for number, blocks in self)
        return moments_of_parts(parts, self.parts.n_parts, n_columns)

    def __iter__(self) -> Iterator[tuple[int, Iterator[NDArray]]]:
        """The blocks of each part of this process, with the number of the part."""
        for number, matrices in self.parts:
            yield number, self._blocks(number, matrices)

    def _blocks(self, part: int, matrices: Matrices) -> Iterator[NDArray]:
        for number, matrix in enumerate(matrices):
            if self.numbers is None:
                self._check(matrix, part, number)
            for start, stop, inner in cut(matrix, self.offsets):
                block = matrix[start:stop]
                if self.numbers is not None and len(self.numbers) < block.shape[1]:
                    block = block[:, self.numbers]
                for step in self.before:
                    block = step.apply_to(block, None if self.offsets is None else inner)
                yield block

    def _check(self, matrix: NDArray, part: int, number: int) -> None:
        """Refuse infinite values, with column and row."""
        where = [f"shard {part}"] if self.parts.n_parts > 1 else []
        where += [f"block {number}"] if number else []
        check_features(matrix, self.names, what=", ".join([*where, "row"]))


Fit = Callable[[Blocks], Transform]


def fit_standard(blocks: Blocks) -> Transform:
    """Columns with mean 0 and standard deviation 1."""
    raw = blocks.moments
    return Standard.of(mean=raw.mean, inverse_deviation=_inverse(raw.deviation))


def fit_minmax(blocks: Blocks) -> Transform:
    """Columns from -1 to 1."""
    raw = blocks.moments
    radius = (raw.greatest - raw.least) / 2
    return MinMax.of(centre=raw.least + radius, inverse_radius=_inverse(radius))


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
    raw = blocks.moments
    numbers = np.setdiff1d(np.arange(len(raw.count)), list(vocabularies))
    fitted: list[Transform] = []
    for fit in TRANSFORMS[name]:
        fitted.append(fit(blocks.after(numbers, fitted)))
    inner = fitted[0] if len(fitted) == 1 else Chain(fitted)
    places = _places(blocks, vocabularies)
    return _raw_columns(inner, raw, numbers, places)


def _raw_columns(
    inner: Transform, raw: Moments, numbers: NDArray, places: Mapping[int, NDArray[np.int64]]
) -> RawColumns:
    """The transform of numbers, wrapped with fill values, missing-value indicators and places of categories."""
    share = 1 - raw.count[numbers] / raw.n_rows
    flagged = np.flatnonzero((share > 0) & (share < 1))
    deviation = np.sqrt(share * (1 - share))[flagged]
    sizes = [int(table.max(initial=MISSING_PLACE)) + 1 for table in places.values()]
    codes = [len(table) - N_SPECIAL for table in places.values()]
    transform = RawColumns(inner, len(raw.count), len(flagged), codes, sizes)
    for name, values in {
        "numbers": numbers,
        "fill": _typical(inner, raw.mean[numbers]),
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
