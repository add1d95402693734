"""Engines that run Ibis expressions: DuckDB on this machine, within a memory limit, or Spark.

An engine opens sources as tables, keeps intermediate results, and returns results as arrow tables. Times are UTC. Its
errors are one line: the file or table, what is wrong, and what to do.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import duckdb
import ibis
import ibis.expr.types as ir
import pyarrow as pa
from ibis.common.exceptions import TableNotFound

from unskew.data.memory import parse_memory
from unskew.ingestion.sources import Source, first_keys, unreadable_json
from unskew.ingestion.spark import spark_session
from unskew.texts import redacted

BYTES_AN_IMPRESSION = 64  # memory while lists are collected, which DuckDB cannot spill to disk
SHARE_FOR_LISTS = 0.4  # of the memory; the rest is for reading and for intermediate results
SESSIONS_LOOKED_AT = 2_000  # of the sample
KINDS_OF_TEXT = {"string": ("VARCHAR", "string"), "float64": ("DOUBLE", "double")}  # type names in DuckDB and Spark


Types = Mapping[str, str]  # of columns of a CSV file: string or float64
# Part of a message in lower case, and what to do about it; the first match counts.
ADVICE = {
    "no space left": "the disk is full: free space, or choose another folder with --out",
    "does not support the encoding": "only utf-8, latin-1 and utf-16 can be read; convert the file first: "
    "iconv -f ENCODING -t utf-8",
    "utf-8": "pass its encoding with --encoding, e.g. latin-1 or utf-16",
    "schema mismatch": "write all files with the same columns, or select fewer files with a glob",
    "json transform error": "write values of one type under each key",
}
OTHERWISE = "a file may be damaged: copy it again"


@contextmanager
def named_errors(sources: Sequence[Source]) -> Iterator[None]:
    """Turn errors of the engine into one line that says where and what to do; hide its deprecation warnings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            yield
    except (duckdb.Error, ibis.IbisError, TableNotFound) as error:
        raise ValueError(explained(error, sources)) from error
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        raise ValueError(explained(error, sources)) from error


def first_line(error: Exception | str) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return redacted(lines[0].strip().rstrip(".")) if lines else type(error).__name__


def explained(error: Exception, sources: Sequence[Source]) -> str:
    """One line: where, what is wrong, and what to do."""
    names = ", ".join(dict.fromkeys(source.name for source in sources))
    where = f"{names}: " if names else ""
    if isinstance(error, duckdb.OutOfMemoryException):
        return f"{where}not enough memory ({first_line(error)}): raise --memory"
    said = str(error).lower()
    advice = next((advice for mark, advice in ADVICE.items() if mark in said), OTHERWISE if sources else "")
    if "no space left" not in said:
        bad_line = unreadable_json([file for source in sources if source.kind == "json" for file in source.files])
        if bad_line:
            return bad_line
    return f"{where}{first_line(error)}" + (f": {advice}" if advice else "")


class Engine(Protocol):
    """The interface of an engine that runs the expressions."""

    rows_at_once: int | None  # impressions whose lists may be collected at a time; None: any number

    def open(self, source: Source, table: str | None, encoding: str | None, types: Types | None = None) -> ir.Table: ...
    def adopt(self, table: ir.Table) -> ir.Table: ...
    def keep(self, name: str, expression: ir.Table) -> ir.Table: ...
    def append(self, kept: ir.Table, expression: ir.Table) -> ir.Table: ...
    def arrow(self, expression: ir.Table) -> pa.Table: ...
    def row_of_first(self, table: ir.Table, condition: Any) -> int | None: ...
    def unreadable_lines(self) -> tuple[int, str]: ...
    def close(self) -> None: ...


