"""`unskew rank`: documents scored and ranked, keyed by their ids."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.commands.app import DATA_HELP, RANKER_HELP, Json, Overwrite, Quiet, command
from unskew.data.files import check_place
from unskew.data.judged.catalogue import load_split
from unskew.serving.candidates import is_table
from unskew.serving.rank import MEMORY, rank_judged, rank_table
from unskew.serving.rankings import check_ending
from unskew.serving.saved_ranker import open_ranker
from unskew.terminal import console, counting_progress, show_filled, show_json

TABLE_HELP = "Parquet files with candidates (file, folder or glob): ids and features, queries of any number."


@command
def rank(
    model: Annotated[Path, typer.Argument(help=RANKER_HELP)],
    data: Annotated[str, typer.Argument(help=f"{TABLE_HELP} Or: {DATA_HELP} Default split: test.")],
    out: Annotated[Path, typer.Option(help="ranking.parquet, .csv, or .trec for a TREC run.")],
    query: Annotated[str, typer.Option(help="Column with the query, in a table.")] = "query",
    document: Annotated[str, typer.Option(help="Column with the document, in a table.")] = "document",
    sort: Annotated[
        bool, typer.Option("--sort", help="Put documents of a query together first, if the table does not.")
    ] = False,
    memory: Annotated[str, typer.Option(help="Limit of memory for sorting; more goes to disk.")] = MEMORY,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse missing values in columns that had none in training.")
    ] = False,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score and rank documents, keyed by their query and document ids. A table may exceed memory."""
    check_place(out, overwrite=overwrite)
    check_ending(out)
    ranker = open_ranker(model)
    if is_table(data):
        with counting_progress("rank", "documents", quiet=quiet or json) as progress:
            done = rank_table(
                ranker,
                data,
                out,
                query=query,
                document=document,
                sort=sort,
                memory=memory,
                strict=strict,
                progress=progress,
            )
    else:
        judged = load_split(data, "test").with_features(ranker.feature_names, ranker.categories)
        done = rank_judged(ranker, judged, out, strict=strict)
    if json:
        counts = {
            "documents": done.documents,
            "queries": done.queries,
            "unknown": done.unknown,
            "filled": dict(done.filled),
        }
        show_json({"ranking": out, **counts})
        return
    show_filled(done.filled)
    if done.unknown:
        console.print(
            f"{done.unknown:,} documents are not in the log that the model learnt from: they are ranked by what it "
            "knows of their url and query, else as the average",
            highlight=False,
        )
    console.print(
        f"{done.documents:,} documents of {done.queries:,} queries ranked in {out}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
