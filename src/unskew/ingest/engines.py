"""Where Ibis expressions run: DuckDB on this machine, within a limit of memory, or Spark.

An engine opens sources as tables, keeps intermediate results, and gives results as arrow tables. Times are UTC.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import duckdb
import ibis
import ibis.expr.types as ir
import pyarrow as pa

from unskew.ingest.sources import Source, unreadable_json

BYTES_AN_IMPRESSION = 64  # of memory while lists are collected, which DuckDB cannot move to disk
SHARE_FOR_LISTS = 0.4  # of the memory; the rest is for reading and for what is kept
UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


class Engine(Protocol):
    """What an ingestion asks of the place where its expressions run."""

    rows_at_once: int | None  # impressions whose lists may be collected in one go; None: any number

    def open(self, source: Source, table: str | None, encoding: str | None, text: Sequence[str] = ()) -> ir.Table: ...
    def adopt(self, table: ir.Table) -> ir.Table: ...
    def keep(self, name: str, expression: ir.Table) -> ir.Table: ...
    def append(self, kept: ir.Table, expression: ir.Table) -> None: ...
    def arrow(self, expression: ir.Table) -> pa.Table: ...
    def row_of_first(self, table: ir.Table, condition: Any) -> int | None: ...
    def unreadable_lines(self) -> tuple[int, str]: ...
    def close(self) -> None: ...


class DuckEngine:
    """DuckDB with a scratch database in a folder of its own; larger than memory goes to disk there."""

    def __init__(self, scratch: Path, memory: str = "2GB", threads: int | None = None):
        n_bytes = parse_memory(memory)
        settings = {"memory_limit": f"{n_bytes}B", "temp_directory": str(scratch / "spill")}
        if threads is not None:
            settings["threads"] = threads  # type: ignore[assignment]
        with _named_errors(None):
            self.connection = ibis.duckdb.connect(scratch / "scratch.duckdb", **settings)
        self._sql("SET preserve_insertion_order = false")
        self._sql("SET TimeZone = 'UTC'")
        self.rows_at_once: int | None = max(1, int(n_bytes * SHARE_FOR_LISTS / BYTES_AN_IMPRESSION))
        self._unreadable = (0, "")
        self._n_kept = 0

    def open(self, source: Source, table: str | None, encoding: str | None, text: Sequence[str] = ()) -> ir.Table:
        """A source as a table; columns of a CSV file that are named in `text` are read as they stand there."""
        files: Any = list(source.files)
        with _named_errors(source):
            if source.kind == "parquet":
                return self.connection.read_parquet(files)
            if source.kind == "json":
                return self.keep("source", self.connection.read_json(files, format="newline_delimited"))
            if source.kind == "csv":
                return self._open_csv(source, encoding, text)
            if source.kind == "database":
                return self._attach(source, table)
            return self.adopt(_table_of(ibis.connect(source.files[0]), table, source))

    def adopt(self, table: ir.Table) -> ir.Table:
        """A table of another connection, copied batch by batch."""
        with _named_errors(None):
            self.connection.con.register("incoming", table.to_pyarrow_batches())
            self._n_kept += 1
            name = f"adopted_{self._n_kept}"
            self._sql(f"CREATE TABLE {name} AS SELECT * FROM incoming")
            self.connection.con.unregister("incoming")
            return self.connection.table(name)

    def keep(self, name: str, expression: ir.Table) -> ir.Table:
        """The result of an expression, on disk."""
        with _named_errors(None):
            self._n_kept += 1
            return self.connection.create_table(f"{name}_{self._n_kept}", expression)

    def append(self, kept: ir.Table, expression: ir.Table) -> None:
        """Add rows to a result that is kept."""
        with _named_errors(None):
            self.connection.insert(kept.get_name(), expression)

    def arrow(self, expression: ir.Table) -> pa.Table:
        with _named_errors(None):
            return expression.to_pyarrow()

    def row_of_first(self, table: ir.Table, condition: Any) -> int | None:
        """Number, from 0, of the first row that meets a condition."""
        self._sql("SET preserve_insertion_order = true")
        rows = table.mutate(is_it=condition, row=ibis.row_number()).filter(lambda rows: rows.is_it)
        found = self.arrow(rows.select("row").limit(1))["row"].to_pylist()
        self._sql("SET preserve_insertion_order = false")
        return found[0] if found else None

    def unreadable_lines(self) -> tuple[int, str]:
        """How many lines of CSV files were left out, and where the first one is."""
        return self._unreadable

    def _open_csv(self, source: Source, encoding: str | None, text: Sequence[str]) -> ir.Table:
        """All lines that can be read, kept in the scratch database: text is parsed once."""
        options: dict[str, Any] = {} if encoding is None else {"encoding": encoding}
        if text:
            options["types"] = dict.fromkeys(text, "VARCHAR")
        view = self.connection.read_csv(list(source.files), store_rejects=True, rejects_limit=0, **options)
        if not text:
            return view
        kept = self.keep("source", view)
        found = self.connection.con.sql(
            "SELECT file_path, line, error_message FROM reject_errors JOIN reject_scans USING (scan_id, file_id) "
            "WHERE scan_id = (SELECT max(scan_id) FROM reject_errors) ORDER BY file_path, line LIMIT 1"
        ).fetchone()
        count = self.connection.con.sql(
            "SELECT count(DISTINCT (file_id, line)) FROM reject_errors "
            "WHERE scan_id = (SELECT max(scan_id) FROM reject_errors)"
        ).fetchone()
        if found is not None and count is not None:
            file, line, message = found
            self._unreadable = (self._unreadable[0] + count[0], f"{file}, line {line}: {_first_line(message)}")
            self._sql("DELETE FROM reject_errors")
        return kept

    def _attach(self, source: Source, table: str | None) -> ir.Table:
        self._n_kept += 1
        name = f"attached_{self._n_kept}"
        self.connection.attach(source.files[0], name, read_only=True)
        tables = self.connection.list_tables(database=(name, "main"))
        if table is None and len(tables) == 1:
            table = tables[0]
        if table not in tables:
            raise ValueError(f"{source.name}: name a table with --table; it has: {', '.join(tables) or 'none'}")
        return self.connection.table(table, database=(name, "main"))

    def _sql(self, text: str) -> None:
        self.connection.con.execute(text)

    def close(self) -> None:
        self.connection.disconnect()


class SparkEngine:
    """Spark, for logs that outgrow one machine; it keeps its own limits of memory."""

    rows_at_once: int | None = None

    def __init__(self, connection: Any = None, master: str | None = None):
        self.connection = connection or _connect_spark(master)
        self._kept: list[ir.Table] = []  # Spark forgets what nobody holds on to

    def open(self, source: Source, table: str | None, encoding: str | None, text: Sequence[str] = ()) -> ir.Table:
        """A source as a table; a line that cannot be read stops the job."""
        files = list(source.files)
        readers: Mapping[str, Any] = {
            "parquet": lambda: self.connection.read_parquet(files),
            "csv": lambda: self._open_csv(files, encoding or "utf-8", text),
            "json": lambda: self.connection.read_json(files, mode="FAILFAST"),
        }
        if source.kind not in readers or table is not None:
            raise ValueError(f"{source.name}: Spark reads files here; use --engine duckdb for a {source.kind}")
        with _named_errors(source):
            return readers[source.kind]()

    def adopt(self, table: ir.Table) -> ir.Table:
        """A table of the same Spark session."""
        return table

    def keep(self, name: str, expression: ir.Table) -> ir.Table:  # noqa: ARG002  Spark needs no names
        with _named_errors(None):
            self._kept.append(expression.cache())
        return self._kept[-1]

    def append(self, kept: ir.Table, expression: ir.Table) -> None:
        raise NotImplementedError("Spark collects all lists in one go")

    def arrow(self, expression: ir.Table) -> pa.Table:
        with _named_errors(None):
            return expression.to_pyarrow()

    def row_of_first(self, table: ir.Table, condition: Any) -> int | None:  # noqa: ARG002  rows have no order there
        return None

    def unreadable_lines(self) -> tuple[int, str]:
        return 0, ""

    def _open_csv(self, files: list[str], encoding: str, text: Sequence[str]) -> ir.Table:
        options = {"header": True, "mode": "FAILFAST", "encoding": encoding}
        guess = self.connection.read_csv(files, inferSchema=True, **options)
        if not text:
            return guess
        schema = ibis.schema({name: "string" if name in text else kind for name, kind in guess.schema().items()})
        return self.connection.read_csv(files, schema=schema, **options)

    def close(self) -> None:
        self._kept.clear()


ENGINES = {"duckdb": DuckEngine, "spark": SparkEngine}


def parse_memory(text: str) -> int:
    """Bytes of "2GB", "512MB" or "1.5 GiB"."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*", text)
    unit = UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None or float(match[1]) * unit < 100e6:
        raise ValueError(f"memory is '{text}': write a size of at least 100MB, such as 2GB or 512MB")
    return int(float(match[1]) * unit)


