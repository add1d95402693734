r"""The NTCIR-17 ULTRE-2 subset of Baidu-ULTR, from text files.

Files are plain or gzip, one entry per line:

    lists          session:document document ...   top first; the query is the session's name up to the first `_`
    clicks/grades  session:value value ...         the same sessions in the same order; 0 and 1, or 0 to 4
    features       document value                  one feature, such as the pre-trained score, or
                   document index:value ...        several, indices from 0; missing ones are 0
    scores         document value                  of the logging policy, optional
    frequencies    {"query": bucket, ...}          JSON; 0, the most frequent tenth of queries, to 9

The paper on CDLA-LD uses 13 heuristic features and a pre-trained score: two feature files, `features=[one, other]`. Its
filter and splits are `complete_pages`, `split_pages` and `JudgedQueries.split`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.data.judged.judged_set import JudgedSet
from unskew.data.public_logs.result_pages import JudgedQueries, numbered_lines, parse_number

LARGEST_GRADE = 4
FilePath = str | PathLike[str]


def read_ultre2_clicks(
    lists: FilePath, clicks: FilePath, features: Sequence[FilePath], scores: FilePath | None = None
) -> pa.Table:
    """Pages of the ULTRE-2 subset; with `scores` they have a column `policy_score`."""
    pages = _read_pairs(lists, clicks, "click", {"0", "1"})
    vectors = read_features(features)
    sizes = [len(page.documents) for page in pages]
    documents = [document for page in pages for document in page.documents]
    rows = vectors.rows_of(pages)
    columns: dict[str, Any] = {
        "session": np.repeat(np.arange(len(pages)), sizes),
        "query": [page.query for page in pages for _ in page.documents],
        "document": documents,
        "position": np.concatenate([np.arange(size) for size in sizes]),
        "click": np.array([value for page in pages for value in page.values], dtype=np.int64),
    }
    if scores is not None:
        columns["policy_score"] = _column_of(scores, pages)
    columns |= {name: vectors.values[rows, number] for number, name in enumerate(vectors.names)}
    return pa.table(columns)


def read_ultre2_judged(
    lists: FilePath, grades: FilePath, features: Sequence[FilePath], frequencies: FilePath
) -> JudgedQueries:
    """Judged queries of the ULTRE-2 subset."""
    queries = _read_pairs(lists, grades, "grade", {str(grade) for grade in range(LARGEST_GRADE + 1)})
    vectors = read_features(features)
    buckets = _read_frequencies(frequencies)
    missing = [page for page in queries if page.query not in buckets]
    if missing:
        raise ValueError(f"{missing[0].where}: query '{missing[0].query}' is not in {frequencies}")
    judged = JudgedSet(
        features=vectors.values[vectors.rows_of(queries)],
        grades=np.array([value for page in queries for value in page.values], dtype=np.float32),
        offsets=np.concatenate([[0], np.cumsum([len(page.documents) for page in queries])]).astype(np.int64),
        query_ids=np.array([page.query for page in queries]),
        document_ids=np.array([document for page in queries for document in page.documents]),
        name="ultre-2",
    )
    return JudgedQueries(judged, np.array([buckets[page.query] for page in queries], dtype=np.int64))


@dataclass(frozen=True)
class Page:
    """A line of lists with its line of clicks or grades."""

    where: str
    query: str
    documents: list[str]
    values: list[int]


@dataclass(frozen=True, eq=False)
class DocumentFeatures:
    """Feature vectors of documents."""

    names: list[str]
    rows: Mapping[str, int]
    values: NDArray[np.float32]  # [documents, features]

    def rows_of(self, pages: Sequence[Page]) -> NDArray[np.int64]:
        """Rows of the documents of all pages, concatenated."""
        for page in pages:
            for document in page.documents:
                if document not in self.rows:
                    raise ValueError(f"{page.where}: document '{document}' has no features; pass its feature files")
        return np.array([self.rows[document] for page in pages for document in page.documents], dtype=np.int64)


def read_features(files: Sequence[FilePath]) -> DocumentFeatures:
    """Features of several files, joined by document; a document must be in all of them."""
    if not files:
        raise ValueError("pass at least one feature file: without features there is nothing to rank by")
    parts = [_read_feature_file(file) for file in files]
    rows = {document: row for row, document in enumerate(parts[0])}
    for file, part in zip(files[1:], parts[1:], strict=True):
        if part.keys() != rows.keys():
            document = next(iter(part.keys() ^ rows.keys()))
            raise ValueError(f"document '{document}' is in only one of {files[0]} and {file}: both must have it")
    names, blocks = [], []
    for file, part in zip(files, parts, strict=True):
        width = max(max(vector, default=-1) for vector in part.values()) + 1
        block = np.zeros((len(rows), width), dtype=np.float32)
        for document, vector in part.items():
            block[rows[document], list(vector)] = list(vector.values())
        names += [f"{Path(file).name}:{index}" for index in range(width)]
        blocks.append(block)
    return DocumentFeatures(names, rows, np.concatenate(blocks, axis=1))


def _read_feature_file(file: FilePath) -> dict[str, dict[int, float]]:
    vectors: dict[str, dict[int, float]] = {}
    for where, line in numbered_lines(file):
        document, *fields = line.split()
        if document in vectors:
            raise ValueError(f"{where}: document '{document}' already has features: keep one line")
        if len(fields) == 1 and ":" not in fields[0]:
            vectors[document] = {0: parse_number(fields[0], where, "the feature")}
        else:
            vectors[document] = dict(_parse_entry(field, where) for field in fields)
    if not vectors:
        raise ValueError(f"{file}: this file has no documents")
    return vectors


def _parse_entry(field: str, where: str) -> tuple[int, float]:
    index, colon, value = field.partition(":")
    if not colon or not index.isdecimal():
        raise ValueError(f"{where}: expected index:value with an index from 0, found '{field}'")
    return int(index), parse_number(value, where, f"feature {index}")


def _read_pairs(lists: FilePath, values: FilePath, what: str, allowed: set[str]) -> list[Page]:
    """Lists with the clicks or grades of their documents."""
    listed, told = list(numbered_lines(lists)), list(numbered_lines(values))
    if len(listed) != len(told):
        raise ValueError(f"{lists} has {len(listed)} lists, but {values} has {len(told)} lines: they must match")
    if not listed:
        raise ValueError(f"{lists}: this file has no lists")
    pages = []
    for (where, line), (where_told, line_told) in zip(listed, told, strict=True):
        session, documents = _parse_line(line, where)
        session_told, texts = _parse_line(line_told, where_told)
        if session != session_told:
            raise ValueError(
                f"{where_told}: session '{session_told}', but {where} has '{session}': use the same order in both files"
            )
        if len(documents) != len(texts):
            raise ValueError(f"{where_told}: {len(texts)} {what}s, but {where} lists {len(documents)} documents")
        wrong = [text for text in texts if text not in allowed]
        if wrong:
            raise ValueError(f"{where_told}: a {what} must be one of {', '.join(sorted(allowed))}, found '{wrong[0]}'")
        pages.append(Page(where, session.partition("_")[0], documents, [int(text) for text in texts]))
    return pages


def _parse_line(line: str, where: str) -> tuple[str, list[str]]:
    session, colon, rest = line.partition(":")
    if not colon or not rest.split():
        raise ValueError(f"{where}: expected 'session:value value ...', found '{line[:60]}'")
    return session.strip(), rest.split()


def _column_of(file: FilePath, pages: Sequence[Page]) -> NDArray[np.float32]:
    """One number per shown document."""
    vectors = read_features([file])
    if vectors.values.shape[1] != 1:
        raise ValueError(f"{file}: expected one score per document, found {vectors.values.shape[1]}")
    return vectors.values[vectors.rows_of(pages), 0]


def _read_frequencies(file: FilePath) -> dict[str, int]:
    try:
        buckets = json.loads(Path(file).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(buckets, dict) or not all(type(value) is int for value in buckets.values()):
        raise ValueError(f'{file} must map queries to frequency buckets: {{"query": 0, ...}}')
    return buckets
