"""Column names: passed as options, read from a TOML file, or guessed from common names.

A name with dots reaches into nested columns: `event_attributes.object.object_id`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar

from unskew.data.clicks.tables import ImpressionColumns
from unskew.data.columns import column_called, plain_name
from unskew.options import NOT_IN_FILES, near

if TYPE_CHECKING:  # wrong names are refused before an engine is imported
    import ibis.expr.datatypes as dt
    import ibis.expr.types as ir

FORMS = {
    "impressions": "one row per impression, with a column that says whether it was clicked",
    "events": "one row per event: impressions and clicks are separate rows",
    "ubi": "OpenSearch User Behavior Insights: events, with or without a table of queries",
    "pages": "one row per result page, with a list of documents; other rows may be clicks on them",
    "separate": "one row per impression, and clicks in a separate table (--clicks)",
}

# Common names of each role, used if none is given, the most specific first; case, `_`, `-` and spaces do not matter.
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
_KEYS = ("session", "query", "document", "position")
_MORE = ("time", "policy_score", "display_probability", "intervention")
NEEDED: dict[str, tuple[str, ...]] = {
    "impressions": (*_KEYS, "click"),
    "events": (*_KEYS, "event"),
    "separate": _KEYS,
    "pages": ("session", "query", "document"),
    "ubi": (*_KEYS, "event"),
}
OPTIONAL = {"impressions": _MORE, "events": _MORE, "separate": _MORE, "ubi": ("time",), "pages": ("time", "click")}
CLICK_KIND = "click"  # the name of clicks in grades, whatever their column is called
NOTHING = "none"  # instead of a name: there is no such column, do not guess


@dataclass(frozen=True)
class Columns(ImpressionColumns):
    """The column of an event table for each role; None: guess it, or do without.

    `user` and `seen` are never guessed. Features may be patterns such as `f_*`; the default is all other columns with
    numbers or categories.
    """

    single: ClassVar[tuple[str, ...]] = (
        *("session", "query", "document", "position", "row", "page", "click", "event", "time"),
        *("policy_score", "display_probability", "intervention", "user", "seen"),
    )
    form: str | None = None
    row: str | None = None  # row of a grid; positions restart in each row
    page: str | None = None  # page number; positions, or rows, restart on each page
    row_size: int | None = None  # positions per row; None: the largest number observed
    page_size: int | str | None = None  # or by level of another column: `device:desktop=25,phone=10`
    missing: Sequence[str] = ()  # COLUMN=VALUE: this value stands for a missing one
    categories: Sequence[str] = ()  # features whose whole numbers are categories
    clicked_session: str | None = None  # the session and document of a click, where they have columns of their own
    clicked_document: str | None = None
    where: str | None = None  # a condition on rows
    shuffled: Sequence[str] = ()  # interventions that shuffle: NAME, or NAME=TOP
    user: str | None = None  # read and dropped; in options also COLUMN=N
    sessions_a_user: int | None = None  # maximum; None: any number
    drop_heavy: bool = False  # leave out users with more, instead of keeping that many of their sessions
    grades: dict[str, float] = field(default_factory=dict)  # weight by kind of feedback: a column or an event type
    event: str | None = None
    impression_events: Sequence[str] = ("impression", "impressions", "shown", "show", "display")
    click_events: Sequence[str] = ("click", "clicks", "clicked", "click_through")
    seen_events: Sequence[str] = ()  # never guessed: a view may be a view of the product page
    features_document: str | None = None  # the document column of the feature table; None: named as in the events
    first_position: int | None = None  # index of the first position: 0 or 1; None: the lowest observed
    guessed: frozenset[str] = field(default=frozenset(), metadata=NOT_IN_FILES)  # roles that were guessed

    @property
    def roles_by_column(self) -> dict[str, str]:
        """The role of each column by name; the role of a nested column goes to its outer column."""
        roles = {column: role for role, column in self.roles.items()} | dict.fromkeys(self.bias, "bias")
        roles |= dict.fromkeys(self.context, "context") | dict.fromkeys(self.feedback, "feedback")
        return {column.split(".")[0]: role for column, role in roles.items()} | roles

    @property
    def named(self) -> list[str]:
        """All columns but the features."""
        return [*super().named, *self.feedback]

    @property
    def used(self) -> set[str]:
        """All columns that are read besides features, also those that are one only together."""
        parts = {part for column in self.named for part in column.split(",")}
        return {*self.named, *parts} | {name for name in (self.clicked_session, self.clicked_document) if name}

    @property
    def feedback(self) -> list[str]:
        """Columns with feedback other than clicks."""
        return list(self.kinds) if self.form == "impressions" else []

    @property
    def kinds(self) -> dict[str, float]:
        """Weights of the kinds of feedback other than clicks."""
        return {kind: weight for kind, weight in self.grades.items() if kind != CLICK_KIND}


def complete(
    columns: Columns, names: Sequence[str], name: str, *, clicks_apart: bool = False, features_apart: bool = False
) -> Columns:
    """The columns, with guesses for roles that were not named; one error for all that cannot be found.

    Args:
        names: of all columns of the table, nested ones with dots.
        name: of the table.
        clicks_apart: whether clicks are in another table.
        features_apart: whether features are in another table.
    """
    left_out = {role for role, given in columns.roles.items() if given == NOTHING and NOTHING not in names}
    not_there: dict[str, Any] = dict.fromkeys(left_out)
    columns = replace(columns, **not_there)
    problems = [f"no column '{given}'{near(given, names)}" for given in columns.named if given not in names]
    form = "separate" if clicks_apart else columns.form or _guess_form(columns, names)
    lost = [kind for kind in columns.kinds if form == "impressions" and kind not in names]
    problems += [f"no column '{kind}', which --grade names" for kind in lost if kind not in columns.named]
    problems += [] if features_apart else unmatched(columns.features or (), names)
    synonyms = UBI_NAMES if form == "ubi" else SYNONYMS
    guesses: dict[str, Any] = {}
    for role in (*NEEDED[form], *OPTIONAL[form]):
        taken = {*columns.named, *guesses.values()} if form != "ubi" else set()  # its query_id may be query and session
        if getattr(columns, role) is None and role not in left_out:
            guess = column_called(synonyms.get(role, ()), [entry for entry in names if entry not in taken])
            if guess is not None:
                guesses[role] = guess
            elif role in NEEDED[form]:
                problems.append(
                    f'no column looks like the {role}. Pass --{role} COLUMN (or {role} = "…" in a TOML file)'
                )
    if problems:
        raise ValueError(f"{name}: {'; '.join(problems)}. Found: {', '.join(names)}")
    guessed = frozenset(guesses) | (frozenset() if columns.form else frozenset({"form"}))
    return replace(columns, form=form, guessed=guessed, **guesses)


def feature_columns(wanted: Sequence[str] | None, table: ir.Table, taken: Sequence[str], name: str) -> list[str]:
    """Names of the features: the columns that match `wanted`, or every numeric column without another role.

    A text column that you name is a category; a date counts as seconds since 1970.
    """
    schema = table.schema()
    numeric = [column for column, kind in schema.items() if kind.is_numeric() or kind.is_boolean()]
    if wanted is None:
        return [column for column in numeric if column not in taken]
    problems = unmatched(wanted, list(schema))
    if problems:
        raise ValueError(f"{name}: {'; '.join(problems)}. Found: {', '.join(schema)}")
    chosen: dict[str, None] = {}
    for pattern in wanted:
        matches = [column for column in schema if fnmatchcase(column, pattern)]
        for column in matches:
            kind = schema[column]
            if column not in numeric and not (kind.is_string() or is_date(kind)):
                raise ValueError(
                    f"{name}: column '{column}' holds {kind}: features must be numbers, booleans, dates, text or lists "
                    "of text"
                )
            chosen[column] = None
    return [column for column in chosen if column not in taken]


def set_columns(wanted: Sequence[str] | None, table: ir.Table, taken: Sequence[str]) -> list[str]:
    """Columns of lists of text without another role, of those that match `wanted`."""
    schema = table.schema()
    lists = [name for name, kind in schema.items() if kind.is_array() and kind.value_type.is_string()]
    return [
        name
        for name in lists
        if name not in taken and (wanted is None or any(fnmatchcase(name, pattern) for pattern in wanted))
    ]


def is_date(kind: dt.DataType) -> bool:
    """Whether these are dates or times."""
    return kind.is_timestamp() or kind.is_date()


def unmatched(wanted: Sequence[str], names: Sequence[str]) -> list[str]:
    """What is wrong with patterns of features that match no column."""
    lost = [pattern for pattern in wanted if not any(fnmatchcase(column, pattern) for column in names)]
    return [f"no column '{pattern}'{near(pattern, names)}" for pattern in lost]


def unused_columns(table: ir.Table, used: Sequence[str]) -> list[str]:
    """Unused columns with their types; a nested column counts as used if any part of it is."""
    parts = tuple(used)
    return [
        f"{name} ({kind})"
        for name, kind in table.schema().items()
        if name not in parts and not any(part.startswith(f"{name}.") for part in parts)
    ]


def role_column(role: str, named: str | None, names: Sequence[str]) -> str | None:
    """The column of another table with this role: named as in the events, or by a common name."""
    return named if named in names else column_called(SYNONYMS[role], names)


def csv_types(columns: Columns, table: ir.Table) -> dict[str, str]:
    """Types of CSV columns that must not be guessed: ids are read as text, so that 007 stays 007.

    A column with whole numbers in its first lines may have decimals further down, so it is read as decimals unless it
    holds ids or levels.
    """
    ids = _called(columns, table, ("session", "query", "document"))
    if columns.form == "pages":  # ids of clicked documents
        ids += [name for name in (columns.click, *columns.kinds) if name is not None]
    parts = {part for name in columns.roles.values() for part in name.split(",")}
    names = {*columns.bias, *columns.categories, *parts, *_called(columns, table, ("user", "event", "intervention"))}
    whole = [name for name, kind in table.schema().items() if kind.is_integer() and name not in {*ids, *names}]
    return dict.fromkeys(ids, "string") | dict.fromkeys(whole, "float64")


def paths(table: ir.Table, *, lists: bool = True) -> list[str]:
    """Names of all columns, nested ones with dots, also those in lists of objects."""
    names: list[str] = []

    def walk(prefix: str, kind: dt.DataType) -> None:
        names.append(prefix)
        objects = kind.value_type if lists and kind.is_array() else kind
        if objects.is_struct():
            for name, inner in objects.items():
                walk(f"{prefix}.{name}", inner)
        elif kind.is_json() or kind.is_map():  # the keys vary, but those of User Behavior Insights are known
            names.extend(ubi_names(prefix))

    for name, kind in table.schema().items():
        walk(name, kind)
    return names


def ubi_names(column: str) -> list[str]:
    """Names of User Behavior Insights inside a column of this name."""
    return [name for names in UBI_NAMES.values() for name in names if name.startswith(f"{column}.")]


def value_at(table: ir.Table, path: str) -> Any:
    """The column of this name, or the field that a dotted name leads to."""
    if path in table.columns:
        return table[path]
    for name in sorted(table.columns, key=len, reverse=True):  # a plain column name may contain dots
        if path.startswith(f"{name}."):
            value: Any = table[name]
            for part in path[len(name) + 1 :].split("."):
                value = value[part]
            return value.str if value.type().is_json() else value
    raise KeyError(path)


def _called(columns: Columns, table: ir.Table, roles: Sequence[str]) -> list[str]:
    """Plain columns that may have one of these roles: those you named, and those with a common name."""
    names = [name for role in roles for name in (*SYNONYMS.get(role, ()), *UBI_NAMES.get(role, ()))]
    plain = {plain_name(name) for name in (*names, *(columns.roles.get(role, "") for role in roles))}
    return [column for column in table.columns if plain_name(column) in plain]


def _guess_form(columns: Columns, names: Sequence[str]) -> str:
    if columns.click is not None:
        return "impressions"
    nested = any(name.startswith("event_attributes.object") for name in names)
    if nested and "action_name" in names:
        return "ubi"
    if columns.event is not None:
        return "events"
    if column_called(SYNONYMS["click"], names) is None and column_called(SYNONYMS["event"], names) is not None:
        return "events"
    return "impressions"
