"""What public functions take: paths, names, tables and objects, converted where they come in."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import LogFolder, read_log
from unskew.data.clicks.within_memory import PartOfFolder, read_within
from unskew.data.columns import as_arrow, is_table
from unskew.data.judged.catalogue import load_split
from unskew.data.judged.judged_set import JudgedSet


class WithLog(Protocol):
    """What holds a log, such as a simulation."""

    @property
    def log(self) -> ClickLog: ...


Place = str | Path
LogOrPlace = ClickLog | LogFolder | WithLog | Place
Judged = JudgedSet | Place


def as_log(log: LogOrPlace) -> ClickLog:
    """A whole log from a log, a simulation, or the folder of a log."""
    if isinstance(log, ClickLog | LogFolder):
        return log.whole()
    if isinstance(log, str | Path):
        return read_log(Path(log))
    if isinstance(getattr(log, "log", None), ClickLog):
        return log.log
    hint = "; turn a table of events into a log with unskew.ingest" if is_table(log) else ""
    raise TypeError(f"pass a click log or the path of its folder, got {type(log).__name__}{hint}")


def is_log(value: object) -> bool:
    """Whether this is a log, or stands for one."""
    return isinstance(value, ClickLog | LogFolder | str | Path) or isinstance(getattr(value, "log", None), ClickLog)


def as_part(log: LogOrPlace, memory: str | None, more: str = "") -> tuple[ClickLog, PartOfFolder | None]:
    """A log in memory, and the part of its folder that it is if the whole log needs more than `memory`; it warns."""
    if not isinstance(log, LogFolder | str | Path):
        return as_log(log), None
    clicks, part = read_within(log, memory)
    if part is not None:
        warnings.warn(f"{part.note}{more}", RuntimeWarning, stacklevel=3)
    return clicks, part


def as_log_or_folder(log: LogOrPlace) -> ClickLog | LogFolder:
    """The same, or an opened folder, which is read shard by shard."""
    return log if isinstance(log, LogFolder) else as_log(log)


def as_judged(judged: Judged, split: str) -> JudgedSet:
    """Judged queries from a set, a data set of the catalogue (`NAME` or `NAME@split`), or a LETOR file."""
    if isinstance(judged, JudgedSet):
        return judged
    if isinstance(judged, str | Path):
        return load_split(str(judged), split)
    raise TypeError(
        f"pass a JudgedSet, the name of a data set or the path of a LETOR file, got {type(judged).__name__}"
        + (f": pass .{split}, or another of its splits" if hasattr(judged, "read_split") else "")
    )


@contextmanager
def as_file(table: Any) -> Iterator[Any]:
    """Write a table in memory to a temporary parquet file; pass on anything else, Ibis tables included, unchanged."""
    if not is_table(table) or hasattr(table, "get_backend"):
        yield table
        return
    with tempfile.TemporaryDirectory(prefix="unskew-") as folder:
        path = Path(folder) / "table.parquet"
        pq.write_table(_without_views(as_arrow(table)), path)
        yield path


def _without_views(table: pa.Table) -> pa.Table:
    """The table with categories as plain strings: polars uses string views, which parquet cannot store."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and pa.types.is_string_view(field.type.value_type):
            parts = [
                pa.DictionaryArray.from_arrays(part.indices, part.dictionary.cast(pa.large_string()))
                for part in table.column(place).chunks
            ]
            table = table.set_column(
                place, field.name, pa.chunked_array(parts, pa.dictionary(field.type.index_type, pa.large_string()))
            )
    return table
