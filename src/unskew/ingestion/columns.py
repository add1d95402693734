"""Names of columns: given by hand, read from a TOML file, or guessed from common names.

A name with dots reaches into nested columns: `event_attributes.object.object_id`.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar

import ibis.expr.datatypes as dt
import ibis.expr.types as ir

from unskew.data.clicks.column_names import ImpressionColumns
from unskew.options import NOT_IN_FILES, build

FORMS = {
    "impressions": "one row per impression, with a column that says whether it was clicked",
    "events": "one row per event: impressions and clicks are rows of their own",
    "ubi": "OpenSearch User Behavior Insights: events, with or without a table of queries",
    "separate": "one row per impression, and clicks in a table of their own (--clicks)",
}

# Names that stand for a role when none is given, the most telling first; case, `_`, `-` and spaces do not matter.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "session": ("session", "session_id", "search_id", "showing_id", "impression_id", "request_id", "page_view_id"),
    "query": ("query", "query_id", "qid", "query_text", "user_query", "search_term", "search_query", "keywords"),
    "document": (
        *("document", "document_id", "doc", "doc_id", "item", "item_id", "product", "product_id"),
        *("object_id", "listing_id", "result_id", "url"),
    ),
    "position": ("position", "pos", "rank", "ordinal", "place", "slot"),
    "click": ("click", "clicked", "is_click", "is_clicked", "clicks", "was_clicked"),
    "time": ("time", "timestamp", "ts", "event_time", "datetime", "created_at"),
    "event": ("event", "event_type", "event_name", "action", "action_name"),
    "policy_score": ("policy_score", "logging_score", "production_score"),
    "display_probability": ("display_probability", "display_prob", "logging_probability"),
    "intervention": ("intervention",),
}
PAGES = ("page", "page_number", "page_no", "page_index", "page_num", "result_page")  # never a feature
UBI_NAMES: dict[str, tuple[str, ...]] = {
    "session": ("query_id",),
    "query": ("user_query", "query_id"),
    "document": ("event_attributes.object.object_id", "event_attributes.object.internal_id"),
    "position": ("event_attributes.position.ordinal.index", "event_attributes.position.ordinal"),
    "time": ("timestamp",),
    "event": ("action_name",),
}
NEEDED: dict[str, tuple[str, ...]] = {
    "impressions": ("session", "query", "document", "position", "click"),
    "events": ("session", "query", "document", "position", "event"),
    "separate": ("session", "query", "document", "position"),
    "ubi": ("session", "query", "document", "position", "event"),
}
OPTIONAL: dict[str, tuple[str, ...]] = {
    "impressions": ("time", "policy_score", "display_probability", "intervention"),
    "events": ("time", "policy_score", "display_probability", "intervention"),
    "separate": ("time", "policy_score", "display_probability", "intervention"),
    "ubi": ("time",),
}
CLICK_KIND = "click"  # what a grade calls clicks, whatever their column is
NOTHING = "none"  # instead of a name: the column is not there, do not guess


@dataclass(frozen=True)
class Columns(ImpressionColumns):
    """What each column of an event table holds; None: to be guessed, or not there.

    `user` and `seen` are never guessed; features may be patterns such as `f_*`, by default numbers and categories left.
    """

    single: ClassVar[tuple[str, ...]] = (
        *("session", "query", "document", "position", "row", "page", "click", "event", "time"),
        *("policy_score", "display_probability", "intervention", "user", "seen"),
    )
    form: str | None = None
    row: str | None = None  # of a grid; the position counts within it
    page: str | None = None  # the position, or row, counts within it
    row_size: int | None = None  # places in a row; None: the most that occur
    page_size: int | None = None
    where: str | None = None  # a condition on rows
    shuffled: Sequence[str] = ()  # interventions that shuffle: NAME, or NAME=TOP
    user: str | None = None  # it serves to cap heavy users
    grades: dict[str, float] = field(default_factory=dict)  # weight by kind of feedback: column or kind of event
    event: str | None = None
    impression_events: Sequence[str] = ("impression", "impressions", "shown", "show", "display")
    click_events: Sequence[str] = ("click", "clicks", "clicked", "click_through")
    seen_events: Sequence[str] = ()  # never guessed: a view may be one of the product's own page
    features_document: str | None = None  # the document in the table of features; None: called as in the events
    first_position: int | None = None  # what the log calls the top: 0 or 1; None: the lowest that occurs
    guessed: frozenset[str] = field(default=frozenset(), metadata=NOT_IN_FILES)  # roles nobody named

    @property
    def roles_by_column(self) -> dict[str, str]:
        """The role of each column by name; a nested column gives its role to the outer one."""
        found = {column: role for role, column in self.roles.items()} | dict.fromkeys(self.bias, "bias")
        found |= dict.fromkeys(self.context, "context") | dict.fromkeys(self.feedback, "feedback")
        return {column.split(".")[0]: role for column, role in found.items()} | found

    @property
    def named(self) -> list[str]:
        """All columns but the features."""
        return [*super().named, *self.feedback]

    @property
    def feedback(self) -> list[str]:
        """Columns that tell of feedback besides clicks."""
        return list(self.kinds) if self.form == "impressions" else []

    @property
    def kinds(self) -> dict[str, float]:
        """Weights of the kinds of feedback besides clicks."""
        return {kind: weight for kind, weight in self.grades.items() if kind != CLICK_KIND}


def read_columns(path: str | Path) -> Columns:
    """Names from a TOML file; its keys are the fields of `Columns`."""
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f'{path} does not exist: name a TOML file with lines such as session = "sid"'
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from error
    return build(Columns, found, str(path))


def named_columns(base: Columns, names: Mapping[str, Any]) -> Columns:
    """The names of `base`, with those that are not None or empty put over them."""
    given = {key: value for key, value in names.items() if value is not None and value != [] and value != ()}
    columns = replace(base, **given)
    if columns.form is not None and columns.form not in FORMS:
        raise ValueError(f"form is '{columns.form}': choose from {', '.join(FORMS)}")
    for size in ("row_size", "page_size"):
        if getattr(columns, size) is not None and getattr(columns, size) < 1:
            raise ValueError(f"{size} is {getattr(columns, size)}: it holds at least one place")
    if columns.first_position not in (None, 0, 1):
        raise ValueError(f"first_position is {columns.first_position}: logs count from 0 or from 1")
    return columns


def complete(columns: Columns, table: ir.Table, name: str, *, clicks_apart: bool = False) -> Columns:
    """The columns with guesses for what was not named; what is needed and cannot be found is refused.

    `clicks_apart` says that clicks are in another table.
    """
    names = paths(table)
    left_out = {role for role, given in columns.roles.items() if given == NOTHING and NOTHING not in names}
    not_there: dict[str, Any] = dict.fromkeys(left_out)
    columns = replace(columns, **not_there)
    for given in columns.named:
        if given not in names:
            near = difflib.get_close_matches(given, names, n=1)
            hint = f" (did you mean '{near[0]}'?)" if near else ""
            raise ValueError(f"{name}: column '{given}' is missing{hint}; it has: {', '.join(names)}")
    form = "separate" if clicks_apart else columns.form or _guess_form(columns, names)
    lost = [kind for kind in columns.kinds if form == "impressions" and kind not in names]
    if lost:
        raise ValueError(f"{name}: --grade names a column '{lost[0]}' that is missing; it has: {', '.join(names)}")
    synonyms = UBI_NAMES if form == "ubi" else SYNONYMS
    found: dict[str, Any] = {}
    for role in (*NEEDED[form], *OPTIONAL[form]):
        taken = {*columns.named, *found.values()} if form != "ubi" else set()  # its query_id may be query and session
        if getattr(columns, role) is None and role not in left_out:
            guess = _guess(synonyms.get(role, ()), [entry for entry in names if entry not in taken])
            if guess is not None:
                found[role] = guess
            elif role in NEEDED[form]:
                raise ValueError(
                    f'{name}: no column looks like the {role}: name it with --{role} (or {role} = "…" in a TOML '
                    f"file); it has: {', '.join(names)}"
                )
    guessed = frozenset(found) | (frozenset() if columns.form else frozenset({"form"}))
    return replace(columns, form=form, guessed=guessed, **found)


def feature_columns(wanted: Sequence[str] | None, table: ir.Table, taken: Sequence[str], name: str) -> list[str]:
    """Names of the features: those that match what is wanted, or every numeric column that is not taken.

    Text that is named is a category.
    """
    schema = table.schema()
    numeric = [column for column, kind in schema.items() if kind.is_numeric() or kind.is_boolean()]
    if wanted is None:
        return [column for column in numeric if column not in taken]
    chosen: dict[str, None] = {}
    for pattern in wanted:
        matches = [column for column in schema if fnmatchcase(column, pattern)]
        if not matches:
            raise ValueError(f"{name}: no column is called '{pattern}'; it has: {', '.join(schema)}")
        for column in matches:
            if column not in numeric and not schema[column].is_string():
                raise ValueError(
                    f"{name}: column '{column}' holds {schema[column]}: features are numbers, truths or text"
                )
            chosen[column] = None
    return [column for column in chosen if column not in taken]


def unused_columns(table: ir.Table, used: Sequence[str]) -> list[str]:
    """Columns that nothing uses, with their types; a nested one is used if any part of it is."""
    parts = tuple(used)
    return [
        f"{name} ({kind})"
        for name, kind in table.schema().items()
        if name not in parts and not any(part.startswith(f"{name}.") for part in parts)
    ]


def page_column(table: ir.Table) -> str | None:
    """A column that is called as a page number."""
    return _guess(PAGES, table.columns)


def role_column(role: str, named: str | None, table: ir.Table) -> str | None:
    """The column of another table with this role: called as in the events, or by a common name."""
    return named if named in table.columns else _guess(SYNONYMS[role], table.columns)


def csv_types(columns: Columns, table: ir.Table) -> dict[str, str]:
    """How columns of a CSV file are read, apart from a guess: ids as they stand there, so that 007 stays 007.

    Whole numbers in the first lines may have decimals further down; only where they are names must they stay whole.
    """
    ids = _called(columns, table, ("session", "query", "document"))
    names = {*columns.bias, *_called(columns, table, ("user", "event", "intervention"))}
    whole = [name for name, kind in table.schema().items() if kind.is_integer() and name not in {*ids, *names}]
    return dict.fromkeys(ids, "string") | dict.fromkeys(whole, "float64")


def paths(table: ir.Table) -> list[str]:
    """Names of all columns, nested ones with dots."""
    found: list[str] = []

    def walk(prefix: str, kind: dt.DataType) -> None:
        found.append(prefix)
        if isinstance(kind, dt.Struct):
            for name, inner in kind.items():
                walk(f"{prefix}.{name}", inner)
        elif kind.is_json() or kind.is_map():  # of keys that vary: those of User Behavior Insights are known
            names = [name for synonyms in UBI_NAMES.values() for name in synonyms]
            found.extend(name for name in names if name.startswith(f"{prefix}."))

    for name, kind in table.schema().items():
        walk(name, kind)
    return found


def value_at(table: ir.Table, path: str) -> Any:
    """The column of this name, or the field that a dotted name leads to."""
    if path in table.columns:
        return table[path]
    for name in sorted(table.columns, key=len, reverse=True):  # a plain name may have dots of its own
        if path.startswith(f"{name}."):
            value: Any = table[name]
            for part in path[len(name) + 1 :].split("."):
                value = value[part]
            return value.str if value.type().is_json() else value
    raise KeyError(path)


def _called(columns: Columns, table: ir.Table, roles: Sequence[str]) -> list[str]:
    """Plain columns that may have one of these roles: those that are named so, and those whose name looks so."""
    names = [name for role in roles for name in (*SYNONYMS.get(role, ()), *UBI_NAMES.get(role, ()))]
    plain = {_plain(name) for name in (*names, *(columns.roles.get(role, "") for role in roles))}
    return [column for column in table.columns if _plain(column) in plain]


def _guess_form(columns: Columns, names: Sequence[str]) -> str:
    if columns.click is not None:
        return "impressions"
    nested = any(name.startswith("event_attributes.object") for name in names)
    if nested and "action_name" in names:
        return "ubi"
    if columns.event is not None:
        return "events"
    if _guess(SYNONYMS["click"], names) is None and _guess(SYNONYMS["event"], names) is not None:
        return "events"
    return "impressions"


def _guess(synonyms: Sequence[str], names: Sequence[str]) -> str | None:
    plain = {_plain(name): name for name in reversed(names)}
    return next((plain[_plain(synonym)] for synonym in synonyms if _plain(synonym) in plain), None)


def _plain(name: str) -> str:
    return re.sub(r"[_\-\s]", "", name).lower()
