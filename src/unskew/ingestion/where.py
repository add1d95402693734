"""Conditions on rows, as text: `not is_sponsored and country in ('de', 'at')`.

The text is parsed, and only comparisons, arithmetic and logic on columns become an expression of the engine. The text
itself is never run, so it may come from an untrusted source.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable
from typing import Any

import ibis
import ibis.expr.types as ir
import sqlglot
import sqlglot.expressions as sql

from unskew.ingestion.columns import paths, value_at

TWO_SIDED: dict[type, Callable[[Any, Any], Any]] = {
    sql.And: operator.and_,
    sql.Or: operator.or_,
    sql.EQ: operator.eq,
    sql.NEQ: operator.ne,
    sql.LT: operator.lt,
    sql.LTE: operator.le,
    sql.GT: operator.gt,
    sql.GTE: operator.ge,
    sql.Add: operator.add,
    sql.Sub: operator.sub,
    sql.Mul: operator.mul,
    sql.Div: operator.truediv,
    sql.Mod: operator.mod,
    sql.Like: lambda value, pattern: value.like(pattern),
}
EXAMPLE = (
    "write a condition on columns, such as \"not is_sponsored\" or \"price > 0 and device in ('phone', 'tablet')\""
)


def columns_named(text: str) -> set[str]:
    """Columns that a condition names."""
    columns = sqlglot.parse_one(text, read="duckdb").find_all(sql.Column)
    return {".".join(part.name for part in column.parts) for column in columns}


def rows_where(table: ir.Table, text: str, name: str) -> Any:
    """The condition as an expression on the table: true, false, or null if unknown."""
    try:
        parsed = sqlglot.parse(text, read="duckdb")
    except sqlglot.errors.SqlglotError as error:
        raise ValueError(f'--where "{text}" cannot be parsed: {EXAMPLE}') from error
    if len(parsed) != 1 or parsed[0] is None:
        raise ValueError(f'--where "{text}" is not one condition: {EXAMPLE}')
    condition = _expression(parsed[0], table, text, name)
    if not isinstance(condition, ir.BooleanValue):
        kind = condition.type() if isinstance(condition, ir.Value) else type(condition).__name__
        raise ValueError(f'--where "{text}" is not a condition but {kind}: {EXAMPLE}')
    return condition


def _expression(node: Any, table: ir.Table, text: str, name: str) -> Any:
    def inner(part: Any) -> Any:
        return _expression(part, table, text, name)

    if type(node) in TWO_SIDED:
        left, right = inner(node.this), inner(node.expression)
        try:
            return TWO_SIDED[type(node)](left, right)
        except (TypeError, ibis.IbisError, ZeroDivisionError) as error:
            raise ValueError(
                f"--where \"{text}\": '{node.sql()}' compares values of different kinds: {EXAMPLE}"
            ) from error
    if isinstance(node, sql.Paren):
        return inner(node.this)
    if isinstance(node, sql.Not):
        return ~_truth(inner(node.this), node, text)
    if isinstance(node, sql.Neg):
        return -inner(node.this)
    if isinstance(node, sql.Is) and isinstance(node.expression, sql.Null):
        return inner(node.this).isnull()
    if isinstance(node, sql.In) and node.expressions:
        return inner(node.this).isin([inner(part) for part in node.expressions])
    if isinstance(node, sql.Between):
        return inner(node.this).between(inner(node.args["low"]), inner(node.args["high"]))
    if isinstance(node, sql.Boolean):
        return ibis.literal(bool(node.this))
    if isinstance(node, sql.Literal):
        return node.this if node.is_string else float(node.this) if "." in node.this else int(node.this)
    if isinstance(node, sql.Column | sql.Dot):
        return _column(node, table, name)
    raise ValueError(f"--where \"{text}\": '{node.sql()}' is not allowed there: {EXAMPLE}")


def _truth(value: Any, node: Any, text: str) -> Any:
    if isinstance(value, ir.BooleanValue):
        return value
    if isinstance(value, ir.NumericValue):  # flags are often 0 and 1
        return value != 0
    raise ValueError(f"--where \"{text}\": '{node.sql()}' is neither true nor false: {EXAMPLE}")


def _column(node: Any, table: ir.Table, name: str) -> Any:
    path = ".".join(part.name for part in (node.parts if isinstance(node, sql.Column | sql.Dot) else [node]))
    known = paths(table)
    if path not in known:
        near = difflib.get_close_matches(path, known, n=1)
        hint = f" (did you mean '{near[0]}'?)" if near else ""
        raise ValueError(f"{name}: no column '{path}', which --where names{hint}. Found: {', '.join(known)}")
    return value_at(table, path)
