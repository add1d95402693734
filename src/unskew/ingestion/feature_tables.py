"""Features of documents: each document once, from the event table or a second one; two sets for one are counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ibis
import ibis.expr.types as ir

from unskew.ingestion.columns import Columns, feature_columns, role_column
from unskew.ingestion.engines import Engine
from unskew.ingestion.impressions import check_ids, feature_values, id_values
from unskew.ingestion.report import Dropped

KEYS = ["query", "document"]


def feature_rows(
    table: ir.Table, columns: Columns, name: str, partitions: Sequence[str]
) -> tuple[ir.Table, list[str], list[str]]:
    """A table of features in the common form, the names of the features, and the columns that it takes.

    Without a query it serves all queries. What is a session, position or click in the events is no feature here.
    """
    matches = {role: role_column(role, columns.roles.get(role), table) for role in KEYS}
    found = {role: match for role, match in matches.items() if match is not None}
    if "document" not in found:
        raise ValueError(
            f"{name}: no column is called '{columns.document}': the table of features needs the document, and the "
            f"query if features depend on it; it has: {', '.join(table.columns)}"
        )
    for column in found.values():
        check_ids(table, column, name)
    features = feature_columns(columns.features, table, [*found.values(), *columns.named, *partitions], name)
    if not features:
        raise ValueError(f"{name}: no column holds numbers: features are numbers")
    taken: dict[str, Any] = {role: id_values(table[column]) for role, column in found.items()}
    taken |= {f"feature_{number}": feature_values(table[feature]) for number, feature in enumerate(features)}
    return table.select(**taken), features, [*found.values(), *features]


def with_keys(engine: Engine, rows: ir.Table, keys: Sequence[str], name: str, dropped: Dropped) -> ir.Table:
    """Rows of features whose document, and query, are known; the rest is counted."""
    missing = ibis.or_(*(rows[key].isnull() for key in keys))
    count = engine.arrow(rows.aggregate(missing=missing.sum()))["missing"][0].as_py()
    dropped.add("no_key", count or 0, name)
    return rows.filter(~missing) if count else rows


def gather(rows: ir.Table, keys: Sequence[str], n_features: int, fill: float | None) -> ir.Table:
    """For each document the least and greatest value of each feature, and how many rows it has.

    What is missing is not a number, which sorts above all numbers: the greatest value shows that one was missing.
    """
    rows = _filled(rows, n_features, float("nan") if fill is None else fill, everywhere=fill is not None)
    parts: dict[str, Any] = {"rows": rows.count()}
    for number in range(n_features):
        parts[f"low_{number}"] = rows[f"feature_{number}"].min()
        parts[f"high_{number}"] = rows[f"feature_{number}"].max()
    return rows.group_by(list(keys)).aggregate(**parts)


def settle(
    engine: Engine,
    gathered: ir.Table,
    rows: ir.Table,
    keys: Sequence[str],
    features: Sequence[str],
    fill: float | None,
    dropped: Dropped,
) -> ir.Table:
    """One row for each document: keys, rows, feature_0, feature_1, …; values that are not finite are refused."""
    numbers = range(len(features))
    if not features:
        return gathered
    _refuse_holes(engine, gathered, keys, features)
    differs = ibis.or_(*(gathered[f"low_{number}"] != gathered[f"high_{number}"] for number in numbers))
    conflicts = engine.arrow(gathered.aggregate(conflicts=differs.sum()))["conflicts"][0].as_py() or 0
    lows = {f"feature_{number}": gathered[f"low_{number}"].cast("float32") for number in numbers}
    same = gathered.select(*keys, "rows", **lows)
    if not conflicts:
        return same
    unclear = gathered.filter(differs)
    example = engine.arrow(unclear.select(*keys).order_by(*keys).limit(1)).to_pylist()[0]
    dropped.add("conflict", conflicts, ", ".join(f"{key} {value}" for key, value in example.items()))
    chosen = _least_sets(rows.semi_join(unclear, list(keys)), keys, len(features), fill)
    chosen = chosen.join(unclear.select(*keys, "rows"), list(keys)).select(same.columns)
    return same.anti_join(unclear, list(keys)).union(chosen)


def number_documents(engine: Engine, documents: ir.Table, shown: ir.Table) -> tuple[ir.Table, ir.Table]:
    """Documents of queries that were shown, numbered within each, and these queries, numbered in order of their ids.

    `shown` has a row for each shown query and document with its impressions in `rows`.
    """
    with_features = shown if shown is documents else shown.semi_join(documents, KEYS)
    queries = with_features.group_by("query").aggregate(impressions=with_features.rows.sum())
    queries = engine.keep("queries", queries.mutate(query_number=ibis.row_number().over(order_by="query")))
    listed = documents.join(queries.select("query", "query_number"), "query")
    place = ibis.row_number().over(group_by="query_number", order_by="document")
    return engine.keep("numbered_documents", listed.mutate(document_number=place)), queries


def same_keys(left: ir.Table, right: ir.Table, keys: Sequence[str]) -> tuple[ir.Table, ir.Table]:
    """Both tables with keys of one type: text, where one has text and the other numbers."""
    for key in keys:
        if left[key].type().is_string() != right[key].type().is_string():
            left, right = (table.mutate(**{key: table[key].cast("string")}) for table in (left, right))
    return left, right


def _refuse_holes(engine: Engine, gathered: ir.Table, keys: Sequence[str], features: Sequence[str]) -> None:
    def is_hole(number: int) -> Any:
        low, high = gathered[f"low_{number}"], gathered[f"high_{number}"]
        return high.isnan() | high.isinf() | low.isinf()

    counts = gathered.aggregate(**{f"holes_{number}": is_hole(number).sum() for number in range(len(features))})
    for number, count in enumerate(engine.arrow(counts).to_pylist()[0].values()):
        if count:
            found = engine.arrow(gathered.filter(is_hole(number)).select(*keys).order_by(*keys).limit(1)).to_pylist()[0]
            where = ", ".join(f"{key} {value}" for key, value in found.items())
            raise ValueError(
                f"feature '{features[number]}' is missing or not finite for {count:,} documents, the first is {where}: "
                "impute it, or put a number in its place with --fill"
            )


def _least_sets(rows: ir.Table, keys: Sequence[str], n_features: int, fill: float | None) -> ir.Table:
    """One of the sets of features of each document, the same one on every engine: the first when sorted."""
    names = [f"feature_{number}" for number in range(n_features)]
    if fill is not None:
        rows = _filled(rows, n_features, fill, everywhere=True)
    sets = rows.group_by(list(keys)).aggregate(first=ibis.struct({name: rows[name] for name in names}).min())
    return sets.select(*keys, **{name: sets.first[name].cast("float32") for name in names})


def _filled(rows: ir.Table, n_features: int, value: float, *, everywhere: bool) -> ir.Table:
    """Features with a number in place of null and, everywhere, of what is not finite."""
    instead = ibis.literal(value, type="float32")
    filled = {}
    for name in (f"feature_{number}" for number in range(n_features)):
        found = rows[name].fill_null(instead)
        filled[name] = (found.isnan() | found.isinf()).ifelse(instead, found) if everywhere else found
    return rows.mutate(**filled)
