"""`unskew export`: a model as a file for serving."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.commands.app import DATA_HELP, Overwrite, command
from unskew.data.clicks.storage import read_log
from unskew.data.judged.catalogue import load_split
from unskew.model import Model
from unskew.serving.distillation import LEAST_AGREEMENT, export_trees
from unskew.serving.export import FORMS, export_model
from unskew.serving.flat_onnx import INPUT, OUTPUT
from unskew.serving.model_files import load_model
from unskew.serving.tree_files import FORMS as TREE_FORMS
from unskew.terminal import console
from unskew.training.boosting import Boosting


@command
def export(
    model: Annotated[Path, typer.Argument(help="A saved model.")],
    to: Annotated[Path, typer.Option(help="model.onnx, .json, .txt or .ubj.")],
    form: Annotated[
        str | None,
        typer.Option(
            "--as",
            help=f"What the file holds: {', '.join([*FORMS, *TREE_FORMS])}. Default: onnx for .onnx, linear for .json.",
        ),
    ] = None,
    flat: Annotated[
        bool, typer.Option("--flat", help="ONNX with one row per document and no mask, as Vespa and Triton take it.")
    ] = False,
    input_name: Annotated[str, typer.Option(help="Name of the flat file's input.")] = INPUT,
    output_name: Annotated[str, typer.Option(help="Name of the flat file's output.")] = OUTPUT,
    log: Annotated[Path | None, typer.Option(help="Trees: the click log whose documents they learn from.")] = None,
    missing: Annotated[
        float | None,
        typer.Option(help="Trees: what the engine sends for a missing value. Default: 0 in XGBoost's .json, else nan."),
    ] = None,
    trees: Annotated[int, typer.Option(help="Trees: how many.")] = Boosting.trees,
    leaves: Annotated[int, typer.Option(help="Trees: leaves of each.")] = Boosting.leaves,
    least_agreement: Annotated[
        float, typer.Option(help="Trees: Kendall's τ with the model below which nothing is written.")
    ] = LEAST_AGREEMENT,
    judged: Annotated[
        str | None, typer.Option(help=f"Trees: labels to measure them on beside the model. {DATA_HELP}")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a model for serving, checked against torch."""
    loaded = load_model(model)
    if form in TREE_FORMS:
        said = _trees(loaded, to, form, log, missing, Boosting(trees, leaves), least_agreement, judged, overwrite)
    else:
        names = (input_name, output_name)
        exported = export_model(loaded, to, form=form, flat=flat, names=names, overwrite=overwrite)
        said = f"{exported}\nIn Vespa:\n\n{exported.snippet}" if exported.snippet else str(exported)
    console.print(said, markup=False, highlight=False, soft_wrap=True)


def _trees(
    model: Model,
    to: Path,
    form: str,
    log: Path | None,
    missing: float | None,
    boosting: Boosting,
    least_agreement: float,
    judged: str | None,
    overwrite: bool,
) -> str:
    exported = export_trees(
        model,
        to,
        None if log is None else read_log(log),
        kind=form,
        missing=missing,
        boosting=boosting,
        least_agreement=least_agreement,
        judged=None if judged is None else load_split(judged, "test"),
        overwrite=overwrite,
    )
    return str(exported)
