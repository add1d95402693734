"""Positions that restart in each row or page, as one position: page · page size + row · row size + position.

Rows, pages and positions count from the lowest number observed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ibis
import ibis.expr.types as ir

from unskew.data.columns import column_called
from unskew.ingestion.columns import PAGES, Columns, value_at
from unskew.ingestion.engines import Engine, one_row
from unskew.ingestion.settings import page_sizes


def one_position(engine: Engine, rows: ir.Table, columns: Columns, name: str) -> tuple[ir.Table, Columns, list[str]]:
    """Rows with one position across rows and pages, the columns with the sizes found, and notes for the user."""
    remarks = []
    for outer in ("row", "page"):
        if outer not in rows.columns:
            continue
        ends = {"first": rows[outer].min(), "least": rows.position.min(), "most": rows.position.max()}
        first, least, most = one_row(engine, rows, **ends).values()
        if first is None or least is None:
            raise ValueError(f"{name}: column '{columns.roles[outer]}' does not hold whole numbers: change --{outer}")
        size: Any = getattr(columns, f"{outer}_size")
        largest = most - least + 1
        if isinstance(size, str):
            rows = _of_levels(engine, rows, columns, name, first, least)
            continue
        if size is None:
            size = largest
            remarks.append(f"Positions per {outer}: {size}, the largest number observed; --{outer}-size changes it.")
            columns = replace(columns, **{f"{outer}_size": size})
        elif largest > size:
            raise ValueError(
                f"{name}: column '{columns.position}' goes from {least} to {most}, but a {outer} has {size} positions: "
                f"raise --{outer}-size, or leave out --{outer} if positions do not restart"
            )
        rows = rows.mutate(position=rows.position + (rows[outer] - first) * size).drop(outer)
    return rows, columns, remarks


def _of_levels(engine: Engine, rows: ir.Table, columns: Columns, name: str, first: int, least: int) -> ir.Table:
    """Rows with one position, from pages whose size depends on the level of another column."""
    column, sizes = page_sizes(str(columns.page_size))
    size = ibis.cases(*((rows.page_level == level, n) for level, n in sizes.items()), else_=ibis.null("int64"))
    other, over = rows.filter(size.isnull()), rows.filter(rows.position - least >= size)
    for wrong, advice in ((other, "has no page size: name it in"), (over, "has positions below its page: raise")):
        levels = engine.arrow(wrong.select("page_level").distinct().limit(1))["page_level"].to_pylist()
        if levels:
            raise ValueError(
                f"{name}: level '{levels[0]}' of column '{column}' {advice} --page-size {columns.page_size}"
            )
    return rows.mutate(position=rows.position + (rows.page - first) * size).drop("page", "page_level")


def refuse_restarts(engine: Engine, table: ir.Table, columns: Columns, name: str) -> str | None:
    """The column that looks like a page number, if positions continue across pages; an error if they restart."""
    page = column_called(PAGES, table.columns)
    if page is None or page in columns.named or not value_at(table, page).type().is_integer():
        return None
    rows = table.select(page=value_at(table, page), place=value_at(table, columns.roles["position"]))
    if columns.form not in ("impressions", "separate") or not rows.place.type().is_integer():
        return page
    on_first = rows.page == one_row(engine, rows, first=rows.page.min())["first"]
    ends = {"later": rows.place.min(where=~on_first), "first": rows.place.min(where=on_first)}
    later, first, last = one_row(engine, rows, **ends, last=rows.place.max(where=on_first)).values()
    if later is not None and first is not None and later <= first:
        raise ValueError(
            f"{name}: column '{columns.position}' restarts on each page of column '{page}': pass --page {page} "
            f"--page-size {last - first + 1}, or --page none if '{page}' is something else"
        )
    return page
