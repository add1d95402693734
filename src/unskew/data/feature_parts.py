"""Features for fitting, in parts that can be read repeatedly.

The parts of a log on disk are its shards. Processes that train together read some parts each; what they find in a part
is exchanged and combined in the order of the parts, so that any number of processes finds the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unskew.data.checks import check_features
from unskew.data.moments import Moments, moments_of_parts
from unskew.data.transforms import Offsets, Transform, cut
from unskew.processes import share

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
