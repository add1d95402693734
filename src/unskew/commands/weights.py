"""`unskew weights`: debiased rows for those who stay with trees."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.commands.app import Overwrite, Quiet, Seed, SetOptions, command
from unskew.data.clicks.storage import read_log
from unskew.data.files import check_place
from unskew.fitting import fit
from unskew.recipe import Recipe, check_has_curve, find_method
from unskew.serving.weights import debiased_rows, write_rows
from unskew.terminal import console, parse_options, training_progress


@command
def weights(
    log: Annotated[Path, typer.Argument(help="A click log.")],
    out: Annotated[Path, typer.Option(help="Parquet file for the rows.")],
    method: Annotated[str, typer.Option(help="A method with an examination curve.")] = "dla",
    options: SetOptions = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Write debiased targets and weights that LightGBM and XGBoost take as they are."""
    check_place(out, overwrite=overwrite)
    check_has_curve(method)
    recipe = Recipe.of(method, **{"seed": seed, **parse_options(options or [])})
    clicks = read_log(log)
    held_out = None if find_method(method).click_model is None else 0.1
    with training_progress(f"train {method}", quiet=quiet) as progress:
        model = fit(recipe, clicks, validate=held_out, progress=progress)
    rows = debiased_rows(clicks, model)
    write_rows(rows, out)
    console.print(f"{len(rows):,} rows with target, grade and weight in {out}", markup=False)
