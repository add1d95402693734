"""A dry run: every column, the first rows as they would be read, and the size of the log.

It does everything that an ingestion does, with the same checks, but writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ibis.expr.types as ir
import pyarrow as pa

from unskew.data.inputs import Place
from unskew.display import Displayed, Screen, rows_table
from unskew.ingestion.columns import FORMS, Columns
from unskew.ingestion.counted import TOTALS
from unskew.ingestion.engines import Engine, one_row
from unskew.ingestion.opening import Listed, Opened, open_tables, running_engine
from unskew.ingestion.report import Dropped, left_out
from unskew.ingestion.run import arguments, count_lists, report_of
from unskew.ingestion.settings import Options, Tables

HEAD = 5
ROWS_FOR_EXAMPLES = 1_000
MAX_FEATURES = 3  # features shown per row; more do not fit
NOT_USED = "not used"


@dataclass(frozen=True)
class ListedColumn:
    """A column as it is, and its role."""

    table: str
    column: str
    role: str
    type: str
    missing: float  # share of the rows
    example: str


@dataclass(frozen=True, repr=False)
class Preview(Displayed):
    """A preview of an ingestion."""

    roles: Sequence[tuple[str, str, str]]  # role, column, whether it was named or guessed
    columns: Sequence[ListedColumn]
    features: Sequence[str]
    head_columns: Sequence[str]
    head: Sequence[Sequence[str]]
    counts: Mapping[str, int]
    dropped: Mapping[str, int]
    examples: Mapping[str, str]
    remarks: Sequence[str]
    other_kinds: Mapping[str, int]  # events that are neither impressions nor feedback

    def to_table(self) -> pa.Table:
        """One row per column of the tables, with its role."""
        return rows_table(self.columns, ListedColumn)

    def screen(self) -> Screen:
        columns = [(each.column, each.role, each.type, each.example, f"{each.missing:.1%}") for each in self.columns]
        counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in self.counts.items())
        more = [
            Screen("Columns", ("column", "role", "type", "example", "missing"), columns, left=4),
            Screen("First rows", self.head_columns, self.head, left=len(self.head_columns)),
            *left_out(self.dropped, self.examples, self.other_kinds),
        ]
        return Screen("Roles", ("role", "column", ""), self.roles, [counts, *self.remarks], left=3, more=more)

    def to_json(self) -> dict[str, Any]:
        """As one JSON document."""
        return {
            "columns": {role: {"column": column, "from": origin} for role, column, origin in self.roles},
            "every_column": [vars(entry) for entry in self.columns],
            "features": list(self.features),
            "rows": [dict(zip(self.head_columns, row, strict=True)) for row in self.head],
            "counts": dict(self.counts),
            "dropped": dict(self.dropped),
            "remarks": list(self.remarks),
            "other_kinds": dict(self.other_kinds),
        }


def preview_ingest(
    events: Any,
    *,
    features: Any = None,
    queries: Any = None,
    clicks: Any = None,
    columns: Columns | Mapping[str, Any] | Place | None = None,
    **options: Any,
) -> Preview:
    """What `ingest` would read: columns with their roles, the first rows, and counts. Nothing is written.

    >>> import pyarrow as pa
    >>> import unskew
    >>> rows = {"session": [1, 1], "query": ["q", "q"], "document": ["a", "b"], "pos": [1, 2], "click": [0, 1]}
    >>> found = unskew.preview_ingest(pa.table(rows | {"price": [1.0, 2.0]}))
    >>> [column for role, column, _ in found.roles if role == "position"], list(found.features)
    (['pos'], ['price'])
    """
    with arguments(events, features, queries, clicks, columns, options) as settings:
        return preview(*settings)


def preview(tables: Tables, columns: Columns, options: Options) -> Preview:
    """Read the tables, check every row and count the lists, but write nothing."""
    dropped = Dropped(strict=options.strict)
    with running_engine(options, tables) as engine:
        opened = open_tables(engine, tables, columns, options)
        logs, shown, n_rows = count_lists(engine, opened, options, dropped)
        for _ in logs:  # counts what the lists hold, and what is left out
            pass
        done = report_of(opened, shown, n_rows, logs, dropped)
        head = engine.arrow(_first_rows(shown.impressions).limit(HEAD))
        names = shown.shape.features
        return Preview(
            roles=_roles(opened, names),
            columns=[entry for listed in opened.listed for entry in list_columns(engine, listed)],
            features=names,
            head_columns=[_title(name, opened, names) for name in head.column_names],
            head=[[_text(value) for value in row.values()] for row in head.to_pylist()],
            counts={"rows": n_rows, **{name: logs.totals[name] for name in TOTALS}, "features": len(names)},
            dropped=done.dropped,
            examples=done.examples,
            remarks=done.remarks,
            other_kinds=done.other_kinds,
        )


def list_columns(engine: Engine, listed: Listed) -> list[ListedColumn]:
    """Every column of a table with its type, the share of missing values and an example."""
    table, schema = listed.table, listed.table.schema()

    def missing(column: str) -> Any:
        value: Any = table[column]
        return value.isnull() | value.isnan() if schema[column].is_floating() else value.isnull()

    counts = {f"c{number}": missing(name).sum() for number, name in enumerate(schema)}
    n_rows, *n_missing = one_row(engine, table, rows=table.count(), **counts).values()
    first = engine.arrow(table.limit(ROWS_FOR_EXAMPLES))
    return [
        ListedColumn(
            table=listed.name,
            column=column,
            role=listed.roles.get(column, NOT_USED),
            type=str(kind),
            missing=(count or 0) / max(n_rows, 1),
            example=next((_text(value) for value in first[column].to_pylist() if value not in (None, "")), ""),
        )
        for (column, kind), count in zip(schema.items(), n_missing, strict=True)
    ]


def _first_rows(impressions: ir.Table) -> ir.Table:
    features = [name for name in impressions.columns if name.startswith("feature_")]
    return impressions.select(
        [name for name in impressions.columns if name != "version" and name not in features[MAX_FEATURES:]]
    )


def _title(column: str, opened: Opened, features: Sequence[str]) -> str:
    """The user's name of a feature or bias column; other columns by role."""
    role, _, number = column.rpartition("_")
    if role == "feature":
        return features[int(number)]
    named = {"bias": opened.columns.bias, "context": opened.columns.context, "event": list(opened.columns.kinds)}
    return named[role][int(number)] if role in named else column


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _roles(opened: Opened, features: Sequence[str]) -> list[tuple[str, str, str]]:
    columns = opened.columns

    def origin(role: str) -> str:
        return "guessed" if role in columns.guessed else "named"

    rows = [("form", f"{columns.form}: {FORMS[columns.form or 'impressions']}", origin("form"))]
    rows += [(role, column, origin(role)) for role, column in columns.roles.items()]
    rows += [(f"bias {number}", column, "named") for number, column in enumerate(columns.bias)]
    rows += [("first position", str(columns.first_position), origin("first_position"))]
    shown = f"{', '.join(features[:8])}{', …' if len(features) > 8 else ''}" if features else "none"
    named = columns.features is not None
    rows += [(f"{len(features)} features", shown, "named" if named else "all other numeric columns")]
    return [*rows, (NOT_USED, ", ".join(opened.unused) or "nothing", "")]
