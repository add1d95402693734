"""A raw table as a table of impressions: pages in one row, keys of several columns, values that mean nothing.

A result page in one row has a list of documents: an array, an array of objects, text with separators, or a JSON list as
text. Each becomes a row; lists of the same length (prices, scores, clicks) go with it, and its place is the position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ibis
import ibis.expr.types as ir

from unskew.ingestion.columns import Columns, paths, value_at
from unskew.ingestion.engines import Engine, count_rows, one_row
from unskew.ingestion.table_profile import PARALLEL, Values, delimiter_of

TEXTS_LOOKED_AT = 500
LeftOut = tuple[str, int, str]  # reason, count and example


def prepared(
    engine: Engine, table: ir.Table, columns: Columns, name: str
) -> tuple[ir.Table, Columns, ir.Table | None, list[LeftOut]]:
    """The table as impressions, its columns, its events other than impressions, and what was left out."""
    clicks: ir.Table | None = None
    left_out: list[LeftOut] = []
    if columns.form == "pages":
        pages, clicks = _pages_and_clicks(table, columns, name)
        table, columns, left_out = _impressions(engine, pages, columns, name)
        if clicks is not None:
            columns = replace(columns, form="separate")
    table = plain_values(engine, table, columns, name)
    keys = [value for value in columns.roles.values() if value not in table.columns and "," in value]
    joined = {key: _joined(table, key, name) for key in dict.fromkeys(keys)}
    return (table.mutate(**joined) if joined else table), columns, clicks, left_out


def plain_values(engine: Engine, table: ir.Table, columns: Columns, name: str) -> ir.Table:
    """The table without the values that mean a missing one, and with text in place of numbers that are categories."""
    for entry in columns.missing:
        column, _, text = entry.rpartition("=")
        if column not in table.columns:
            continue
        value: Any = table[column]
        kind = value.type()
        if kind.is_string():
            value = value.nullif(text)
            words = (value.notnull() & value.try_cast("float64").isnull()).sum()
            is_number = one_row(engine, table, words=words)["words"] == 0
            keys = (columns.session, columns.query, columns.document, columns.user)
            value = value.cast("float64") if is_number and column not in keys else value
        elif kind.is_numeric():
            value = value.cast("float64").nullif(float(text)) if kind.is_floating() else value.nullif(int(float(text)))
        else:
            raise ValueError(f"{name}: --missing {entry}: column '{column}' holds {kind}, not numbers or text")
        table = table.mutate(**{column: value})
    texts = {}
    for column in (entry for entry in columns.categories if entry in table.columns):
        numbers: Any = table[column]
        texts[column] = (numbers.cast("int64") if numbers.type().is_floating() else numbers).cast("string")
    return table.mutate(**texts) if texts else table


def _joined(table: ir.Table, key: str, name: str) -> Any:
    """Text of several columns together: `session_id,step`."""
    known = paths(table)
    lost = [part for part in key.split(",") if part not in known]
    if lost:
        raise ValueError(f"{name}: no column '{lost[0]}' of '{key}'. Found: {', '.join(known)}")
    parts = [value_at(table, part).cast("string").fill_null("") for part in key.split(",")]
    return ibis.literal(" | ").join(parts)


def _pages_and_clicks(table: ir.Table, columns: Columns, name: str) -> tuple[ir.Table, ir.Table | None]:
    """Rows that are result pages; the other rows as a table of events, if they name pages and documents."""
    if columns.session is None or columns.document is None:
        raise ValueError(f"{name}: result pages need --session and --document, the list of shown documents")
    if columns.event is None:
        return table, None
    event = value_at(table, columns.event).cast("string")
    is_page = event.isin(list(columns.impression_events)).fill_null(False)
    if columns.clicked_document is None:
        return table.filter(is_page), None
    given = {columns.session: columns.clicked_session or columns.session, columns.document: columns.clicked_document}
    others = table.filter(~is_page)
    named = {key: value_at(others, path) for key, path in given.items()}
    named |= {path: value_at(others, path) for path in (columns.event, columns.time) if path is not None}
    return table.filter(is_page), others.select(**named)


def _impressions(
    engine: Engine, table: ir.Table, columns: Columns, name: str
) -> tuple[ir.Table, Columns, list[LeftOut]]:
    """One row per shown document, and what was left out."""
    assert columns.document is not None
    document = _list_at(engine, table, columns.document)
    if document is None:
        raise ValueError(f"{name}: column '{columns.document}' holds no lists: leave out --form pages")
    asked = {*columns.named, *(columns.features or ())}
    lists = {path: each for path in _list_paths(table, asked) if (each := _list_at(engine, table, path)) is not None}
    size = document.length()
    there = table.filter((size > 0).fill_null(False))
    counts = {f"l{i}": (each.length() == size).fill_null(False).mean() for i, each in enumerate(lists.values())}
    shares = one_row(engine, there, **counts).values()
    parallel = [path for path, share in zip(lists, shares, strict=True) if (share or 0) >= PARALLEL]
    wrong = ibis.or_(*((lists[path].length() != size).fill_null(True) for path in parallel))
    left_out: list[LeftOut] = []
    n_wrong, n_pages = one_row(engine, there, wrong=wrong.sum(), pages=there.count()).values()
    if n_wrong:
        row = engine.row_of_first(table, wrong & (size > 0).fill_null(False))
        left_out.append(("uneven_page", n_wrong, name if row is None else f"{name}: the first is row {row}, from 0"))
    if n_wrong == n_pages:
        raise ValueError(f"{name}: no row has lists of one length: check --document")
    there = there.filter(~wrong)
    place = "position" if "position" not in paths(table) else "place_in_list"
    zipped = ibis.range(0, size).zip(*(lists[path] for path in parallel))
    scalars = {path: value_at(there, path) for path in _scalars(there) if path not in lists}
    rows = there.select(**scalars, entry=zipped.unnest())
    values = {path: rows.entry[f"f{number + 2}"] for number, path in enumerate(parallel)}
    rows = rows.select(*scalars, **{place: rows.entry["f1"]}, **values)
    rows = engine.keep("shown", rows)
    rows = _numbers(engine, rows, [path for path in parallel if path != columns.document])
    delimiter = (
        None if _array_at(table, columns.document) is not None else _delimiter_at(engine, table, columns.document)
    )
    rows, lost = _references(engine, rows, columns, name, parallel, delimiter)
    columns = replace(columns, form="impressions", position=place, first_position=0)
    return rows, columns, [*left_out, *lost]


def _scalars(table: ir.Table) -> list[str]:
    """Columns with one value per page, nested ones with dots, and lists of plain values."""

    def is_plain(path: str) -> bool:
        kind = value_at(table, path).type()
        return not (
            kind.is_struct() or kind.is_json() or kind.is_map() or (kind.is_array() and kind.value_type.is_nested())
        )

    return [path for path in paths(table, lists=False) if is_plain(path)]


def _list_paths(table: ir.Table, asked: set[str]) -> list[str]:
    """Columns that may be lists: arrays, fields of arrays of objects, and text with a role."""
    names = []
    for path in paths(table):
        value = _array_at(table, path)
        text = value is None and path in asked and value_at(table, path).type().is_string()
        if value is not None or text:
            names.append(path)
    return names


def _array_at(table: ir.Table, path: str) -> Any:
    """The array at a path, or of a field of its objects; None: there is no array of plain values."""
    if path in table.columns and not table[path].type().is_array():
        return None
    parts = [path] if path in table.columns else path.split(".")
    value: Any = table[parts[0]]
    for number, part in enumerate(parts[1:], 1):
        if value.type().is_array():
            inner = parts[number:]
            if not value.type().value_type.is_struct():
                return None
            kind = value.type().value_type
            for field in inner:
                kind = kind[field]
            return None if kind.is_nested() else value.map(lambda entry, inner=inner: _field(entry, inner))
        if not value.type().is_struct():
            return None
        value = value[part]
    kind = value.type()
    return value if kind.is_array() and not kind.value_type.is_nested() else None


def _field(entry: Any, inner: Sequence[str]) -> Any:
    for field in inner:
        entry = entry[field]
    return entry


def _list_at(engine: Engine, table: ir.Table, path: str) -> Any:
    """The list of a column: an array, or text that is split; None: it has one value per row."""
    array = _array_at(table, path)
    if array is not None:
        return array
    text: Any = value_at(table, path)
    delimiter = _delimiter_at(engine, table, path) if text.type().is_string() else None
    return None if delimiter is None else _split(text, delimiter)


def _delimiter_at(engine: Engine, table: ir.Table, path: str) -> str | None:
    """The character between the ids of a column of text."""
    text: Any = value_at(table, path)
    if not text.type().is_string():
        return None
    some = engine.arrow(table.select(text=text).filter(lambda rows: rows.text != "").limit(TEXTS_LOOKED_AT))
    return delimiter_of(Values(some["text"]))


def _split(text: Any, delimiter: str) -> Any:
    if delimiter == "[":
        text, delimiter = text.re_replace(r'[\[\]"\s]', ""), ","
    return text.nullif("").split(delimiter)


def _numbers(engine: Engine, rows: ir.Table, names: Sequence[str]) -> ir.Table:
    """Numbers in place of text that holds nothing else."""
    texts = [name for name in names if rows[name].type().is_string()]
    if not texts:
        return rows
    words = {
        f"w{i}": (rows[name].nullif("").notnull() & rows[name].try_cast("float64").isnull()).sum()
        for i, name in enumerate(texts)
    }
    plain = [name for name, count in zip(texts, one_row(engine, rows, **words).values(), strict=True) if not count]
    return rows.mutate(**{name: rows[name].try_cast("float64") for name in plain}) if plain else rows


def _references(
    engine: Engine, rows: ir.Table, columns: Columns, name: str, parallel: Sequence[str], delimiter: str | None
) -> tuple[ir.Table, list[LeftOut]]:
    """Flags in place of the ids of clicked documents, and the pages whose clicked document was not shown."""
    document: Any = rows[columns.document].cast("string")
    lost: list[LeftOut] = []
    flags = {}
    for path in (columns.click, *columns.kinds):
        if path is None or path in parallel or path not in rows.columns:
            continue
        value: Any = rows[path]
        ids = value.cast("array<string>") if value.type().is_array() else value.cast("string").nullif("")
        if not value.type().is_array():
            ids = ibis.array([ids]) if delimiter is None else _split(ids, delimiter)
        is_it = ids.contains(document).fill_null(False) & value.notnull()
        flags[path] = is_it.cast("int8")
        if path == columns.click and not value.type().is_array():
            place = "position" if "position" in rows.columns else "place_in_list"
            named = rows.filter(rows[place] == 0).mutate(
                n_ids=ids.length().fill_null(0) if delimiter else ids[0].notnull().cast("int64")
            )
            n_lone = (one_row(engine, named, n=named.n_ids.sum())["n"] or 0) - count_rows(engine, rows.filter(is_it))
            if n_lone > 0:
                lost.append(("lone_click", n_lone, f"{name}: '{path}' names a document that its page did not show"))
    return (rows.mutate(**flags) if flags else rows), lost
