"""`unskew diagnose`: what a log identifies, and which methods are worth training on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

import unskew
from unskew.commands.app import Json, Memory, Quiet, Seed, command
from unskew.commands.source import constant
from unskew.terminal import console, show_json, show_table

if TYPE_CHECKING:
    from unskew.diagnosis.advice import Advice
    from unskew.diagnosis.assemble import Diagnosis

MOST_ROWS = 15  # positions shown in the terminal; the report has all
RATE_INTERVAL = 3  # the column of position_rows that only the report has: a terminal is narrow
NAME_WIDTH = 28


@command
def diagnose(
    log: Annotated[Path, typer.Argument(help="A click log.")],
    out: Annotated[Path, typer.Option(help="Output file for the report.")] = Path("report.html"),
    quick: Annotated[bool, typer.Option("--quick", help="Skip what needs a trained model.")] = False,
    users: Annotated[
        str | None, typer.Option(help="The bias column that names users; it is counted, not used as bias.")
    ] = None,
    cap: Annotated[float | None, typer.Option(help="Maximum number of sessions per user; needs --users.")] = None,
    memory: Memory = constant("data.clicks.within_memory:MEMORY"),
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Diagnose a click log: what it identifies, and which methods are worth training on it."""
    given: dict[str, Any] = {"quick": quick, "users": users, "cap": cap, "memory": memory, "seed": seed}
    found = unskew.diagnose(log, out, **given, progress=not (quiet or json))
    if json:
        show_json({"log": log, "report": out, **found.to_json()})
        return
    _show(found)
    console.print(f"\nReport with plots, tables and reasons: {out}", markup=False, highlight=False)


def _show(found: Diagnosis) -> None:
    from unskew.diagnosis.page import position_rows
    from unskew.reporting.answers import BAD, GOOD, PLAIN, UNKNOWN

    styles = {GOOD: "green", PLAIN: "", BAD: "bold yellow", UNKNOWN: "dim"}
    console.print(f"{found.log!r}", markup=False, highlight=False)
    columns, rows = position_rows(found)
    kept = [number for number in range(len(columns)) if number != RATE_INTERVAL]
    shown = [[row[number] for number in kept] for row in rows[:MOST_ROWS]]
    show_table("Positions (from 1)", [columns[number] for number in kept], shown)

    if len(rows) > MOST_ROWS:
        console.print(f"… and {len(rows) - MOST_ROWS} more in the report", style="dim", highlight=False)
    _show_pairs("What the log says", [(e.question, e.answer, styles[e.tone]) for e in found.findings()])
    judged = found.verdict
    _show_pairs("Methods", _grouped(judged.methods))
    console.print("\n[bold]Verdict[/]", highlight=False)
    for line in judged.lines:
        console.print(escape(line), highlight=False)


def _grouped(methods: Sequence[Advice]) -> list[tuple[str, str, str]]:
    """One row per advice, with its methods."""
    from unskew.diagnosis.advice import CANNOT, DOUBTFUL, TRAIN, TRY

    styles = {TRAIN: "bold green", TRY: "", DOUBTFUL: "yellow", CANNOT: "red"}
    names: dict[tuple[str, str], list[str]] = {}
    for entry in methods:
        names.setdefault((entry.word, entry.reason), []).append(entry.method)
    return [(", ".join(own), f"{word}: {reason}", styles[word]) for (word, reason), own in names.items()]


def _show_pairs(title: str, pairs: list[tuple[str, str, str]]) -> None:
    """Two columns, names and texts, with wrapped text."""
    console.print(f"\n[bold]{title}[/]", highlight=False)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(max_width=NAME_WIDTH)
    table.add_column(overflow="fold")
    for name, text, style in pairs:
        table.add_row(escape(name), f"[{style}]{escape(text)}[/]" if style else escape(text))
    console.print(table)
