"""`unskew events`: a click log as an event table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import unskew
from unskew.commands.app import Json, Overwrite, Seed, command
from unskew.terminal import console, show_json


@command
def events(
    log: Annotated[Path, typer.Argument(help="A click log.")],
    out: Annotated[Path, typer.Option(help="Output parquet file for the events, one row per impression.")],
    features: Annotated[Path | None, typer.Option(help="Output parquet file for document features.")] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write a click log as an event table, which `ingest` can read."""
    done = unskew.events(log, out, features=features, seed=seed, overwrite=overwrite)
    if json:
        show_json(vars(done))
    else:
        console.print(str(done), markup=False, highlight=False, soft_wrap=True)
