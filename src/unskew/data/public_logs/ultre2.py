r"""The NTCIR-17 ULTRE-2 subset of Baidu-ULTR, from text files.

Files are plain or gzip, one entry per line:

    lists          session:document document ...   top first; the query is the session's name up to the first `_`
    clicks/grades  session:value value ...         the same sessions in the same order; 0 and 1, or 0 to 4
    features       document value                  one feature, such as the pre-trained score, or
                   document index:value ...        several, indices from 0; missing ones are 0
    scores         document value                  of the logging policy, optional

The paper on CDLA-LD uses 13 heuristic features and a pre-trained score: two feature files, `features=[one, other]`. Its
filter and splits are `complete_pages`, `split_pages` and `split_judged`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from unskew.data.public_logs.result_pages import (
    FilePath,
    Page,
    TextFeatures,
    click_table,
    numbered_lines,
    parse_number,
)


def read_ultre2_clicks(
    lists: FilePath, clicks: FilePath, features: Sequence[FilePath], scores: FilePath | None = None
) -> pa.Table:
    """Pages of the ULTRE-2 subset; with `scores` they have a column `policy_score`."""
    vectors = read_features(features)
    pages = read_pages(lists, clicks, vectors, "click", largest=1)
    table = click_table(pages, vectors)
    if scores is None:
        return table
    policy = read_features([scores])
    if policy.values.shape[1] != 1:
        raise ValueError(f"{scores}: expected one score per document, found {policy.values.shape[1]}")
    rows = [
        policy.row(document, str(scores), f"document '{document}'") for page in pages for document in page.documents
    ]
    return table.append_column("policy_score", pa.array(policy.values[rows, 0]))


def read_features(files: Sequence[FilePath]) -> TextFeatures:
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
    return TextFeatures(names, rows, np.concatenate(blocks, axis=1))


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


def read_pages(lists: FilePath, values: FilePath, features: TextFeatures, what: str, *, largest: int) -> list[Page]:
    """Lists with the clicks or grades of their documents."""
    listed, told = list(numbered_lines(lists)), list(numbered_lines(values))
    if len(listed) != len(told):
        raise ValueError(f"{lists} has {len(listed)} lists, but {values} has {len(told)} lines: they must match")
    if not listed:
        raise ValueError(f"{lists}: this file has no lists")
    pages, allowed = [], [str(value) for value in range(largest + 1)]
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
            raise ValueError(f"{where_told}: a {what} must be one of {', '.join(allowed)}, found '{wrong[0]}'")
        rows = [features.row(document, where, f"document '{document}'") for document in documents]
        pages.append(Page(session.partition("_")[0], documents, rows, [*map(int, texts)], [*range(len(rows))]))
    return pages


def _parse_line(line: str, where: str) -> tuple[str, list[str]]:
    session, colon, rest = line.partition(":")
    if not colon or not rest.split():
        raise ValueError(f"{where}: expected 'session:value value ...', found '{line[:60]}'")
    return session.strip(), rest.split()
