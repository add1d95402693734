"""Rows of an event table in a common form, with fixed column names for ids, position, click, time and the rest.

    session query document position click|kind time score display intervention bias_0 … feature_0 …

A value that cannot be used is null; `reasons` says which rows are left out because of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir
import numpy as np

from unskew.data.checks import LAST_POSITION, ROUNDING
from unskew.data.clicks.shuffles import parse_shuffled
from unskew.ingestion.columns import Columns, is_date, value_at
from unskew.ingestion.engines import Engine, one_row
from unskew.ingestion.report import Dropped
from unskew.ingestion.settings import page_sizes
from unskew.ingestion.where import rows_where

IMPRESSION, CLICK, OTHER = 1, 2, 0  # event types
SEEN = -1  # recorded examination of the document
FIRST_GRADED = 3  # the first of the event types with grades, in the order of `Columns.kinds`
CLICKED = ("1", "1.0", "true", "t", "yes", "y")
NOT_CLICKED = ("0", "0.0", "false", "f", "no", "n")
MISSING = "missing"  # the level of a bias column where there is no value
NO_INTERVENTION = "none"
UTC = dt.Timestamp(timezone="UTC")
SHORTEST_EPOCH = 10**8  # smaller numbers in text, such as years, are not seconds since 1970
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
LARGEST_EXACT = 2.0**53  # up to here a float64 represents every whole number exactly


Vocabularies = Mapping[str, tuple[str, ...]]  # names of categories by column, in the order of their numbers


@dataclass(frozen=True)
class Shape:
    """The optional columns of rows."""

    features: tuple[str, ...] = ()
    categories: Vocabularies = field(default_factory=dict)  # of text features
    bias: tuple[tuple[str, bool], ...] = ()  # name, and whether its values are levels rather than numbers
    time: bool = False
    user: bool = False  # whether each session has the opaque number of its user, as text
    score: bool = False
    display: bool = False  # whether `display` is the probability of being shown there; null: not recorded
    intervention: bool = False
    shuffled: Mapping[str, int] = field(default_factory=dict)  # number of positions that each intervention shuffles
    context: tuple[tuple[str, bool], ...] = ()  # name, and whether its values are categories rather than numbers
    kinds: tuple[str, ...] = ()  # feedback other than clicks; `event_0`, `event_1`, … count it
    grades: Mapping[str, float] = field(default_factory=dict)  # weight of each kind of feedback, including clicks
    seen: bool = False  # whether `seen` says that a document was examined; null: not recorded
    period: str | None = None  # lists are counted per hour, day, week or month

    @property
    def feature_names(self) -> list[str]:
        """Names of feature columns in the common form."""
        return [f"feature_{number}" for number in range(len(self.features))]

    @property
    def event_names(self) -> list[str]:
        """Names of feedback columns in the common form."""
        return [f"event_{number}" for number in range(len(self.kinds))]

    @property
    def extras(self) -> list[str]:
        """Further columns of each shown document: bias columns, context, events, intervention, score and so on."""
        numbered = {"bias": self.bias, "context": self.context, "event": self.kinds}
        names = [f"{name}_{number}" for name, several in numbered.items() for number in range(len(several))]
        single = {"intervention": self.intervention, "score": self.score, "display": self.display, "seen": self.seen}
        return names + [name for name, there in single.items() if there]

    @property
    def levels(self) -> dict[str, str]:
        """Extras that hold names of levels, and the user's names of their columns."""
        names = {f"bias_{number}": name for number, (name, is_level) in enumerate(self.bias) if is_level}
        names |= {f"context_{number}": name for number, (name, is_level) in enumerate(self.context) if is_level}
        return names | ({"intervention": "intervention"} if self.intervention else {})


Reader = Callable[[Any, str], Any]  # from the values of a column, and its name in messages


def read(table: ir.Table, column: str, name: str, how: Reader) -> Any:
    """A column in the common form."""
    return how(_known(value_at(table, column)), f"{name}: column '{column}'")


