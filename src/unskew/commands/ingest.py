"""`unskew ingest`: event tables into a click log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import unskew
from unskew.commands.app import Json, Overwrite, Quiet, command
from unskew.commands.source import constant
from unskew.ingestion.columns import FORMS
from unskew.ingestion.report import REASONS, Ingested
from unskew.ingestion.schema import check_schema
from unskew.ingestion.settings import Tables, parse_cap, parse_window
from unskew.ingestion.settings import settings as settings_of
from unskew.options import parse_grades
from unskew.terminal import cell, console, show_json, show_table

if TYPE_CHECKING:
    from unskew.ingestion.preview import Preview

PUBLIC_FORMS = constant("data.public_logs.forms:CLICKS")

COLUMN = "Column with the {}."
Names = list[str] | None


def _column(role: str) -> Any:
    return typer.Option(help=COLUMN.format(role), rich_help_panel="Columns")


def _size(of: str) -> Any:
    return typer.Option(
        min=1, help=f"Positions per {of}. Default: the largest number observed.", rich_help_panel="Columns"
    )


def _names(flag: str, text: str) -> Any:
    return typer.Option(flag, help=f"{text} Repeatable.", rich_help_panel="Columns")


@command
def ingest(
    source: Annotated[
        str, typer.Argument(help="Parquet, CSV or JSON lines (file, folder or glob), a DuckDB file, or a database URL.")
    ],
    out: Annotated[Path | None, typer.Option(help="Output folder for the log; not needed with --dry-run.")] = None,
    features: Annotated[str | None, typer.Option(help="A table of features, by query and document.")] = None,
    clicks: Annotated[
        str | None, typer.Option(help="A table of clicks, if the events contain only impressions.")
    ] = None,
    queries: Annotated[str | None, typer.Option(help="The query table of User Behavior Insights.")] = None,
    columns: Annotated[Path | None, typer.Option(help="TOML file with column names.")] = None,
    form: Annotated[
        str | None, typer.Option(help=f"{', '.join((*FORMS, *PUBLIC_FORMS))}.", rich_help_panel="Columns")
    ] = None,
    session: Annotated[str | None, _column("session, which distinguishes one showing of a query from the next")] = None,
    query: Annotated[str | None, _column("query")] = None,
    document: Annotated[str | None, _column("document")] = None,
    position: Annotated[str | None, _column("position")] = None,
    row: Annotated[str | None, _column("row of a result grid, if positions restart in each row")] = None,
    page: Annotated[
        str | None, _column("page number, if positions restart on each page; none: there are no pages")
    ] = None,
    row_size: Annotated[int | None, _size("row")] = None,
    page_size: Annotated[int | None, _size("page")] = None,
    click: Annotated[str | None, _column("click")] = None,
    time: Annotated[str | None, _column("time; none: use no time")] = None,
    policy_score: Annotated[str | None, _column("score by which the document was ranked")] = None,
    display_probability: Annotated[
        str | None, _column("probability that a stochastic ranker shows the document there")
    ] = None,
    intervention: Annotated[str | None, _column("intervention that changed the order")] = None,
    shuffled: Annotated[
        Names, _names("--shuffled", "Intervention that shuffles lists: NAME, or NAME=10 for the top 10.")
    ] = None,
    bias: Annotated[Names, _names("--bias", "Column that may change examination.")] = None,
    context: Annotated[
        Names, _names("--context", "Feature of the user, session or moment, with one value per result page.")
    ] = None,
    seen: Annotated[
        str | None, _column("recorded examination: 0 or 1, or seconds in the viewport; empty: not recorded")
    ] = None,
    feature: Annotated[
        Names, _names("--feature", "Feature, or a pattern: 'f_*'. Default: numbers, categories.")
    ] = None,
    grade: Annotated[
        str | None,
        typer.Option(
            metavar="KIND=WEIGHT,…",
            help="Feedback to keep, by column or event type, with its weight in training: "
            "click=1,add_to_cart=3,purchase=5.",
            rich_help_panel="Columns",
        ),
    ] = None,
    event: Annotated[str | None, _column("event type")] = None,
    impression_event: Annotated[Names, _names("--impression-event", "Event type that is an impression.")] = None,
    click_event: Annotated[Names, _names("--click-event", "Event type that is a click.")] = None,
    seen_event: Annotated[Names, _names("--seen-event", "Event type that records examination.")] = None,
    features_document: Annotated[str | None, _column("document in the feature table, if it has another name")] = None,
    first_position: Annotated[
        int | None, typer.Option(help="Index of the first position.", rich_help_panel="Columns")
    ] = None,
    table: Annotated[str | None, typer.Option(help="Table of events in a database.")] = None,
    features_table: Annotated[str | None, typer.Option(help="Table of features in a database.")] = None,
    clicks_table: Annotated[str | None, typer.Option(help="Table of clicks in a database.")] = None,
    queries_table: Annotated[str | None, typer.Option(help="Table of queries in a database.")] = None,
    encoding: Annotated[str | None, typer.Option(help="Encoding of CSV files, e.g. latin-1. Default: utf-8.")] = None,
    n_positions: Annotated[int | None, typer.Option(min=1, help="Number of positions to keep, from the top.")] = None,
    where: Annotated[
        str | None, typer.Option(metavar="CONDITION", help="Rows to keep, e.g. 'not is_sponsored and price > 0'.")
    ] = None,
    cap_user: Annotated[
        str | None, typer.Option(metavar="COLUMN=N", help="Keep at most N sessions per user; COLUMN names the user.")
    ] = None,
    period: Annotated[
        str | None, typer.Option(help="Count lists per hour, day, week or month, to select time windows later.")
    ] = None,
    window: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long events count after their impression: 30m, 12h, 7d.")
    ] = None,
    fill: Annotated[float | None, typer.Option(help="Value for missing features. Default: keep them missing.")] = None,
    joint: Annotated[bool, typer.Option("--joint", help="Keep which documents were clicked together.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Fail instead of leaving rows out.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show columns, rows and counts; write nothing.")] = False,
    engine: Annotated[str, typer.Option(help="duckdb, or spark for logs too large for one machine.")] = "duckdb",
    memory: Annotated[str, typer.Option(help="Memory limit of DuckDB; the rest spills to disk.")] = "2GB",
    threads: Annotated[int | None, typer.Option(min=1, help="Number of threads. Default: one per core.")] = None,
    spark_master: Annotated[str | None, typer.Option(help="URL of the Spark cluster, e.g. local[4].")] = None,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Turn an event table into a click log. Rows that cannot be used are counted and reported."""
    user, sessions_a_user = (None, None) if cap_user is None else parse_cap(cap_user)
    tables: dict[str, Any] = {"features": features, "queries": queries, "clicks": clicks}
    settings: dict[str, Any] = {
        "form": form,
        "session": session,
        "query": query,
        "document": document,
        "position": position,
        "row": row,
        "page": page,
        "row_size": row_size,
        "page_size": page_size,
        "where": where,
        "click": click,
        "time": time,
        "policy_score": policy_score,
        "display_probability": display_probability,
        "intervention": intervention,
        "shuffled": shuffled,
        "user": user,
        "bias": bias,
        "context": context,
        "grades": None if grade is None else parse_grades(grade),
        "seen": seen,
        "feature": feature,
        "event": event,
        "impression_events": impression_event,
        "click_events": click_event,
        "seen_events": seen_event,
        "features_document": features_document,
        "first_position": first_position,
        "events_table": table,
        "features_table": features_table,
        "queries_table": queries_table,
        "clicks_table": clicks_table,
        "encoding": encoding,
        "n_positions": n_positions,
        "sessions_a_user": sessions_a_user,
        "fill": fill,
        "joint": joint,
        "strict": strict,
        "engine": engine,
        "memory": memory,
        "threads": threads,
        "master": spark_master,
        "period": period,
        "window": None if window is None else parse_window(window),
    }
    if out is None and not dry_run:
        raise ValueError("pass --out FOLDER to write the log, or --dry-run to preview it")
    if form not in PUBLIC_FORMS:  # wrong names are answered before anything slow is imported
        names, roles, _ = settings_of(columns, settings)
        check_schema(Tables(source, **tables, **names), roles)
    if out is None or dry_run:
        _show_preview(unskew.preview_ingest(source, columns=columns, **tables, **settings), json)
        return
    quiet = quiet or json
    done = unskew.ingest(source, out, columns=columns, overwrite=overwrite, progress=not quiet, **tables, **settings)
    _show_ingested(done.report, out, json)


