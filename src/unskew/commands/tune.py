"""`unskew tune`: train a model further on judged queries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import unskew
from unskew.commands.app import DATA_HELP, Json, Overwrite, Quiet, Seed, command
from unskew.commands.source import constant
from unskew.data.files import check_folder
from unskew.terminal import console, show_json, show_table

if TYPE_CHECKING:
    from unskew.daily.tune import Tuned


@command
def tune(
    model: Annotated[Path, typer.Argument(help="A saved model.")],
    judged: Annotated[str, typer.Option(help=f"Judged queries to learn from. {DATA_HELP} Default split: valid.")],
    out: Annotated[Path, typer.Option(help="Output folder for the tuned model.")],
    metric: Annotated[str, typer.Option(help="The metric of cross-validation.")] = constant("daily.tune:Plan.metric"),
    steps: Annotated[int, typer.Option(help="The largest number of steps to try.")] = constant("daily.tune:Plan.steps"),
    folds: Annotated[int, typer.Option(help="Folds of inner and outer cross-validation.")] = constant(
        "daily.tune:Plan.folds"
    ),
    seed: Seed = 0,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model further on judged queries; cross-validation chooses how long.

    An interrupted run resumes when you repeat the command.
    """
    from unskew.serving.model_files import ABOUT

    check_folder(out, ABOUT, overwrite=overwrite)
    checkpoint = out.with_name(f".{out.name}.tuning")
    plan = {"metric": metric, "steps": steps, "folds": folds, "seed": seed}
    found = unskew.tune(model, judged, checkpoint=checkpoint, progress=not (quiet or json), **plan)
    unskew.save_model(found.model, out, overwrite=overwrite)
    checkpoint.unlink(missing_ok=True)
    if json:
        show_json({"model": out, **found.to_json()})
    else:
        _show(found, out)


def _show(found: Tuned, out: Path) -> None:
    rows = [
        (name, f"{mean:.4f}", f"{low:.4f} to {high:.4f}")
        for name, (mean, low, high) in (
            ("before", found.before),
            ("after", found.after),
            ("difference", found.difference),
        )
    ]
    title = f"{found.metric} on {found.n_queries:,} judged queries, by cross-validation"
    show_table(title, ("model", "mean", "95% interval"), rows)
    choice = found.choice
    how = f"trained for {choice.steps} steps, learning rate {choice.rate}" if choice.steps else "not trained further"
    number = ", with the parameter that clicks do not identify chosen on these queries" if choice.number else ""
    left_out = f"; {found.left_out:,} queries have a single grade and were left out" if found.left_out else ""
    console.print(f"{how}{number}{left_out}; written to {out}", markup=False, highlight=False)
