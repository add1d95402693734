"""Moments: mean, deviation and range of each column, from one pass over blocks of rows, in float64."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from unskew.processes import total

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
