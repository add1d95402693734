"""Traces of users: what was made from a log that has changed, and files in which an id still stands.

What was made from a log names it (`lineage`). Ids are looked for in the content of files: cell by cell in parquet, as
whole words in text, unpacked where a file is compressed. Files of other kinds are named: nothing is known of them.
"""

from __future__ import annotations

import base64
import gzip
import json
import mmap
import os
import re
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unskew.data.clicks import ABOUT
from unskew.data.clicks.kept_users import numbers_of
from unskew.data.clicks.lineage import SHORT
from unskew.data.untrusted import parse_json
from unskew.display import OnScreen, Screen

PARQUET = (".parquet", ".pq")
TEXT = (".json", ".html", ".md", ".txt", ".csv", ".tsv", ".jsonl", ".ndjson", ".toml", ".tex", ".svg", ".trec", ".log")
BINARY = (
    ".safetensors",
    ".onnx",
    ".ubj",
    ".checkpoint",
    ".tuning",
    ".npy",
    ".salt",
    ".lock",
    ".claim",
)  # ids stand as text
LINEAGE = (".json", ".html", ".md", ".onnx", ".safetensors", ".checkpoint", ".tuning", ".txt", "")
DIGITS = 6  # shorter numbers are counts and positions everywhere: they are looked for in text and in columns of ids
IDS = ("user", "session", "query", "document", "item", "client", "visitor")  # in names of columns of ids
FORGOTTEN = re.compile(rb'\{[^{}]*"forget\\*"[^{}]*\}')  # a step after which the users are gone
FORGOTTEN_LINE = re.compile(rb"\(forget of [0-9a-f, ]+\)")
PACKED = re.compile(rb"[A-Za-z0-9+/]{200,}={0,2}")
TO_DO = {
    "model": "train it again",
    "checkpoint": "delete it: it holds what was learned so far",
    "copy of the log": "forget the users there too, or delete it",
    "model without lineage": "it does not name its log; if it came from this one, train it again",
}


@dataclass(frozen=True)
class Made:
    """Something that was made from a log."""

    kind: str
    place: str
    to_do: str


@dataclass(repr=False)
class Traces(OnScreen):
    """Where ids still stand below a folder."""

    users: int
    files: int  # that were read
    found: list[tuple[str, str]] = field(default_factory=list)  # file, and where in it
    unread: list[str] = field(default_factory=list)  # files of other kinds, or damaged ones

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def screen(self) -> Screen:
        if self.found:
            title = f"{len(self.found):,} places still hold one of {self.users:,} users ({self.files:,} files read)"
        else:
            title = f"None of {self.users:,} users is in any of {self.files:,} files"
        notes = [f"Not read, so nothing is known of them: {', '.join(self.unread)}"] if self.unread else []
        return Screen(title, ("file", "where"), self.found, notes, left=2) if self.found else Screen(title, notes=notes)


def made_from(digests: Collection[str], below: Path, log: Path) -> list[Made]:
    """What was made from a log, by the digests that it had: models, checkpoints, copies, reports, rankings."""
    known, found = set(digests), dict[Path, Made]()
    files = [file for file in _files(below) if not file.is_relative_to(log)]
    while True:
        n_known = len(known)
        for file in files:
            text = FORGOTTEN_LINE.sub(b"", FORGOTTEN.sub(b"{}", _lineage_text(file)))
            if not any(digest[:SHORT].encode() in text for digest in known):
                if file.name == "model.json" and b'"sessions"' in text and b'"log"' not in text:
                    found[file.parent] = Made("model without lineage", str(file.parent), TO_DO["model without lineage"])
                continue
            with suppress(ValueError, TypeError, AttributeError, RecursionError):  # not one of our documents
                known |= set(_made_later(parse_json(text), known))
            kind, place = _kind(file)
            found[place] = Made(kind, str(place), TO_DO.get(kind, "make it again"))
        if len(known) == n_known:
            return [found[place] for place in sorted(found) if not any(p in found for p in place.parents)]


