"""One look at a table before it is ingested: every column over all rows, and a sample of whole result pages.

DuckDB alone: Ibis takes longer to import than a small table takes to read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.ingestion.sources import Source, find_source

FIRST_ROWS = 20_000  # from which the column of sessions is guessed
SAMPLE_ROWS = 40_000  # approximate number of rows of the sampled sessions
SMALL_FILE = 2**28  # bytes up to which rows keep their order, so that one can be named
DELIMITERS = "|,; \t"
PARALLEL = 0.9  # share of the pages on which two lists of a page have the same length
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]


class Values:
    """The values of a column in the sample."""

    def __init__(self, array: pa.Array | pa.ChunkedArray):
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        self.array = array
        self.kind = _kind(array.type)

    @cached_property
    def _encoded(self) -> tuple[Integers, list[Any]]:
        if self.kind in ("list", "other"):
            texts = [None if value is None else str(value) for value in self.array.to_pylist()]
            return Values(pa.array(texts, pa.string()))._encoded
        found = self.array.dictionary_encode()
        return found.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64), found.dictionary.to_pylist()

    @property
    def codes(self) -> Integers:
        """A number per value; -1: missing."""
        return self._encoded[0]

    @property
    def levels(self) -> list[Any]:
        """The distinct values, by code."""
        return self._encoded[1]

    @cached_property
    def present(self) -> Flags:
        """Neither missing, nor NaN, nor empty text."""
        if self.kind == "decimal":
            return ~np.isnan(self.numbers)
        empty = [code for code, level in enumerate(self.levels) if level == ""]
        return (self.codes >= 0) & ~np.isin(self.codes, empty)

    @cached_property
    def numbers(self) -> NDArray[np.float64]:
        """As decimals, NaN where missing or not a number; times are seconds since 1970."""
        if self.kind == "text":
            of_level = np.array([*map(_number, self.levels), np.nan])
            return of_level[self.codes]
        if self.kind == "time":
            seconds = self.array.cast(pa.timestamp("us")).cast(pa.int64())
            return seconds.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) / 1e6
        if self.kind in ("flag", "whole", "decimal"):
            plain = self.array.cast(pa.int8()) if self.kind == "flag" else self.array
            return plain.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).astype(np.float64)
        return np.full(len(self.array), np.nan)

    @cached_property
    def is_numeric(self) -> bool:
        """Numbers, or text of which at least half are numbers."""
        if self.kind == "text":
            known = self.present.sum()
            return bool(known and 2 * (~np.isnan(self.numbers)).sum() >= known)
        return self.kind in ("whole", "decimal", "flag")

    @cached_property
    def is_whole(self) -> bool:
        """Only whole numbers, whatever their type; false for flags and times."""
        known = self.numbers[np.isfinite(self.numbers)]
        return self.kind in ("whole", "decimal", "text") and bool(len(known)) and bool((known == np.floor(known)).all())

    @cached_property
    def n_distinct(self) -> int:
        return len(np.unique(self.codes[self.present]))

    @cached_property
    def is_binary(self) -> bool:
        """True and false, 0 and 1, or yes and no, in any type; one of them may not occur."""
        if self.kind == "flag":
            return True
        if self.is_numeric:
            known = np.unique(self.numbers[~np.isnan(self.numbers)])
            return bool(len(known)) and bool(np.isin(known, (0.0, 1.0)).all())
        words = {str(level).strip().lower() for level in self.levels if level not in (None, "")}
        return bool(words) and words <= {"true", "false", "yes", "no", "t", "f", "y", "n"}

    @cached_property
    def is_set(self) -> Flags:
        """Neither missing nor 0, false, or no."""
        if self.is_numeric or self.kind == "time":
            return np.nan_to_num(self.numbers, nan=0.0) != 0
        no = [i for i, level in enumerate(self.levels) if str(level).strip().lower() in ("", "false", "no", "f", "n")]
        return self.present & ~np.isin(self.codes, no)

    def take(self, rows: NDArray[Any]) -> Values:
        return Values(self.array.take(pa.array(rows)))

    def filter(self, kept: Flags) -> Values:
        return Values(self.array.filter(pa.array(kept)))


@dataclass(frozen=True)
class Facts:
    """A column over all rows of the table."""

    missing: float  # share of the rows
    empty: float  # share of the rows with empty text
    low: float | None  # of numbers
    high: float | None


class Look:
    """An opened table: its columns, facts about them over all rows, and samples of its rows."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, size: int):
        self.connection, self.name = connection, name
        self.rows: int = self._one("SELECT count(*) FROM events")[0]
        self.keeps_order = size <= SMALL_FILE
        self.first = self.sample(f"SELECT * FROM events LIMIT {FIRST_ROWS}")

    def sample(self, query: str) -> dict[str, Values]:
        """Rows of the table, nested columns with dots; lists of objects are lists of each of their fields."""
        table = self.connection.sql(query).to_arrow_table()
        return {name: Values(array) for name, array in _leaves(table)}

    def sessions(self, keys: Sequence[str], where: str = "true") -> dict[str, Values]:
        """About `SAMPLE_ROWS` rows: whole sessions, drawn by the hash of their keys."""
        every = max(1, round(self.rows / SAMPLE_ROWS))
        key = "hash(" + ", ".join(sql_of(name) for name in keys) + ")" if keys else "0"
        return self.sample(f"SELECT * FROM events WHERE {where} AND {key} % {every} = 0")

    def facts(self, names: Sequence[str], where: str = "true") -> dict[str, Facts]:
        """Facts about scalar columns, in one pass over the rows that satisfy a condition."""
        if not names:
            return {}
        parts = []
        for name in names:
            value = sql_of(name)
            is_text = self.first[name].kind == "text"
            missing = f"count(*) - count({value})"
            if self.first[name].kind == "decimal":
                missing += f" + coalesce(count_if(isnan({value}::DOUBLE)), 0)"
            is_number = self.first[name].kind in ("whole", "decimal")
            ends = [f"{end}({value})::DOUBLE" if is_number else "NULL" for end in ("min", "max")]
            parts += [missing, f"coalesce(count_if({value} = ''), 0)" if is_text else "0", *ends]
        found = self._one(f"SELECT count(*), {', '.join(parts)} FROM events WHERE {where}")
        total, found = max(found[0], 1), found[1:]
        chunks = (found[4 * number : 4 * number + 4] for number in range(len(names)))
        return {
            name: Facts(missing / total, empty / total, low, high)
            for name, (missing, empty, low, high) in zip(names, chunks, strict=True)
        }

    def query(self, text: str) -> list[tuple]:
        return self.connection.sql(text).fetchall()

    def _one(self, text: str) -> tuple:
        (row,) = self.query(text)
        return row


