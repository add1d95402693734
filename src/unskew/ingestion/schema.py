"""Names of columns, checked before an engine is imported and a row is read: one error for all tables.

The names are those of a parquet file's footer or a CSV file's header. Whatever only an engine can tell (other sources,
nested JSON, a header that is not plain) is left to it: `complete` checks it then.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.ingestion.columns import Columns, complete, role_column, ubi_names, unmatched
from unskew.ingestion.settings import Tables
from unskew.ingestion.sources import Source, find_source

KEYS = ["query", "document"]
DELIMITERS = ",\t;|"
UNNAMED = re.compile(r"column\d+")  # what DuckDB calls the columns of a CSV file without a header


def check_schema(tables: Tables, columns: Columns) -> None:
    """Refuse tables without the columns that were named or are needed."""
    nameless = any(UNNAMED.fullmatch(name) for name in columns.named)
    if nameless or tables.queries is not None:  # a table of queries may have columns that the events lack
        return
    events, features = (_names(place, tables.encoding) for place in (tables.events, tables.features))
    problems: list[str] = []
    for check, table in ((_check_events, events), (_check_features, features)):
        try:
            if table is not None:
                check(tables, columns, *table)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("\n".join(problems))


def key_columns(names: Sequence[str], columns: Columns, name: str) -> dict[str, str]:
    """The document column, and the query column unless features are the same for all queries."""
    named = columns.roles | ({"document": columns.features_document} if columns.features_document else {})
    if columns.features_document and columns.features_document not in names:
        raise ValueError(f"{name}: no column '{columns.features_document}'. Found: {', '.join(names)}")
    matches = {role: role_column(role, named.get(role), names) for role in KEYS}
    found = {role: match for role, match in matches.items() if match is not None}
    if "document" not in found:
        raise ValueError(
            f"{name}: no column '{columns.document}': the feature table needs the document, and the query if features "
            f"depend on it. Pass --features-document COLUMN. Found: {', '.join(names)}"
        )
    return found


def _check_events(tables: Tables, columns: Columns, name: str, names: Sequence[str]) -> None:
    keys = [key for key in columns.named if key not in names and set(key.split(",")) <= {*names}]
    names = [*names, *keys]  # several columns together
    apart = {"clicks_apart": tables.clicks is not None, "features_apart": tables.features is not None}
    complete(columns, names, name, **apart)


def _check_features(_: Tables, columns: Columns, name: str, names: Sequence[str]) -> None:
    key_columns(names, columns, name)
    problems = unmatched(columns.features or (), names)
    if problems:
        raise ValueError(f"{name}: {'; '.join(problems)}. Found: {', '.join(names)}")


def _names(place: Any, encoding: str | None) -> tuple[str, list[str]] | None:
    """The table's name and its columns; None if only an engine can tell them."""
    if not isinstance(place, str | Path):
        return None
    source = find_source(place)
    reads = {"parquet": lambda: _parquet_names(source.files[0]), "csv": lambda: _header(source.files[0], encoding)}
    names = reads[source.kind]() if source.kind in reads else None
    if names is None or len({name.lower() for name in names}) < len(names):  # engines rename the second one
        return None
    return source.name, [*names, *(name for name in _folders(source) if name not in names)]


def _folders(source: Source) -> list[str]:
    """Columns that an engine finds in the names of folders."""
    return [part.partition("=")[0] for part in Path(source.files[0]).parts[:-1] if "=" in part]


def _parquet_names(file: str) -> list[str] | None:
    """Columns of a parquet file, nested ones with dots."""
    stored = pq.read_metadata(file).schema
    if any(stored.column(number).logical_type.type == "JSON" for number in range(len(stored))):
        return None
    return [name for field in pq.read_schema(file) for name in _paths(field.name, field.type)]


def _paths(name: str, kind: pa.DataType) -> list[str]:
    inner = ubi_names(name) if pa.types.is_map(kind) else []
    objects = kind.value_type if pa.types.is_list(kind) else kind
    fields = list(objects) if pa.types.is_struct(objects) else []
    return [name, *inner, *(path for field in fields for path in _paths(f"{name}.{field.name}", field.type))]


def _header(file: str, encoding: str | None) -> list[str] | None:
    """The header of a CSV file, if it is plain: words, one per value of the next line."""
    opened = gzip.open if file.endswith(".gz") else open
    try:
        with opened(file, "rt", encoding=encoding or "utf-8-sig", newline="") as text:
            first = text.readline()
            delimiter = max(DELIMITERS, key=first.count)
            text.seek(0)
            rows = list(islice(csv.reader(text, delimiter=delimiter, strict=True), 2))
    except (OSError, EOFError, ValueError, LookupError, csv.Error):
        return None
    names = rows[0] if len(rows) == 2 and len(rows[0]) == len(rows[1]) > 1 else []
    plain = all(name[:1].isalpha() and name == name.strip() and not set(DELIMITERS) & set(name) for name in names)
    return names if names and plain else None
