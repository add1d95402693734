"""`unskew judgements`: ratings of documents from clicks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.commands.app import Json, Overwrite, command
from unskew.data.clicks.storage import read_log
from unskew.data.files import check_place
from unskew.serving.judgements import judgements as make_judgements
from unskew.serving.judgements import write_judgements
from unskew.terminal import console, show_json


@command
def judgements(
    log: Annotated[Path, typer.Argument(help="A click log.")],
    out: Annotated[Path, typer.Option(help="A .csv file, or .json for OpenSearch's Search Relevance Workbench.")],
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write ratings of documents, by clicks that are corrected for position, with intervals and COEC beside them."""
    if out.suffix not in (".csv", ".json"):
        raise ValueError(f"{out}: write .csv, or .json for OpenSearch's Search Relevance Workbench")
    check_place(out, overwrite=overwrite)
    found = make_judgements(read_log(log))
    write_judgements(found, out, name=log.name)
    if json:
        show_json({"judgements": out, "documents": len(found.table), "curve": found.estimator})
        return
    text = f"{len(found.table):,} documents rated, by the curve of {found.estimator}; written to {out}"
    console.print(text, markup=False, highlight=False, soft_wrap=True)
