"""Features of documents, from the event table or a second one.

Features in the event table belong to the showing: a document has one version per distinct row of features. A second
table has one row of features per document; of several rows one is kept, and the conflict is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ibis
import ibis.expr.types as ir

from unskew.ingestion.columns import Columns
from unskew.ingestion.engines import Engine, count_rows, example, one_row
from unskew.ingestion.group import query_numbers
from unskew.ingestion.impressions import Shape, feature_values, id_values, read, time_values
from unskew.ingestion.report import Dropped
from unskew.ingestion.schema import KEYS, key_columns

VALID_FROM = "valid_from"  # the column of a history of features


def feature_rows(table: ir.Table, columns: Columns, name: str, features: Sequence[str]) -> ir.Table:
    """A table of features in the common form; a history also has the times from which features are valid."""
    taken = {
        role: read(table, column, name, id_values) for role, column in key_columns(table.columns, columns, name).items()
    }
    taken |= {f"feature_{number}": feature_values(table[feature]) for number, feature in enumerate(features)}
    if VALID_FROM in table.columns:
        taken[VALID_FROM] = read(table, VALID_FROM, name, time_values)
    return table.select(**taken)


def as_shown(
    engine: Engine,
    impressions: ir.Table,
    rows: ir.Table,
    keys: Sequence[str],
    shape: Shape,
    name: str,
    fill: float | None,
    dropped: Dropped,
) -> ir.Table:
    """Impressions with the features that were valid when they were shown, never later ones; others are counted."""
    if not shape.time:
        raise ValueError(f"{name}: features have times, but impressions have none: pass their time column with --time")
    if impressions.time.type().is_timestamp() != rows[VALID_FROM].type().is_timestamp():
        raise ValueError(f"{name}: '{VALID_FROM}' and the times of impressions have different types: use the same type")
    rows = rows.filter(rows[VALID_FROM].notnull())
    dates = [*keys, VALID_FROM]
    gathered = engine.keep("history", gather(rows, dates, len(shape.features), fill))
    history = settle(engine, gathered, rows, dates, shape.features, fill, dropped).drop("rows")
    following = history[VALID_FROM].lead().over(group_by=list(keys), order_by=[VALID_FROM])
    history = engine.keep("history", history.mutate(valid_until=following))
    joined = impressions.join(history, list(keys))
    holds = (joined.time >= joined[VALID_FROM]) & (joined.valid_until.isnull() | (joined.time < joined.valid_until))
    shown = engine.keep("as_shown", joined.filter(holds).select(*impressions.columns, *shape.feature_names))
    before, after = (count_rows(engine, table) for table in (impressions, shown))
    dropped.add("no_features", before - after, f"{name} has no features from before they were shown")
    dropped.refuse_if_most(["no_features"], before, "impressions")
    return shown


def with_keys(engine: Engine, rows: ir.Table, keys: Sequence[str], name: str, dropped: Dropped) -> ir.Table:
    """Rows of features that have a document, and a query; the others are counted."""
    missing = ibis.or_(*(rows[key].isnull() for key in keys))
    count = one_row(engine, rows, missing=missing.sum())["missing"] or 0
    dropped.add("no_key", count, name)
    return rows.filter(~missing) if count else rows


def gather(rows: ir.Table, keys: Sequence[str], n_features: int, fill: float | None) -> ir.Table:
    """For each document, the minimum and maximum of each feature, and the number of rows.

    A missing value is NaN, which sorts above all numbers: so the maximum shows whether a value was missing.
    """
    rows = filled(rows, n_features, fill)
    parts: dict[str, Any] = {"rows": rows.count()}
    if n_features:
        infinite = ibis.or_(*(rows[f"feature_{number}"].isinf() for number in range(n_features)))
        parts["infinite"] = infinite.cast("int8").max()
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
    """One row per document: keys, rows, feature_0, feature_1, …; of several sets of features one is kept."""
    same, unclear, conflicts = _changing(engine, gathered, keys, features)
    if unclear is None:
        return same
    dropped.add("conflict", conflicts, example(engine, unclear, keys))
    chosen = _least_sets(rows.semi_join(unclear, list(keys)), keys, len(features), fill)
    chosen = chosen.join(unclear.select(*keys, "rows"), list(keys)).select(same.columns)
    return same.anti_join(unclear, list(keys)).union(chosen)


def with_versions(
    engine: Engine, gathered: ir.Table, impressions: ir.Table, features: Sequence[str], fill: float | None
) -> tuple[ir.Table, ir.Table]:
    """Impressions, and one row per version of each document: keys, rows, feature_0, feature_1, …

    If features change, both have a column `version`, which numbers the distinct feature rows of a document in order.
    """
    same, unclear, _ = _changing(engine, gathered, KEYS, features)
    if unclear is None:
        return impressions, same
    names = [f"feature_{number}" for number in range(len(features))]
    changing = filled(impressions.semi_join(unclear, KEYS), len(features), fill)
    number = ibis.dense_rank().over(group_by=KEYS, order_by=names)  # equal rows have equal numbers, NaN equals NaN
    changing = engine.keep("changing", changing.mutate(version=number.cast("int64")))
    values = {name: changing[name].min().cast("float32") for name in names}
    versions = changing.group_by([*KEYS, "version"]).aggregate(rows=changing.count(), **values)
    none = ibis.literal(0, type="int64")
    stable = same.anti_join(unclear, KEYS).mutate(version=none).select(versions.columns)
    others = impressions.anti_join(unclear, KEYS).mutate(version=none).drop(*names)
    return others.union(_as(changing.select(others.columns), others)), stable.union(_as(versions, stable))


def _as(table: ir.Table, other: ir.Table) -> ir.Table:
    """The table with the types of another: an engine may change the types of a kept table."""
    return table.cast(dict(other.schema()))


def missing_values(engine: Engine, gathered: ir.Table, features: Sequence[str]) -> dict[str, int]:
    """For each feature with missing values, the number of documents in which it is missing at least once."""
    if not features:
        return {}
    counts = {f"missing_{number}": gathered[f"high_{number}"].isnan().sum() for number in range(len(features))}
    missing = one_row(engine, gathered, **counts).values()
    return {name: count for name, count in zip(features, missing, strict=True) if count}


def _changing(
    engine: Engine, gathered: ir.Table, keys: Sequence[str], features: Sequence[str]
) -> tuple[ir.Table, ir.Table | None, int]:
    """One set of features per document; the documents with several sets, if any, and their number."""
    numbers = range(len(features))
    if not features:
        return gathered, None, 0
    _refuse_infinite(engine, gathered, keys, features)
    differs = ibis.or_(*(gathered[f"low_{number}"] != gathered[f"high_{number}"] for number in numbers))
    count = one_row(engine, gathered, count=differs.sum())["count"] or 0
    lows = {f"feature_{number}": gathered[f"low_{number}"].cast("float32") for number in numbers}
    return gathered.select(*keys, "rows", **lows), gathered.filter(differs) if count else None, count


def number_documents(engine: Engine, documents: ir.Table, shown: ir.Table) -> tuple[ir.Table, ir.Table]:
    """Documents of shown queries, numbered within each query, and these queries, numbered by their hash.

    `shown` has one row per shown query and document, with its impressions in `rows`. Versions are numbered too; those
    of a document have consecutive numbers.
    """
    with_features = shown if shown is documents else shown.semi_join(documents, KEYS)
    queries = with_features.group_by("query").aggregate(impressions=with_features.rows.sum())
    queries = engine.keep("queries", queries.mutate(query_number=query_numbers(queries)))
    listed = documents.join(queries.select("query", "query_number"), "query")
    place = ibis.row_number().over(group_by="query_number", order_by="document")
    numbers = {"version_number": place, "document_number": place}
    if "version" in documents.columns:
        numbers = {
            "version_number": ibis.row_number().over(group_by="query_number", order_by=["document", "version"]),
            "document_number": ibis.dense_rank().over(group_by="query_number", order_by="document"),
        }
    return engine.keep("numbered_documents", listed.mutate(**numbers)), queries


def same_keys(left: ir.Table, right: ir.Table, keys: Sequence[str]) -> tuple[ir.Table, ir.Table]:
    """Both tables with keys of the same type: text, if one has text and the other numbers."""
    for key in keys:
        if left[key].type().is_string() != right[key].type().is_string():
            left, right = (table.mutate(**{key: table[key].cast("string")}) for table in (left, right))
    return left, right


def _refuse_infinite(engine: Engine, gathered: ir.Table, keys: Sequence[str], features: Sequence[str]) -> None:
    bad = gathered.filter(gathered.infinite > 0)
    infinite = engine.arrow(bad.order_by(*keys).limit(1)).to_pylist()
    if infinite:
        columns = [name for number, name in enumerate(features) if _is_infinite(infinite[0], number)] or list(features)
        where = ", ".join(f"{key} {infinite[0][key]}" for key in keys)
        raise ValueError(
            f"feature '{columns[0]}' of {where} is infinite: features must be finite or missing; leave the cell empty, "
            "or replace it by a number with --fill"
        )


def _is_infinite(row: dict[str, Any], number: int) -> bool:
    return any(abs(row[f"{end}_{number}"]) == float("inf") for end in ("low", "high"))


def _least_sets(rows: ir.Table, keys: Sequence[str], n_features: int, fill: float | None) -> ir.Table:
    """One of the sets of features of each document, the same one on every engine: the first when sorted."""
    names = [f"feature_{number}" for number in range(n_features)]
    rows = filled(rows, n_features, fill)
    sets = rows.group_by(list(keys)).aggregate(first=ibis.struct({name: rows[name] for name in names}).min())
    return sets.select(*keys, **{name: sets.first[name].cast("float32") for name in names})


def filled(rows: ir.Table, n_features: int, fill: float | None) -> ir.Table:
    """Features with NaN in place of null, or with `fill` in place of all values that are not finite."""
    instead = ibis.literal(float("nan") if fill is None else fill, type="float32")
    values = {}
    for name in (f"feature_{number}" for number in range(n_features)):
        value = rows[name].fill_null(instead)
        values[name] = value if fill is None else (value.isnan() | value.isinf()).ifelse(instead, value)
    return rows.mutate(**values)
