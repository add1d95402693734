"""`unskew shop`: the event table of a simulated shop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import unskew
from unskew.commands.app import Json, Overwrite, Seed, command
from unskew.simulation.shop_log import EVENTS, JUDGED, TRUTH
from unskew.terminal import console, show_json


@command
def shop(
    out: Annotated[Path, typer.Option(help=f"Output folder for {EVENTS}, {JUDGED} and {TRUTH}.")],
    sessions: Annotated[
        int, typer.Option(min=1, help="Number of searches, with 12 impressions each on average.")
    ] = 5_000,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Simulate the messy event table of a shop, with judged queries."""
    made = unskew.shop(out, sessions=sessions, seed=seed, overwrite=overwrite)
    if json:
        show_json({"shop": out, "impressions": made.events.num_rows, "judged": made.judged.num_rows})
        return
    console.print(
        f"{made.events.num_rows:,} impressions of {sessions:,} searches, and {made.judged.num_rows:,} judged products; "
        f"written to {out}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
