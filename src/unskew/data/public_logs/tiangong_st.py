r"""TianGong-ST (Chen et al., CIKM 2019): pages of a search engine with clicks, and judged last queries.

The sessions are an XML file (`sogousessiontrack2020.xml`), plain or gzip. These elements are read:

    <session num="1">
      <interaction num="1">                      one page
        <query_id>q1</query_id>
        <results>
          <result rank="1">                      ranks count from 1
            <docid>d1</docid>
            <vtype>...</vtype>                   kind of result, optional
          </result> ...
        </results>
        <clicked>                                only where there were clicks
          <click><rank>1</rank></click> ...
        </clicked>
      </interaction> ...
    </session> ...

Other elements are ignored. So are clicks on ranks that are not shown, which do occur; `complete_pages` drops pages with
missing or repeated ranks. The judgements (`sogou_st_human_labels.txt`) have five fields per line, separated by tabs or
spaces: sample number, session, query, document, grade from 0 to 4.

The data come with texts, not with features. Compute your own and pass them as a tab-separated file, plain or gzip,
whose first line names the columns: `query`, `document`, then one column per feature.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from unskew.data.judged.letor_text import open_plain_or_gzip
from unskew.data.public_logs.result_pages import (
    LARGEST_GRADE,
    FilePath,
    Page,
    TextFeatures,
    numbered_lines,
    parse_number,
)

LABEL_FIELDS = ("sample", "session", "query", "document", "grade")
NO_TYPE = "none"


def read_tiangong_features(path: FilePath) -> TextFeatures:
    """Features of (query, document) pairs."""
    lines = numbered_lines(path)
    where, header = next(lines, (f"{path}, line 1", ""))
    names = header.split("\t")[2:]
    if header.split("\t")[:2] != ["query", "document"] or not names:
        raise ValueError(f"{where}: the first line must be 'query', 'document' and feature names, tab-separated")
    rows: dict[tuple[str, str], int] = {}
    values: list[list[float]] = []
    for where, line in lines:
        fields = line.split("\t")
        if len(fields) != 2 + len(names):
            raise ValueError(f"{where}: {len(fields)} fields, but the first line names {2 + len(names)} columns")
        key = (fields[0], fields[1])
        if key in rows:
            raise ValueError(f"{where}: {_name(*key)} already has features: keep one line")
        rows[key] = len(values)
        values.append([parse_number(text, where, f"'{name}'") for name, text in zip(names, fields[2:], strict=True)])
    return TextFeatures(names, rows, np.array(values, dtype=np.float32).reshape(len(values), len(names)))


def read_tiangong_clicks(path: FilePath, features: TextFeatures) -> list[Page]:
    """Pages of the sessions, with the type of each result."""
    pages = []
    for where, element in _interactions(path):
        query = _text(element, "query_id", where)
        clicked = {_text(click, "rank", where) for click in element.iterfind("clicked/click")}
        results = list(element.iterfind("results/result"))
        ranks = [result.get("rank", "") for result in results]
        for rank in ranks:
            if not rank.isdecimal() or int(rank) < 1:
                raise ValueError(f"{where}: the attribute rank of <result> must be 1, 2, ..., found '{rank}'")
        documents = [_text(result, "docid", where) for result in results]
        page = Page(
            query,
            documents,
            [features.row((query, name), where, _name(query, name)) for name in documents],
            [int(rank in clicked) for rank in ranks],
            [int(rank) - 1 for rank in ranks],
            [(result.findtext("vtype") or NO_TYPE).strip() for result in results],
        )
        pages.append(page)
    if not any(page.documents for page in pages):
        raise ValueError(f"{path}: this file has no <interaction> with a <result>")
    return pages


def read_tiangong_judged(path: FilePath, features: TextFeatures) -> list[Page]:
    """Judged samples, each a query of a session."""
    samples: dict[str, Page] = {}
    for where, line in numbered_lines(path):
        fields = line.split()
        if len(fields) != len(LABEL_FIELDS):
            known = ", ".join(LABEL_FIELDS)
            raise ValueError(f"{where}: expected {len(LABEL_FIELDS)} fields, {known}; found {len(fields)}")
        number, session, query, document, text = fields
        grade = parse_number(text, where, "the grade")
        if grade not in range(LARGEST_GRADE + 1):
            raise ValueError(f"{where}: grades must be whole numbers from 0 to {LARGEST_GRADE}, found '{text}'")
        sample = samples.setdefault(number, Page(f"{query}/{session}", [], [], [], []))
        if sample.query != f"{query}/{session}":
            raise ValueError(f"{where}: sample '{number}' has another session or query than before")
        sample.rows.append(features.row((query, document), where, _name(query, document)))
        sample.documents.append(document)
        sample.values.append(grade)
    if not samples:
        raise ValueError(f"{path}: this file has no judgements")
    return list(samples.values())


def _name(query: str, document: str) -> str:
    return f"document '{document}' of query '{query}'"


def _interactions(path: FilePath) -> Iterator[tuple[str, ElementTree.Element]]:
    """Pages, each with its location; a page's memory is freed when the next is read."""
    session = "?"
    with open_plain_or_gzip(Path(path)) as content:
        try:
            for event, element in ElementTree.iterparse(content, events=("start", "end")):
                if event == "start" and element.tag == "session":
                    session = element.get("num", "?")
                elif event == "end" and element.tag == "interaction":
                    yield f"{path}, session {session}, interaction {element.get('num', '?')}", element
                    element.clear()
                elif event == "end" and element.tag == "session":
                    element.clear()
        except (ElementTree.ParseError, LookupError) as error:  # LookupError: an encoding that nobody knows
            raise ValueError(f"{path} is not XML: {error}") from error


def _text(element: Any, tag: str, where: str) -> str:
    text = (element.findtext(tag) or "").strip()
    if not text:
        raise ValueError(f"{where}: <{element.tag}> has no <{tag}>")
    return text
