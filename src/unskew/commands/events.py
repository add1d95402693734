"""`unskew events`: a click log as an event table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow.parquet as pq
import typer

from unskew.commands.app import Json, Overwrite, Seed, command
from unskew.data.clicks.storage import read_log
from unskew.data.files import check_place, new_file
from unskew.ingestion.event_table import feature_table, write_event_table
from unskew.terminal import console, show_json


@command
def events(
    log: Annotated[Path, typer.Argument(help="A click log, as simulate writes it.")],
    out: Annotated[Path, typer.Option(help="Parquet file for the events, one row per impression.")],
    features: Annotated[Path | None, typer.Option(help="Parquet file for the features of the documents.")] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write a click log as a search engine would have logged it; `ingest` reads it."""
    for place in (out, features):
        if place is not None:
            check_place(place, overwrite=overwrite)
    clicks = read_log(log)
    n_rows = write_event_table(clicks, out, np.random.default_rng(seed))
    n_documents = None
    if features is not None:
        table = feature_table(clicks)
        with new_file(features) as scratch:
            pq.write_table(table, scratch, compression="zstd")
        n_documents = table.num_rows
    if json:
        show_json({"events": out, "impressions": n_rows, "features": features, "documents": n_documents})
        return
    beside = "" if features is None else f"; features of {n_documents:,} documents in {features}"
    console.print(f"{n_rows:,} impressions in {out}{beside}", markup=False, highlight=False, soft_wrap=True)
