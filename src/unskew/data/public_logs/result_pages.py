"""Result pages of public click logs: what the readers share, which pages to keep, and how to split them.

Pages are a pyarrow table with one row per shown document: `session` (a number per showing of a page), `query`,
`document`, `position` (0 is the top), `click` (0 or 1), features, and other columns of the source.
`ClickLog.from_table` accepts such a table.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.data.judged.judged_set import JudgedSet
from unskew.data.judged.letor_text import open_plain_or_gzip

PAGE_COLUMNS = ("session", "query", "document", "position", "click")
N_POSITIONS = 10  # positions of the pages to keep
CLICK_SHARES = (0.8, 0.1, 0.1)  # training, validation, test
VALIDATION_SHARE = 0.2  # of judged queries; the rest is the test
LARGEST_GRADE = 4
FilePath = str | PathLike[str]


@dataclass(frozen=True, eq=False)
class LogTables:
    """The tables of a log, and the roles of their columns."""

    events: pa.Table
    features: pa.Table | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """A page or judged query of a text file: its documents, their rows of features, and their clicks or grades."""

    query: str
    documents: list[str]
    rows: list[int]
    values: list[float]
    positions: list[int]
    kinds: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """Features of documents, or of pairs of query and document."""

    names: list[str]
    rows: Mapping[Any, int]
    values: NDArray[np.float32]  # [documents, features]

    def row(self, key: Any, where: str, what: str) -> int:
        """The row of a document, or an error that says where it occurs."""
        if key not in self.rows:
            raise ValueError(f"{where}: {what} has no features: it is not in the feature files")
        return self.rows[key]


def click_table(pages: Sequence[Page], features: TextFeatures) -> pa.Table:
    """Pages as a table; a column `vtype` has the kind of each result, if it is known."""
    rows = [row for page in pages for row in page.rows]
    kinds = {"vtype": [kind for page in pages for kind in page.kinds]}
    columns = {
        "session": np.repeat(np.arange(len(pages)), [len(page.rows) for page in pages]),
        "query": [page.query for page in pages for _ in page.rows],
        "document": [document for page in pages for document in page.documents],
        "position": [position for page in pages for position in page.positions],
        "click": np.array([value for page in pages for value in page.values], dtype=np.int64),
        **{name: values for name, values in kinds.items() if values},
    }
    return pa.table(columns | {name: features.values[rows, number] for number, name in enumerate(features.names)})


def judged_pages(pages: Sequence[Page], features: TextFeatures, name: str) -> JudgedSet:
    """Judged queries."""
    return JudgedSet(
        features=features.values[[row for page in pages for row in page.rows]],
        grades=np.array([grade for page in pages for grade in page.values], dtype=np.float32),
        offsets=np.concatenate([[0], np.cumsum([len(page.rows) for page in pages])]).astype(np.int64),
        query_ids=np.array([page.query for page in pages]),
        document_ids=np.array([document for page in pages for document in page.documents]),
        name=name,
    )


def split_judged(judged: JudgedSet, share: float = VALIDATION_SHARE, seed: int = 0) -> tuple[JudgedSet, JudgedSet]:
    """Validation and test: a random share of the queries, and the others."""
    order = np.random.default_rng(seed).permutation(judged.n_queries)
    n_first = round(share * judged.n_queries)
    if not 0 < n_first < judged.n_queries:
        raise ValueError(
            f"a share of {share} of {judged.n_queries} queries leaves one side empty: choose another share"
        )
    return judged.select(np.sort(order[:n_first])), judged.select(np.sort(order[n_first:]))


def complete_pages(pages: pa.Table, n_positions: int = N_POSITIONS) -> pa.Table:
    """The top of those pages that show each of the first positions once and have a click there."""
    _, page = np.unique(pages["session"].to_numpy(), return_inverse=True)
    position, click = pages["position"].to_numpy(), pages["click"].to_numpy()
    top = (position >= 0) & (position < n_positions)
    n_pages = int(page.max(initial=-1)) + 1
    shown = np.bincount(page[top] * n_positions + position[top], minlength=n_pages * n_positions)
    clicks = np.bincount(page[top], weights=click[top], minlength=n_pages)
    complete = (shown.reshape(n_pages, n_positions) == 1).all(1)
    kept = complete & (clicks > 0)
    if not kept.any():
        raise ValueError(
            f"no page is left: {complete.sum()} of {n_pages} pages show all of the first {n_positions} positions, "
            f"and none of those has a click there; check that `position` counts from 0"
        )
    return pages.filter(pa.array(kept[page] & top))


def split_pages(pages: pa.Table, shares: Sequence[float] = CLICK_SHARES, seed: int = 0) -> list[pa.Table]:
    """Split whole pages at random, by default into training, validation and test.

    As in the papers on these logs, pages are split and not queries: a list may be on both sides.
    """
    if not np.isclose(sum(shares), 1) or min(shares) < 0:
        raise ValueError(f"shares must be positive and add up to 1, got {tuple(shares)}")
    sessions, page = np.unique(pages["session"].to_numpy(), return_inverse=True)
    ends = np.round(np.cumsum(shares) * len(sessions)).astype(np.int64)
    rank = np.empty(len(sessions), dtype=np.int64)
    rank[np.random.default_rng(seed).permutation(len(sessions))] = np.arange(len(sessions))
    part = np.searchsorted(ends, rank, side="right")[page]
    return [pages.filter(pa.array(part == number)) for number in range(len(shares))]


def numbered_lines(path: FilePath) -> Iterator[tuple[str, str]]:
    """Lines of a plain or gzip text file that are not blank, each with its location."""
    file = Path(path)
    try:
        with open_plain_or_gzip(file) as content, io.TextIOWrapper(content, encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield f"{file}, line {number}", line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not text: {error}") from error


def parse_number(text: str, where: str, what: str) -> float:
    """A finite number, or an error that says where it was expected."""
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise ValueError(f"{where}: {what} must be a number, found '{text}'")
    return value
