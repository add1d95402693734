"""`unskew weights`: debiased rows for LightGBM and XGBoost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import unskew
from unskew.commands.app import Grade, Memory, Overwrite, Quiet, Seed, SetOptions, SumGrades, command, grading
from unskew.commands.source import constant
from unskew.terminal import console, parse_options


@command
def weights(
    log: Annotated[Path, typer.Argument(help="A click log.")],
    out: Annotated[Path, typer.Option(help="Output parquet file.")],
    method: Annotated[str, typer.Option(help="A method with an examination curve.")] = "dla",
    grade: Grade = None,
    sum_grades: SumGrades = False,
    options: SetOptions = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    memory: Memory = constant("data.clicks.within_memory:MEMORY"),
    quiet: Quiet = False,
) -> None:
    """Write debiased targets and weights for LightGBM and XGBoost."""
    settings = {"seed": seed, **grading(grade, sum_grades), **parse_options(options or [])}
    rows = unskew.weights(log, out, method, overwrite=overwrite, memory=memory, progress=not quiet, **settings)
    console.print(rows.title, markup=False, soft_wrap=True)
