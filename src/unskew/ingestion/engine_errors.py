"""Engine errors as one line: the file or table, what is wrong, and what to do."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb
import ibis
from ibis.common.exceptions import TableNotFound

from unskew.ingestion.sources import Source, unreadable_json
from unskew.texts import redacted

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
