"""Events of Metarank: JSON lines, one event each, in the order in which they happened.

    item          `item`, `fields`: a list of {"name": …, "value": …}; a later event changes only the fields it names
    ranking       `id`, `items` in shown order, each an `id` and optional `fields`; optional `user`, `session`, `fields`
    interaction   `item`, `type` (such as click), `ranking` or, without it, `session` or `user`
    user          `user`, `fields`

Every event has a `timestamp`. A field holds a number, a truth value, a text, a date (ISO 8601) or a list of texts.
RankLens (https://github.com/metarank/ranklens) is published in this form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from unskew.data.public_logs.result_pages import LogTables, numbered_lines
from unskew.data.untrusted import parse_json

Event = tuple[str, dict[str, Any]]  # its place for messages, and its content
Fields = dict[str, Any]
COLUMNS = ("ranking", "user", "session", "item", "position", "event", "time")  # of the table of events
IMPRESSION = "impression"
VALID_FROM = "valid_from"
QUERY = "query"  # the field of a ranking with the query


def read_metarank(place: Path) -> LogTables:
    """Events in the order of the file, and the fields of items.

    The query is the field `query` of rankings. Without it, all rankings of a user answer one query, as in
    recommendations; without users, each ranking is a query.
    """
    events = list(_events(place))
    rows = _event_rows(events)
    if not rows:
        raise ValueError(f"{place} has no event 'ranking': nothing was shown")
    table = _table({name: [row.get(name) for row in rows] for name in _names(rows, COLUMNS)}, place)
    complete = [name for name in (QUERY, "user") if name in table.column_names and not table[name].null_count]
    roles = {
        "form": "events",
        "session": "ranking",
        "query": (*complete, "ranking")[0],
        "document": "item",
        "first_position": 0,
    }
    items = _item_rows(events)
    described = _table({name: [row.get(name) for row in items] for name in _names(items, ("item",))}, place)
    return LogTables(table, described if items else None, roles)


def _events(place: Path) -> Iterator[Event]:
    files = sorted(path for path in place.rglob("*.json*") if path.is_file()) if place.is_dir() else [place]
    if not files:
        raise FileNotFoundError(f"{place} has no JSON lines: pass a file or folder of events")
    for file in files:
        for where, line in numbered_lines(file):
            try:
                event = parse_json(line)
                kind = event["event"]
            except (ValueError, TypeError, KeyError) as error:
                needed = "write one JSON object with 'event' per line"
                raise ValueError(f"{where}: not an event ({error}): {needed}") from None
            if kind not in NEEDED:
                raise ValueError(f"{where}: unknown event '{kind}': choose from {', '.join(NEEDED)}")
            missing = [key for key in (*NEEDED[kind], "timestamp") if event.get(key) is None]
            if missing:
                raise ValueError(f"{where}: the event '{kind}' has no '{missing[0]}': add it, or remove the line")
            items = event["items"] if kind == "ranking" else []
            if not isinstance(items, list) or not all(isinstance(item, dict) and "id" in item for item in items):
                raise ValueError(f"{where}: 'items' must be a list of objects, each with an 'id': correct it")
            if isinstance(time := _moment(event["timestamp"]), int) and time > LAST:
                raise ValueError(f"{where}: {time:.3g} is not a number of milliseconds since 1970: correct it")
            yield where, event


LAST = 10**15  # milliseconds since 1970; what is larger is no time
NEEDED: Mapping[str, Sequence[str]] = {
    "item": ("item",),
    "ranking": ("id", "items"),
    "interaction": ("item", "type"),
    "user": ("user",),
}


def _event_rows(events: Sequence[Event]) -> list[Fields]:
    """One row per shown item and per interaction; an interaction has the query of its ranking."""
    rows: list[Fields] = []
    users: dict[str, Fields] = {}  # their fields so far
    shown: dict[tuple[str, str], Fields] = {}  # the row of an item in a ranking, or in the last of a session or user
    for where, event in events:
        if event["event"] == "user":
            users.setdefault(str(event["user"]), {}).update(_fields(where, event, "user_"))
        elif event["event"] == "ranking":
            about = _about(event) | users.get(str(event.get("user")), {}) | _fields(where, event)
            for position, entry in enumerate(event["items"]):
                own = {key: value for key, value in entry.items() if key not in ("id", "fields")}
                row = about | own | _fields(where, entry)
                row |= {"item": str(entry["id"]), "position": position, "event": IMPRESSION}
                rows.append(row)
                shown |= {(owner, row["item"]): row for owner in _owners(row)}
        elif event["event"] == "interaction":
            row = _about(event) | {"item": str(event["item"]), "event": str(event["type"])}
            row["ranking"] = event.get("ranking")
            of = next((shown[owner, row["item"]] for owner in _owners(row) if (owner, row["item"]) in shown), {})
            rows.append(row | {name: of[name] for name in ("ranking", "user", QUERY) if name in of})
    return rows


def _about(event: Fields) -> Fields:
    return {
        "ranking": event.get("id"),
        "user": event.get("user"),
        "session": event.get("session"),
        "time": _moment(event["timestamp"]),
    }


def _owners(row: Fields) -> list[str]:
    """What an interaction may name to say to which ranking it belongs: only the ranking, if it names one."""
    names = [f"{kind} {row[kind]}" for kind in ("ranking", "session", "user") if row.get(kind) is not None]
    return names if row["event"] == IMPRESSION else names[:1] if row.get("ranking") is not None else names


def _item_rows(events: Sequence[Event]) -> list[Fields]:
    """All fields of an item after each of its events, with the time if some item has several events."""
    items: dict[str, Fields] = {}
    rows = []
    for where, event in events:
        if event["event"] == "item":
            name = str(event["item"])
            items[name] = items.get(name, {"item": name}) | _fields(where, event)
            rows.append(items[name] | {VALID_FROM: _moment(event["timestamp"])})
    if len(rows) == len(items):
        return list(items.values())
    return list({(row["item"], row[VALID_FROM]): row for row in rows}.values())


def _fields(where: str, event: Fields, prefix: str = "") -> Fields:
    try:
        found = {f"{prefix}{field['name']}": field.get("value") for field in event.get("fields") or ()}
    except (TypeError, KeyError, AttributeError):
        raise ValueError(f"{where}: 'fields' must be a list of objects with 'name' and 'value'") from None
    return {f"{name}_field" if name in COLUMNS else name: value for name, value in found.items()}


def _names(rows: Sequence[Fields], first: Sequence[str]) -> list[str]:
    found = dict.fromkeys(name for row in rows for name in row)
    return [*(name for name in first if name in found), *(name for name in found if name not in first)]


def _table(columns: Mapping[str, list[Any]], place: Path) -> pa.Table:
    arrays = {}
    for name, values in columns.items():
        known = [value for value in values if value is not None]
        if any(isinstance(value, list) for value in known):
            values = [value if isinstance(value, list) or value is None else [value] for value in values]
        try:
            array = pa.array(_dates(values, known) or values)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ValueError(f"{place}: field '{name}' holds values of several types ({error}): use one") from error
        arrays[name] = array.cast(pa.string()) if pa.types.is_null(array.type) else array
    return pa.table(arrays)


def _dates(values: Sequence[Any], known: Sequence[Any]) -> list[datetime | None] | None:
    """Texts that are all dates, as times; None if they are not."""
    if not known or not all(isinstance(value, str) and value[:4].isdigit() for value in known):
        return None
    try:
        return [None if value is None else datetime.fromisoformat(value) for value in values]
    except ValueError:
        return None


def _moment(value: Any) -> int | str:
    """Milliseconds since 1970 as a number, other times as they are."""
    return int(value) if str(value).isdecimal() else str(value)
