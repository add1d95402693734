"""Public logs of result pages with ids and clicks but no features, converted to a `ClickLog`.

    name                 files in the folder of that name (plain or gzip)
    trec-session-2014    train.txt, valid.txt, test.txt: a page per line, tab-separated: session, query, then in
                         brackets documents, verticals and clicks (0 or 1); judged.txt adds grades (-2 to 4)
    naver-clara2         CLARA2SearchLog_beta: lines of queries and of clicks; labels_by_log_query.tsv: grades
    sogou-mouse          train_data, test_data: pages with clicks and mouse movements

Pages keep the order of their files, so that a split can be published as page numbers: `read_pages(name)` returns all
pages, `read_pages(name).select(numbers).log()` the log of some. `NAME@train`, `NAME@valid` and `NAME@test` are splits:
the publisher's own for TREC; for the others, sessions (for Sogou, which has none, pages) in a random order with a fixed
seed: the first 80% for training, the next 10% for validation, the rest for testing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.catalogue import PACKED, MissingDataError, data_folder, find_file
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.public_logs.result_pages import numbered_lines
from unskew.data.untrusted import parse_json

TREC_FIELDS = ("session", "query", "documents", "verticals", "clicks", "grades")
MOST_PAGES_BACK = 8  # a click of CLARA 2 belongs to one of this many latest pages of its session
SOGOU_FIELDS = 10  # query, documents, clicks, times of clicks, six features of the mouse
MOUSE_FIELDS = slice(4, 10)
SPLITS = ("train", "valid", "test")
SPLIT_ENDS, SPLIT_SEED = (0.8, 0.9), 20141116
HOVER_FIELD = 8  # the fifth mouse feature: how long the mouse was over the result


@dataclass(frozen=True, eq=False)
class IdPages:
    """Result pages in the order of the files; column `i` is position `i`, counted from 0."""

    query_ids: NDArray  # [pages]
    document_ids: NDArray  # [pages, positions]
    clicks: NDArray[np.float32]  # [pages, positions]; 0.0 or 1.0
    split: NDArray[np.int64]  # [pages], of SPLITS
    grades: NDArray[np.float32] | None = None  # [pages, positions]; NaN: not judged
    hovered: NDArray[np.float32] | None = None  # [pages, positions], 1: the mouse was over it; NaN: not recorded
    left_out: dict[str, int] = field(default_factory=dict)  # counts of records that are in no page, by reason

    @property
    def n_pages(self) -> int:
        return len(self.query_ids)

    def select(self, pages: ArrayLike) -> IdPages:
        """These pages, by number or boolean mask."""
        rows = np.asarray(pages)
        names = [entry.name for entry in fields(self) if isinstance(getattr(self, entry.name), np.ndarray)]
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def log(self) -> ClickLog:
        """The pages as a joint log without features, with recorded examination if there is any."""
        n_pages, n_positions = self.document_ids.shape
        table = {
            "session": np.repeat(np.arange(n_pages), n_positions),
            "query": np.repeat(self.query_ids, n_positions),
            "document": self.document_ids.reshape(-1),
            "position": np.tile(np.arange(n_positions), n_pages),
            "click": self.clicks.reshape(-1),
        }
        if self.hovered is not None:
            table["hovered"] = self.hovered.reshape(-1)
        seen = None if self.hovered is None else "hovered"
        return ClickLog.from_table(pa.table(table), features=(), seen=seen)

    def judged(self) -> JudgedSet | None:
        """Every graded document of each query; None: the log has no grades."""
        if self.grades is None:
            return None
        known = np.isfinite(self.grades)
        queries = np.broadcast_to(self.query_ids[:, None], known.shape)[known]
        pairs, first = np.unique(np.stack([queries, self.document_ids[known]], axis=1), axis=0, return_index=True)
        asked, sizes = np.unique(pairs[:, 0], return_counts=True)
        return JudgedSet(
            features=np.zeros((len(pairs), 0), dtype=np.float32),
            grades=self.grades[known][first],
            offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            query_ids=asked,
            document_ids=pairs[:, 1],
        )


def is_public_log(spec: str) -> bool:
    """Whether `NAME` or `NAME@split` names one of these logs."""
    return spec.partition("@")[0] in READERS


def read_pages(spec: str) -> IdPages:
    """Pages of a public log, `NAME` for all or `NAME@split`."""
    name, at, split = spec.partition("@")
    if name not in READERS:
        raise ValueError(f"unknown log '{name}': choose one of {', '.join(READERS)}")
    if at and split not in SPLITS:
        raise ValueError(f"'{spec}': there is no split '{split}'; choose one of {', '.join(SPLITS)}")
    pages = READERS[name](name)
    return pages.select(pages.split == SPLITS.index(split)) if at else pages


def _random_split(units: NDArray) -> NDArray[np.int64]:
    """The split of each page; units, such as sessions, are not split."""
    distinct, unit = np.unique(units, return_inverse=True)
    place = np.empty(len(distinct), dtype=np.int64)
    place[np.random.default_rng(SPLIT_SEED).permutation(len(distinct))] = np.arange(len(distinct))
    ends = [int(share * len(distinct)) for share in SPLIT_ENDS]
    return np.searchsorted(ends, place, side="right")[unit].astype(np.int64)


def read_trec_sessions(path: str | PathLike[str]) -> dict[str, NDArray]:
    """The pages of one file of TREC, `[pages]` or `[pages, positions]` by name of the field."""
    pages: list[list[Any]] = []
    for where, line in numbered_lines(path):
        page = _parse_page(line, where)
        if [np.shape(value) for value in page] != [np.shape(value) for value in (pages or [page])[0]]:
            raise ValueError(f"{where}: other fields or positions than on the first page: do not mix files")
        pages.append(page)
    if not pages:
        raise ValueError(f"{path}: this file has no pages")
    return {name: np.array(values) for name, values in zip(TREC_FIELDS, zip(*pages, strict=True), strict=False)}


def _parse_page(line: str, where: str) -> list[Any]:
    """The fields of a line: two numbers and three or four lists of whole numbers."""
    fields = line.split("\t")
    if len(fields) not in (5, 6):
        raise ValueError(
            f"{where}: expected 5 or 6 tab-separated fields, {', '.join(TREC_FIELDS)}; found {len(fields)}"
        )
    page = []
    for number, (name, text) in enumerate(zip(TREC_FIELDS, fields, strict=False)):
        try:
            value = parse_json(text)
        except ValueError:
            value = None
        is_list = isinstance(value, list) and all(type(item) is int for item in value)
        if not (type(value) is int if number < 2 else is_list):
            kind = "a whole number" if number < 2 else "a list of whole numbers in brackets"
            raise ValueError(f"{where}: {name} must be {kind}, found '{text.strip()}'")
        page.append(value)
    if not set(page[4]) <= {0, 1}:
        raise ValueError(f"{where}: clicks must be 0 or 1, found '{fields[4].strip()}'")
    return page


def _trec_session(name: str) -> IdPages:
    parts = [read_trec_sessions(_file(name, f"{split}.txt")) for split in SPLITS]
    query_ids, document_ids, clicks = (
        np.concatenate([part[field] for part in parts]) for field in ("query", "documents", "clicks")
    )
    split = np.repeat(np.arange(len(parts)), [len(part["query"]) for part in parts])
    return IdPages(query_ids, document_ids, clicks.astype(np.float32), split)


def _clara2(name: str) -> IdPages:
    """Queries and clicks; a click belongs to the latest page of its session that shows its document."""
    queries: list[int] = []
    documents: list[list[int]] = []
    clicks: list[NDArray[np.float32]] = []
    sessions: list[int] = []
    pages_of: dict[str, list[int]] = defaultdict(list)
    lost = 0
    for where, line in numbered_lines(_file(name, "CLARA2SearchLog_beta")):
        session, _, kind, *rest = line.rstrip("\t").split("\t")
        if kind == "Q":
            pages_of[session].append(len(queries))
            sessions.append(int(session))
            queries.append(int(rest[0]))
            documents.append([int(entry) for entry in rest[2:]])
            clicks.append(np.zeros(len(documents[-1]), dtype=np.float32))
            if len(documents[-1]) != len(documents[0]):
                raise ValueError(f"{where}: {len(documents[-1])} results, but the first page has {len(documents[0])}")
        elif kind == "C":
            recent = pages_of[session][::-1][:MOST_PAGES_BACK]
            page = next((page for page in recent if int(rest[0]) in documents[page]), None)
            if page is None:
                lost += 1
            else:
                clicks[page][documents[page].index(int(rest[0]))] = 1.0
        else:
            raise ValueError(f"{where}: a line must start with Q or C, found '{kind}'")
    shown = np.array(documents, dtype=np.int64)
    asked = np.array(queries, dtype=np.int64)
    grades = _clara2_grades(name, asked, shown)
    split = _random_split(np.array(sessions))
    return IdPages(
        asked, shown, np.array(clicks), split, grades, left_out={"clicks outside the pages of their session": lost}
    )


def _clara2_grades(name: str, queries: NDArray[np.int64], documents: NDArray[np.int64]) -> NDArray[np.float32] | None:
    path = find_file("labels_by_log_query.tsv", [name])
    if path is None:
        return None
    lines = list(numbered_lines(path))[1:]  # the first names the columns
    known = {(int(query), int(url)): float(grade) for query, url, grade in (line.split("\t") for _, line in lines)}
    pairs = zip(np.repeat(queries, documents.shape[1]).tolist(), documents.reshape(-1).tolist(), strict=True)
    return np.array([known.get(pair, np.nan) for pair in pairs], dtype=np.float32).reshape(documents.shape)


def _sogou_mouse(name: str) -> IdPages:
    queries, documents, clicks, hovered = [], [], [], []
    for file in ("train_data", "test_data"):
        for where, line in numbered_lines(_file(name, file)):
            columns = line.split("\t")
            if len(columns) != SOGOU_FIELDS:
                raise ValueError(f"{where}: expected {SOGOU_FIELDS} tab-separated fields, found {len(columns)}")
            queries.append(int(columns[0]))
            documents.append([int(entry) for entry in columns[1].split()])
            clicks.append([float(entry) for entry in columns[2].split()])
            moved = any(float(entry) for mouse in columns[MOUSE_FIELDS] for entry in mouse.split())
            hovers = [float(float(entry) > 0) for entry in columns[HOVER_FIELD].split()]
            hovered.append(hovers if moved else [np.nan] * len(hovers))
    return IdPages(
        query_ids=np.array(queries, dtype=np.int64),
        document_ids=np.array(documents, dtype=np.int64),
        clicks=np.array(clicks, dtype=np.float32),
        split=_random_split(np.arange(len(queries))),
        hovered=np.array(hovered, dtype=np.float32),
    )


def _file(name: str, file: str) -> Path:
    path = find_file(file, [name])
    if path is None:
        raise MissingDataError(
            f"log '{name}' lacks {file} (plain or {PACKED}); searched in {data_folder() / name}. Put the publisher's "
            f"files there, or set UNSKEW_DATA to the folder that holds '{name}'"
        )
    return path


READERS: dict[str, Callable[[str], IdPages]] = {
    "trec-session-2014": _trec_session,
    "naver-clara2": _clara2,
    "sogou-mouse": _sogou_mouse,
}
