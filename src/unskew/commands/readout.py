"""`unskew readout`: evaluate an online test."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import unskew
from unskew.commands.app import Json, command
from unskew.terminal import console, parse_options, show_json, show_table


@command
def readout(
    log: Annotated[Path, typer.Argument(help="A click log with the arm or team as a bias column.")],
    arm: Annotated[str | None, typer.Option(help="Bias column that names the arm of each list.")] = None,
    team: Annotated[str | None, typer.Option(help="Bias column that names the team of each document.")] = None,
    baseline: Annotated[str | None, typer.Option(help="The arm or team to compare with. Default: the first.")] = None,
    curve: Annotated[Path | None, typer.Option(help="A model whose examination curve corrects for position.")] = None,
    grades: Annotated[
        list[str] | None, typer.Option("--grade", metavar="KIND=WEIGHT", help="Weight of an event type. Repeatable.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Use lists shown from this day on.")] = None,
    until: Annotated[str | None, typer.Option(help="Use lists shown before this day.")] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Read the log shard by shard; it may be larger than memory.")
    ] = False,
    json: Json = False,
) -> None:
    """Evaluate an A/B test or a team-draft interleaving, with intervals over queries."""
    from unskew.data.clicks.windows import window

    examination = None if curve is None else unskew.load_model(curve).examination()
    if curve is not None and examination is None:
        raise ValueError(f"{curve} has no examination curve: pass a model trained with dla, two_tower or ipw")
    weights = {kind: float(weight) for kind, weight in parse_options(grades or []).items()}
    clicks = window(unskew.open_log(log) if stream else unskew.read_log(log), since, until)
    found = unskew.readout(clicks, arm=arm, team=team, baseline=baseline, curve=examination, grades=weights or None)
    if json:
        show_json(found.to_json())
        return
    screen = found.screen()
    show_table(f"{found.kind} of {log}", screen.columns, screen.rows)
    for note in screen.notes:
        console.print(note, markup=False, highlight=False)
