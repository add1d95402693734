"""`unskew demo`: the whole pipeline in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import unskew
from unskew.commands.app import Seed, command


@command
def demo(
    data: Annotated[str, typer.Option(help="A world of the catalogue.")] = "world:small",
    out: Annotated[Path, typer.Option(help="Output file for the report.")] = Path("report.html"),
    seed: Seed = 0,
) -> None:
    """Run the whole pipeline on simulated data: make a biased log, diagnose it, train rankers, compare them."""
    unskew.demo(data, out, seed=seed)
