"""Moments: mean, deviation and range of each column, from one pass over blocks of rows, in float64.

Rows come in parts that can be read repeatedly; the parts of a log on disk are its shards. Processes that train together
read some parts each; the moments of a part are exchanged and combined in the order of the parts, so that any number of
processes gets the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from unskew.data.checks import check_features
from unskew.data.transforms import Offsets, Transform, cut
from unskew.processes import share, total

Numbers = NDArray[np.float64]  # [features]


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
    found = torch.zeros(n_parts, 5 * n_columns + 1, dtype=torch.float64)
    for number, blocks in parts:
        filled = [Moments.of_block(block) for block in blocks if len(block)]
        if filled:
            part = _joined(filled)
            values = np.concatenate([part.count, part.mean, part.squares, part.least, part.greatest])
            found[number] = torch.from_numpy(np.append(values, part.n_rows))
    rows = total(found).numpy()
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


Matrices = Iterable[NDArray]


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