def find_traces(folder: Path, users: Collection[str], list_of_users: Path | None = None) -> Traces:
    """The places below a folder where an id, or its opaque number, still stands."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder: pass the one below which to look")
    files = [file for file in _files(folder) if list_of_users is None or not file.samefile(list_of_users)]
    salts = [file.read_text(encoding="utf-8").strip() for file in files if file.suffix == ".salt"]
    numbers = np.concatenate([np.zeros(0, np.uint64), *(numbers_of(sorted(users), salt) for salt in salts)])
    wanted = _Wanted(set(users), numbers)
    found = Traces(len(users), 0)
    for file in files:
        name = str(file.relative_to(folder))
        try:
            places = list(dict.fromkeys([*_in_name(name, wanted), *_in_file(file, wanted)]))
        except (OSError, ValueError, EOFError, zlib.error, pa.ArrowException) as error:
            found.unread.append(f"{name} ({str(error).splitlines()[0] if str(error) else 'damaged'})")
            continue
        found.files += 1
        found.found += [(name, place) for place in places]
    return found


def _files(folder: Path) -> Iterator[Path]:
    """All files below a folder, hidden ones too; links are not followed."""
    for root, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(root) / name for name in sorted(names) if not (Path(root) / name).is_symlink())


def _lineage_text(file: Path) -> bytes:
    """The part of a file that may name a log."""
    try:
        if file.suffix in PARQUET:
            return b"\n".join((pq.read_metadata(file).metadata or {}).values())
        if file.suffix not in LINEAGE or not file.stat().st_size:
            return b""
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content[:]
    except (OSError, ValueError, pa.ArrowException):
        return b""


def _made_later(data: Any, known: set[str]) -> Iterator[str]:
    """Digests of logs that steps in this document made from known ones."""
    if isinstance(data, dict):
        steps = data.get("steps") if isinstance(data.get("digest"), str) else None
        if any(known.intersection(step.get("from", ())) for step in steps or ()):
            yield data["digest"]
    for entry in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from _made_later(entry, known)


def _kind(file: Path) -> tuple[str, Path]:
    if (file.parent / "model.json").is_file():
        return "model", file.parent
    if file.name == ABOUT:
        return "copy of the log", file.parent
    if file.suffix in (".checkpoint", ""):
        return "checkpoint", file
    return {".html": "report", ".onnx": "exported model", ".parquet": "table"}.get(file.suffix, "file"), file


class _Wanted:
    """Ids in the forms in which files write them, and opaque numbers."""

    def __init__(self, users: set[str], numbers: np.ndarray):
        digits = [f"{number:016x}" for number in numbers.tolist()]
        forms = {form for user in users for form in (user, json.dumps(user)[1:-1], escape(user), quote(user, safe=""))}
        self.words = [form.encode() for form in sorted(forms | set(digits))]
        self.whole = pa.array(sorted(users | set(digits)), pa.large_string())
        whole = [int(user) for user in users if user.isdecimal() and int(user) < 2**64]
        self.numbers = np.array(sorted({*numbers.tolist(), *whole}), np.uint64)
        self.long = self.numbers[self.numbers >= 10 ** (DIGITS - 1)]

    def in_text(self, content: bytes) -> bool:
        """Whether an id stands in a text as a word of its own."""
        return any(
            re.search(rb"(?<![\w-])" + re.escape(word) + rb"(?![\w-])", content)
            for word in self.words
            if word in content and not (word.isdigit() and len(word) < DIGITS)
        )

    def in_column(self, name: str, column: pa.ChunkedArray | pa.Array) -> bool:
        """Whether an id stands in a column of any type."""
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        kind = column.type
        if pa.types.is_dictionary(kind):
            return self.in_column(name, column.dictionary)
        if pa.types.is_struct(kind):
            return any(self.in_column(f"{name}.{part.name}", pc.struct_field(column, part.name)) for part in kind)
        if pa.types.is_map(kind):
            return self.in_column(name, column.keys) or self.in_column(name, column.items)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            return self.in_column(name, pc.list_flatten(column))
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            wanted = self.numbers if any(word in name.lower() for word in IDS) else self.long
            values = column.drop_null().to_numpy(zero_copy_only=False)
            if values.dtype.kind != "f":
                wanted = wanted[wanted <= np.iinfo(values.dtype).max]
            return bool(np.isin(values, wanted.astype(values.dtype)).any())
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
            values = pc.unique(column.cast(pa.large_binary())).drop_null()
            cells = pc.is_in(values, value_set=self.whole.cast(pa.large_binary()))
            return bool(pc.any(cells).as_py()) or self.in_text(b"\n".join(values.to_pylist()))
        return False  # times, decimals, truth values


def _in_name(name: str, wanted: _Wanted) -> list[str]:
    return ["its name"] if wanted.in_text(name.encode()) else []


def _in_file(file: Path, wanted: _Wanted) -> Iterator[str]:
    """Where ids stand in a file."""
    if file.suffix in PARQUET:
        opened = pq.ParquetFile(file)
        if wanted.in_text(b"\n".join(value for key, value in (opened.metadata.metadata or {}).items())):
            yield "its metadata"
        for batch in opened.iter_batches():
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                if wanted.in_column(name, column):
                    yield f"column {name}"
        return
    if file.suffix not in (*TEXT, *BINARY, ".gz", ""):
        raise ValueError("its format is not known")
    content = file.read_bytes()
    if file.suffix == ".gz":
        content = gzip.decompress(content)
    if wanted.in_text(content):
        yield "its text"
    for packed in PACKED.finditer(content) if file.suffix == ".html" else ():  # pages hold compressed data
        with suppress(ValueError, OSError, EOFError, zlib.error):
            if wanted.in_text(gzip.decompress(base64.b64decode(packed[0]))):
                yield "its data"
