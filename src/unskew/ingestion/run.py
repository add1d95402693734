"""Ingestion from end to end: open, guess, check, gather documents, count lists, write shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import ABOUT, write_shards
from unskew.data.files import check_folder
from unskew.ingestion.columns import Columns
from unskew.ingestion.engines import Engine
from unskew.ingestion.feature_tables import KEYS, gather, missing_values, number_documents, settle, with_versions
from unskew.ingestion.group import Range, collect_patterns, numbered_impressions, ranges, within
from unskew.ingestion.impressions import Shape
from unskew.ingestion.opening import (
    Opened,
    Options,
    ReadImpressions,
    Tables,
    open_tables,
    read_impressions,
    running_engine,
)
from unskew.ingestion.report import Dropped, Ingested
from unskew.ingestion.shards import Schema, level_names, shard_log

SHARD_CELLS = 2**24  # numbers in a shard, about: four for each entry of a pattern, features for each document
MAX_LEVELS = 10_000  # of a bias column; more are ids
LIST_REASONS = ("duplicate", "shown_again", "shared_position")
Progress = Callable[[int, int], None]


@dataclass
class _Steps:
    """Progress: rows of the event table, three times over: read, count, write."""

    progress: Progress | None
    total: int = 0
    done: int = field(default=0)

    def add(self, size: int) -> None:
        self.done += size
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)


def ingest(
    tables: Tables,
    out: str | Path,
    columns: Columns | None = None,
    options: Options | None = None,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Ingested:
    """Write a click log of event tables into a new folder; what is left out is counted in the result."""
    target, options = Path(out), options or Options()
    check_folder(target, ABOUT, overwrite=overwrite)
    dropped = Dropped(strict=options.strict)
    with running_engine(options, tables, target) as engine:
        opened = open_tables(engine, tables, columns or Columns(), options)
        logs, shown, n_rows = count_lists(engine, opened, options, dropped, progress)
        # The counts of what is left out grow while shards are written, and are written last.
        notes = {"source": opened.name, "rows": n_rows, "dropped": dropped.counts}
        write_shards(logs, target, overwrite=overwrite, notes=notes)
    return report_of(opened, shown, n_rows, logs, dropped)


def report_of(opened: Opened, shown: ReadImpressions, n_rows: int, logs: Counted, dropped: Dropped) -> Ingested:
    """What was done, once all logs have been counted."""
    return Ingested(
        rows=n_rows,
        **logs.totals,
        features=len(shown.shape.features),
        dropped=dropped.in_order(),
        examples=dropped.examples,
        other_events=sum(opened.other_events.values()),
        other_kinds=opened.other_events,
        unused=opened.unused,
        about_columns=(*opened.remarks, *dropped.remarks),
        missing=shown.missing,
        recorded=logs.recorded if shown.shape.seen else None,
        without_probability=logs.without_probability if shown.shape.display else None,
    )


def count_lists(
    engine: Engine, opened: Opened, options: Options, dropped: Dropped, progress: Progress | None = None
) -> tuple[Counted, ReadImpressions, int]:
    """Logs to be written, one for each shard, the impressions that they are made of, and how many rows were read."""
    shown, n_rows = read_impressions(engine, opened, options, dropped)
    steps = _Steps(progress, total=3 * n_rows)
    shown, documents, queries = _documents(engine, shown, options, dropped)
    steps.add(n_rows)
    patterns = _patterns(engine, shown, documents, queries, steps)
    schema = _schema(engine, patterns, shown.shape, joint=options.joint)
    return Counted(_logs(engine, patterns, documents, schema, dropped, steps)), shown, n_rows


def _documents(
    engine: Engine, shown: ReadImpressions, options: Options, dropped: Dropped
) -> tuple[ReadImpressions, ir.Table, ir.Table]:
    """Impressions, versions of documents with features and numbers, and the queries that were shown."""
    impressions, names, fill = shown.impressions, shown.shape.features, options.fill
    if shown.features is None:
        gathered = engine.keep("documents", gather(impressions, KEYS, len(names), fill))
        impressions, versions = with_versions(engine, gathered, impressions, names, fill)
        shown = replace(shown, impressions=impressions, missing=missing_values(engine, gathered, names))
        return shown, *number_documents(engine, versions, gathered)
    pairs = engine.keep("shown", impressions.group_by(KEYS).aggregate(rows=impressions.count()))
    rows = shown.features.rows
    keys = [key for key in KEYS if key in rows.columns]
    rows = rows.semi_join(pairs, keys[0])  # what was never asked for, or shown, need not be sound
    gathered = engine.keep("documents", gather(rows, keys, len(names), fill))
    documents = settle(engine, gathered, rows, keys, names, fill, dropped)
    if "query" not in keys:
        documents = pairs.select(*KEYS).join(documents, "document")
    _count_missing(engine, pairs, documents, shown.features.name, dropped)
    shown = replace(shown, missing=missing_values(engine, gathered, names))
    return shown, *number_documents(engine, documents, pairs.semi_join(documents, KEYS))


def _count_missing(engine: Engine, pairs: ir.Table, documents: ir.Table, name: str, dropped: Dropped) -> None:
    missing = pairs.anti_join(documents, KEYS)
    counts = missing.aggregate(rows=missing.rows.sum(), documents=missing.count())
    n_rows, n_documents = engine.arrow(counts).to_pylist()[0].values()
    if n_rows:
        first = engine.arrow(missing.select(*KEYS).order_by(*KEYS).limit(1)).to_pylist()[0]
        example = f"{name} lacks {n_documents:,} documents, the first is {_spelled(first)}"
        dropped.add("no_features", n_rows, example)
        total = engine.arrow(pairs.aggregate(rows=pairs.rows.sum()))["rows"][0].as_py()
        dropped.refuse_if_most(["no_features"], total, "impressions")


def _spelled(row: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in row.items())


def _patterns(
    engine: Engine, shown: ReadImpressions, documents: ir.Table, queries: ir.Table, steps: _Steps
) -> ir.Table:
    shape, limit = shown.shape, engine.rows_at_once
    impressions = numbered_impressions(shown.impressions, documents, shown.first_position, shape)
    totals = queries.aggregate(impressions=queries.impressions.sum(), last=queries.query_number.max())
    n_impressions, last = engine.arrow(totals).to_pylist()[0].values()
    if not n_impressions:
        raise ValueError("nothing is left to learn from: no impression can be used")
    parts = [Range(0, last, n_impressions)]
    if limit is not None and n_impressions > limit:
        parts = ranges(engine, queries.select("query_number", size=queries.impressions), limit)
        impressions = engine.keep("numbered_impressions", impressions)
    return collect_patterns(engine, impressions, parts, shape, steps.add)


def _schema(engine: Engine, patterns: ir.Table, shape: Shape, *, joint: bool) -> Schema:
    """Names of levels."""
    levels = {}
    for column, name in shape.levels.items():
        values = patterns.select(value=patterns[column]).unnest("value").distinct().limit(MAX_LEVELS + 1)
        found = engine.arrow(values)["value"].to_pylist()
        if len(found) > MAX_LEVELS:
            raise ValueError(f"column '{name}' has more than {MAX_LEVELS:,} values: is it an id?")
        levels[column] = level_names([entry for entry in found if entry is not None], column == "intervention")
    unknown = [name for name in shape.shuffled if name not in levels.get("intervention", ())]
    if unknown:
        found = ", ".join(levels["intervention"]) if shape.intervention else "none, for no column is named as such"
        raise ValueError(f"--shuffled {unknown[0]}: there is no such intervention; --intervention has: {found}")
    return Schema(shape, levels, joint)


def _logs(
    engine: Engine, patterns: ir.Table, documents: ir.Table, schema: Schema, dropped: Dropped, steps: _Steps
) -> Iterator[ClickLog]:
    """Logs of one range of queries after the other."""
    width = len(schema.shape.features) + 2
    lists = patterns.group_by("query_number").aggregate(size=(patterns.shown.length() * 4).sum())
    rows = documents.group_by("query_number").aggregate(size=documents.count() * width)
    sizes = lists.union(rows).group_by("query_number").aggregate(size=ibis._["size"].sum())
    parts = ranges(engine, sizes, SHARD_CELLS)
    total = sum(part.size for part in parts)
    order = ["query_number", "shown", *schema.shape.extras, *(["period"] if schema.shape.period else [])]
    n_impressions = 0
    for part in parts:
        found = engine.arrow(within(patterns, part).order_by(order))
        listed = engine.arrow(within(documents, part).order_by("query_number", "version_number"))
        log = shard_log(found, listed, schema, dropped)
        steps.add(steps.total // 3 * part.size // total)
        if log is not None:
            n_impressions += round(impressions_of(log))
            yield log
    n_dropped = sum(dropped.counts.get(key, 0) for key in LIST_REASONS)
    dropped.refuse_if_most(LIST_REASONS, n_impressions + n_dropped, "impressions")


def impressions_of(log: ClickLog) -> float:
    """Shown documents, each as often as its list was shown."""
    return float((log.mask.sum(1) * log.sessions).sum())


class Counted:
    """Logs on their way to disk, and what they add up to."""

    def __init__(self, logs: Iterator[ClickLog]):
        self.logs = logs
        names = ("impressions", "sessions", "clicks", "lists", "queries", "documents", "versions", "shards")
        self.totals = dict.fromkeys(names, 0)
        self.recorded = 0  # sessions with looks
        self.without_probability = 0  # impressions whose display probability was not recorded

    def __iter__(self) -> Iterator[ClickLog]:
        for log in self.logs:
            sizes = (impressions_of(log), log.n_sessions, log.n_clicks, log.n_lists, len(log.query_ids))
            found = zip(self.totals, (*sizes, log.n_documents, len(log.features), 1), strict=True)
            self.totals |= {name: self.totals[name] + round(size) for name, size in found}
            self.recorded += 0 if log.seen_sessions is None else round(float(log.seen_sessions.sum()))
            if log.display_probabilities is not None:
                unknown = np.isnan(log.display_probabilities).sum(axis=1) * log.sessions
                self.without_probability += round(float(unknown.sum()))
            yield log