@contextmanager
def open_look(
    place: Any, table: str | None = None, encoding: str | None = None, memory: str = "2GB", threads: int | None = None
) -> Iterator[Look]:
    """Open a table of any source for a look."""
    from tempfile import TemporaryDirectory

    from unskew.data.memory import parse_memory

    with TemporaryDirectory(prefix="unskew-", ignore_cleanup_errors=True) as scratch:
        settings: dict[str, Any] = {"memory_limit": f"{parse_memory(memory)}B", "temp_directory": f"{scratch}/spill"}
        settings |= {} if threads is None else {"threads": threads}
        connection = duckdb.connect(f"{scratch}/look.duckdb", config=settings)
        source = None
        try:
            with suppress(duckdb.InvalidInputException):  # a notebook without ipywidgets has no bar to turn off
                connection.execute("SET enable_progress_bar = false")
            connection.execute("SET TimeZone = 'UTC'")
            source = find_source(place) if isinstance(place, str | Path) else None
            _open(connection, place, source, table, encoding)
            yield Look(connection, "the table" if source is None else source.name, 0 if source is None else source.size)
        except duckdb.Error as error:
            from unskew.ingestion.engines import explained  # imports Ibis

            raise ValueError(explained(error, [] if source is None else [source])) from error
        finally:
            connection.close()


