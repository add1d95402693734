"""`unskew drift`: what changed between two logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import unskew
from unskew.commands.app import Json, command
from unskew.terminal import console, show_json, show_table


@command
def drift(
    log_a: Annotated[Path, typer.Argument(help="The earlier click log.")],
    log_b: Annotated[Path, typer.Argument(help="The later click log, of the same site.")],
    stream: Annotated[
        bool, typer.Option("--stream", help="Read the logs in parts; they may be larger than memory.")
    ] = False,
    json: Json = False,
) -> None:
    """Report what changed between two logs: features, clicks, order, traffic, bias columns, coverage."""
    read = unskew.open_log if stream else unskew.read_log
    found = unskew.drift(read(log_a), read(log_b))
    if json:
        show_json(found.to_json())
        return
    screen = found.screen()
    if screen.rows:
        show_table(f"What changed from {log_a} to {log_b}", screen.columns, screen.rows)
    console.print(screen.notes[0], markup=False, highlight=False)
    for place, names in ((log_a, found.only_before), (log_b, found.only_after)):
        if names:
            console.print(f"Only in {place}: {', '.join(names)}", markup=False, highlight=False)
    counts = [(name.replace("_", " "), f"{value:,.4g}") for name, value in found.coverage.items()]
    show_table("What the logs have in common", ("coverage", ""), counts)
