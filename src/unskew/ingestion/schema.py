"""Names of columns, checked before an engine is imported and a row is read: one error for all tables.

The names are those that DuckDB reads from the first parquet or CSV file, without Ibis. Whatever only an engine can tell
(other sources, nested JSON) is left to it: `complete` checks it then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from unskew.ingestion.columns import Columns, complete, role_column, ubi_names, unmatched
from unskew.ingestion.settings import Tables
from unskew.ingestion.sources import find_source
from unskew.ingestion.table_profile import literal

KEYS = ["query", "document"]
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
    keys = {role: match for role, match in matches.items() if match is not None}
    if "document" not in keys:
        raise ValueError(
            f"{name}: no column '{columns.document}': the feature table needs the document, and the query if features "
            f"depend on it. Pass --features-document COLUMN. Found: {', '.join(names)}"
        )
    return keys


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
    if source.kind not in ("parquet", "csv"):
        return None
    with duckdb.connect() as connection:
        try:
            encoded = "" if encoding is None or source.kind == "parquet" else f", encoding = {literal(encoding)}"
            table = connection.sql(f"FROM read_{source.kind}({literal(source.files[0])}{encoded})")
            schema = table.limit(0).to_arrow_table().schema
        except duckdb.Error:
            return None
        names_are_found = not any(name.startswith('"') or UNNAMED.fullmatch(name) for name in table.columns)
        if not names_are_found or "JSON" in map(str, table.types):
            return None
    return source.name, [name for field in schema for name in _paths(field.name, field.type)]


def _paths(name: str, kind: pa.DataType) -> list[str]:
    inner = ubi_names(name) if pa.types.is_map(kind) else []
    objects = kind.value_type if pa.types.is_list(kind) else kind
    fields = list(objects) if pa.types.is_struct(objects) else []
    return [name, *inner, *(path for field in fields for path in _paths(f"{name}.{field.name}", field.type))]