def common_rows(table: ir.Table, columns: Columns, features: Sequence[str], name: str) -> tuple[ir.Table, Shape]:
    """A table in the common form, and which optional columns it has."""
    taken = {role: read(table, columns.roles[role], name, how) for role, how in IDS.items()}
    if isinstance(columns.page_size, str):
        taken["page_level"] = value_at(table, page_sizes(columns.page_size)[0]).cast("string")
    if columns.where is not None:
        taken["wanted"] = rows_where(table, columns.where, name).fill_null(False)
    if columns.form == "separate":
        taken |= {"kind": ibis.literal(IMPRESSION, type="int8"), "word": ibis.null("string")}
    elif columns.form != "impressions":
        taken |= _event_types(table, columns.roles["event"], columns)
    for role, (common, how) in READERS.items():
        if role in columns.roles and (role != "click" or columns.form == "impressions"):
            taken[common] = read(table, columns.roles[role], name, how)
    bias, context = [], []
    for number, column in enumerate(columns.bias):
        value = _known(value_at(table, column))
        is_level = not (value.type().is_floating() or value.type().is_decimal())
        taken[f"bias_{number}"] = value.cast("string").fill_null(MISSING) if is_level else _finite(value)
        bias.append((column, is_level))
    for number, column in enumerate(columns.context):
        value = _known(value_at(table, column))
        is_level = not (value.type().is_numeric() or value.type().is_boolean())
        missing = ibis.literal(float("nan"), type="float32")
        taken[f"context_{number}"] = value.cast("string") if is_level else feature_values(value).fill_null(missing)
        context.append((column, is_level))
    taken |= {f"feature_{number}": feature_values(table[feature]) for number, feature in enumerate(features)}
    for number, column in enumerate(columns.feedback):
        taken[f"event_{number}"] = read(table, column, name, _clicks).fill_null(0)
    shape = Shape(
        features=tuple(features),
        bias=tuple(bias),
        time=columns.time is not None,
        score=columns.policy_score is not None,
        display=columns.display_probability is not None,
        intervention=columns.intervention is not None,
        shuffled=parse_shuffled(columns.shuffled),
        context=tuple(context),
        kinds=tuple(columns.kinds),
        grades=dict(columns.grades),
        seen=columns.seen is not None or bool(columns.seen_events),
    )
    return table.select(**taken), shape


def common_clicks(table: ir.Table, columns: Columns, names: Mapping[str, str], name: str) -> ir.Table:
    """A table of clicks in the common form; without an event type, all rows are clicks."""
    taken = {role: read(table, names[role], name, how) for role, how in IDS.items() if role in names}
    taken["kind"] = ibis.literal(CLICK, type="int8")
    if columns.time is not None and "time" in names:
        taken["time"] = read(table, names["time"], name, time_values)
    return table.select(**taken | (_event_types(table, names["event"], columns) if "event" in names else {}))


def find_first_position(engine: Engine, rows: ir.Table, columns: Columns, name: str) -> Columns:
    """The columns with the index of the first position, 0 or 1; a stray 0 in a log that counts from 1 is ignored."""
    if columns.first_position is not None:
        return columns
    places = rows.position
    counts = {"zeros": (places == 0).sum(), "ones": (places == 1).sum(), "least": places.min()}
    zeros, ones, least = one_row(engine, rows, **counts).values()
    if least is not None and least > 1:
        raise ValueError(
            f"{name}: column '{columns.position}': no position is 0 or 1, the lowest is {least}: subtract an offset; "
            "if positions above it were shown and not logged, pass --first-position 1"
        )
    first = 0 if (zeros or 0) * 100 >= (ones or 0) else 1
    return replace(columns, first_position=first, guessed=columns.guessed | {"first_position"})


def reasons(rows: ir.Table, shape: Shape, first_position: int, n_positions: int | None) -> dict[str, Any]:
    """For each reason, the rows that it leaves out; a row counts for the first reason that applies."""
    shown = rows.kind == IMPRESSION if "kind" in rows.columns else ibis.literal(True)
    last = first_position + (LAST_POSITION + 1 if n_positions is None else n_positions) - 1
    conditions = {"where": ~rows.wanted} if "wanted" in rows.columns else {}
    conditions |= {name: rows[column].isnull() for name, column in ID_REASONS.items()}
    conditions["bad_position"] = shown & (rows.position.isnull() | (rows.position < first_position).fill_null(False))
    conditions["beyond"] = shown & (rows.position > last).fill_null(False)
    if "click" in rows.columns:
        conditions["bad_click"] = rows.click.isnull()
    if "seen" in rows.columns:
        conditions["bad_look"] = (rows.seen < 0).fill_null(False)
    if shape.display:
        conditions["bad_probability"] = shown & (rows.display < 0).fill_null(False)
    if shape.time:
        conditions["bad_time"] = rows.time.isnull()
    numbers = ["score"] * shape.score + [f"bias_{i}" for i, (_, is_level) in enumerate(shape.bias) if not is_level]
    if numbers:
        conditions["bad_number"] = shown & ibis.or_(*(rows[name].isnull() for name in numbers))
    return conditions


ID_REASONS = {"no_session": "session", "no_query": "query", "no_document": "document"}


