"""Candidates to rank: parquet files with one row per query and document, read in parts of whole queries.

Only a part of `CELLS_AT_ONCE` numbers, and the query that it ends in, is in memory at a time. Columns are found by
name: ids in `query` and `document`, features by the names that the ranker was trained on. Rows count from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.data.clicks import ABOUT
from unskew.data.columns import as_trained, is_date, is_numeric, may_be_category, source_column, source_columns
from unskew.data.judged.catalogue import is_known
from unskew.ingestion.sources import KINDS, find_source
from unskew.serving.saved_ranker import SavedRanker

CELLS_AT_ONCE = 2**22
BUFFER = 2**20  # bytes to read ahead per column; otherwise a whole row group is read
MOST_NAMES = 12  # in a message


@dataclass(frozen=True, eq=False)
class Part:
    """Whole queries: ids, and the features of each document."""

    queries: pa.Array  # [documents]
    documents: pa.Array  # [documents]
    features: NDArray[np.float32]  # [documents, features]
    offsets: NDArray[np.int64]  # [queries + 1]


@dataclass(frozen=True)
class Candidates:
    """Files with candidates, and the names of their columns."""

    files: tuple[str, ...]
    query: str
    document: str
    features: tuple[str, ...]  # in the order of the ranker
    read: tuple[str, ...]  # the columns that hold them
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # vocabularies, by feature name
    ignored: tuple[str, ...] = ()  # columns that the ranker does not know
    sorted: bool = False  # a copy in another order, so row numbers mean nothing to the user

    @property
    def columns(self) -> list[str]:
        """Columns to read; several features may look into one column of sets."""
        return [self.query, self.document, *self.read]

    @cached_property
    def sizes(self) -> list[int]:
        """Rows of each file."""
        return [pq.read_metadata(file).num_rows for file in self.files]

    def parts(self, rows_at_once: int | None = None) -> Iterator[Part]:
        """Parts of whole queries, each with as many as fit into `rows_at_once`."""
        first_row = 0
        tables = self._tables(rows_at_once or max(CELLS_AT_ONCE // max(len(self.features), 1), 1))
        for table in whole_queries(tables, self.query):
            yield self.part(table, first_row)
            first_row += table.num_rows

    def place(self, row: int) -> str:
        """File and row, for messages."""
        for file, size in zip(self.files, self.sizes, strict=True):
            if row < size:
                return f"{file}, row {row}"
            row -= size
        raise IndexError(row)

    def _tables(self, rows_at_once: int) -> Iterator[pa.Table]:
        """Rows of all files, with ids of one type."""
        kinds: dict[str, pa.DataType] = {}
        for file in self.files:
            try:
                parquet = pq.ParquetFile(file, buffer_size=BUFFER, pre_buffer=False)
                for batch in parquet.iter_batches(batch_size=rows_at_once, columns=self.columns):
                    table = _with_ids(pa.table(batch).select(self.columns), kinds, (self.query, self.document))
                    if table.num_rows:
                        yield table
            except (OSError, pa.ArrowException) as error:
                reason = " ".join(str(error).split()).rstrip(".")
                raise ValueError(f"{file} cannot be read ({reason}): it is damaged; write or copy it again") from error

    def part(self, table: pa.Table, first_row: int = 0) -> Part:
        """Rows of whole queries as arrays; rows that cannot be ranked are an error."""
        for name in (self.query, self.document):
            if table[name].null_count:
                row = pc.index(table[name].is_null(), True).as_py()
                raise ValueError(f"{self._where(table, row, first_row)}: column '{name}' is empty: fill it")
        starts = _starts(table[self.query])
        part = Part(
            queries=table[self.query].combine_chunks(),
            documents=table[self.document].combine_chunks(),
            features=self._features(table, first_row),
            offsets=np.append(starts, table.num_rows),
        )
        self._refuse_twice(table, part, first_row)
        return part

    def _features(self, table: pa.Table, first_row: int) -> NDArray[np.float32]:
        matrix = as_trained(table, self.features, self.categories)
        infinite = np.isinf(matrix)
        if infinite.any():
            row, number = (int(place) for place in np.argwhere(infinite)[0])
            name = self.features[number]
            raise ValueError(
                f"{self._where(table, row, first_row)}: column '{name}' is {table[name][row].as_py()}: features "
                "must be finite, or empty or NaN if missing; correct it, or leave the document out"
            )
        return matrix

    def _refuse_twice(self, table: pa.Table, part: Part, first_row: int) -> None:
        codes = part.documents.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
        owner = np.repeat(np.arange(len(part.offsets) - 1), np.diff(part.offsets))
        _, first = np.unique(owner * len(codes) + codes, return_index=True)
        if len(first) < len(codes):
            row = int(np.setdiff1d(np.arange(len(codes)), first)[0])
            raise ValueError(
                f"{self._where(table, row, first_row)}: the query already has this document: list each candidate of a "
                "query once (a table of impressions is not a table of candidates)"
            )

    def _where(self, table: pa.Table, row: int, first_row: int) -> str:
        ids = f"query {table[self.query][row]}, document {table[self.document][row]}"
        return ids if self.sorted else f"{self.place(first_row + row)} ({ids})"


def whole_queries(tables: Iterable[pa.Table], query: str) -> Iterator[pa.Table]:
    """The same rows in tables of whole queries; documents of a query must be adjacent."""
    held: list[pa.Table] = []  # rows of one query, which may continue
    for table in tables:
        last = int(_starts(table[query])[-1])
        goes_on = bool(held) and held[-1][query][-1].as_py() == table[query][0].as_py()
        if last == 0 and goes_on:
            held.append(table)
            continue
        if held or last > 0:
            yield pa.concat_tables([*held, table.slice(0, last)]).combine_chunks()
        held = [table.slice(last)]
    if held:
        yield pa.concat_tables(held).combine_chunks()


def is_table(place: str) -> bool:
    """Whether this is a table, or a folder of tables, rather than judged data."""
    return place.endswith(tuple(KINDS)) or (Path(place).is_dir() and not is_known(place))


def open_candidates(
    place: str | Path, ranker: SavedRanker, query: str = "query", document: str = "document"
) -> Candidates:
    """The candidates in a parquet file, a folder or a glob; the error for a missing column names it."""
    if (Path(place) / ABOUT).is_file():
        raise ValueError(
            f"{place} is a click log: rank a table of candidates, one row per query and document with its features "
            f"(`unskew events {place} --out events.parquet --features candidates.parquet` writes those of the log)"
        )
    source = find_source(place)
    if source.kind != "parquet":
        raise ValueError(f"{place} is {source.kind}, but candidates must be parquet files: convert it")
    found = [_columns_of(file, ranker, query, document) for file in source.files]
    ignored = tuple(dict.fromkeys(name for *_, others in found for name in others))
    candidates = Candidates(source.files, query, document, *found[0][:2], ranker.categories, ignored)
    if not sum(candidates.sizes):
        raise ValueError(f"{place} has no rows: there is nothing to rank")
    return candidates


def _columns_of(
    file: str, ranker: SavedRanker, query: str, document: str
) -> tuple[tuple[str, ...], tuple[str, ...], list[str]]:
    """Features of a file in the order of the ranker, the columns that hold them, and those that it does not use."""
    schema = pq.read_schema(file)
    for option, name in {"query": query, "document": document}.items():
        if name not in schema.names:
            has = _listed(schema.names)
            raise ValueError(f"{file}: no column '{name}': pass the {option} column with --{option}. Found: {has}")
        if pa.types.is_nested(schema.field(name).type):
            raise ValueError(f"{file}: column '{name}' holds {schema.field(name).type}: ids must be text or numbers")
    features = feature_columns(schema, ranker, (query, document), file)
    read = source_columns(schema, features)
    return features, read, [name for name in schema.names if name not in (query, document, *read)]


def feature_columns(schema: pa.Schema, ranker: SavedRanker, ids: Sequence[str], place: str) -> tuple[str, ...]:
    """The features of a ranker among the columns of a table, in its order; the error for a bad column names it."""
    empty = schema.empty_table()
    if not ranker.feature_names:
        found = [name for name in schema.names if name not in ids and is_numeric(empty, name)]
        if not ranker.n_features:
            return ()  # a ranker of ids
        if len(found) != ranker.n_features:
            raise ValueError(
                f"{place} has {len(found)} numeric columns besides the ids, but the model was trained on "
                f"{ranker.n_features} features without names: keep only these columns, in the order of training, or "
                "train on a log that names its features"
            )
        return tuple(found)
    missing = [name for name in ranker.feature_names if source_column(schema, name) is None]
    if missing:
        raise ValueError(
            f"{place}: {len(missing)} of the {ranker.n_features} features that the model was trained on are missing: "
            f"{_listed(missing)}. Found: {_listed(schema.names)}"
        )
    columns = set(schema.names)
    for name in ranker.feature_names:
        if name not in columns or pa.types.is_null(schema.field(name).type):  # in a set; all values are missing
            continue
        kind = schema.field(name).type
        if name not in ranker.categories and not (is_numeric(empty, name) or is_date(kind)):
            raise ValueError(f"{place}: column '{name}' holds {kind}, but the model was trained on numbers")
        if name in ranker.categories and not may_be_category(kind, ranker.categories[name]):
            known = _listed([f"'{value}'" for value in ranker.categories[name]])
            raise ValueError(f"{place}: column '{name}' holds {kind}, but the model was trained on text ({known})")
    return ranker.feature_names


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")


def _starts(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Rows whose value differs from that of the previous row; the first row is one of them."""
    ends = pc.run_end_encode(column.combine_chunks()).run_ends.to_numpy()
    return np.concatenate([[0], ends[:-1]]).astype(np.int64)


def _with_ids(table: pa.Table, kinds: dict[str, pa.DataType], names: Sequence[str]) -> pa.Table:
    """The table with plain ids, of the types of the first file: other files may have wider or narrower types."""
    for name in names:
        own = table.schema.field(name).type
        kind = kinds.setdefault(name, own.value_type if pa.types.is_dictionary(own) else own)
        if own != kind:
            table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(kind))
    return table.replace_schema_metadata(None)
