"""`unskew export`: a model as a file for serving."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.commands.app import Overwrite, command
from unskew.serving.export import export_model
from unskew.serving.model_files import load_model
from unskew.terminal import console


@command
def export(
    model: Annotated[Path, typer.Argument(help="A saved model.")],
    to: Annotated[
        Path, typer.Option(help="model.onnx, or model.json: a linear ranker for Elasticsearch and OpenSearch.")
    ],
    overwrite: Overwrite = False,
) -> None:
    """Write a model for serving, checked against torch."""
    exported = export_model(load_model(model), to, overwrite=overwrite)
    console.print(str(exported), markup=False, highlight=False, soft_wrap=True)
