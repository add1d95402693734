"""Columns that look like features but may not be: outcomes of a click, and the score of the production ranker.

An add-to-cart, a purchase or a dwell time is known only after the click. As a feature it would leak the answer to the
ranker, so it is left out unless you name it. A column that orders the lists as shown may be the score of the production
ranker, or a feature such as BM25, so it is kept and reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ibis
import ibis.expr.types as ir

from unskew.ingestion.columns import Columns
from unskew.ingestion.engines import Engine, one_row, some_sessions
from unskew.ingestion.impressions import Shape
from unskew.ingestion.roles import CHANCE, IN_ORDER, LEAST_PAIRS
from unskew.ingestion.where import columns_named

NOTES = {
    "named": "Features that are nonzero only after a click: {listed}. They are unknown when you rank: leave them out.",
    "outcome": "Outcomes, not features: {listed} (nonzero only after a click). Name them with --feature to use them "
    "anyway.",
    "condition": "Not used as features, because --where leaves a single value: {listed}.",
    "context": "The same for all documents of a page: {listed}. As features of the document they multiply its "
    "versions; {flags} stores them once per list.",
    "order": "{start} the lists as shown: {listed}. If one is the score of the production ranker, pass --policy-score "
    "{first}; it is kept as a feature until then.",
}
Features = Mapping[str, str]  # the user's name of each feature column


def look_at_features(
    engine: Engine, rows: ir.Table, shape: Shape, columns: Columns
) -> tuple[list[str], dict[str, str]]:
    """Notes about features in the events, and columns that are features only if you name them."""
    features = dict(zip(shape.feature_names, shape.features, strict=True))
    named = columns.features is not None
    outcomes = _outcomes(engine, rows, features)
    settled = [] if named else _settled(engine, rows, features, columns.where)
    left_out = dict.fromkeys(outcomes, "outcome") | dict.fromkeys(settled, "condition")
    others = {name: column for name, column in features.items() if column not in left_out}
    numbers = {name: column for name, column in others.items() if column not in shape.categories}
    lists = {
        "named" if named else "outcome": outcomes,
        "condition": settled,
        "context": _context(engine, rows, others),
        "order": [] if shape.score else _orders(engine, rows, numbers),
    }
    notes = [_note(kind, names) for kind, names in lists.items() if names]
    return notes, {} if named else left_out


def _note(kind: str, names: Sequence[str]) -> str:
    start = "A feature that orders" if len(names) == 1 else "Features that order"
    flags = " ".join(f"--context {name}" for name in names)
    return NOTES[kind].format(listed=", ".join(names), first=names[0], flags=flags, start=start)


def _outcomes(engine: Engine, rows: ir.Table, features: Features) -> list[str]:
    """Features that are nonzero only on clicked impressions, and too often for that to be chance."""
    if "click" not in rows.columns or not features:
        return []
    clicked = (rows.click == 1).fill_null(False)
    has = {name: _has_value(rows[name]) for name in features}
    on_clicked = {f"{name}_with": (value & clicked).sum() for name, value in has.items()}
    on_others = {f"{name}_without": (value & ~clicked).sum() for name, value in has.items()}
    counts = one_row(engine, rows, rows=rows.count(), clicks=clicked.sum(), **on_clicked, **on_others)
    suspects = [name for name in features if counts[f"{name}_with"] and not counts[f"{name}_without"]]
    if not suspects or not counts["clicks"] or counts["clicks"] == counts["rows"]:
        return []
    pair = ibis.struct({"query": rows["query"], "document": rows["document"]})
    sizes = one_row(engine, rows, **{name: pair.nunique(where=has[name]) for name in suspects})
    rate = counts["clicks"] / counts["rows"]
    return [features[name] for name in suspects if rate ** sizes[name] < CHANCE]


def _settled(engine: Engine, rows: ir.Table, features: Features, condition: str | None) -> list[str]:
    """Features in the `--where` condition that have a single value in all rows it keeps."""
    named = set() if condition is None else columns_named(condition)
    asked = {name: column for name, column in features.items() if column in named}
    if not asked:
        return []
    kept = rows.filter(rows.wanted)
    n_values = one_row(engine, kept, **{name: kept[name].nunique() for name in asked})
    return [column for name, column in asked.items() if n_values[name] < 2]


def _context(engine: Engine, rows: ir.Table, features: Features) -> list[str]:
    """Features that vary between showings of a query, but not within one: of the user or moment, not the document."""
    if not features:
        return []
    shown = some_sessions(rows)

    def varying(*keys: str) -> dict[str, Any]:
        differs = {name: (shown[name].max() != shown[name].min()).fill_null(False) for name in features}
        parts = shown.group_by(list(keys)).aggregate(**differs, n_documents=shown.count())
        return one_row(engine, parts, **{name: parts[name].any() for name in features}, most=parts.n_documents.max())

    within, between = varying("session", "query"), varying("query")
    if (within["most"] or 0) < 2:  # nothing differs within a list of one document
        return []
    return [column for name, column in features.items() if between[name] and not within[name]]


def _orders(engine: Engine, rows: ir.Table, features: Features) -> list[str]:
    """Numeric features in whose descending order the lists were shown, judged by a sample of sessions."""
    if "click" not in rows.columns or not features:
        return []
    shown = some_sessions(rows)
    window = ibis.window(group_by=["session", "query"], order_by=["position"])
    above = shown.mutate(**{f"{name}_above": shown[name].lag().over(window) for name in features})
    falls = {f"{name}_falls": (above[f"{name}_above"] > above[name]).fill_null(False).sum() for name in features}
    rises = {f"{name}_rises": (above[f"{name}_above"] < above[name]).fill_null(False).sum() for name in features}
    counts = one_row(engine, above, **falls, **rises)

    def orders(name: str) -> bool:
        n_falls, n_rises = counts[f"{name}_falls"] or 0, counts[f"{name}_rises"] or 0
        return n_falls + n_rises >= LEAST_PAIRS and n_falls >= IN_ORDER * (n_falls + n_rises)

    return [column for name, column in features.items() if orders(name)]


def _has_value(value: Any) -> Any:
    """Neither missing nor zero."""
    return ((value != 0) & ~value.isnan()).fill_null(False)
