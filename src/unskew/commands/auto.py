"""`unskew auto`: a ranker from a click log, with the method chosen automatically."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import unskew
from unskew.commands.app import (
    Grade,
    Json,
    Memory,
    Overwrite,
    Production,
    Quiet,
    Seed,
    SetOptions,
    SumGrades,
    command,
    grading,
)
from unskew.commands.source import constant
from unskew.data.files import check_folder
from unskew.terminal import console, counting_progress, parse_options, show_json, show_table

if TYPE_CHECKING:
    from unskew.comparison.automatic import Chosen
    from unskew.data.clicks.storage import LogFolder

MEMORY = constant("data.clicks.within_memory:MEMORY")
NOTHING_BETTER = 3  # exit code: production is better, and no model was written


@command
def auto(
    log: Annotated[Path, typer.Argument(help="A click log.")],
    out: Annotated[Path, typer.Option(help="Output folder for the model; the report is OUT.html.")],
    force: Annotated[bool, typer.Option("--force", help="Write the model even if production is better.")] = False,
    production: Production = None,
    start: Annotated[
        Path | None, typer.Option("--from", help="A previous model: the final training starts from it if possible.")
    ] = None,
    grade: Grade = None,
    sum_grades: SumGrades = False,
    options: SetOptions = None,
    memory: Memory = MEMORY,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a ranker without labels and test it against production. Exit code 3: production is better."""
    given = {**grading(grade, sum_grades), **parse_options(options or [])}
    run_auto(
        log,
        out,
        given,
        production=production,
        start=start,
        memory=memory,
        seed=seed,
        force=force,
        overwrite=overwrite,
        json=json,
        quiet=quiet,
    )


def run_auto(
    log: Path,
    out: Path,
    options: dict[str, Any],
    *,
    clicks: LogFolder | None = None,
    production: str | None = None,
    start: Path | None = None,
    memory: str,
    seed: int,
    force: bool,
    overwrite: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Choose a method, train it, and write the model and its report.

    Args:
        clicks: the part of the log to learn from; default: all of it.
    """
    from unskew.comparison.auto_page import write_auto
    from unskew.comparison.automatic import NOT_BETTER
    from unskew.comparison.automatic import auto as choose_and_train
    from unskew.serving.model_files import ABOUT

    check_folder(out, ABOUT, overwrite=overwrite)
    scratch = out.with_name(f".{out.name}.auto")
    with counting_progress("auto", "trainings", quiet=quiet or json) as progress:
        first = None if start is None else unskew.load_model(start)
        chosen = choose_and_train(
            log if clicks is None else clicks,
            production=production,
            start=first,
            seed=seed,
            checkpoints=scratch,
            memory=memory,
            progress=progress,
            **options,
        )
    refused = chosen.verdict.production == NOT_BETTER and not force
    if not refused:
        unskew.save_model(chosen.model, out, overwrite=overwrite)
    again = " ".join(
        [
            f"unskew auto {log} --out {out}",
            *([] if start is None else [f"--from {start}"]),
            *([] if production is None else [f"--production {production}"]),
            *(f"--set {k}={v}" for k, v in options.items()),
            *([] if memory == MEMORY else [f"--memory {memory}"]),
            f"--seed {seed}",
            *(["--force"] if force else []),
        ]
    )
    report = write_auto(chosen.verdict, out.with_name(f"{out.name}.html"), str(log), again, chosen.model)
    shutil.rmtree(scratch, ignore_errors=True)
    _show(chosen, None if refused else out, report, json)
    if refused:
        raise typer.Exit(NOTHING_BETTER)


def _show(chosen: Chosen, out: Path | None, report: Path, json: bool) -> None:
    found = chosen.verdict
    if json:
        started = chosen.model.trained_on.get("started_from")
        show_json({"model": out, "report": report, "started_from": started, **asdict(found)})
        return
    from unskew.comparison.auto_page import advice_sheet

    sheet = advice_sheet(found)
    show_table(sheet.title, sheet.columns, [[cell.text for cell in row] for row in sheet.rows], left=3)
    started = chosen.model.trained_on.get("started_from")
    how = "" if started is None else f", started from a model of {started['steps']:,} steps"
    written = f"{found.method} written to {out}{how}" if out else "No model was written; use --force to write it anyway"
    lines = [*found.log, found.coupling, f"{found.method}: {found.reason}.", found.against_production, *found.surer]
    for line in [*filter(None, lines), f"{written}. Report: {report}"]:
        console.print(line, markup=False, highlight=False)