class DuckEngine:
    """DuckDB with a scratch database in its own folder, to which it spills what exceeds memory."""

    def __init__(self, scratch: Path, memory: str = "2GB", threads: int | None = None):
        n_bytes = parse_memory(memory)
        settings = {"memory_limit": f"{n_bytes}B", "temp_directory": str(scratch / "spill")}
        if threads is not None:
            settings["threads"] = threads  # type: ignore[assignment]
        self._opened: list[Source] = []
        with named_errors(self._opened):
            self.connection = ibis.duckdb.connect(scratch / "scratch.duckdb", **settings)
        with suppress(duckdb.InvalidInputException):  # a notebook without ipywidgets has no bar to turn off
            self._sql("SET enable_progress_bar = false")  # unskew shows its own
        self._sql("SET preserve_insertion_order = false")
        self._sql("SET TimeZone = 'UTC'")
        self.rows_at_once: int | None = max(1, int(n_bytes * SHARE_FOR_LISTS / BYTES_AN_IMPRESSION))
        self._unreadable = (0, "")
        self._n_kept = 0

    def open(self, source: Source, table: str | None, encoding: str | None, types: Types | None = None) -> ir.Table:
        """A source as a table; without `types`, only the columns of a CSV file are determined."""
        self._opened.append(source)
        with named_errors([source]):
            if source.kind == "parquet":
                return self.connection.read_parquet(list(source.files))
            if source.kind == "json":
                return self._open_json(source)
            if source.kind == "csv":
                return self._open_csv(source, encoding, types)
            if source.kind == "database":
                return self._attach(source, table)
        return self.adopt(remote_table(source, table))

    def adopt(self, table: ir.Table) -> ir.Table:
        """Copy a table of another connection, batch by batch."""
        backend = table.get_backend()
        with named_errors(self._opened):
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
        with named_errors(self._opened):
            return self._create(name, self.connection.compile(expression))

    def append(self, kept: ir.Table, expression: ir.Table) -> ir.Table:
        """A kept result with rows added to it."""
        with named_errors(self._opened):
            names = ", ".join(kept.columns)
            rows = self.connection.compile(expression.select(kept.columns))
            self._sql(f"INSERT INTO {kept.get_name()} ({names}) {rows}")
        return kept

    def arrow(self, expression: ir.Table) -> pa.Table:
        with named_errors(self._opened):
            found = self.connection.con.sql(self.connection.compile(expression)).to_arrow_table()
        # Sums of whole numbers have 128 bits, which become decimals in arrow.
        sums = [pa.types.is_decimal(field.type) and field.type.scale == 0 for field in found.schema]
        kinds = zip(found.schema, sums, strict=True)
        return found.cast(pa.schema([pa.field(field.name, pa.int64()) if is_sum else field for field, is_sum in kinds]))

    def row_of_first(self, table: ir.Table, condition: Any) -> int | None:
        """Number, from 0, of the first row that satisfies a condition."""
        self._sql("SET preserve_insertion_order = true")
        rows = table.mutate(is_it=condition, row=ibis.row_number()).filter(lambda rows: rows.is_it)
        found = self.arrow(rows.select("row").limit(1))["row"].to_pylist()
        self._sql("SET preserve_insertion_order = false")
        return found[0] if found else None

    def unreadable_lines(self) -> tuple[int, str]:
        """How many lines of CSV files were left out, and where the first one is."""
        return self._unreadable

    def _open_json(self, source: Source) -> ir.Table:
        """All lines; keys and types are guessed from the first lines, and from all lines if that fails."""
        files: Any = list(source.files)
        try:
            return self._create("source", _select(self.connection.read_json(files, format="newline_delimited")))
        except duckdb.InvalidInputException:
            whole = self.connection.read_json(files, format="newline_delimited", sample_size=-1)
            return self._create("source", _select(whole))

    def _open_csv(self, source: Source, encoding: str | None, types: Types | None) -> ir.Table:
        """All readable lines, kept in the scratch database so that text is parsed only once."""
        options: dict[str, Any] = {} if encoding is None else {"encoding": encoding}
        if types:
            options["types"] = {name: KINDS_OF_TEXT[kind][0] for name, kind in types.items()}
        view = self.connection.read_csv(list(source.files), store_rejects=True, rejects_limit=0, **options)
        if any(name.startswith('"') for name in view.columns):  # DuckDB gave up on quotes and read them as letters
            raise ValueError(
                f"{source.files[0]}: a quotation mark is never closed, so the file is truncated or damaged: copy it "
                "again, or repair or remove that line (often the last one)"
            )
        if types is None:
            return view
        kept = self._create("source", _select(view))
        self._count_unreadable()
        return kept

    def _count_unreadable(self) -> None:
        """Count the unreadable lines of the last CSV file, which DuckDB records in its own tables."""
        found = self._rows(
            "SELECT file_path, line, error_message, count(DISTINCT (file_id, line)) OVER () FROM reject_errors "
            "JOIN reject_scans USING (scan_id, file_id) ORDER BY file_path, line LIMIT 1"
        )
        for file, line, message, count in found:
            self._unreadable = (self._unreadable[0] + count, f"{file}, line {line}: {first_line(message)}")
        self._sql("DELETE FROM reject_errors")

    def _attach(self, source: Source, table: str | None) -> ir.Table:
        self._n_kept += 1
        name = f"attached_{self._n_kept}"
        self.connection.attach(source.files[0], name, read_only=True)
        listed = f"SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = '{name}' "
        places = {
            entry if schema == "main" else f"{schema}.{entry}": (schema, entry)
            for schema, entry in self._rows(listed + "ORDER BY ALL")
        }
        schema, entry = places[_choose(table, list(places), source)]
        if self._rows(listed + f"AND table_schema = '{schema}' AND table_name = '{entry}' AND table_type = 'VIEW'"):
            return self._copy_view(source.files[0], schema, entry)
        return self.connection.table(entry, database=(name, schema))

    def _copy_view(self, file: str, schema: str, entry: str) -> ir.Table:
        """The rows of a view, read without access to anything outside the database: a view may name any file."""
        with duckdb.connect(file, read_only=True, config={"enable_external_access": False}) as closed:
            try:
                reader = closed.sql(f'SELECT * FROM "{schema}"."{entry}"').fetch_record_batch()
                self.connection.con.register("incoming", reader)
                return self._create("adopted", "SELECT * FROM incoming")
            except (duckdb.PermissionException, duckdb.InvalidInputException, duckdb.IOException) as error:
                raise ValueError(
                    f"{file}: view '{entry}' reads data outside the database, which is not allowed "
                    f"({first_line(error)}): copy its rows to a table first, CREATE TABLE … AS SELECT * FROM {entry}"
                ) from error

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
    """Spark, for logs too large for one machine; it manages its own memory."""

    rows_at_once: int | None = None

    def __init__(self, connection: Any = None, master: str | None = None):
        self._session = spark_session(master) if connection is None else connection._session
        self.connection = connection or ibis.pyspark.connect(self._session)
        self._n_views = 0
        self._opened: list[Source] = []
        self._kept: list[ir.Table] = []  # Spark drops results without references

    def open(self, source: Source, table: str | None, encoding: str | None, types: Types | None = None) -> ir.Table:
        """A source as a table; an unreadable line stops the job."""
        if source.kind not in ("parquet", "csv", "json") or table is not None:
            raise ValueError(f"{source.name}: Spark reads only files here; use --engine duckdb for a {source.kind}")
        files = list(source.files)
        self._opened.append(source)
        reader = self._session.read.option("encoding", encoding or "utf-8").option("mode", "FAILFAST")
        if source.partitions:
            reader = reader.option("basePath", source.name)
        with named_errors([source]):
            if source.kind == "parquet":
                return self._view(reader.parquet(*files))
            if source.kind == "json":
                return self._view(_as_written(reader.json(files), source))
            reader = reader.option("header", True)
            guess = reader.option("inferSchema", True).csv(files)
            given = {name: KINDS_OF_TEXT[kind][1] for name, kind in (types or {}).items()}
            kinds = {name: given.get(name, kind) for name, kind in guess.dtypes}
            schema = ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
            return self._view(reader.schema(schema).csv(files))

    def adopt(self, table: ir.Table) -> ir.Table:
        """A table of the same Spark session."""
        return table

    def keep(self, name: str, expression: ir.Table) -> ir.Table:  # noqa: ARG002  Spark needs no names
        with named_errors(self._opened):
            self._kept.append(expression.cache())
        return self._kept[-1]

    def append(self, kept: ir.Table, expression: ir.Table) -> ir.Table:
        """The union of both. Spark splits work by itself, so this is rarely called.

        Each part is kept separately: the query plans of nested kept results would exceed the driver's memory.
        """
        return kept.union(self.keep("", expression.select(kept.columns)))

    def arrow(self, expression: ir.Table) -> pa.Table:
        with named_errors(self._opened):
            return expression.to_pyarrow()

    def frame(self, expression: ir.Table) -> Any:
        """An expression as a Spark data frame."""
        return self._session.sql(self.connection.compile(expression))

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


