"""`unskew compare`: methods against the production ranking on your own log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import unskew
from unskew.commands.app import (
    DATA_HELP,
    AllowCode,
    Fresh,
    Grade,
    Json,
    Memory,
    Production,
    Quiet,
    SetOptions,
    SumGrades,
    command,
    fresh_methods,
    grading,
)
from unskew.commands.experiment_output import show_experiment
from unskew.commands.source import constant
from unskew.parts import load_part
from unskew.terminal import parse_grids, parse_options

CRITERIA = ", ".join(constant("evaluation.criteria:CRITERIA"))
DEFAULT_CRITERION = constant("evaluation.criteria:DEFAULT_CRITERION")


@command
def compare(
    log: Annotated[Path, typer.Argument(help="A click log.")],
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, comma-separated; the first is the baseline. METHOD+trees trains trees on debiased targets; "
            "lightgbm and lightgbm_position run LightGBM itself. Default: what `diagnose` recommends and, if "
            "LightGBM is installed, its rows and two_tower+trees."
        ),
    ] = None,
    scores: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="Another ranker: parquet with query, document, score. Repeatable."),
    ] = None,
    validate: Annotated[
        str | None, typer.Option(help=f"Data for early stopping and tuning. {DATA_HELP} Default: held-out clicks.")
    ] = None,
    test: Annotated[str | None, typer.Option(help=f"Test data. {DATA_HELP} Default: held-out clicks.")] = None,
    judged: Annotated[str | None, typer.Option(help=f"Judged data for `labelled`. {DATA_HELP}")] = None,
    grid: Annotated[
        list[str] | None, typer.Option(metavar="METHOD.NAME=VALUE,…", help="Values to try; validation chooses one.")
    ] = None,
    grade: Grade = None,
    sum_grades: SumGrades = False,
    options: SetOptions = None,
    metric: Annotated[str, typer.Option(help="The main metric with judged data.")] = "ndcg@10",
    criterion: Annotated[
        str | None,
        typer.Option(help=f"The criterion without judged data: {CRITERIA}. Default: {DEFAULT_CRITERION}."),
    ] = None,
    production: Production = None,
    held_out: Annotated[float, typer.Option(help="Share of queries to hold out.")] = constant(
        "comparison.held_out:HELD_OUT"
    ),
    baseline: Annotated[str | None, typer.Option(help="The method to compare with. Default: the first.")] = None,
    seeds: Annotated[int, typer.Option(help="Number of trainings per method.")] = 5,
    jobs: Annotated[int, typer.Option(help="Runs in parallel; they share the threads.")] = 2,
    out: Annotated[Path, typer.Option(help="Output folder.")] = Path("runs/compare"),
    fresh: Fresh = None,
    memory: Memory = constant("data.clicks.within_memory:MEMORY"),
    allow_code: AllowCode = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods with production on your log, by labels or by held-out clicks."""
    names = None if methods is None else [name.strip() for name in methods.split(",")]
    done = unskew.compare(
        log,
        None if names is None else [load_part(name, allow_code=allow_code) for name in names],
        scores=_named_files(scores or []),
        validate=validate,
        test=test,
        judged=judged,
        grids=parse_grids(grid or []),
        options={**grading(grade, sum_grades), **parse_options(options or [])},
        metric=metric,
        criterion=criterion,
        production=production,
        held_out=held_out,
        baseline=baseline,
        seeds=seeds,
        jobs=jobs,
        out=out,
        fresh=fresh_methods(fresh),
        memory=memory,
        progress=not (quiet or json),
    )
    show_experiment(done, json)


def _named_files(pairs: list[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, sign, file = pair.partition("=")
        if not (name and sign and file):
            raise ValueError(f"--scores {pair}: expected NAME=FILE.parquet")
        found[name] = file
    return found
