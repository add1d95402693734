"""Files from others: limits that hold before anything is allocated, for JSON, TOML and tables.

Parquet and safetensors state sizes in their footers and headers; JSON and TOML are limited in size and depth.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LARGEST = 2**28  # bytes of a JSON document, such as a large forest; of TOML, a 256th
DEEPEST = 60  # levels of a document
DEEPEST_TREE = 400
LONGEST_LINE = 2**26  # bytes of a line of text, unpacked
STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


def parse_json(content: str | bytes, deepest: int = DEEPEST) -> Any:
    """JSON of limited size and depth; any other is a `ValueError`."""
    if len(content) > LARGEST:
        raise ValueError(f"it has {len(content):,} bytes, more than {LARGEST:,}")
    text = content.decode() if isinstance(content, bytes) else content
    if text.count("[") + text.count("{") > deepest and _depth(text) > deepest:
        raise ValueError(f"it is nested more than {deepest} levels deep")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def read_json(path: Path, deepest: int = DEEPEST) -> Any:
    """A JSON file, whose size is checked before it is read."""
    return parse_json(_read(path, LARGEST), deepest)


def parse_toml(content: str | bytes) -> dict[str, Any]:
    """TOML of limited size and depth; any other is a `ValueError`."""
    if len(content) > LARGEST // 256:
        raise ValueError(f"it has {len(content):,} bytes, more than {LARGEST // 256:,}")
    text = content.decode() if isinstance(content, bytes) else content
    longest = max((line.partition("=")[0].count(".") for line in text.splitlines()), default=0)
    if longest > DEEPEST or _depth(text) > DEEPEST:
        raise ValueError(f"it is nested more than {DEEPEST} levels deep")
    return tomllib.loads(text)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file, whose size is checked before it is read."""
    return parse_toml(_read(path, LARGEST // 256))


def read_parquet(path: Path, n_rows: int | None = None) -> pa.Table:
    """A table, if it has this many rows and its values fit into memory: a short file may unpack to any size."""
    about = pq.read_metadata(path)
    if n_rows is not None and about.num_rows != n_rows:
        raise ValueError(f"it has {about.num_rows:,} rows instead of {n_rows:,}")
    groups = (about.row_group(number) for number in range(about.num_row_groups))
    n_values = sum(group.column(number).num_values for group in groups for number in range(about.num_columns))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 2**63
    if n_values > memory:  # at least a byte each
        raise ValueError(f"it unpacks to {n_values:,} values, more than this machine has memory for")
    return pq.read_table(path)


def _read(path: Path, most: int) -> bytes:
    if path.stat().st_size > most:
        raise ValueError(f"it has {path.stat().st_size:,} bytes, more than {most:,}")
    return path.read_bytes()


def _depth(text: str) -> int:
    """The largest number of brackets that are open at once, outside of strings."""
    codes = np.frombuffer(STRING.sub("", text).encode("utf-8", "replace"), np.uint8)
    steps = np.isin(codes, (91, 123)).astype(np.int64) - np.isin(codes, (93, 125))
    return int(np.cumsum(steps).max(initial=0))
