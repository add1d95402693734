"""`unskew judgements`: ratings of documents from clicks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import unskew
from unskew.commands.app import Json, Overwrite, command
from unskew.data.clicks.lineage import lineage_line
from unskew.terminal import console, show_json


@command
def judgements(
    log: Annotated[Path, typer.Argument(help="A click log.")],
    out: Annotated[Path, typer.Option(help="Output file: .csv, or .json for OpenSearch's Search Relevance Workbench.")],
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write relevance ratings from clicks, corrected for position, with intervals and clicks over expected clicks."""
    found = unskew.judgements(log, out, overwrite=overwrite)
    if json:
        about = {"documents": len(found.table), "curve": found.estimator, "lineage": found.lineage}
        show_json({"judgements": out, **about})
        return
    text = f"{len(found.table):,} documents rated, by the curve of {found.estimator}; written to {out}"
    text += f". {lineage_line(found.lineage)}"
    console.print(text, markup=False, highlight=False, soft_wrap=True)
