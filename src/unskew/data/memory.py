"""Parse memory limits such as "2GB"."""

from __future__ import annotations

import re

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
