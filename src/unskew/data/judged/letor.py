"""LETOR and SVMlight text files, read into a JudgedSet.

A line is one judged document: `grade qid:ID feature:value feature:value ... #comment`. Conventions:

* Features that a line does not name are 0. `NULL` is NaN, a missing value, which feature transforms handle.
* Values beyond float32 (Istella writes the largest double) become infinite.
* Feature ids count from 0 if an id 0 occurs in any of the files, otherwise from 1; `first_feature` overrides this.
* A comment `#docid = ID ...` gives the document's id; other comments are skipped. If only some documents have an id,
  the others get their number within the query.
* Ids are integers if all of them are, otherwise strings.
* The lines of a query are adjacent in one file. A query that appears again later is an error, never merged silently.
* Blank lines and comment lines are skipped. Files are plain or gzip (by content, not by name), lines end in LF or
  CR LF.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from unskew.data.judged.cache import ArrayCache
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.judged.letor_text import (
    BadLinesError,
    Block,
    Documents,
    LetorError,
    complaint,
    parse_lines,
    read_blocks,
)

__all__ = ["LetorError", "read_letor"]

READER_VERSION = 1  # part of the cache key: raise it whenever the same file would be read differently
MAX_FEATURES = 100_000  # a larger id is more likely an error than a column, unless `n_features` says otherwise

PathLike = str | os.PathLike[str]


def read_letor(
    paths: PathLike | Sequence[PathLike],
    *,
    n_features: int | None = None,
    first_feature: int | None = None,
    cache: bool | PathLike = True,
    name: str = "",
) -> JudgedSet:
    """One judged set from one or more LETOR files.

    Use `load` for data sets in three splits.

    Args:
        n_features: Number of columns; default: determined by the largest id. Pass it if you read files of one data set
            separately, because sparse files may lack the last features.
        first_feature: 0 or 1, the first feature id; default: determined from the files.
        cache: Whether to cache the arrays on disk and map them the next time, or the folder of the cache.

    >>> from pathlib import Path
    >>> import unskew
    >>> _ = Path("judged.txt").write_text("2 qid:7 1:0.5 2:0.1\\n0 qid:7 1:0.2 2:0.9\\n")
    >>> unskew.read_letor("judged.txt", cache=False)
    JudgedSet(1 queries, 2 documents, 2 features)
    """
    files = [Path(paths)] if isinstance(paths, str | os.PathLike) else [Path(path) for path in paths]
    if not files:
        raise ValueError("no file to read: pass at least one path")
    if first_feature not in (None, 0, 1):
        raise ValueError(f"first_feature is {first_feature}, but feature ids count from 0 or from 1")
    if n_features is not None and n_features < 1:
        raise ValueError(f"n_features is {n_features}, but a set has at least one feature")
    if cache is False:
        arrays = _read(files, n_features, first_feature)
    else:
        arrays = _read_once(files, n_features, first_feature, ArrayCache(None if cache is True else Path(cache)))
    return JudgedSet(**cast("dict[str, Any]", arrays), name=name)


def _read_once(
    files: list[Path], n_features: int | None, first_feature: int | None, cache: ArrayCache
) -> dict[str, NDArray]:
    """The arrays from the cache, or from the files, which then are cached."""
    digests = [cache.digest(file) for file in files]
    meaning = json.dumps(["letor", READER_VERSION, digests, n_features, first_feature])
    key = hashlib.blake2b(meaning.encode(), digest_size=16).hexdigest()
    arrays = cache.load(key)
    if arrays is None:
        arrays = _read(files, n_features, first_feature)
        if [cache.digest(file) for file in files] != digests:
            raise LetorError(f"{', '.join(map(str, files))}: changed while being read; try again when complete")
        cache.store(key, arrays)
    return arrays


def _read(files: list[Path], n_features: int | None, first_feature: int | None) -> dict[str, NDArray]:
    builder = _SetBuilder(n_features, first_feature)
    for file in files:
        n_before = builder.n_rows
        for block in read_blocks(file):
            builder.add(block)
        if builder.n_rows == n_before:
            raise LetorError(f"{file}: this file has no judged documents")
    return builder.finish()


class _SetBuilder:
    """Collects blocks of lines into the arrays of one set."""

    def __init__(self, n_features: int | None, first_feature: int | None):
        self.n_features = n_features
        self.given_first = first_feature
        self.first_feature = 1 if first_feature is None else first_feature
        self.width = 0
        self.n_rows = 0
        self.blocks: list[tuple[int, NDArray[np.float32]]] = []  # the first feature of each, and its rows
        self.grades: list[NDArray[np.float32]] = []
        self.document_ids: list[NDArray[np.bytes_]] = []
        self.sizes: dict[bytes, int] = {}  # documents by query, in order of appearance
        self.current: tuple[Path, bytes] | None = None  # the query whose lines may continue

    def add(self, block: Block) -> None:
        """Append the documents of a block."""
        try:
            documents = parse_lines(block.lines)
            self._add_features(documents)
        except BadLinesError:
            raise self._explain(block) from None
        self._add_queries(documents.queries, block)
        self.grades.append(documents.grades)
        self.document_ids.append(documents.document_ids)

    def finish(self) -> dict[str, NDArray]:
        """The fields of a JudgedSet."""
        sizes = np.fromiter(self.sizes.values(), dtype=np.int64, count=len(self.sizes))
        arrays: dict[str, NDArray] = {
            "features": self._matrix(),
            "grades": np.concatenate(self.grades),
            "offsets": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            "query_ids": _plain_ids([np.array(list(self.sizes), dtype=np.bytes_)]),
        }
        if any((ids != b"").any() for ids in self.document_ids):
            arrays["document_ids"] = _plain_ids(_with_numbers(self.document_ids, sizes))
        return arrays

    def _add_features(self, documents: Documents) -> None:
        lowest, highest = int(documents.features.min(initial=1)), int(documents.features.max(initial=0))
        first = 0 if self.given_first is None and lowest == 0 else self.first_feature
        width = max(self.width + self.first_feature - first, highest + 1 - first)  # ids may turn out to count from 0
        if lowest < first or width > self._max_features():
            raise BadLinesError
        places = documents.rows * width + (documents.features - first)
        _refuse_repeated(places)
        rows = np.zeros((len(documents.grades), width), np.float32)
        rows.reshape(-1)[places] = documents.values
        self.blocks.append((first, rows))
        self.first_feature, self.width, self.n_rows = first, width, self.n_rows + len(rows)

    def _matrix(self) -> NDArray[np.float32]:
        """All rows; each block is freed when it is copied, the last first, so that they are never in memory twice."""
        matrix = np.zeros((self.n_rows, self.width if self.n_features is None else self.n_features), np.float32)
        end = self.n_rows
        while self.blocks:
            first, rows = self.blocks.pop()
            left = first - self.first_feature
            matrix[end - len(rows) : end, left : left + rows.shape[1]] = rows
            end -= len(rows)
        return matrix

    def _add_queries(self, runs: list[tuple[bytes, int]], block: Block) -> None:
        row = 0
        for query, size in runs:
            if self.current != (block.file, query) and query in self.sizes:
                raise block.error(
                    block.line_of_document(row),
                    f"query {query.decode(errors='backslashreplace')} has lines further up or in an earlier file: "
                    "the lines of a query must be adjacent; sort the file by query",
                )
            self.sizes[query] = self.sizes.get(query, 0) + size
            self.current = (block.file, query)
            row += size

    def _explain(self, block: Block) -> LetorError:
        """The error about the first bad line of a block that could not be read as a whole."""
        for index, line in enumerate(block.lines):
            try:
                self._add_features(parse_lines([line]))
            except BadLinesError:
                return block.error(index, complaint(line, self.first_feature, self._max_features()))
        raise AssertionError("lines that can be read one by one can be read together")

    def _max_features(self) -> int:
        return MAX_FEATURES if self.n_features is None else self.n_features


def _refuse_repeated(places: NDArray[np.int64]) -> None:
    """Refuse two values for one feature of one document."""
    if (np.diff(places) > 0).all():  # ids ascend in each line, as in nearly all files
        return
    if len(np.unique(places)) < len(places):
        raise BadLinesError


def _with_numbers(chunks: list[NDArray[np.bytes_]], sizes: NDArray[np.int64]) -> list[NDArray[np.bytes_]]:
    """Document ids, with the number within the query in place of missing ones."""
    numbers = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    ends = np.cumsum([len(chunk) for chunk in chunks])
    return [
        np.where(chunk == b"", numbers[end - len(chunk) : end].astype(np.bytes_), chunk)
        if (chunk == b"").any()
        else chunk
        for chunk, end in zip(chunks, ends, strict=True)
    ]


def _plain_ids(chunks: list[NDArray[np.bytes_]]) -> NDArray:
    """Ids in one array: integers if all of them are written as such, otherwise strings."""
    integers = [_as_integers(chunk) for chunk in chunks]
    if all(numbers is not None for numbers in integers):
        return np.concatenate([numbers for numbers in integers if numbers is not None])
    texts = np.empty(sum(map(len, chunks)), dtype=f"U{max(chunk.itemsize for chunk in chunks)}")
    start = 0
    for chunk in chunks:  # one at a time: strings take four times the memory of bytes
        texts[start : start + len(chunk)] = np.char.decode(chunk, "utf-8", "backslashreplace")
        start += len(chunk)
    return texts


def _as_integers(ids: NDArray[np.bytes_]) -> NDArray[np.int64] | None:
    try:
        numbers = ids.astype(np.int64)
    except (ValueError, OverflowError):
        return None
    # 007 is not 7: an id is a number only if it prints as it was written.
    return numbers if (numbers.astype(np.bytes_) == ids).all() else None
