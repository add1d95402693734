"""Pages of the TREC 2014 Session track in the format of click model studies: ids, verticals, clicks, no features.

One result page per line, tab-separated: session, query, then lists in brackets: the documents from the top, the
vertical of each, a 0 or 1 for each click and, in judged files only, the grade of each (from -2 for spam to 4). Files
are plain or gzip.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.public_logs.result_pages import BAD_GZIP

FIELDS = ("session", "query", "documents", "verticals", "clicks", "grades")
LISTS = FIELDS[2:]
GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class TrecSessions:
    """Result pages in the order of the file; column `i` is position `i`, counted from 0."""

    session_ids: NDArray[np.int64]  # [pages]
    query_ids: NDArray[np.int64]  # [pages]
    document_ids: NDArray[np.int64]  # [pages, positions]
    verticals: NDArray[np.int64]  # [pages, positions]
    clicks: NDArray[np.float32]  # [pages, positions]; 0.0 or 1.0
    grades: NDArray[np.float32] | None  # [pages, positions]; only in judged files

    @property
    def n_pages(self) -> int:
        return len(self.session_ids)


def read_trec_sessions(path: str | PathLike[str]) -> TrecSessions:
    """The pages of one file."""
    file = Path(path)
    content = file.read_bytes()
    if content.startswith(GZIP_MAGIC):
        try:
            content = gzip.decompress(content)
        except BAD_GZIP as error:
            raise ValueError(f"{file}: the gzip file is damaged or truncated ({error}); download it again") from error
    pages: list[list[Any]] = []
    for number, line in enumerate(content.decode().splitlines(), start=1):
        if line.strip():
            page = _parse_page(line, f"{file}, line {number}")
            _check_like_first(page, pages[0] if pages else page, f"{file}, line {number}")
            pages.append(page)
    if not pages:
        raise ValueError(f"{file}: this file has no pages")
    columns = dict(zip(FIELDS, zip(*pages, strict=True), strict=False))
    return TrecSessions(
        session_ids=np.array(columns["session"], dtype=np.int64),
        query_ids=np.array(columns["query"], dtype=np.int64),
        document_ids=np.array(columns["documents"], dtype=np.int64),
        verticals=np.array(columns["verticals"], dtype=np.int64),
        clicks=np.array(columns["clicks"], dtype=np.float32),
        grades=np.array(columns["grades"], dtype=np.float32) if "grades" in columns else None,
    )


def _parse_page(line: str, where: str) -> list[Any]:
    """The fields of a line: two numbers and three or four lists of whole numbers."""
    fields = line.split("\t")
    if len(fields) not in (len(FIELDS) - 1, len(FIELDS)):
        raise ValueError(f"{where}: expected 5 or 6 tab-separated fields, {', '.join(FIELDS)}; found {len(fields)}")
    page = []
    for name, text in zip(FIELDS, fields, strict=False):
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        is_list = isinstance(value, list) and all(type(item) is int for item in value)
        if not (is_list if name in LISTS else type(value) is int):
            kind = "a list of whole numbers in brackets" if name in LISTS else "a whole number"
            raise ValueError(f"{where}: {name} must be {kind}, found '{text.strip()}'")
        page.append(value)
    if not set(page[FIELDS.index("clicks")]) <= {0, 1}:
        raise ValueError(f"{where}: clicks must be 0 or 1, found '{fields[FIELDS.index('clicks')].strip()}'")
    return page


def _check_like_first(page: list[Any], first: list[Any], where: str) -> None:
    """Refuse a page whose fields or length differ from the first page of the file."""
    if len(page) != len(first):
        raise ValueError(f"{where}: {len(page)} fields, but the first page has {len(first)}: do not mix files")
    n_positions = len(first[FIELDS.index("documents")])
    for name, values in zip(LISTS, page[2:], strict=False):
        if len(values) != n_positions:
            raise ValueError(f"{where}: {len(values)} {name}, but pages of this file have {n_positions} positions")