def _show_ingested(done: Ingested, out: Path, json: bool) -> None:
    if json:
        show_json({"log": out, **done.to_json()})
        return
    ratio = done.sessions / max(done.lists, 1)
    features = "1 feature" if done.features == 1 else f"{done.features} features"
    console.print(
        f"{done.sessions:,} sessions of {done.queries:,} queries in {done.lists:,} lists ({ratio:,.1f} sessions per "
        f"list), {done.clicks:,} clicks, {done.documents:,} documents, {features}; written to {out}",
        markup=False,
        highlight=False,
    )
    _show_remarks(done)


def _show_preview(found: Preview, json: bool) -> None:
    if json:
        show_json(found.to_json())
        return
    show_table("Roles", ("role", "column", ""), found.roles, left=3)
    listed = [(entry.column, entry.role, entry.type, entry.example, f"{entry.missing:.1%}") for entry in found.columns]
    show_table("Columns", ("column", "role", "type", "example", "missing"), listed, left=4)
    show_table("First rows", found.head_columns, found.head, left=len(found.head_columns))
    show_table("Counts", ("what", "count"), [(name, cell(count)) for name, count in found.counts.items()])
    _show_remarks(found)
    console.print("Nothing was written. Run it without --dry-run to write the log.", highlight=False)


def _show_remarks(found: Ingested | Preview) -> None:
    """Print other event types, notes and what was left out; a dry run prints the same."""
    if found.other_kinds:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in found.other_kinds.items())
        text = f"{sum(found.other_kinds.values()):,} events are neither impressions nor clicks: {kinds}"
        console.print(text, markup=False, highlight=False)
    for remark in found.remarks:
        console.print(remark, markup=False, highlight=False)
    _show_dropped(found.dropped, found.examples)


def _show_dropped(dropped: Any, examples: Any) -> None:
    if not dropped:
        console.print("Nothing is left out.", highlight=False)
        return
    rows = [(REASONS[key].text, examples.get(key, ""), f"{count:,}") for key, count in dropped.items()]
    show_table("Left out", ("what", "the first", "count"), rows, left=2)
