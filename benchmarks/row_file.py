"""Shared by the studies: a file of finished runs, one JSON object per line, that a kill cannot spoil."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """All rows; a last line that was cut off by a kill is left out."""
    if not path.is_file():
        return []
    texts = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(text) for text in texts if text.endswith("\n")]


def mend(path: Path) -> None:
    """Remove a last line that was cut off by a kill, before rows are appended."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text and not text.endswith("\n"):
        path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")


def append_row(path: Path, row: Row) -> None:
    """Write a row at once; several processes may share a file."""
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row) + "\n")
