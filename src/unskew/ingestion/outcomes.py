"""Columns that look like features but may not be: outcomes of a click, and the score of the production ranker.

An add-to-cart, a purchase or a dwell time is known only after the click. As a feature it would leak the answer to the
ranker, so it is left out unless you name it. A column that orders the lists as shown may be the score of the production
ranker, or a feature such as BM25, so it is kept and reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ibis
import ibis.expr.types as ir

from unskew.ingestion.engines import Engine
from unskew.ingestion.impressions import Shape
from unskew.ingestion.where import columns_named

CHANCE = 1e-6  # if all documents with a value being clicked is less likely than this, the value is an outcome
SESSIONS_LOOKED_AT = 2_000  # sample to determine the order of lists
LEAST_PAIRS = 50  # neighboring documents needed to say that a column orders the lists
IN_ORDER = 0.9  # share of neighbors in order: sponsored and shuffled documents do not follow the score


def find_outcomes(engine: Engine, rows: ir.Table, shape: Shape) -> list[str]:
    """Features that are nonzero only on clicked impressions, and too often for that to be chance."""
    if "click" not in rows.columns or not shape.features:
        return []
    clicked = (rows.click == 1).fill_null(False)
    counts: dict[str, Any] = {"rows": rows.count(), "clicks": clicked.sum()}
    for name in shape.feature_names:
        counts[f"{name}_with"] = (_has_value(rows[name]) & clicked).sum()
        counts[f"{name}_without"] = (_has_value(rows[name]) & ~clicked).sum()
    found = engine.arrow(rows.aggregate(**counts)).to_pylist()[0]
    suspects = [name for name in shape.feature_names if found[f"{name}_with"] and not found[f"{name}_without"]]
    if not suspects or not found["clicks"] or found["clicks"] == found["rows"]:
        return []
    pair = ibis.struct({"query": rows["query"], "document": rows["document"]})
    numbers = rows.aggregate(**{name: pair.nunique(where=_has_value(rows[name])) for name in suspects})
    rate = found["clicks"] / found["rows"]
    sizes = engine.arrow(numbers).to_pylist()[0]
    names = dict(zip(shape.feature_names, shape.features, strict=True))
    return [names[name] for name in suspects if rate ** sizes[name] < CHANCE]


def find_settled(engine: Engine, rows: ir.Table, shape: Shape, condition: str | None) -> list[str]:
    """Features in the `--where` condition that have a single value in all rows it keeps."""
    named = set() if condition is None else columns_named(condition)
    asked = {name: column for name, column in zip(shape.feature_names, shape.features, strict=True) if column in named}
    if not asked:
        return []
    kept = rows.filter(rows.wanted)
    found = engine.arrow(kept.aggregate(**{name: kept[name].nunique() for name in asked})).to_pylist()[0]
    return [column for name, column in asked.items() if found[name] < 2]


def find_context(engine: Engine, rows: ir.Table, shape: Shape) -> list[str]:
    """Features that vary between showings of a query, but not within one: of the user or moment, not the document.

    Only a sample of sessions is examined.
    """
    if not shape.features:
        return []
    some = rows.filter(rows.session.notnull()).select("session").distinct().order_by("session")
    shown = rows.semi_join(some.limit(SESSIONS_LOOKED_AT), "session")

    def differs(table: ir.Table, name: str) -> Any:
        return (table[name].max() != table[name].min()).fill_null(False)

    def varying(keys: Sequence[str]) -> dict[str, Any]:
        found = {name: differs(shown, name) for name in shape.feature_names}
        parts = shown.group_by(list(keys)).aggregate(**found, documents_here=shown.count())
        over_all = {name: parts[name].any() for name in shape.feature_names}
        return engine.arrow(parts.aggregate(**over_all, documents_here=parts.documents_here.max())).to_pylist()[0]

    within, between = varying(["session", "query"]), varying(["query"])
    if (within["documents_here"] or 0) < 2:  # nothing differs within a list of one document
        return []
    names = zip(shape.feature_names, shape.features, strict=True)
    return [column for name, column in names if between[name] and not within[name]]


def find_orders(engine: Engine, rows: ir.Table, shape: Shape) -> list[str]:
    """Numeric features in whose descending order the lists were shown, judged by a sample of sessions."""
    if "click" not in rows.columns or not shape.features:
        return []
    some = rows.filter(rows.session.notnull()).select("session").distinct().order_by("session")
    shown = rows.semi_join(some.limit(SESSIONS_LOOKED_AT), "session")
    window = ibis.window(group_by=["session", "query"], order_by=["position"])
    above = shown.mutate(**{f"{name}_above": shown[name].lag().over(window) for name in shape.feature_names})
    counts: dict[str, Any] = {}
    for name in shape.feature_names:
        counts[f"{name}_falls"] = (above[f"{name}_above"] > above[name]).fill_null(False).sum()
        counts[f"{name}_rises"] = (above[f"{name}_above"] < above[name]).fill_null(False).sum()
    found = engine.arrow(above.aggregate(**counts)).to_pylist()[0]
    orders = []
    for name, column in zip(shape.feature_names, shape.features, strict=True):
        falls, rises = found[f"{name}_falls"] or 0, found[f"{name}_rises"] or 0
        if falls + rises >= LEAST_PAIRS and falls >= IN_ORDER * (falls + rises) and column not in shape.categories:
            orders.append(column)
    return orders


def outcome_remarks(outcomes: Sequence[str], *, named: bool) -> list[str]:
    """The notes about outcomes."""
    if not outcomes:
        return []
    listed = ", ".join(outcomes)
    if named:
        return [
            f"Features that are nonzero only after a click: {listed}. They are unknown when you rank: leave them out."
        ]
    return [
        f"Outcomes, not features: {listed} (nonzero only after a click). Name them with --feature to use them anyway."
    ]


def settled_remarks(settled: Sequence[str]) -> list[str]:
    """The note about columns for which `--where` leaves a single value."""
    if not settled:
        return []
    return [f"Not used as features, because --where leaves a single value: {', '.join(settled)}."]


def context_remarks(found: Sequence[str]) -> list[str]:
    """The note about features that are equal for all documents of a result page."""
    if not found:
        return []
    flags = " ".join(f"--context {name}" for name in found)
    return [
        f"The same for all documents of a page: {', '.join(found)}. As features of the document they multiply its "
        f"versions; {flags} stores them once per list."
    ]


def order_remarks(orders: Sequence[str], *, score_named: bool) -> list[str]:
    """The note about columns that order the lists."""
    if not orders or score_named:
        return []
    start = "A feature that orders" if len(orders) == 1 else "Features that order"
    return [
        f"{start} the lists as shown: {', '.join(orders)}. If one is the score of the production ranker, "
        f"pass --policy-score {orders[0]}; it is kept as a feature until then."
    ]


def _has_value(value: Any) -> Any:
    """Neither missing nor zero."""
    return ((value != 0) & ~value.isnan()).fill_null(False)
