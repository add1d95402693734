r"""Baidu-ULTR (Zou et al., NeurIPS 2022), from tables with features.

Baidu's own files (`part-00000.gz`, a query line and then one line of 31 fields per document) hold token ids and no
features, which no method here can use. Subsets with features exist: `ultre2` reads NTCIR-17 ULTRE-2, and this module
reads tables, parquet or feather, as exported from the subsets of Hager et al. (SIGIR 2024). One row is one page, or one
judged query:

    query_id          string or number   of the query
    text_md5          list of strings    of the documents, top first; otherwise url_md5 (features depend on query and
                                         text, and the text at a URL may change from page to page)
    position          list of integers   place of each document, counted from 1; clicks only
    click             list of 0 and 1    clicks only
    media_type        list of integers   optional, kind of each result, for a bias column; clicks only
    label             list of 0 to 4     grades; judged only
    features          lists of numbers, or a number where it belongs to the query; see `HEURISTICS` for the names

The paper on CDLA-LD keeps pages with ten consecutive documents and a click (`complete_pages`), splits them 80/10/10
(`split_pages`), and judged queries 20/80 (`split_judged`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import feather

from unskew.data.checks import check_columns, check_values
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.public_logs.result_pages import LARGEST_GRADE, FilePath

HEURISTICS = (
    "bm25",
    "bm25_title",
    "title_bm25",
    "bm25_abstract",
    "abstract_bm25",
    "tf_idf",
    "tf",
    "idf",
    "ql_jelinek_mercer_short",
    "ql_jelinek_mercer_long",
    "ql_dirichlet",
    "query_length",
    "document_length",
    "title_length",
    "abstract_length",
)
DOCUMENT_COLUMNS = ("text_md5", "url_md5")
TOLD_OF_DOCUMENTS = ("position", "click", "media_type", "label")


def read_baidu_clicks(path: FilePath, features: Sequence[str] | None = None) -> pa.Table:
    """Pages of a table file; features by default: all of `HEURISTICS` that it has."""
    with _named(path):
        table = _read_table(path)
        names, document = _feature_columns(table, features), _document_column(table)
        optional = ["media_type"] if "media_type" in table.column_names else []
        lists = _flat(table, [document, "position", "click", *optional, *names])
        click, position, rows = (lists[name].to_numpy() for name in ("click", "position", "row"))
        check_values(click, np.isin(click, (0, 1)), "click", "a click is 0 or 1", rows)
        check_values(position, position >= 1, "position", "positions count from 1", rows)
    columns = {
        "session": lists["row"],
        "query": lists["query_id"],
        "document": lists[document],
        "position": pa.array(position - 1),
        "click": lists["click"],
        **{name: lists[name].cast(pa.string()) for name in optional},  # a kind is not a number
        **{name: lists[name] for name in names},
    }
    return pa.table(columns)


def read_baidu_judged(path: FilePath, features: Sequence[str] | None = None) -> JudgedSet:
    """Judged queries of a table file."""
    with _named(path):
        table = _read_table(path)
        names, document = _feature_columns(table, features), _document_column(table)
        lists = _flat(table, [document, "label", *names])
        grades, rows = lists["label"].to_numpy(), lists["row"].to_numpy()
        check_values(grades, np.isin(grades, range(LARGEST_GRADE + 1)), "label", "grades are 0 to 4", rows)
    sizes = np.bincount(rows, minlength=table.num_rows)
    return JudgedSet(
        features=np.column_stack([lists[name].to_numpy() for name in names]).astype(np.float32),
        grades=grades.astype(np.float32),
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        query_ids=np.asarray(table["query_id"].to_pylist()),
        document_ids=np.asarray(lists[document].to_pylist()),
        name="baidu-ultr",
    )


@contextmanager
def _named(path: FilePath) -> Iterator[None]:
    """Errors with the name of the file."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _read_table(path: FilePath) -> pa.Table:
    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"{file} does not exist: pass a parquet or feather file")
    reader = feather.read_table if file.suffix in {".feather", ".arrow"} else pq.read_table
    try:
        return reader(file)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(
            f"it is neither parquet nor feather: {error}. Baidu's own text files hold no features; "
            "unskew.data.public_logs.baidu_ultr documents the tables that can be read"
        ) from error


def _feature_columns(table: pa.Table, features: Sequence[str] | None) -> list[str]:
    names = [name for name in HEURISTICS if name in table.column_names] if features is None else list(features)
    if not names:
        raise ValueError(
            f"it has none of the known features ({', '.join(HEURISTICS)}). Found: {', '.join(table.column_names)}. "
            "Pass your own: features=[...]"
        )
    check_columns(table, names)
    return names


def _document_column(table: pa.Table) -> str:
    known = [name for name in DOCUMENT_COLUMNS if name in table.column_names]
    if not known:
        raise ValueError(f"no column '{DOCUMENT_COLUMNS[0]}'. Found: {', '.join(table.column_names)}")
    return known[0]


def _flat(table: pa.Table, columns: Sequence[str], query: str = "query_id") -> pa.Table:
    """One row per document, with its row number in the file; query columns are repeated."""
    check_columns(table, [query, *columns])
    first = columns[0]
    if not _is_list(table, first):
        raise ValueError(
            f"column '{first}' holds {table[first].type}, but must hold lists: one row is one page with all its "
            "documents; group the rows of a page first"
        )
    sizes = pc.list_value_length(table[first]).to_numpy()
    owner = np.repeat(np.arange(table.num_rows), sizes)
    flat: dict[str, Any] = {"row": pa.array(owner), query: table[query].take(owner)}
    for name in columns:
        values = table[name]
        if not _is_list(table, name):
            if name in TOLD_OF_DOCUMENTS:
                raise ValueError(
                    f"column '{name}' holds {values.type}, but must hold lists with one value per document"
                )
            flat[name] = values.take(owner)
            continue
        lengths = pc.list_value_length(values).to_numpy()
        if (lengths != sizes).any():
            row = int(np.argmax(lengths != sizes))
            raise ValueError(
                f"column '{name}', row {row}: {lengths[row]} values, but '{first}' has {sizes[row]} documents"
            )
        flat[name] = pc.list_flatten(values)
        if flat[name].null_count:
            row = owner[int(np.argmax(pc.is_null(flat[name]).to_numpy(zero_copy_only=False)))]
            raise ValueError(f"column '{name}', row {row}: a document has no value; fill it")
    return pa.table(flat)


def _is_list(table: pa.Table, name: str) -> bool:
    kind = table[name].type
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