def usable_rows(
    engine: Engine, rows: ir.Table, conditions: dict[str, Any], dropped: Dropped, name: str
) -> tuple[ir.Table, int]:
    """Rows that no reason leaves out, with positions from 0, and the number of rows before."""
    names = list(conditions)
    reason = ibis.cases(
        *((condition, number) for number, (condition) in enumerate(conditions.values())), else_=len(names)
    )
    each, total = _count_each(engine, rows.select(reason=reason), len(names))
    lines = total + dropped.counts.get("unreadable", 0)
    if not lines:
        raise ValueError(f"{name} has no rows: pass a table with impressions")
    for number, (key, count) in enumerate(zip(names, each, strict=True)):
        if count:
            row = engine.row_of_first(rows, reason == number)
            dropped.add(key, count, name if row is None else f"{name}: the first is row {row}, from 0")
    dropped.refuse_if_most([*names, "unreadable"], lines, "rows")
    if "kind" in rows.columns and any(each):  # clicks are rare: all of them may be lost although most rows are good
        clicks, n_clicks = _count_each(engine, rows.filter(rows.kind == CLICK).select(reason=reason), len(names))
        dropped.refuse_if_most(names, n_clicks, "clicks", dict(zip(names, clicks, strict=True)))
    bad = [conditions[key] for key, count in zip(names, each, strict=True) if count]
    return (rows.filter(~ibis.or_(*bad)) if bad else rows), total


def _count_each(engine: Engine, rows: ir.Table, n_reasons: int) -> tuple[list[int], int]:
    """The number of rows per reason, and of all rows."""
    each = {f"count_{number}": (rows.reason == number).sum() for number in range(n_reasons)}
    *counts, total = one_row(engine, rows, **each, total=rows.count()).values()
    return [count or 0 for count in counts], total


def id_values(value: Any, where: str, *, empty_is_missing: bool = True) -> Any:
    """Ids as whole numbers if they are numbers, otherwise as text.

    A column of whole numbers with missing values is often stored as decimals: 7.0 is the id 7.
    """
    kind = value.type()
    if kind.is_nested():
        raise ValueError(f"{where} holds {kind}: ids must be text or numbers")
    if kind.is_integer():
        return value
    text = value.cast("string")
    if kind.is_floating():
        is_whole = (value == value.floor()) & (value.abs() < LARGEST_EXACT)
        whole = is_whole.ifelse(value, ibis.null(kind)).cast("int64").cast("string")
        return value.isnan().ifelse(ibis.null("string"), ibis.coalesce(whole, text))
    return text.nullif("") if empty_is_missing else text


def feature_values(value: Any) -> Any:
    """Numbers as float32, infinite if they are too large for it; dates as seconds since 1970."""
    kind = value.type()
    if is_date(kind):
        return value.cast(UTC).epoch_seconds().cast("float32")
    if not (kind.is_floating() or kind.is_decimal()):
        return value.cast("float32")
    number = value.cast("float64")
    too_large = ~number.isnan() & (number.abs() > LARGEST_FLOAT32)
    return too_large.ifelse(ibis.literal(float("inf"), type="float32"), value.try_cast("float32"))


def _known(value: Any) -> Any:
    """As text, a value whose type an engine does not know because it is always null or varies."""
    kind = value.type()
    if kind.is_json():
        return ibis.coalesce(value.str, value.cast("string").nullif("null"))  # text without its quotes, or a number
    return value.cast("string") if kind.is_null() or kind.is_unknown() else value


def _whole_numbers(value: Any, where: str) -> Any:
    kind = value.type()
    if kind.is_integer():
        return value.cast("int64")
    if not (kind.is_floating() or kind.is_decimal() or kind.is_string()):
        raise ValueError(f"{where} holds {kind}: write whole numbers")
    number = value.try_cast("float64") if kind.is_string() else value.cast("float64")
    is_whole = ~number.isnan() & (number.abs() < 1e9) & (number == number.floor())
    return is_whole.ifelse(number, ibis.null("float64")).cast("int64")


def _clicks(value: Any, where: str) -> Any:
    """0 or 1; several clicks on the same impression count as one."""
    kind = value.type()
    if kind.is_boolean():
        return value.cast("int8")
    if kind.is_string():
        word = value.strip().lower()
        return ibis.cases((word.isin(CLICKED), 1), (word.isin(NOT_CLICKED), 0), else_=ibis.null("int8")).cast("int8")
    if not kind.is_numeric():
        raise ValueError(f"{where} holds {kind}: write 0 and 1, true and false, or yes and no")
    number = _whole_numbers(value, where)
    return ibis.cases((number == 0, 0), (number >= 1, 1), else_=ibis.null("int8")).cast("int8")


