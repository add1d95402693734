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
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.data.judged.judged_set import JudgedSet
from unskew.data.judged.letor_text import BAD_GZIP, open_plain_or_gzip
from unskew.data.public_logs.result_pages import JudgedQueries, frequency_buckets, numbered_lines, parse_number

LABEL_FIELDS = ("sample", "session", "query", "document", "grade")
LARGEST_GRADE = 4
NO_TYPE = "none"
FilePath = str | PathLike[str]


@dataclass(frozen=True, eq=False)
class TianGongFeatures:
    """Feature vectors of (query, document) pairs."""

    names: list[str]
    rows: dict[tuple[str, str], int]  # (query, document) -> row
    values: NDArray[np.float32]  # [documents, features]

    def row(self, query: str, document: str, where: str) -> int:
        """The row of a document, or an error that says where it occurs."""
        try:
            return self.rows[query, document]
        except KeyError:
            raise ValueError(f"{where}: document '{document}' of query '{query}' is not in the feature file") from None


def read_tiangong_features(path: FilePath) -> TianGongFeatures:
    """Read features of (query, document) pairs."""
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
            raise ValueError(f"{where}: document '{key[1]}' of query '{key[0]}' already has features: keep one line")
        rows[key] = len(values)
        values.append([parse_number(text, where, f"'{name}'") for name, text in zip(names, fields[2:], strict=True)])
    return TianGongFeatures(names, rows, np.array(values, dtype=np.float32).reshape(len(values), len(names)))


@dataclass
class _Columns:
    """Columns of the table of pages, while it is built."""

    session: list[int] = field(default_factory=list)
    query: list[str] = field(default_factory=list)
    document: list[str] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    click: list[int] = field(default_factory=list)
    vtype: list[str] = field(default_factory=list)


def read_tiangong_clicks(path: FilePath, features: TianGongFeatures) -> pa.Table:
    """Pages of the sessions; `vtype`, the type of each result, can be a bias column."""
    columns, rows = _Columns(), []
    for number, (where, page) in enumerate(_pages(path)):
        query = _text(page, "query_id", where)
        clicked = {_text(click, "rank", where) for click in page.iterfind("clicked/click")}
        for result in page.iterfind("results/result"):
            rank = result.get("rank", "")
            if not rank.isdecimal() or int(rank) < 1:
                raise ValueError(f"{where}: the attribute rank of <result> must be 1, 2, ..., found '{rank}'")
            document = _text(result, "docid", where)
            rows.append(features.row(query, document, where))
            columns.session.append(number)
            columns.query.append(query)
            columns.document.append(document)
            columns.position.append(int(rank) - 1)
            columns.click.append(int(rank in clicked))
            columns.vtype.append((result.findtext("vtype") or NO_TYPE).strip())
    if not rows:
        raise ValueError(f"{path}: this file has no <interaction> with a <result>")
    vectors = features.values[rows]
    return pa.table({**vars(columns), **{name: vectors[:, number] for number, name in enumerate(features.names)}})


def read_tiangong_judged(path: FilePath, features: TianGongFeatures, pages: pa.Table | None = None) -> JudgedQueries:
    """Judged samples, each a query of a session; frequency buckets are computed from `pages`."""
    samples = _read_samples(path, features)
    judged = JudgedSet(
        features=features.values[[row for sample in samples for row in sample.rows]],
        grades=np.array([grade for sample in samples for grade in sample.grades], dtype=np.float32),
        offsets=np.concatenate([[0], np.cumsum([len(sample.rows) for sample in samples])]).astype(np.int64),
        query_ids=np.array([f"{sample.query}/{sample.session}" for sample in samples]),
        document_ids=np.array([document for sample in samples for document in sample.documents]),
        name="tiangong-st",
    )
    return JudgedQueries(judged, _buckets([sample.query for sample in samples], pages))


@dataclass(frozen=True)
class _Sample:
    """The judged documents of a query of a session."""

    session: str
    query: str
    documents: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    grades: list[float] = field(default_factory=list)


def _read_samples(path: FilePath, features: TianGongFeatures) -> list[_Sample]:
    samples: dict[str, _Sample] = {}
    for where, line in numbered_lines(path):
        fields = line.split()
        if len(fields) != len(LABEL_FIELDS):
            known = ", ".join(LABEL_FIELDS)
            raise ValueError(f"{where}: expected {len(LABEL_FIELDS)} fields, {known}; found {len(fields)}")
        number, session, query, document, text = fields
        grade = parse_number(text, where, "the grade")
        if grade not in range(LARGEST_GRADE + 1):
            raise ValueError(f"{where}: grades must be whole numbers from 0 to {LARGEST_GRADE}, found '{text}'")
        sample = samples.setdefault(number, _Sample(session, query))
        if (sample.session, sample.query) != (session, query):
            raise ValueError(f"{where}: sample '{number}' has another session or query than before")
        sample.documents.append(document)
        sample.rows.append(features.row(query, document, where))
        sample.grades.append(grade)
    if not samples:
        raise ValueError(f"{path}: this file has no judgements")
    return list(samples.values())


def _buckets(queries: list[str], pages: pa.Table | None) -> NDArray[np.int64]:
    """Frequency deciles among all queries of the pages; without pages all queries are in one bucket."""
    if pages is None:
        return np.zeros(len(queries), dtype=np.int64)
    asked = pages.group_by(["session", "query"]).aggregate([])["query"].value_counts()
    known = [str(value) for value in asked.field("values").to_pylist()]
    bucket = dict(zip(known, frequency_buckets(asked.field("counts").to_numpy()).tolist(), strict=True))
    return np.array([bucket.get(query, 9) for query in queries], dtype=np.int64)  # never asked: rare


def _pages(path: FilePath) -> Iterator[tuple[str, ElementTree.Element]]:
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
        except ElementTree.ParseError as error:
            raise ValueError(f"{path} is not XML: {error}") from error
        except BAD_GZIP as error:
            raise ValueError(f"{path}: the gzip file is damaged or truncated ({error}); download it again") from error


def _text(element: Any, tag: str, where: str) -> str:
    text = (element.findtext(tag) or "").strip()
    if not text:
        raise ValueError(f"{where}: <{element.tag}> has no <{tag}>")
    return text
