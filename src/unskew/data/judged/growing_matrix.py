"""GrowingMatrix: a float32 matrix whose final shape is known only after everything has been read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
