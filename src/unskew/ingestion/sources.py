"""Sources of event tables: files, folders and globs of parquet, CSV and JSON lines; DuckDB databases; database URLs.

Files are checked before anything is read: missing, truncated or unexpected files are refused by name.
"""

from __future__ import annotations

import glob
import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.data.clicks import ABOUT
from unskew.data.untrusted import LONGEST_LINE, parse_json
from unskew.texts import redacted

KINDS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".duckdb": "database",
    ".ddb": "database",
    ".db": "database",
}


@dataclass(frozen=True)
class Source:
    """A table to be read: its name in messages, its kind, and its files or URL."""

    name: str
    kind: str  # parquet, csv, json, database or address
    files: tuple[str, ...]
    not_in_all: tuple[str, ...] = ()  # columns that some files have, but not the first

    @property
    def partitions(self) -> tuple[str, ...]:
        """Columns from folder names, as in `day=1/part.parquet`; only if all files are in such folders."""
        root = Path(self.name)
        if not root.is_dir():
            return ()
        named = {_folder_columns(Path(file).relative_to(root)) for file in self.files}
        return named.pop() if len(named) == 1 else ()

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(Path(file).stat().st_size for file in self.files) if self.kind != "address" else 0


def find_source(place: str | Path) -> Source:
    """The source at a path, in a folder, behind a glob, or at a URL that Ibis can connect to."""
    text = str(place) or "."
    if "://" in text:
        return Source(redacted(text), "address", (text,))
    path = Path(text)
    if (path / ABOUT).is_file():
        raise ValueError(f"{path} is already a click log: train or diagnose it, or pass a table of events")
    if path.is_dir():
        files = _files_in(path)
        if not files:
            raise FileNotFoundError(f"{path} has no parquet, CSV or JSON lines files: pass another folder")
    elif glob.has_magic(text) and not path.exists():
        matches = [Path(name) for name in glob.glob(text, recursive=True)]  # noqa: PTH207  an absolute one too
        files = sorted(name for name in matches if name.is_file())
        if not files:
            raise FileNotFoundError(f"nothing matches {text}: check the pattern, and quote it for the shell")
    elif path.is_file():
        files = [path]
    else:
        raise FileNotFoundError(f"{path} does not exist: pass a file, a folder, a glob in quotes or a database")
    kinds = {_kind(file) for file in files}
    if len(kinds) > 1:
        raise ValueError(f"{text} has files of {len(kinds)} types ({', '.join(sorted(kinds))}): choose one with a glob")
    kind = kinds.pop()
    names = tuple(str(file) for file in files)
    if kind == "parquet":
        return Source(text, kind, names, _check_parquet(names))
    names = tuple(name for name in names if Path(name).stat().st_size)  # an empty part has no rows
    if not names:
        raise ValueError(f"{text} is empty: pass a table with impressions")
    for name in names:
        _check_start(name, kind)
    return Source(text, kind, names)


def unreadable_json(files: Sequence[str]) -> str:
    """An error message for the first line that is not JSON, or ""; slow, so only used after an error."""
    for file in files:
        n_read = 0
        try:
            with _opened(file) as lines:
                for line in iter(lambda: lines.readline(LONGEST_LINE), b""):
                    parse_json(line.decode("utf-8-sig") if line.strip() else "0")
                    n_read += 1
        except UnicodeDecodeError as error:
            wrong = error.object[error.start : error.start + 1]
            return f"{file}, line {n_read + 1}: not UTF-8 ({error.reason} {wrong!r}): write the file as UTF-8"
        except ValueError as error:
            return f"{file}, line {n_read + 1}: not JSON ({error}): repair or remove the line"
        except (EOFError, OSError) as error:  # of a compressed file
            return f"{file} is truncated or damaged after line {n_read} ({str(error).rstrip('.')}): copy it again"
    return ""


def first_keys(file: str) -> list[str]:
    """Keys of the first line of a file of JSON lines, in their order."""
    with _opened(file) as lines:
        first = next((line for line in iter(lambda: lines.readline(LONGEST_LINE), b"") if line.strip()), b"{}")
    return list(parse_json(first.decode("utf-8-sig")))


def _files_in(folder: Path) -> list[Path]:
    """Files of a known type anywhere in a folder, except leftovers of Spark and editors."""
    files = (path for path in folder.rglob("*") if path.is_file() and _suffix(path) in KINDS)
    return sorted(path for path in files if not any(part[0] in "._" for part in path.relative_to(folder).parts))


def _suffix(path: Path) -> str:
    return Path(path.stem if path.suffix in (".gz", ".zst") else path.name).suffix.lower()


def _kind(path: Path) -> str:
    kind = KINDS.get(_suffix(path))
    if kind is None:
        raise ValueError(f"{path}: unknown file type '{_suffix(path)}'; use one of {', '.join(KINDS)}")
    return kind


def _opened(file: str) -> BinaryIO:
    return cast(BinaryIO, gzip.open(file, "rb")) if file.endswith(".gz") else Path(file).open("rb")


def _folder_columns(path: Path) -> tuple[str, ...]:
    return tuple(part.split("=")[0] for part in path.parts[:-1] if "=" in part)


def _check_start(file: str, kind: str) -> None:
    """Refuse a file whose content does not match its extension."""
    if file.endswith(".zst"):
        return
    try:
        with _opened(file) as content:
            start = content.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{file} cannot be read ({str(error).rstrip('.')}): copy or compress it again") from error
    if kind == "json" and not start.startswith(b"{"):
        instead = "one JSON array" if start.startswith(b"[") else f"a line that starts with {start[:10]!r}"
        raise ValueError(f"{file} begins with {instead}: write one object per line (jq -c '.[]' splits an array)")
    if kind == "database" and start.startswith(b"SQLite format"):
        raise ValueError(f"{file} is an SQLite database: pass it as a URL, sqlite://{Path(file).resolve()}")


def _check_parquet(files: Sequence[str]) -> tuple[str, ...]:
    """Refuse damaged files and files without the columns of the first; return columns that only others have."""
    first: pa.Schema | None = None
    besides: dict[str, None] = {}
    for file in files:
        try:
            schema = pq.read_schema(file).remove_metadata()
        except (OSError, pa.ArrowException) as error:
            reason = str(error).rstrip(".")
            raise ValueError(
                f"{file} cannot be read as parquet ({reason}): it is truncated or damaged; copy it again"
            ) from error
        first = schema if first is None else first
        _check_same_columns(first, schema, files[0], file)
        besides |= dict.fromkeys(name for name in schema.names if name not in first.names)
    return tuple(besides)


def _check_same_columns(first: pa.Schema, schema: pa.Schema, first_file: str, file: str) -> None:
    for field in first:
        if schema.get_field_index(field.name) < 0:
            raise ValueError(f"{file}: no column '{field.name}', but {first_file} has it: ingest them separately")
        kind = schema.field(field.name).type
        if _family(kind) != _family(field.type):
            raise ValueError(
                f"{file}: column '{field.name}' holds {kind}, but {field.type} in {first_file}: use the same type"
            )


def _family(kind: pa.DataType) -> str:
    """A name for a group of types that can share one column."""
    if isinstance(kind, pa.DictionaryType):
        return _family(kind.value_type)
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view"
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if text or number or pa.types.is_null(kind):
        return "text" if text else "number" if number else "nothing"
    return "time" if pa.types.is_timestamp(kind) else str(kind)
