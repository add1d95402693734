"""Memory: limits such as "2GB", matrices in files, and matrices that grow while a file is read.

Mapped matrices are in the temporary folder (`TMPDIR`) and have no name, so they disappear when nothing uses them any
more; the operating system can drop pages that are not in use.
"""

from __future__ import annotations

import re
import tempfile

import numpy as np
from numpy.typing import NDArray

LEAST = 100e6  # bytes; with less, DuckDB fails midway
UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def parse_memory(text: str) -> int:
    """Bytes of "2GB", "512MB" or "1.5 GiB"."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*", text)
    unit = UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None or float(match[1]) * unit < LEAST:
        raise ValueError(f"memory '{text}' is not a valid size: write at least 100MB, such as 2GB or 512MB")
    return int(float(match[1]) * unit)


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


GROWTH = 1.25  # each enlargement allocates this much more than needed: few enlargements, little unused memory
MOVED_AT_ONCE = 1 << 20  # values buffered while rows are moved


class GrowingMatrix:
    """A matrix to which rows of zeros are added at the bottom and columns on either side, all in place.

    Concatenating blocks at the end would need the memory twice. Enlarging one buffer does not.
    """

    def __init__(self, width: int = 0):
        self.width = width
        self.n_rows = 0
        self._values = np.zeros(0, dtype=np.float32)

    def add_rows(self, n_rows: int) -> None:
        """Append rows of zeros."""
        self.n_rows += n_rows
        needed = self.n_rows * self.width
        if needed > len(self._values):
            self._resize(max(needed, int(GROWTH * len(self._values))))

    def put(self, places: NDArray[np.int64], values: NDArray[np.float32]) -> None:
        """Write values at places counted through the matrix row by row."""
        self._values[places] = values

    def add_columns(self, left: int, right: int) -> None:
        """Insert columns of zeros before the first and after the last column."""
        old_width, self.width = self.width, self.width + left + right
        self._resize(max(self.n_rows * self.width, len(self._values)))
        step = max(1, MOVED_AT_ONCE // max(1, self.width))
        # From the bottom up: a row moves only to where lower rows were, and those have already moved.
        for end in range(self.n_rows, 0, -step):
            start = max(0, end - step)
            rows = self._values[start * old_width : end * old_width].reshape(end - start, old_width).copy()
            places = self._values[start * self.width : end * self.width].reshape(end - start, self.width)
            places[:] = 0.0
            places[:, left : left + old_width] = rows

    def finish(self) -> NDArray[np.float32]:
        """The matrix, without spare memory; nothing may be added after this."""
        self._resize(self.n_rows * self.width)
        return self._values.reshape(self.n_rows, self.width)

    def _resize(self, size: int) -> None:
        # refcheck is off because it counts debugger frames as owners; no view of the buffer outlives a method.
        self._values.resize(size, refcheck=False)
