"""`unskew export`: a model as a file for serving."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.commands.app import Overwrite, command
from unskew.serving.export import export_model
from unskew.serving.flat_onnx import INPUT, OUTPUT
from unskew.serving.model_files import load_model
from unskew.terminal import console


@command
def export(
    model: Annotated[Path, typer.Argument(help="A saved model.")],
    to: Annotated[
        Path, typer.Option(help="model.onnx, or model.json: a linear ranker for Elasticsearch and OpenSearch.")
    ],
    flat: Annotated[
        bool, typer.Option("--flat", help="ONNX with one row per document and no mask, as Vespa and Triton take it.")
    ] = False,
    input_name: Annotated[str, typer.Option(help="Name of the flat file's input.")] = INPUT,
    output_name: Annotated[str, typer.Option(help="Name of the flat file's output.")] = OUTPUT,
    overwrite: Overwrite = False,
) -> None:
    """Write a model for serving, checked against torch."""
    names = (input_name, output_name)
    exported = export_model(load_model(model), to, flat=flat, names=names, overwrite=overwrite)
    console.print(str(exported), markup=False, highlight=False, soft_wrap=True)
    if exported.snippet:
        console.print(f"In Vespa:\n\n{exported.snippet}", markup=False, highlight=False, soft_wrap=True)
