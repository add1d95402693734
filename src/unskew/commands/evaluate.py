"""`unskew evaluate`: a model, measured on judged data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.commands.app import DATA_HELP, RANKER_HELP, Json, command
from unskew.data.files import check_place
from unskew.data.judged.catalogue import load_split
from unskew.evaluation.evaluate import evaluate as run_evaluation
from unskew.serving.saved_ranker import open_ranker
from unskew.serving.weights import write_rows
from unskew.terminal import show_json, show_table


@command
def evaluate(
    model: Annotated[Path, typer.Argument(help=RANKER_HELP)],
    data: Annotated[str, typer.Argument(help=f"{DATA_HELP} Default split: test.")],
    metrics: Annotated[str, typer.Option(help="With commas between.")] = "ndcg@1,ndcg@3,ndcg@5,ndcg@10,err@10,arp",
    undefined: Annotated[str, typer.Option(help="Queries without a relevant document: skip, zero, one.")] = "skip",
    max_grade: Annotated[float | None, typer.Option(help="Highest possible grade, for err.")] = None,
    out: Annotated[Path | None, typer.Option(help="Parquet file for the values of each query.")] = None,
    json: Json = False,
) -> None:
    """Measure a model on judged data."""
    if out is not None:
        check_place(out, overwrite=True)
    saved = open_ranker(model)
    judged = load_split(data, "test").with_features(saved.feature_names)
    names = [name.strip() for name in metrics.split(",")]
    result = run_evaluation(saved.for_judged(judged), judged, names, undefined=undefined, max_grade=max_grade)
    if out is not None:
        write_rows(result.to_table(), out)
    if json:
        show_json({row.metric: {"mean": row.mean, "low": row.low, "high": row.high} for row in result.summary()})
    else:
        columns = ("metric", "mean", "95 % interval", "queries", "left out")
        show_table(f"{model} on {judged.name}", columns, result.rows())
