"""`unskew demo`: the main job in one go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import unskew
from unskew.commands.app import Seed, command


@command
def demo(
    data: Annotated[str, typer.Option(help="A world of the catalogue.")] = "world:small",
    out: Annotated[Path, typer.Option(help="Where the report is written.")] = Path("report.html"),
    seed: Seed = 0,
) -> None:
    """The main job in one go: simulate a biased log, look at it, train plain and debiased rankers, compare them."""
    unskew.demo(data, out, seed=seed)