def sql_of(name: str) -> str:
    """A dotted name in SQL."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def literal(value: Any) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def delimiter_of(values: Values) -> str | None:
    """The character between the ids of most texts of a column; "[" for JSON lists; None: it holds no lists."""
    texts = [level for level in values.levels[:500] if level] if values.kind == "text" else []
    if not texts:
        return None
    if all(text.startswith("[") and text.endswith("]") for text in texts):
        return "["
    for delimiter in DELIMITERS:
        parts = [part for text in texts for part in text.split(delimiter)]
        in_lists = sum(delimiter in text for text in texts)
        if len(parts) >= 3 * len(texts) and in_lists >= 0.8 * len(texts):
            is_id = [bool(re.search(r"\d", part)) and not re.search(r"\s", part.strip()) for part in parts]
            if sum(is_id) >= 0.9 * len(parts):
                return delimiter
    return None


def split_text(values: Values, delimiter: str) -> Values:
    """Lists of text, from text with a delimiter or with JSON."""
    text = values.array
    if delimiter == "[":
        text, delimiter = pc.replace_substring_regex(text, r'[\[\]"\s]', ""), ","
    lists = pc.split_pattern(pc.if_else(pc.equal(text, ""), None, text), delimiter)
    return Values(lists)


def _open(
    connection: duckdb.DuckDBPyConnection, place: Any, source: Source | None, table: str | None, encoding: str | None
) -> None:
    if source is not None and source.size > SMALL_FILE:
        connection.execute("SET preserve_insertion_order = false")
    files = [] if source is None else [str(file) for file in source.files]
    encoded = "" if encoding is None else f", encoding = {literal(encoding)}"
    settings = {  # of DuckDB's readers; text is parsed once
        "parquet": "",
        "json": ", format = 'newline_delimited', sample_size = -1",
        "csv": f", sample_size = -1, ignore_errors = true{encoded}",
    }
    if source is not None and source.kind in settings:
        reader = f"read_{source.kind}([{', '.join(map(literal, files))}]{settings[source.kind]})"
        kind = "VIEW" if source.kind == "parquet" else "TABLE"
        connection.execute(f"CREATE {kind} events AS SELECT * FROM {reader}")
    elif source is not None and source.kind == "database":
        connection.execute(f"ATTACH {literal(files[0])} AS attached (READ_ONLY)")
        names = connection.sql("SELECT table_name FROM duckdb_tables() WHERE database_name = 'attached'").fetchall()
        if table is None and len(names) != 1:
            raise ValueError(f"{source.name}: choose a table with --table. Found: {', '.join(n for (n,) in names)}")
        chosen = sql_of(table or names[0][0])
        connection.execute(f"CREATE VIEW events AS SELECT * FROM attached.{chosen}")
    else:
        from unskew.ingestion.engines import remote_table  # imports Ibis

        opened = place if source is None else remote_table(source, table)
        connection.register("incoming", opened.to_pyarrow_batches())
        connection.execute("CREATE TABLE events AS SELECT * FROM incoming")


def _leaves(table: pa.Table) -> Iterator[tuple[str, Any]]:
    for name in table.column_names:
        yield from _inner(name, table[name].combine_chunks())


def _inner(name: str, array: Any) -> Iterator[tuple[str, Any]]:
    if pa.types.is_struct(array.type):
        for number, field in enumerate(array.type):
            yield from _inner(f"{name}.{field.name}", pc.struct_field(array, [number]))
    elif pa.types.is_list(array.type) and pa.types.is_struct(array.type.value_type):
        for inner, values in _inner(name, array.values):
            nested = pa.types.is_list(values.type)
            lists = pa.ListArray.from_arrays(array.offsets, values, mask=array.is_null())
            if not nested:
                yield inner, lists
    else:
        yield name, array


def _kind(kind: pa.DataType) -> str:
    tests = {
        "flag": pa.types.is_boolean,
        "whole": pa.types.is_integer,
        "decimal": lambda t: pa.types.is_floating(t) or pa.types.is_decimal(t),
        "text": lambda t: pa.types.is_string(t) or pa.types.is_large_string(t),
        "time": lambda t: pa.types.is_timestamp(t) or pa.types.is_date(t),
        "list": lambda t: pa.types.is_list(t) or pa.types.is_large_list(t),
    }
    return next((name for name, test in tests.items() if test(kind)), "other")


def _number(level: Any) -> float:
    try:
        return float(level)
    except (TypeError, ValueError):
        return np.nan