def _connect_spark(master: str | None) -> Any:
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Spark is not installed: pip install 'unskew[spark]', with Java 17 or newer"
        ) from error
    builder = SparkSession.builder.appName("unskew ingest").config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.execution.arrow.pyspark.enabled", "true")
    builder = builder.master(master) if master else builder
    return ibis.pyspark.connect(builder.getOrCreate())


def _table_of(connection: Any, table: str | None, source: Source) -> ir.Table:
    tables = connection.list_tables()
    if table not in tables:
        raise ValueError(f"{source.name}: name a table with --table; it has: {', '.join(tables) or 'none'}")
    return connection.table(table)


@contextmanager
def _named_errors(source: Source | None) -> Iterator[None]:
    """Errors of the engine as one line that says where and what to do; what it calls old is not the user's business."""
    where = "" if source is None else f"{source.name}: "
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            yield
    except duckdb.OutOfMemoryException as error:
        raise ValueError(f"{where}not enough memory ({_first_line(error)}): raise --memory") from error
    except (duckdb.Error, ibis.IbisError) as error:
        place = unreadable_json(source.files) if source is not None and source.kind == "json" else ""
        if place:
            raise ValueError(f"{place}: repair the line, write the file as UTF-8, or leave the line out") from error
        hint = ": name its encoding with --encoding, e.g. latin-1" if "utf-8" in str(error).lower() else ""
        raise ValueError(f"{where}{_first_line(error)}{hint}") from error
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        raise ValueError(f"{where}Spark: {_first_line(error)}") from error


def _first_line(error: Exception | str) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__
