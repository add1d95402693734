"""A dry run: which columns were found, the first rows as they are understood, and what is in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ibis.expr.types as ir

from unskew.ingestion.columns import FORMS, Columns
from unskew.ingestion.engines import Engine
from unskew.ingestion.opening import Opened, Options, Tables, open_tables, read_impressions, running_engine
from unskew.ingestion.report import Dropped

HEAD = 5
MAX_FEATURES = 3  # shown of each row; more do not fit


@dataclass(frozen=True)
class Preview:
    """What an ingestion would read."""

    roles: Sequence[tuple[str, str, str]]  # role, column, whether it was named or guessed
    features: Sequence[str]
    head_columns: Sequence[str]
    head: Sequence[Sequence[str]]
    counts: Mapping[str, int]
    dropped: Mapping[str, int]
    examples: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """As one JSON document."""
        return {
            "columns": {role: {"column": column, "from": origin} for role, column, origin in self.roles},
            "features": list(self.features),
            "rows": [dict(zip(self.head_columns, row, strict=True)) for row in self.head],
            "counts": dict(self.counts),
            "dropped": dict(self.dropped),
        }


def preview(tables: Tables, columns: Columns, options: Options) -> Preview:
    """Read the tables and check every row, but count no lists and write nothing."""
    dropped = Dropped(strict=options.strict)
    with running_engine(options, tables) as engine:
        opened = open_tables(engine, tables, columns)
        shown, n_rows = read_impressions(engine, opened, options, dropped)
        head = engine.arrow(_first_rows(shown.impressions).limit(HEAD))
        names = shown.shape.features
        return Preview(
            roles=_roles(opened, names),
            features=names,
            head_columns=[_title(name, names) for name in head.column_names],
            head=[[_text(value) for value in row.values()] for row in head.to_pylist()],
            counts={"rows": n_rows, **_counts(engine, shown.impressions), "features": len(names)},
            dropped=dropped.in_order(),
            examples=dropped.examples,
        )


def _first_rows(impressions: ir.Table) -> ir.Table:
    features = [name for name in impressions.columns if name.startswith("feature_")]
    return impressions.drop(*features[MAX_FEATURES:]) if len(features) > MAX_FEATURES else impressions


def _title(column: str, features: Sequence[str]) -> str:
    """What the user calls a feature; other columns under their role."""
    role, _, number = column.rpartition("_")
    return features[int(number)] if role == "feature" else column


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _counts(engine: Engine, impressions: ir.Table) -> dict[str, int]:
    found = impressions.aggregate(
        impressions=impressions.count(),
        sessions=impressions.session.nunique(),
        queries=impressions["query"].nunique(),
        clicks=impressions.click.sum(),
        positions=impressions.position.nunique(),
    )
    return engine.arrow(found).to_pylist()[0]


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
    rows += [(f"{len(features)} features", shown, "named" if named else "every number that is left")]
    return [*rows, ("not used", ", ".join(opened.unused) or "nothing", "")]
