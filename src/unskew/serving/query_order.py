"""The order of queries in files of candidates: checked before any work, or sorted, out of core by DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unskew.data.memory import parse_memory
from unskew.ingestion.interruption import interruptible

ROWS_A_GROUP = 65_536
ROWS_IN_MEMORY = 2**22


def adjacent(files: Sequence[str], query: str) -> bool:
    """Whether the documents of each query are adjacent, for files so small that no database is needed to see it."""
    sizes = [pq.read_metadata(file).num_rows for file in files]
    if sum(sizes) > ROWS_IN_MEMORY:
        return False
    try:
        tables = [pq.ParquetFile(file).read([query], use_threads=False) for file in files]
        chunks = [chunk for table in tables for chunk in table[query].cast(pa.string()).chunks]
        runs = pc.run_end_encode(pa.chunked_array(chunks, pa.string()).combine_chunks()).values
    except (OSError, pa.ArrowException):
        return False
    return pc.count_distinct(runs, "all").as_py() == len(runs)


@contextmanager
def database(scratch: Path, memory: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with a memory limit; it spills to files in a scratch folder."""
    limit = f"{parse_memory(memory)}B"
    try:
        connected = duckdb.connect(config={"memory_limit": limit, "temp_directory": str(scratch / "spill")})
        with connected as connection, interruptible(connection):
            yield connection
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        if "no space left" in reason.lower():
            raise ValueError(f"the disk of {scratch.parent} is full: free space, or choose another --out") from error
        raise ValueError(f"DuckDB failed: {reason}") from error


def find_apart(connection: duckdb.DuckDBPyConnection, files: Sequence[str], query: str) -> tuple[str, int, int] | None:
    """The first query whose documents are not adjacent, the row of its first one, and the row where it appears again.

    Documents are adjacent if a query has as many rows as lie between its first and its last.
    """
    connection.execute(_numbered(files, [query]))
    found = connection.execute(
        f"SELECT {_name(query)}, min(row) FROM numbered WHERE {_name(query)} IS NOT NULL GROUP BY 1 "
        "HAVING max(row) - min(row) + 1 > count(*) ORDER BY 2 LIMIT 1"
    ).fetchone()
    if found is None:
        return None
    again = connection.execute(
        f"SELECT row FROM (SELECT row, lag(row) OVER (ORDER BY row) AS before FROM numbered WHERE {_name(query)} = ?) "
        "WHERE row > before + 1 ORDER BY row LIMIT 1",
        [found[0]],
    ).fetchone()
    assert again is not None
    return str(found[0]), int(found[1]), int(again[0])


def sort_by_query(
    connection: duckdb.DuckDBPyConnection, files: Sequence[str], columns: Sequence[str], target: Path
) -> None:
    """Write these columns, the query first, to one file in which the documents of a query are adjacent.

    Documents of a query keep their order.
    """
    connection.execute(_numbered(files, columns))
    chosen = ", ".join(map(_name, columns))
    connection.execute(
        f"COPY (SELECT {chosen} FROM numbered ORDER BY {_name(columns[0])}, row) TO {_text(str(target))} "
        f"(FORMAT parquet, ROW_GROUP_SIZE {ROWS_A_GROUP})"
    )


def _numbered(files: Sequence[str], columns: Sequence[str]) -> str:
    """A view of all files with the number of each row over all of them."""
    sizes = [pq.read_metadata(file).num_rows for file in files]
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    values = ", ".join(f"({_text(file)}, {start})" for file, start in zip(files, starts, strict=True))
    chosen = ", ".join(f"p.{_name(column)}" for column in columns)
    names = ", ".join(map(_text, files))
    return (
        f"CREATE OR REPLACE TEMP VIEW numbered AS SELECT {chosen}, s.start + p.file_row_number AS row "
        f"FROM read_parquet([{names}], filename = true, file_row_number = true, hive_partitioning = false) AS p "
        f"JOIN (VALUES {values}) AS s(file, start) ON p.filename = s.file"
    )


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