def _probabilities(value: Any, _: str) -> Any:
    """Above 0 and at most 1; null if not recorded, and -1 if impossible."""
    number = _finite(value)
    possible = (number > 0) & (number <= 1 + ROUNDING)
    missing = value.isnull() | (value.isnan() if value.type().is_floating() else ibis.literal(False))
    missing = missing | ((value.strip() == "") if value.type().is_string() else ibis.literal(False))
    chance = ibis.least(number, 1.0)
    cases = ((missing, ibis.null("float64")), (possible.fill_null(False), chance))
    return ibis.cases(*cases, else_=-1.0).cast("float32")


def _looks(value: Any, _: str) -> Any:
    """1 if examined, 0 if not, null if not recorded, and -1 for anything but a number of 0 or more."""
    if value.type().is_boolean():
        return value.cast("float32")
    number = _finite(value)
    bad = (number < 0).fill_null(False)
    if value.type().is_string():
        bad = bad | (number.isnull() & (value.strip() != "").fill_null(False))
    return ibis.cases((bad, -1.0), (number > 0, 1.0), (number == 0, 0.0), else_=ibis.null("float64")).cast("float32")


def _event_types(table: ir.Table, column: str, columns: Columns) -> dict[str, Any]:
    """The kind of each event, and its type as it was written."""
    text = _known(value_at(table, column)).cast("string")
    word = text.strip().lower()
    shown, clicked = ([name.lower() for name in names] for names in (columns.impression_events, columns.click_events))
    graded = [(word == kind.lower(), FIRST_GRADED + number) for number, kind in enumerate(columns.kinds)]
    known = [(word.isin(shown), IMPRESSION), (word.isin(clicked), CLICK), *graded]
    if columns.seen_events:
        known.append((word.isin([name.lower() for name in columns.seen_events]), SEEN))
    return {"kind": ibis.cases(*known, else_=OTHER).cast("int8"), "word": text}


def time_values(value: Any, where: str) -> Any:
    """Timestamps in UTC, or microseconds since 1970; the size of a number tells its unit."""
    kind = value.type()
    if kind.is_timestamp() or kind.is_date():
        return value.cast(UTC)
    if kind.is_string():
        number = value.try_cast("float64")
        number = (number.abs() >= SHORTEST_EPOCH).ifelse(number, ibis.null("float64"))  # 2024 is a year
        return ibis.coalesce(value.try_cast(UTC), (_since_1970(number) // 10**6).as_timestamp("s").cast(UTC))
    if not kind.is_numeric():
        raise ValueError(f"{where} holds {kind}: write timestamps, ISO 8601 text or numbers since 1970")
    return _since_1970(value.cast("float64") if not kind.is_integer() else value.cast("int64"))


def _since_1970(number: Any) -> Any:
    """Convert a number of seconds, milliseconds, microseconds or nanoseconds to microseconds."""
    scaled = ibis.cases(
        (number.abs() < 10**11, number * 10**6),  # seconds
        (number.abs() < 10**14, number * 10**3),  # milliseconds
        (number.abs() < 10**17, number),
        else_=number / 1000,  # nanoseconds
    )
    floating = number.type().is_floating()
    return (scaled.isnan().ifelse(ibis.null("float64"), scaled) if floating else scaled).cast("int64")


def _finite(value: Any, _: str = "") -> Any:
    """Numbers as float32, null if they are not finite."""
    number = value.try_cast("float64") if value.type().is_string() else value.cast("float64")
    in_range = ~number.isnan() & (number.abs() <= LARGEST_FLOAT32)
    return in_range.ifelse(number, ibis.null("float64")).cast("float32")


def _query_ids(value: Any, where: str) -> Any:
    """Ids of queries: an empty text is a query too."""
    return id_values(value, where, empty_is_missing=False)


def _interventions(value: Any, _: str) -> Any:
    return value.cast("string").fill_null(NO_INTERVENTION)


IDS: dict[str, Reader] = {"session": id_values, "query": _query_ids, "document": id_values}
READERS: dict[str, tuple[str, Reader]] = {  # of the other roles with a single column, and its name in the common form
    "position": ("position", _whole_numbers),
    "row": ("row", _whole_numbers),
    "page": ("page", _whole_numbers),
    "click": ("click", _clicks),
    "time": ("time", time_values),
    "intervention": ("intervention", _interventions),
    "policy_score": ("score", _finite),
    "display_probability": ("display", _probabilities),
    "user": ("user", id_values),
    "seen": ("seen", _looks),
}
