"""`unskew evaluate`: a model on judged data, or by how well it predicts held-out clicks."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import unskew
from unskew.commands.app import DATA_HELP, RANKER_HELP, AllowCode, Json, command, model_with_code
from unskew.data.clicks.lineage import SHORT, lineage_line
from unskew.data.files import check_place
from unskew.parts import load_part
from unskew.terminal import console, show_json, show_table

if TYPE_CHECKING:
    from unskew.evaluation.click_prediction import Estimate
    from unskew.evaluation.evaluate import Evaluation

GRADE_COLUMNS = ("metric", "mean", "95% interval", "queries", "left out")
SEEN_COLUMNS = ("metric", "in the log", "queries", "not in the log", "queries")
POSITION_COLUMNS = ("predicted click rate", "observed click rate", "perplexity", "conditional perplexity")


@command
def evaluate(
    model: Annotated[Path, typer.Argument(help=RANKER_HELP)],
    data: Annotated[str, typer.Argument(help=f"{DATA_HELP} Default split: test. Or a click log of held-out sessions.")],
    metrics: Annotated[str, typer.Option(help="Comma-separated.")] = "ndcg@1,ndcg@3,ndcg@5,ndcg@10,err@10,arp",
    undefined: Annotated[str, typer.Option(help="Queries without a relevant document: skip, zero, one.")] = "skip",
    max_grade: Annotated[float | None, typer.Option(help="Highest possible grade, used by err.")] = None,
    shown: Annotated[
        Path | None,
        typer.Option(help="Click log: report its queries separately; ndcg@10:shown uses the documents it shows."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Parquet file for the values per query.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse missing values in columns that had none in training.")
    ] = False,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Evaluate a model on judged data, or by how well it predicts the clicks of a log."""
    from unskew.data.clicks.storage import is_log
    from unskew.evaluation.evaluate import count_text
    from unskew.serving.ratings import write_rows

    if out is not None:
        check_place(out, overwrite=True)
    names = [name.strip() for name in metrics.split(",")]
    if is_log(data):
        _show_clicks(model, data, [name for name in names if not name.startswith("err")], json=json)
        return
    ranker = model_with_code(model, allow_code=allow_code)
    measures = [load_part(name, allow_code=True) if allow_code and _is_code(name) else name for name in names]
    result = unskew.evaluate(
        ranker, data, measures, undefined=undefined, max_grade=max_grade, shown=shown, strict=strict
    )
    if out is not None:
        write_rows([result.to_table()], out)
    if json:
        show_json(_as_json(result))
        return
    show_table(f"{model} on {result.name}", GRADE_COLUMNS, result.rows())
    _show_line(f"{lineage_line(result.lineage)}.")
    if result.seen is not None:
        show_table(count_text(result.seen), SEEN_COLUMNS, result.by_seen())


def _as_json(result: Evaluation) -> dict[str, Any]:
    """Means and intervals per metric; with a log, also for queries in the log and queries not in it."""

    def means(found: Evaluation) -> dict[str, Any]:
        return {row.metric: {"mean": row.mean, "low": row.low, "high": row.high} for row in found.summary()}

    whole = {**means(result), "lineage": dict(result.lineage)}
    if result.seen is None:
        return whole
    parts = {"seen": result.only(result.seen), "unseen": result.only(~result.seen)}
    return {**whole, **{name: {"queries": len(p.query_ids), **means(p)} for name, p in parts.items()}}


def _is_code(name: str) -> bool:
    """Whether a metric is written as `module:function`, unlike `ndcg@10:shown`."""
    from unskew.data.judged.metrics import AMONG

    return ":" in name and name.rpartition(":")[2] not in AMONG


def _show_clicks(model: Path, data: str, metrics: Sequence[str], *, json: bool) -> None:
    fitted, log = unskew.load_model(model), unskew.read_log(data)
    found = fitted.predict_clicks(log)
    summary = found.summary()
    rates = found.rates_by_position()
    perplexities = list(
        zip(found.perplexity_by_position(), found.perplexity_by_position(conditional=True), strict=True)
    )
    graded = _grades(model, data, metrics)
    if json:
        places = [
            dict(
                zip(
                    POSITION_COLUMNS,
                    (*(None if isnan(rate) else rate for rate in pair), *(each and vars(each) for each in both)),
                    strict=True,
                )
            )
            for pair, both in zip(rates, perplexities, strict=True)
        ]
        values = {name: vars(entry) for name, entry in summary.items()}
        means = {} if graded is None else _as_json(graded)
        means |= {"lineage": fitted.lineage, "log": log.lineage.to_json()}
        show_json({"sessions": found.n_sessions, **values, "positions": places, **means})
        return
    rows = [(name, f"{each.value:.4f}", f"{each.low:.4f} to {each.high:.4f}") for name, each in summary.items()]
    show_table(f"{model} on {found.n_sessions:,.0f} sessions of {data}", ("clicks", "value", "95% interval"), rows)
    _show_line(f"{lineage_line(fitted.lineage)}; clicks of log {log.lineage.digest[:SHORT]}.")
    texts = [
        (str(place), *(_rate(rate) for rate in pair), *(_with_interval(each) for each in both))
        for place, (pair, both) in enumerate(zip(rates, perplexities, strict=True), start=1)
    ]
    show_table("By position (from 1)", ("position", *POSITION_COLUMNS), texts)
    if graded is not None:
        show_table(f"Grades of {data}", GRADE_COLUMNS, graded.rows())


def _show_line(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _rate(rate: float) -> str:
    return "–" if isnan(rate) else f"{rate:.4f}"


def _with_interval(estimate: Estimate | None) -> str:
    return "–" if estimate is None else f"{estimate.value:.4f} ± {(estimate.high - estimate.low) / 2:.4f}"


def _grades(model: Path, data: str, metrics: Sequence[str]) -> Evaluation | None:
    """Metrics on grades, if the public log has grades and the model can rank."""
    from unskew.data.public_logs.id_pages import is_public_log, read_pages

    judged = read_pages(data).judged() if is_public_log(data) else None
    if judged is None or not unskew.load_model(model).method.has_ranker:
        return None
    return unskew.evaluate(model, judged, metrics)
