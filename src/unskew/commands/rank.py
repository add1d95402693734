"""`unskew rank`: score and rank candidates, and keep their ids."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import unskew
from unskew.commands.app import DATA_HELP, RANKER_HELP, AllowCode, Json, Overwrite, Quiet, command, model_with_code
from unskew.commands.source import constant
from unskew.terminal import console, show_json

TABLE_HELP = "Parquet files with candidates (file, folder or glob): ids and features."


@command
def rank(
    model: Annotated[Path, typer.Argument(help=RANKER_HELP)],
    data: Annotated[str, typer.Argument(help=f"{TABLE_HELP} Or judged data. {DATA_HELP} Default split: test.")],
    out: Annotated[Path, typer.Option(help="Output file: ranking.parquet, .csv, or .trec for a TREC run.")],
    query: Annotated[str, typer.Option(help="Query column of a table.")] = "query",
    document: Annotated[str, typer.Option(help="Document column of a table.")] = "document",
    sort: Annotated[
        bool, typer.Option("--sort", help="Sort the table by query first, if the rows of a query are not adjacent.")
    ] = False,
    memory: Annotated[str, typer.Option(help="Memory limit for sorting; the rest spills to disk.")] = constant(
        "serving.rankings:MEMORY"
    ),
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse missing values in columns that had none in training.")
    ] = False,
    engine: Annotated[
        str, typer.Option(help="duckdb for this machine, or spark: executors write a folder of parquet files.")
    ] = "duckdb",
    spark_master: Annotated[
        str | None, typer.Option(help="URL of the cluster. Default: as Spark is configured.")
    ] = None,
    overwrite: Overwrite = False,
    allow_code: AllowCode = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score and rank candidates, and keep their ids. The table may be larger than memory."""
    done = unskew.rank(
        model_with_code(model, allow_code=allow_code),
        data,
        out,
        query=query,
        document=document,
        sort=sort,
        memory=memory,
        strict=strict,
        overwrite=overwrite,
        engine=engine,
        spark_master=spark_master,
        progress=not (quiet or json),
    )
    if json:
        counts = {"documents": done.n_documents, "queries": done.n_queries, "unknown": done.n_unknown}
        unlike_training = {"filled": dict(done.filled), "unseen": dict(done.unseen), "ignored": list(done.ignored)}
        show_json({"ranking": out, **counts, **unlike_training, "lineage": dict(done.lineage)})
        return
    console.print(repr(done), markup=False, highlight=False, soft_wrap=True)
