"""Result pages of public click logs: which pages to keep, how to split them, and judged queries by frequency.

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
from unskew.data.judged.letor_text import BAD_GZIP, open_plain_or_gzip

PAGE_COLUMNS = ("session", "query", "document", "position", "click")
N_POSITIONS = 10  # positions of the pages to keep
CLICK_SHARES = (0.8, 0.1, 0.1)  # training, validation, test
VALIDATION_SHARE = 0.2  # of judged queries; the rest is the test
N_BUCKETS = 10
# Buckets of query frequency, 0 the most frequent tenth.
SLICES: Mapping[str, range] = {"head": range(3), "middle": range(3, 7), "tail": range(7, N_BUCKETS)}


@dataclass(frozen=True, eq=False)
class LogTables:
    """The tables of a log, and the roles of their columns."""

    events: pa.Table
    features: pa.Table | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class JudgedQueries:
    """Judged queries, and how often people ask them."""

    judged: JudgedSet
    bucket: NDArray[np.int64]  # [queries]; 0 is the most frequent tenth, 9 the rarest

    def __post_init__(self) -> None:
        if self.bucket.shape != (self.judged.n_queries,):
            raise ValueError(f"{self.judged.n_queries} queries, but buckets {self.bucket.shape}: pass one per query")
        bad = (self.bucket < 0) | (self.bucket >= N_BUCKETS)
        if bad.any():
            query = int(np.argmax(bad))
            raise ValueError(
                f"query {self.judged.query_ids[query]} is in frequency bucket {self.bucket[query]}: buckets go from 0, "
                f"the most frequent, to {N_BUCKETS - 1}"
            )

    def select(self, queries: NDArray) -> JudgedQueries:
        """These queries only, by number or boolean mask."""
        return JudgedQueries(self.judged.select(queries), self.bucket[queries])

    def split(self, share: float = VALIDATION_SHARE, seed: int = 0) -> tuple[JudgedQueries, JudgedQueries]:
        """Validation and test: a random share of the queries, and the others."""
        n_queries = self.judged.n_queries
        order = np.random.default_rng(seed).permutation(n_queries)
        n_first = round(share * n_queries)
        if not 0 < n_first < n_queries:
            raise ValueError(f"a share of {share} of {n_queries} queries leaves one side empty: choose another share")
        return self.select(np.sort(order[:n_first])), self.select(np.sort(order[n_first:]))

    def slices(self) -> dict[str, JudgedSet]:
        """Head, middle and tail queries; empty slices are left out."""
        members = {name: np.isin(self.bucket, list(buckets)) for name, buckets in SLICES.items()}
        return {name: self.judged.select(member) for name, member in members.items() if member.any()}


def frequency_buckets(counts: NDArray) -> NDArray[np.int64]:
    """Tenths of queries by how often they are asked, 0 the most frequent; equal counts share a bucket."""
    rarer_than = np.searchsorted(np.sort(-counts), -counts, side="left")  # number of more frequent queries
    return (rarer_than * N_BUCKETS // max(len(counts), 1)).astype(np.int64)


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


def numbered_lines(path: str | PathLike[str]) -> Iterator[tuple[str, str]]:
    """Lines of a plain or gzip text file that are not blank, each with its location."""
    file = Path(path)
    try:
        with io.TextIOWrapper(open_plain_or_gzip(file), encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield f"{file}, line {number}", line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not text: {error}") from error
    except BAD_GZIP as error:
        raise ValueError(f"{file}: the gzip file is damaged or truncated ({error}); download it again") from error


def parse_number(text: str, where: str, what: str) -> float:
    """A finite number, or an error that says where it was expected."""
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise ValueError(f"{where}: {what} must be a number, found '{text}'")
    return value
