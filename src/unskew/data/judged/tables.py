"""Judged data in parquet or CSV tables: query, document, grade, and features in the same or a second table.

Columns are found by common names. Numbers and booleans are features, text is a category, missing values stay missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from unskew.data.columns import column_called, feature_matrix, is_numeric
from unskew.data.grouping import as_array, as_text, number_ids
from unskew.data.judged.judged_set import JudgedSet

ENDINGS = (".parquet", ".pq", ".csv", ".tsv")
NAMES = {
    "query": ("query", "query_id", "qid", "query_text", "user_query", "search_term"),
    "document": ("document", "document_id", "doc", "doc_id", "docid", "item_id", "product_id", "object_id"),
    "grade": ("grade", "label", "rating", "relevance", "judgement", "judgment"),
}
JOINED = "+"  # joins a table of judgements and a table of features


def is_table(spec: str) -> bool:
    """Whether these are table files, by their extensions."""
    return all(part.lower().endswith(ENDINGS) and Path(part).is_file() for part in spec.split(JOINED))


def read_judged_table(spec: str | Path) -> JudgedSet:
    """A judged set from `judged.parquet`, or from `judgements.csv+features.parquet`, joined by query and document.

    >>> import pyarrow.csv, tempfile, pathlib
    >>> place = pathlib.Path(tempfile.mkdtemp()) / "judged.csv"
    >>> _ = place.write_text("query,document,grade,bm25,brand\\nhats,a,2,1.5,Alto\\nhats,b,0,0.5,\\n")
    >>> judged = read_judged_table(place)
    >>> judged.feature_names, judged.categories["brand"], judged.grades.tolist()
    (('bm25', 'brand'), ('Alto',), [2.0, 0.0])
    """
    files = str(spec).split(JOINED)
    try:
        return _judged_set(*files)
    except MemoryError:
        raise
    except (OSError, ValueError, OverflowError, pa.ArrowException) as error:
        if any(file in str(error) for file in files):
            raise
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{spec} cannot be read as judged data ({what}): correct it, or write it again") from error


def _judged_set(first: str, *others: str) -> JudgedSet:
    table, roles = _read(first, ("query", "document", "grade"))
    for other in others:
        table = _joined(table, roles, other, first)
    queries, numbers = number_ids(table[roles["query"]])
    order = np.argsort(numbers, kind="stable")
    free = [name for name in table.column_names if name not in roles.values()]
    names = [name for name in free if is_numeric(table, name) or _is_text(table[name].type)]
    features, categories = feature_matrix(table, names, order)
    grades = pc.cast(table[roles["grade"]], pa.float32()).to_numpy()
    if np.isnan(grades).any():
        row = int(np.argmax(np.isnan(grades)))
        raise ValueError(f"{first}: column '{roles['grade']}', row {row}: no grade; add a grade or drop the row")
    return JudgedSet(
        features=features,
        grades=grades[order],
        offsets=np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=len(queries)))]).astype(np.int64),
        query_ids=queries,
        document_ids=np.array(table[roles["document"]].to_pylist())[order],
        name=Path(first).name,
        feature_names=tuple(names),
        categories=categories,
    )


def _read(path: str, needed: Sequence[str], optional: Sequence[str] = ()) -> tuple[pa.Table, dict[str, str]]:
    """A table, and its columns by role."""
    try:
        if path.lower().endswith((".csv", ".tsv")):
            options = pyarrow.csv.ParseOptions(delimiter="\t" if path.lower().endswith(".tsv") else ",")
            strings = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
            table = pyarrow.csv.read_csv(path, parse_options=options, convert_options=strings)
        else:
            table = pq.read_table(path)
            table.validate(full=True)
    except pa.ArrowException as error:
        raise ValueError(f"{path} cannot be read ({str(error).splitlines()[0]}): write it again") from error
    columns = {role: column_called(NAMES[role], table.column_names) for role in (*optional, *needed)}
    for role, column in columns.items():
        if column is None and role in needed:
            raise ValueError(
                f"{path}: no column looks like the {role}: call it '{role}'. Found: {', '.join(table.column_names)}"
            )
    roles = {role: column for role, column in columns.items() if column is not None}
    for role, column in roles.items():
        if table[column].null_count and role != "grade":
            row = int(np.argmax(pc.is_null(table[column]).to_numpy()))
            raise ValueError(f"{path}: column '{column}', row {row}: no {role}; fill it or drop the row")
    return table, roles


def _joined(table: pa.Table, roles: dict[str, str], path: str, first: str) -> pa.Table:
    """The judgements with the features of another table; an error if it lacks a document."""
    other, keys = _read(path, ("document",), optional=("query",))
    mine, theirs = _keys(table, [roles[role] for role in keys]), _keys(other, keys.values())
    if len(pc.unique(theirs)) < len(theirs):
        raise ValueError(f"{path}: a document has two rows: keep one row per document")
    place = pc.index_in(mine, value_set=theirs)
    if place.null_count:
        row = int(np.argmax(place.is_null().to_numpy(zero_copy_only=False)))
        example = ", ".join(f"{roles[role]} {table[roles[role]][row].as_py()}" for role in keys)
        raise ValueError(f"{path} lacks {place.null_count:,} documents of {first}; the first is {example}")
    for name in other.column_names:
        if name not in table.column_names and name not in keys.values():
            table = table.append_column(name, other[name].take(place))
    return table


def _keys(table: pa.Table, names: Iterable[str]) -> pa.Array:
    """Ids as one text per row: they may be text in one table and numbers in another."""
    return pc.binary_join_element_wise(
        *(as_text(as_array(table[name])) for name in names), pa.scalar("\0", pa.large_string())
    )


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