def _as_written(frame: Any, source: Source) -> Any:
    """Columns in the order of the first line, as in DuckDB: Spark sorts the keys of JSON, and so the features."""
    first = [name for name in first_keys(source.files[0]) if name in frame.columns]
    others = [name for name in frame.columns if name not in first]
    return frame.select([f"`{name}`" for name in (*first, *others)])


def _select(view: ir.Table) -> str:
    """All rows of a view that DuckDB made."""
    return f'SELECT * FROM "{view.get_name()}"'


def one_row(engine: Engine, table: ir.Table, **aggregates: Any) -> dict[str, Any]:
    """Aggregates of a table by name."""
    return engine.arrow(table.aggregate(**aggregates)).to_pylist()[0]


def count_rows(engine: Engine, table: ir.Table) -> int:
    return one_row(engine, table, rows=table.count())["rows"]


def example(engine: Engine, table: ir.Table, keys: Sequence[str]) -> str:
    """The keys of the first row, for people; "" if there is none."""
    rows = engine.arrow(table.select(*keys).order_by(*keys).limit(1)).to_pylist()
    return ", ".join(f"{key} {value}" for row in rows for key, value in row.items())


def some_sessions(rows: ir.Table) -> ir.Table:
    """The rows of a sample of sessions."""
    some = rows.filter(rows.session.notnull()).select("session").distinct().order_by("session")
    return rows.semi_join(some.limit(SESSIONS_LOOKED_AT), "session")


def remote_table(source: Source, table: str | None) -> ir.Table:
    """The table at a URL; its driver may not be installed, and may raise errors of any class."""
    try:
        connection: Any = ibis.connect(source.files[0])
        tables = connection.list_tables()
    except Exception as error:  # drivers raise their own classes
        reason = first_line(error).replace(source.files[0], source.name)
        raise ValueError(
            f"{source.name}: {reason}: pass the URL of a running database whose driver is installed, such as "
            "postgres://host/shop (pip install 'ibis-framework[postgres]'), or copy the files to this machine"
        ) from error
    return connection.table(_choose(table, tables, source))


def _choose(table: str | None, tables: Sequence[str], source: Source) -> str:
    if table is None and len(tables) == 1:
        return tables[0]
    if table is None or table not in tables:
        raise ValueError(f"{source.name}: choose a table with --table. Found: {', '.join(tables) or 'none'}")
    return table
