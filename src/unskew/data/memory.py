"""Memory: limits such as "2GB", and matrices in files.

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
