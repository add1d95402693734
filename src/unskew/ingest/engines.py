"""Where Ibis expressions run: DuckDB on this machine, within a limit of memory, or Spark.

An engine opens sources as tables, keeps intermediate results, and gives results as arrow tables. Times are UTC.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
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
        self._opened: list[Source] = []
        with _named_errors(self._opened):
            self.connection = ibis.duckdb.connect(scratch / "scratch.duckdb", **settings)
        self._sql("SET preserve_insertion_order = false")
        self._sql("SET TimeZone = 'UTC'")
        self.rows_at_once: int | None = max(1, int(n_bytes * SHARE_FOR_LISTS / BYTES_AN_IMPRESSION))
        self._unreadable = (0, "")
        self._n_kept = 0

    def open(self, source: Source, table: str | None, encoding: str | None, text: Sequence[str] = ()) -> ir.Table:
        """A source as a table; columns of a CSV file that are named in `text` are read as they stand there."""
        files: Any = list(source.files)
        self._opened.append(source)
        with _named_errors([source]):
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
        backend = table.get_backend()
        with _named_errors(self._opened):
            if backend.name == "duckdb":
                backend._run_pre_execute_hooks(table)  # tables in memory are registered there
                batches: Any = backend.con.sql(backend.compile(table))
            else:
                batches = table.to_pyarrow_batches()
            reader = pa.RecordBatchReader.from_stream(batches)
            self.connection.con.register("incoming", reader)
            adopted = self._create("adopted", "SELECT * FROM incoming")
            self.connection.con.unregister("incoming")
            return adopted

    def keep(self, name: str, expression: ir.Table) -> ir.Table:
        """The result of an expression, on disk."""
        with _named_errors(self._opened):
            return self._create(name, self.connection.compile(expression))

    def append(self, kept: ir.Table, expression: ir.Table) -> None:
        """Add rows to a result that is kept."""
        with _named_errors(self._opened):
            names = ", ".join(kept.columns)
            rows = self.connection.compile(expression.select(kept.columns))
            self._sql(f"INSERT INTO {kept.get_name()} ({names}) {rows}")

    def arrow(self, expression: ir.Table) -> pa.Table:
        with _named_errors(self._opened):
            found = self.connection.con.sql(self.connection.compile(expression)).to_arrow_table()
        # Sums of whole numbers have 128 bits, which arrow knows as decimals.
        sums = [pa.types.is_decimal(field.type) and field.type.scale == 0 for field in found.schema]
        kinds = zip(found.schema, sums, strict=True)
        return found.cast(pa.schema([pa.field(field.name, pa.int64()) if is_sum else field for field, is_sum in kinds]))

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
        self._count_unreadable()
        return kept

    def _count_unreadable(self) -> None:
        """Lines that the last CSV file lost: DuckDB notes them in tables of its own."""
        found = self._rows(
            "SELECT file_path, line, error_message, count(DISTINCT (file_id, line)) OVER () FROM reject_errors "
            "JOIN reject_scans USING (scan_id, file_id) ORDER BY file_path, line LIMIT 1"
        )
        for file, line, message, count in found:
            self._unreadable = (self._unreadable[0] + count, f"{file}, line {line}: {_first_line(message)}")
        self._sql("DELETE FROM reject_errors")

    def _attach(self, source: Source, table: str | None) -> ir.Table:
        self._n_kept += 1
        name = f"attached_{self._n_kept}"
        self.connection.attach(source.files[0], name, read_only=True)
        listed = f"SELECT table_name FROM information_schema.tables WHERE table_catalog = '{name}' ORDER BY 1"
        tables = [row[0] for row in self._rows(listed)]
        if table is None and len(tables) == 1:
            table = tables[0]
        if table not in tables:
            raise ValueError(f"{source.name}: name a table with --table; it has: {', '.join(tables) or 'none'}")
        return self.connection.table(table, database=(name, "main"))

    def _create(self, name: str, query: str) -> ir.Table:
        self._n_kept += 1
        self._sql(f"CREATE TABLE {name}_{self._n_kept} AS {query}")
        return self.connection.table(f"{name}_{self._n_kept}")

    def _rows(self, query: str) -> list[tuple]:
        return self.connection.con.sql(query).fetchall()

    def _sql(self, text: str) -> None:
        self.connection.con.execute(text)

    def close(self) -> None:
        self.connection.disconnect()


class SparkEngine:
    """Spark, for logs that outgrow one machine; it keeps its own limits of memory."""

    rows_at_once: int | None = None

    def __init__(self, connection: Any = None, master: str | None = None):
        self._session = _spark_session(master) if connection is None else connection._session
        self.connection = connection or ibis.pyspark.connect(self._session)
        self._n_views = 0
        self._opened: list[Source] = []
        self._kept: list[ir.Table] = []  # Spark forgets what nobody holds on to

    def open(self, source: Source, table: str | None, encoding: str | None, text: Sequence[str] = ()) -> ir.Table:
        """A source as a table; a line that cannot be read stops the job."""
        if source.kind not in ("parquet", "csv", "json") or table is not None:
            raise ValueError(f"{source.name}: Spark reads files here; use --engine duckdb for a {source.kind}")
        files = list(source.files)
        self._opened.append(source)
        reader = self._session.read.option("encoding", encoding or "utf-8").option("mode", "FAILFAST")
        with _named_errors([source]):
            if source.kind == "parquet":
                return self._view(reader.parquet(*files))
            if source.kind == "json":
                return self._view(reader.json(files))
            reader = reader.option("header", True)
            guess = reader.option("inferSchema", True).csv(files)
            kinds = {name: "string" if name in text else kind for name, kind in guess.dtypes}
            schema = ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
            return self._view(reader.schema(schema).csv(files))

    def adopt(self, table: ir.Table) -> ir.Table:
        """A table of the same Spark session."""
        return table

    def keep(self, name: str, expression: ir.Table) -> ir.Table:  # noqa: ARG002  Spark needs no names
        with _named_errors(self._opened):
            self._kept.append(expression.cache())
        return self._kept[-1]

    def append(self, kept: ir.Table, expression: ir.Table) -> None:
        raise NotImplementedError("Spark collects all lists in one go")

    def arrow(self, expression: ir.Table) -> pa.Table:
        with _named_errors(self._opened):
            return expression.to_pyarrow()

    def row_of_first(self, table: ir.Table, condition: Any) -> int | None:  # noqa: ARG002  rows have no order there
        return None

    def unreadable_lines(self) -> tuple[int, str]:
        return 0, ""

    def _view(self, frame: Any) -> ir.Table:
        self._n_views += 1
        frame.createOrReplaceTempView(f"unskew_{self._n_views}")
        return self.connection.table(f"unskew_{self._n_views}")

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


def _spark_session(master: str | None) -> Any:
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Spark is not installed: pip install 'unskew[spark]', with Java 17 or newer"
        ) from error
    builder = SparkSession.builder.appName("unskew ingest").config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.execution.arrow.pyspark.enabled", "true")
    builder = builder.master(master) if master else builder
    return builder.getOrCreate()


def _table_of(connection: Any, table: str | None, source: Source) -> ir.Table:
    tables = connection.list_tables()
    if table not in tables:
        raise ValueError(f"{source.name}: name a table with --table; it has: {', '.join(tables) or 'none'}")
    return connection.table(table)


@contextmanager
def _named_errors(sources: Sequence[Source]) -> Iterator[None]:
    """Errors of the engine as one line that says where and what to do; what it calls old is not the user's business."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            yield
    except (duckdb.Error, ibis.IbisError) as error:
        raise ValueError(_explained(error, sources)) from error
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        raise ValueError(_explained(error, sources)) from error


def _explained(error: Exception, sources: Sequence[Source]) -> str:
    names = ", ".join(dict.fromkeys(source.name for source in sources))
    where = f"{names}: " if names else ""
    if isinstance(error, duckdb.OutOfMemoryException):
        return f"{where}not enough memory ({_first_line(error)}): raise --memory"
    files = [file for source in sources if source.kind == "json" for file in source.files]
    bad_line = unreadable_json(files)
    if bad_line:
        return f"{bad_line}: repair the line, write the file as UTF-8, or leave the line out"
    encoding = "utf-8" in str(error).lower()
    advice = "name its encoding with --encoding, e.g. latin-1" if encoding else "is a file damaged? Copy it again"
    return f"{where}{_first_line(error)}: {advice}" if sources else _first_line(error)


def _first_line(error: Exception | str) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__
