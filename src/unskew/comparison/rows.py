"""Rows on disk: one parquet file per finished run, written atomically.

OUT/runs/KEY.parquet    one line per test query, one column per metric; the rest of the result is in its metadata
OUT/runs/.KEY.lock      who is doing a run: several processes may share the runs of one folder
OUT/runs/KEY.error.txt  the error of a failed run, which is tried again next time
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.comparison.code_digest import code_digest
from unskew.data.files import array_digest, new_file, sole_writer, write_text
from unskew.data.untrusted import parse_json, read_parquet
from unskew.texts import redacted

RESULT, DIGEST = b"unskew-result", b"unskew-digest"
DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, pa.ArrowException)


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a run."""

    per_query: dict[str, NDArray[np.float64]] = field(default_factory=dict)  # metric -> [queries]; NaN: left out
    query_ids: NDArray | None = None  # [queries]
    about: dict[str, Any] = field(default_factory=dict)  # JSON


class Claims:
    """The runs that this process is doing: each belongs to one process until it is released, or the process ends.

    If the file system has no locks, a run may be done twice; its row is the same, and written atomically.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.held: dict[str, ExitStack] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self.held):
            self.release(key)

    def take(self, key: str) -> bool:
        """Claim a run; False if another process has it."""
        with ExitStack() as lock, suppress(FileExistsError):
            lock.enter_context(sole_writer(self.folder / key))
            self.held[key] = lock.pop_all()
        return key in self.held

    def release(self, key: str) -> None:
        self.held.pop(key, ExitStack()).close()


def row_path(folder: Path, key: str) -> Path:
    return folder / f"{key}.parquet"


def error_path(folder: Path, key: str) -> Path:
    return folder / f"{key}.error.txt"


def write_row(folder: Path, key: str, definition: dict[str, Any], outcome: Outcome, family: str = "") -> Path:
    """Write the row of a run.

    Args:
        family: equal for runs that differ only in the code of user-defined classes.
    """
    columns: dict[str, Any] = {}
    if outcome.query_ids is not None:
        columns["query"] = pa.array(outcome.query_ids)
    for name, values in outcome.per_query.items():
        columns[name] = pa.array(values, from_pandas=True)
    result = {"definition": definition, "family": family, "about": {**outcome.about, "code": code_digest()}}
    table, text = pa.table(columns), redacted(json.dumps(result, default=repr)).encode()
    metadata = {RESULT: text, DIGEST: _digest(table, text)}
    target = row_path(folder, key)
    with new_file(target) as scratch:
        pq.write_table(table.replace_schema_metadata(metadata), scratch, compression="zstd")
    error_path(folder, key).unlink(missing_ok=True)
    return target


def read_row(folder: Path, key: str) -> Outcome | None:
    """The row of a run, if it exists and can be read."""
    path = row_path(folder, key)
    if not path.is_file():
        return None
    try:
        table = read_parquet(path)
        metadata = table.schema.metadata or {}
        about = parse_json(metadata[RESULT])["about"]
        if metadata.get(DIGEST, _digest(table, metadata[RESULT])) != _digest(table, metadata[RESULT]):
            return None
    except DAMAGED:
        return None  # so the run is repeated
    names = [name for name in table.column_names if name != "query"]
    return Outcome(
        per_query={name: table[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in names},
        query_ids=table["query"].to_numpy(zero_copy_only=False) if "query" in table.column_names else None,
        about=about,
    )


def _digest(table: pa.Table, text: bytes) -> bytes:
    """SHA-256 of the content of a row; rows of earlier releases have none."""
    columns = [column.to_numpy(zero_copy_only=False) for column in table.itercolumns()]
    numbers = [column for column in columns if column.dtype.kind in "iuf"]
    others = [repr(column.tolist()) for column in columns if column.dtype.kind not in "iuf"]
    return array_digest(numbers, [*table.column_names, *others, text.decode()]).encode()


def families_in(folder: Path) -> set[str]:
    """Families of the runs with user-defined classes whose rows are in a folder."""
    families = set()
    for path in folder.glob("*.parquet"):
        with suppress(*DAMAGED):  # damaged rows do not count
            families.add(parse_json((pq.read_metadata(path).metadata or {})[RESULT]).get("family", ""))
    return families - {""}


def gather_rows(sources: Iterable[Path], folder: Path) -> int:
    """Copy missing rows from other folders, and return their number."""
    folder.mkdir(parents=True, exist_ok=True)
    n_new = 0
    for source in sources:
        rows = source / "runs" if (source / "runs").is_dir() else source
        if not rows.is_dir():
            raise FileNotFoundError(f"{source} is not a folder of results: pass the --out folder of another run")
        for path in sorted(rows.glob("*.parquet")):
            if read_row(folder, path.stem) is None and read_row(rows, path.stem) is not None:
                with new_file(row_path(folder, path.stem)) as scratch:
                    shutil.copyfile(path, scratch)
                n_new += 1
    return n_new


def write_error(folder: Path, key: str, title: str, definition: dict[str, Any], text: str) -> Path:
    """Write the error of a failed run."""
    path = error_path(folder, key)
    about = json.dumps(definition, indent=2, sort_keys=True, default=repr)
    write_text(path, f"{title}\n\n{text}\n\nThe run was:\n{about}\n")
    return path
