"""From impressions to patterns: showings with equal lists and equal clicks are counted together.

A shown document is packed into one number, `position · 2⁴⁰ + version · 2 + click`, so a sorted array of them is a list
in shown order with its clicks. Every engine can collect arrays and sort them.

Queries are assigned to buckets by a hash of their ids, the same on every engine, and a shard holds whole buckets: so a
shard is a random mixture of queries, and no engine has to sort all queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import ibis
import ibis.expr.types as ir

from unskew.data.columns import PERIODS as PERIODS_OF_LOGS
from unskew.ingestion.engines import Engine
from unskew.ingestion.impressions import Shape

PERIODS = dict(zip(PERIODS_OF_LOGS, ("h", "D", "W", "M"), strict=True))  # Ibis units; weeks begin on Mondays
POSITION_BITS = 40  # offset of the position in a packed number
BUCKET_DIGITS = 4  # hexadecimal digits of the hash of a query: 65,536 buckets
BUCKET_SIZE = 2**32  # query numbers per bucket
DIGITS = "0123456789abcdef"
MAX_VERSIONS = 2 ** (POSITION_BITS - 1)  # of the documents of a query


class Range(NamedTuple):
    """A range of query numbers, and the total size of these queries."""

    first: int
    last: int
    size: int


def query_numbers(queries: ir.Table) -> Any:
    """A number for each query, made of its bucket and its place in the bucket."""
    digest = queries["query"].cast("string").hexdigest("md5")
    digits = (ibis.literal(DIGITS).find(digest.substr(place, 1)).cast("int64") for place in range(BUCKET_DIGITS))
    bucket = reduce(lambda number, digit: number * len(DIGITS) + digit, digits)
    return bucket * BUCKET_SIZE + ibis.row_number().over(group_by=bucket, order_by=queries["query"])


def numbered_impressions(impressions: ir.Table, documents: ir.Table, first_position: int, shape: Shape) -> ir.Table:
    """Impressions with numbers for query and version, without those whose document has no features."""
    keys = [key for key in ("query", "document", "version") if key in impressions.columns and key in documents.columns]
    joined = impressions.join(documents.select(*keys, "query_number", "version_number"), keys)
    place = joined.position.cast("int64") - first_position
    shown = place * 2**POSITION_BITS + joined.version_number.cast("int64") * 2 + joined.click.cast("int64")
    names = ["session", "query_number", *shape.extras, *["time"] * shape.time, *["user"] * shape.user]
    return joined.select(*names, shown=shown)


def patterns(impressions: ir.Table, shape: Shape) -> ir.Table:
    """Distinct lists with their clicks: query_number, shown, extras, sessions and, with times, the earliest time.

    Extras are arrays in the order of `shown`. If lists are counted per period, equal lists of two periods stay apart.
    """
    extras = shape.extras
    first = {"time": ibis._.time.min()} if shape.time else {}
    whose = {"user": ibis._.user.min()} if shape.user else {}
    entry = impressions.shown
    if extras:
        entry = ibis.struct({"shown": impressions.shown, **{name: impressions[name] for name in extras}})
    showings = impressions.mutate(entry=entry).group_by("session", "query_number")
    lists = showings.aggregate(entries=ibis._.entry.collect(), **first, **whose)
    lists = lists.mutate(entries=lists.entries.sort())
    kept = ["query_number", *first, *whose]
    if extras:
        parts = {name: lists.entries.map(lambda entry, name=name: entry[name]) for name in ("shown", *extras)}
        lists = lists.select(*kept, **parts)
    else:
        lists = lists.select(*kept, shown=lists.entries)
    distinct = ["query_number", "shown", *extras, *whose]
    if shape.period is not None:
        moment = lists.time if lists.time.type().is_timestamp() else (lists.time // 10**6).as_timestamp("s")
        lists = lists.mutate(period=moment.truncate(PERIODS[shape.period]))
        distinct.append("period")
    return lists.group_by(*distinct).aggregate(sessions=lists.count(), **first)


def collect_patterns(
    engine: Engine,
    impressions: ir.Table,
    parts: Sequence[Range],
    shape: Shape,
    done: Callable[[int], None],
) -> ir.Table:
    """Patterns of all queries, kept; collected one range of queries at a time if memory requires it."""
    kept: ir.Table | None = None
    for part in parts:
        chosen = impressions if len(parts) == 1 else within(impressions, part)
        counted = patterns(chosen, shape)
        kept = engine.keep("patterns", counted) if kept is None else engine.append(kept, counted)
        done(part.size)
    assert kept is not None
    return kept


def ranges(engine: Engine, sizes: ir.Table, limit: int) -> list[Range]:
    """Buckets of queries grouped into ranges of about this size; a row of `sizes` has a query_number and a size."""
    buckets = sizes.mutate(bucket=(sizes.query_number / BUCKET_SIZE).floor().cast("int64")).group_by("bucket")
    kept = engine.keep("sizes", buckets.aggregate(size=ibis._["size"].sum()))
    before = kept["size"].cumsum(order_by="bucket") - kept["size"]
    parts = kept.mutate(part=(before / limit).floor().cast("int64")).group_by("part")
    cut = parts.aggregate(first=ibis._.bucket.min(), last=ibis._.bucket.max(), size=ibis._["size"].sum())
    return [
        Range(row["first"] * BUCKET_SIZE, (row["last"] + 1) * BUCKET_SIZE - 1, row["size"])
        for row in engine.arrow(cut.order_by("part")).to_pylist()
    ]


def within(table: ir.Table, part: Range) -> ir.Table:
    """Rows of the queries of a range."""
    return table.filter(table.query_number.between(part.first, part.last))
