"""From LETOR text to numbers: read files in blocks of lines, parse lines to arrays, and explain bad lines.

pyarrow's CSV reader turns `feature:value` pairs, one per row, into numbers, for dense and sparse lines alike. It
refuses a bad block without saying where, so `complaint` checks a single line slowly and says what is wrong with it.
`unskew.data.judged.letor` describes the format.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
from numpy.typing import NDArray

from unskew.data.untrusted import LONGEST_LINE

BLOCK_BYTES = 4 << 20
GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
EXPECTED_LINE = "'grade qid:ID feature:value ...'"

DOCUMENT_ID = re.compile(rb"docid\s*=\s*(\S+)")
NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?|nan", re.IGNORECASE)
ONE_PAIR_A_ROW = bytes.maketrans(b" \t\r\v\f", b"\n\n\n\n\n")


class LetorError(ValueError):
    """A file that is not in LETOR format; says where, and what was expected."""


class BadLinesError(Exception):
    """One of these lines is wrong; which one is still to be found."""


@dataclass(frozen=True)
class Block:
    """Whole lines of a file."""

    file: Path
    first_line: int  # counted from 1
    lines: list[bytes]

    def error(self, line: int, message: str) -> LetorError:
        """An error about the line of this index in the block."""
        return LetorError(f"{self.file}, line {self.first_line + line}: {message}")

    def line_of_document(self, row: int) -> int:
        """The index of the line with this document of the block."""
        return [i for i, line in enumerate(self.lines) if not is_skipped(line)][row]


@dataclass(frozen=True)
class Documents:
    """Some documents, with their features as rows, feature ids and values in three arrays of equal length."""

    grades: NDArray[np.float32]  # [documents]
    queries: list[tuple[bytes, int]]  # runs of lines of one query, with their lengths
    document_ids: NDArray[np.bytes_]  # [documents]; empty if a line has none
    rows: NDArray[np.int64]
    features: NDArray[np.int64]
    values: NDArray[np.float32]


def read_blocks(path: Path) -> Iterator[Block]:
    """The file in blocks of about four megabytes, split at line ends."""
    first_line, rest = 1, b""
    with open_plain_or_gzip(path) as file:
        while piece := file.read(BLOCK_BYTES):
            if first_line == 1 and not rest:
                piece = piece.removeprefix(BYTE_ORDER_MARK)
            whole, newline, tail = piece.rpartition(b"\n")
            if not newline:
                rest += piece
                if len(rest) > LONGEST_LINE:
                    raise LetorError(f"{path}, line {first_line}: more than {LONGEST_LINE:,} bytes: this is not LETOR")
                continue
            block = Block(path, first_line, (rest + whole).split(b"\n"))
            first_line, rest = first_line + len(block.lines), tail
            yield block
    if rest:
        yield Block(path, first_line, [rest])


def is_skipped(line: bytes) -> bool:
    """Whether a line is blank or only a comment."""
    return not line.partition(b"#")[0].strip()


def parse_lines(lines: Iterable[bytes]) -> Documents:
    """The documents on these lines."""
    grades, queries, comments, pairs = [], [], [], []
    for line in lines:
        content, _, comment = line.partition(b"#")
        fields = content.split(None, 2)
        if not fields:
            continue
        if len(fields) < 2 or not _is_query(fields[1]):
            raise BadLinesError
        grades.append(fields[0])
        queries.append(fields[1][4:])
        comments.append(comment)
        pairs.append(fields[2] if len(fields) == 3 else b"")
    counts = np.fromiter((text.count(b":") for text in pairs), dtype=np.int64, count=len(pairs))
    features, values = _parse_pairs(b"\n".join(pairs))
    document_ids = [match[1] if (match := DOCUMENT_ID.search(comment)) else b"" for comment in comments]
    return Documents(
        grades=_parse_grades(grades),
        queries=[(query, sum(1 for _ in run)) for query, run in groupby(queries)],
        document_ids=np.array(document_ids, dtype=np.bytes_),
        rows=np.repeat(np.arange(len(pairs)), counts),
        features=features,
        values=values,
    )


def complaint(line: bytes, first_feature: int, max_features: int) -> str:
    """The error of a line that could not be parsed."""
    fields = line.partition(b"#")[0].split()
    if len(fields) < 2 or not _is_query(fields[1]):
        return f"expected {EXPECTED_LINE}, found {_shown(line)}"
    if not NUMBER.fullmatch(fields[0]) or not 0 <= float(fields[0]) < np.inf:
        return f"the grade must be a number of 0 or more, found {_shown(fields[0])}; leave unjudged documents out"
    seen: set[int] = set()
    for field in fields[2:]:
        feature, colon, value = field.partition(b":")
        if not colon or not feature.isdigit():
            return f"expected 'feature:value' with a whole number before the colon, found {_shown(field)}"
        if value != b"NULL" and not NUMBER.fullmatch(value):
            return f"feature {int(feature)} must have a number or NULL for a value, found {_shown(value)}"
        if int(feature) in seen:
            return f"feature {int(feature)} is given twice"
        if not first_feature <= int(feature) < first_feature + max_features:
            return (
                f"feature {int(feature)} is outside {first_feature} to {first_feature + max_features - 1}: "
                "check the line, or pass first_feature and n_features as the file has them"
            )
        seen.add(int(feature))
    return f"cannot be read, expected {EXPECTED_LINE}, found {_shown(line)}"


@contextmanager
def open_plain_or_gzip(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked if its content is gzip, whatever its name."""
    with path.open("rb") as file:
        compressed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    try:
        with gzip.open(path, "rb") if compressed else path.open("rb") as content:
            yield content  # type: ignore[misc]
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise LetorError(f"{path}: the gzip file is damaged or truncated ({error}); download it again") from error


def _is_query(field: bytes) -> bool:
    return field.startswith(b"qid:") and len(field) > len(b"qid:")


def _parse_pairs(pairs: bytes) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Ids and values of whitespace-separated `id:value` pairs."""
    text = pairs.translate(ONE_PAIR_A_ROW)
    if not text.strip():
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(text),
            read_options=pa.csv.ReadOptions(column_names=["id", "value"]),
            parse_options=pa.csv.ParseOptions(delimiter=":", quote_char=False),
            convert_options=pa.csv.ConvertOptions(
                column_types={"id": pa.int32(), "value": pa.float32()}, null_values=["NULL"]
            ),
        )
    except pa.ArrowInvalid as error:
        raise BadLinesError from error
    if table["id"].null_count:
        raise BadLinesError
    return table["id"].to_numpy().astype(np.int64), table["value"].to_numpy()


def _parse_grades(texts: list[bytes]) -> NDArray[np.float32]:
    try:
        grades = pa.compute.cast(pa.array(texts, pa.string()), pa.float32()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise BadLinesError from error
    if not (np.isfinite(grades) & (grades >= 0)).all():
        raise BadLinesError
    return grades


def _shown(text: bytes, length: int = 60) -> str:
    """Text of a file, quoted for a message."""
    decoded = text.strip().decode("utf-8", errors="backslashreplace")
    return repr(decoded if len(decoded) <= length else decoded[:length] + "...")
