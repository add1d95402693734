"""`unskew export`: a model as a file for serving."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import unskew
from unskew.commands.app import DATA_HELP, AllowCode, Overwrite, command, model_with_code
from unskew.commands.source import constant
from unskew.terminal import console

FORMS = constant("serving.export:FORMS")
TREE_FORMS = constant("serving.tree_files:FORMS")
INPUT = constant("serving.onnx_file:INPUT")
OUTPUT = constant("serving.onnx_file:OUTPUT")
TREES = constant("training.boosting:Boosting.trees")
LEAVES = constant("training.boosting:Boosting.leaves")
LEAST_AGREEMENT = constant("serving.distillation:LEAST_AGREEMENT")


@command
def export(
    model: Annotated[Path, typer.Argument(help="A saved model.")],
    to: Annotated[Path, typer.Option(help="Output file: model.onnx, .json, .txt or .ubj.")],
    form: Annotated[
        str | None,
        typer.Option(
            "--as",
            help=f"Format: {', '.join([*FORMS, *TREE_FORMS])}. Default: onnx for .onnx, linear for .json.",
        ),
    ] = None,
    flat: Annotated[
        bool, typer.Option("--flat", help="ONNX with one row per document and no mask, for Vespa and Triton.")
    ] = False,
    input_name: Annotated[str, typer.Option(help="Name of the flat file's input.")] = INPUT,
    output_name: Annotated[str, typer.Option(help="Name of the flat file's output.")] = OUTPUT,
    log: Annotated[Path | None, typer.Option(help="Trees: the click log with the documents to learn from.")] = None,
    missing: Annotated[
        float | None,
        typer.Option(help="Trees: the engine's value for a missing feature. Default: 0 for XGBoost's .json, else nan."),
    ] = None,
    trees: Annotated[int, typer.Option(help="Trees: number of trees.")] = TREES,
    leaves: Annotated[int, typer.Option(help="Trees: leaves per tree.")] = LEAVES,
    least_agreement: Annotated[
        float, typer.Option(help="Trees: minimum Kendall's τ with the model; below it nothing is written.")
    ] = LEAST_AGREEMENT,
    judged: Annotated[
        str | None, typer.Option(help=f"Trees: judged data to evaluate trees and model on. {DATA_HELP}")
    ] = None,
    overwrite: Overwrite = False,
    allow_code: AllowCode = False,
) -> None:
    """Export a model to a file for serving; its scores are checked against torch."""
    from unskew.serving.distillation import FEATURES
    from unskew.training.boosting import Boosting

    own: dict[str, Any] = {"flat": flat, "names": (input_name, output_name)}
    if form in TREE_FORMS:
        own = {
            "missing": missing,
            "boosting": Boosting(trees, leaves, features=FEATURES),
            "least_agreement": least_agreement,
        }
    exported = unskew.export(
        model_with_code(model, allow_code=allow_code), to, form=form, log=log, judged=judged, overwrite=overwrite, **own
    )
    snippet = getattr(exported, "snippet", "")
    said = f"{exported}\nIn Vespa:\n\n{snippet}" if snippet else str(exported)
    console.print(said, markup=False, highlight=False, soft_wrap=True)
