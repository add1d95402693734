"""Ingestion from end to end: open, guess, check, gather documents, count lists, write shards."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import ibis.expr.types as ir
import pyarrow as pa

from unskew.data.clicks import ABOUT
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import read_log
from unskew.data.files import check_folder
from unskew.data.inputs import Place
from unskew.data.public_logs.forms import CLICKS
from unskew.display import Displayed, Screen
from unskew.ingestion.columns import Columns
from unskew.ingestion.counted import Counted, Progress, Steps
from unskew.ingestion.engines import Engine, example, one_row
from unskew.ingestion.feature_tables import gather, missing_values, number_documents, settle, with_versions
from unskew.ingestion.group import Range, collect_patterns, numbered_impressions, ranges
from unskew.ingestion.impressions import Shape
from unskew.ingestion.opening import (
    Opened,
    ReadImpressions,
    open_tables,
    read_impressions,
    running_engine,
)
from unskew.ingestion.report import REASONS, Dropped, Ingested, left_out
from unskew.ingestion.schema import KEYS
from unskew.ingestion.settings import Options, Tables, as_tables, settings
from unskew.ingestion.shards import Schema, level_names
from unskew.ingestion.users import hashed_queries, merged_levels, salt_of
from unskew.reporting.terminal import Follow, counting_progress, followed
from unskew.texts import redacted

MAX_LEVELS = 10_000  # of a bias column; more are ids


@dataclass(frozen=True, eq=False, repr=False)
class Ingestion(Displayed):
    """An ingested log, and what was left out."""

    report: Ingested
    out: Path | None  # folder of the log; None: it is in memory only
    kept: ClickLog | None = None

    @cached_property
    def log(self) -> ClickLog:
        """The log, read from its folder on first use."""
        if self.kept is not None:
            return self.kept
        assert self.out is not None
        return read_log(self.out)

    def to_table(self) -> pa.Table:
        """What was left out: one row per reason."""
        dropped, examples = self.report.dropped, self.report.examples
        return pa.table(
            {
                "reason": pa.array(list(dropped), pa.string()),
                "text": pa.array([REASONS[key].text for key in dropped], pa.string()),
                "example": pa.array([examples.get(key, "") for key in dropped], pa.string()),
                "count": pa.array(list(dropped.values()), pa.int64()),
            }
        )

    def to_json(self) -> dict[str, Any]:
        return self.report.to_json()

    def screen(self) -> Screen:
        done = self.report
        title = (
            f"{done.sessions:,} sessions of {done.queries:,} queries in {done.lists:,} lists "
            f"({done.sessions / max(done.lists, 1):,.1f} sessions per list), {done.clicks:,} clicks, "
            f"{done.documents:,} documents, {done.features} features"
        )
        return Screen(title, notes=done.remarks, more=left_out(done.dropped, done.examples, done.other_kinds))


def ingest(
    events: Any,
    out: Place | None = None,
    *,
    features: Any = None,
    queries: Any = None,
    clicks: Any = None,
    columns: Columns | Mapping[str, Any] | Place | None = None,
    overwrite: bool = False,
    progress: Follow = True,
    **options: Any,
) -> Ingestion:
    """Turn event tables into a click log. Rows that cannot be used are counted and reported.

    `ClickLog.from_table` takes a clean table in memory; `ingest` takes any table of any size and reports what it did.
    `preview_ingest` reads and checks without writing.

    Args:
        events: a table (pandas, polars, pyarrow, Ibis), or a path: parquet, CSV or JSON lines (file, folder or glob),
            a DuckDB file, or a database URL.
        out: folder for the log; None: keep the log in memory.
        features: a second table with features, by query and document.
        queries: the query table of User Behavior Insights.
        clicks: a table of clicks, if the events contain only impressions.
        columns: column names by role, or a TOML file with them; you can also pass single ones as options.
        progress: False for no bar, or a function that receives the number of finished and of all rows.
        options: `form` says what the events are (`impressions`, `events`, `ubi`, or a public log: see
            `unskew.data.public_logs.forms`); names of columns by role (`session="sid"`, `feature=["f_*"]`), and how
            the log is made (`n_positions=10`, `joint=True`, …): the fields of `Columns`, `Options` and `Tables` in
            `unskew.ingestion`.

    >>> events = {"session": [1, 1, 2, 2], "query": list("aabb"), "document": [1, 2, 3, 4], "position": [1, 2, 1, 2]}
    >>> table = pa.table(events | {"click": [0, 1, 1, 0], "price": [2.0, 1.0, 3.0, 4.0]})
    >>> ingest(table, progress=False).log
    ClickLog(2 sessions in 2 counted lists, 2 clicks, 4 documents, 1 features, 2 positions)
    """
    with (
        arguments(events, features, queries, clicks, columns, options) as (places, chosen, how),
        followed(progress, counting_progress, "ingest", "rows: read, count, write") as report,
        tempfile.TemporaryDirectory(prefix="unskew-") as scratch,
    ):
        if out is None and (how.keep_users or how.hash_queries):
            raise ValueError("a log in memory has no secret beside it: pass out, a folder for the log")
        target = Path(scratch) / "log" if out is None else Path(out)
        done = ingest_tables(places, target, chosen, how, overwrite=overwrite, progress=report)
        return Ingestion(done, None if out is None else target, read_log(target) if out is None else None)


@contextmanager
def arguments(
    events: Any, features: Any, queries: Any, clicks: Any, columns: Any, options: Mapping[str, Any]
) -> Iterator[tuple[Tables, Columns, Options]]:
    """What `ingest` was given, as it is used: tables in memory are temporary files, public logs name their columns."""
    form, named = options.get("form"), dict(options)
    if form in CLICKS:
        if features is not None:
            raise ValueError(f"a {form} log has its own features: leave out the table of features")
        log = CLICKS[form](Path(events))
        given = {name: value for name, value in options.items() if value and name != "form"}
        events, features, named = log.events, log.features, {**log.columns, **given}
    names, roles, how = settings(columns, named)
    with as_tables(events, features, queries, clicks, **names) as tables:
        yield tables, roles, how


def ingest_tables(
    tables: Tables,
    out: str | Path,
    columns: Columns | None = None,
    options: Options | None = None,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Ingested:
    """Turn event tables into a click log in a new folder; the result counts what was left out."""
    target, options = Path(out), options or Options()
    check_folder(target, ABOUT, overwrite=overwrite)
    dropped = Dropped(strict=options.strict)
    columns = columns or Columns()
    if options.keep_users and columns.user is None:
        raise ValueError("--keep-users needs the column with the user: pass --user COLUMN")
    salt = salt_of(target) if options.keep_users or options.hash_queries else None
    with running_engine(options, tables, target) as engine:
        opened = open_tables(engine, tables, columns, options)
        logs, shown, n_rows = count_lists(engine, opened, options, dropped, progress, salt)
        # Counts of what is left out grow while shards are written, so they are written last.
        notes = {"source": redacted(opened.name), "rows": n_rows, "dropped": dropped.counts}
        logs.write(target, overwrite=overwrite, notes=notes)
    return report_of(opened, shown, n_rows, logs, dropped)


def report_of(opened: Opened, shown: ReadImpressions, n_rows: int, logs: Counted, dropped: Dropped) -> Ingested:
    """The report, once all logs have been counted."""
    named = {"recorded": shown.shape.seen, "without_probability": shown.shape.display}
    unrecorded = dict.fromkeys(name for name, is_named in named.items() if not is_named)
    totals: dict[str, Any] = {**logs.totals, **unrecorded}
    return Ingested(
        rows=n_rows,
        **totals,
        features=len(shown.shape.features),
        dropped=dropped.in_order(),
        examples=dropped.examples,
        other_events=sum(opened.other_events.values()),
        other_kinds=opened.other_events,
        unused=opened.unused,
        about_columns=(*opened.remarks, *dropped.remarks),
        missing=shown.missing,
    )


def count_lists(
    engine: Engine,
    opened: Opened,
    options: Options,
    dropped: Dropped,
    progress: Progress | None = None,
    salt: str | None = None,
) -> tuple[Counted, ReadImpressions, int]:
    """Lists ready to be written as shards, the impressions they consist of, and the number of rows read."""
    shown, n_rows = read_impressions(engine, opened, options, dropped, salt if options.keep_users else None)
    shown = replace(shown, impressions=merged_levels(engine, shown.impressions, shown.shape, dropped))
    if options.hash_queries and salt is not None:
        described = shown.features and replace(shown.features, rows=hashed_queries(shown.features.rows, salt))
        shown = replace(shown, impressions=hashed_queries(shown.impressions, salt), features=described)
    steps = Steps(progress, total=3 * n_rows)
    shown, documents, queries = _documents(engine, shown, options, dropped)
    steps.add(n_rows)
    patterns = _patterns(engine, shown, documents, queries, steps)
    # Only click models learn from a log without features, and they need to know which documents were clicked together.
    schema = _schema(engine, patterns, shown.shape, joint=options.joint or not shown.shape.features)
    return Counted(engine, patterns, documents, schema, dropped, steps), shown, n_rows


def _documents(
    engine: Engine, shown: ReadImpressions, options: Options, dropped: Dropped
) -> tuple[ReadImpressions, ir.Table, ir.Table]:
    """Impressions, numbered versions of documents with features, and the shown queries."""
    impressions, names, fill = shown.impressions, shown.shape.features, options.fill
    if shown.features is None:
        gathered = engine.keep("documents", gather(impressions, KEYS, len(names), fill))
        impressions, versions = with_versions(engine, gathered, impressions, names, fill)
        shown = replace(shown, impressions=impressions, missing=missing_values(engine, gathered, names))
        return shown, *number_documents(engine, versions, gathered)
    pairs = engine.keep("shown", impressions.group_by(KEYS).aggregate(rows=impressions.count()))
    rows = shown.features.rows
    keys = [key for key in KEYS if key in rows.columns]
    rows = rows.semi_join(pairs, keys[0])  # rows that were never shown need no checks
    gathered = engine.keep("documents", gather(rows, keys, len(names), fill))
    documents = settle(engine, gathered, rows, keys, names, fill, dropped)
    if "query" not in keys:
        documents = pairs.select(*KEYS).join(documents, "document")
    _count_missing(engine, pairs, documents, shown.features.name, dropped)
    shown = replace(shown, missing=missing_values(engine, gathered, names))
    return shown, *number_documents(engine, documents, pairs.semi_join(documents, KEYS))


def _count_missing(engine: Engine, pairs: ir.Table, documents: ir.Table, name: str, dropped: Dropped) -> None:
    missing = pairs.anti_join(documents, KEYS)
    n_rows, n_documents = one_row(engine, missing, rows=missing.rows.sum(), documents=missing.count()).values()
    if n_rows:
        first = example(engine, missing, KEYS)
        dropped.add("no_features", n_rows, f"{name} does not have {n_documents:,} documents, the first is {first}")
        total = one_row(engine, pairs, rows=pairs.rows.sum())["rows"]
        dropped.refuse_if_most(["no_features"], total, "impressions")


def _patterns(engine: Engine, shown: ReadImpressions, documents: ir.Table, queries: ir.Table, steps: Steps) -> ir.Table:
    shape, limit = shown.shape, engine.rows_at_once
    impressions = numbered_impressions(shown.impressions, documents, shown.first_position, shape)
    totals = {"impressions": queries.impressions.sum(), "last": queries.query_number.max()}
    n_impressions, last = one_row(engine, queries, **totals).values()
    if not n_impressions:
        raise ValueError("no impression can be used, so there is nothing to learn from: preview with --dry-run")
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
        names = engine.arrow(values)["value"].to_pylist()
        if len(names) > MAX_LEVELS:
            raise ValueError(f"column '{name}' has more than {MAX_LEVELS:,} values: if it is an id, leave it out")
        levels[column] = level_names([entry for entry in names if entry is not None], column == "intervention")
    unknown = [name for name in shape.shuffled if name not in levels.get("intervention", ())]
    if unknown:
        names = ", ".join(levels["intervention"]) if shape.intervention else "none: pass the column with --intervention"
        raise ValueError(f"--shuffled {unknown[0]}: there is no such intervention; --intervention has: {names}")
    return Schema(shape, levels, joint)
