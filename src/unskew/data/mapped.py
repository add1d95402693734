"""Matrices in files instead of memory: the operating system can drop pages that are not in use.

The files are in the temporary folder (`TMPDIR`) and have no name, so they disappear when nothing uses them any more.
"""

from __future__ import annotations

import tempfile

import numpy as np
from numpy.typing import NDArray


def new_map(shape: tuple[int, int]) -> NDArray[np.float32]:
    """A matrix of zeros in a file."""
    if not shape[0] * shape[1]:
        return np.zeros(shape, np.float32)
    with tempfile.TemporaryFile(prefix="unskew-") as file:
        return np.memmap(file, np.float32, "w+", shape=shape)


def is_mapped(matrix: NDArray) -> bool:
    """Whether a matrix, or the matrix that it is a view of, is in a file."""
    return isinstance(matrix, np.memmap) or isinstance(matrix.base, np.memmap)


def new_matrix(like: NDArray, width: int) -> NDArray[np.float32]:
    """A matrix to be filled, with as many rows as another; in a file if the other is."""
    shape = (len(like), width)
    return new_map(shape) if is_mapped(like) else np.empty(shape, np.float32)
