"""`unskew train`: a ranker from a click log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import unskew
from unskew.commands.app import (
    DATA_HELP,
    AllowCode,
    Grade,
    Json,
    Memory,
    Overwrite,
    Quiet,
    Seed,
    SetOptions,
    SumGrades,
    command,
    grading,
)
from unskew.commands.auto import run_auto
from unskew.commands.source import constant
from unskew.data.files import check_folder
from unskew.data.object_storage import remote
from unskew.parts import load_part
from unskew.terminal import console, errors, parse_options, show_json, show_table

if TYPE_CHECKING:
    from unskew.training.model import Model


@command
def train(
    log: Annotated[Path, typer.Argument(help="A click log.")],
    out: Annotated[Path, typer.Option(help="Output folder for the model.")],
    method: Annotated[
        str | None,
        typer.Option(
            help="A method; `unskew methods` lists them. Default: auto, as in unskew auto --force; with --from, the "
            "model's own method; dla if you pass an option that auto cannot use."
        ),
    ] = None,
    ranker: Annotated[
        str | None,
        typer.Option(
            help="network, or trees: LightGBM on the debiased targets of the method (unskew\\[trees]). Default: "
            "network; with --from, the model's own."
        ),
    ] = None,
    validate: Annotated[
        str | None, typer.Option(help=f"Validation data. {DATA_HELP} Or a share of queries to hold out, e.g. 0.2.")
    ] = None,
    judged: Annotated[str | None, typer.Option(help=f"Judged data to learn from. {DATA_HELP}")] = None,
    interventions: Annotated[
        Path | None, typer.Option(help="A log with randomized or swapped rankings, for methods that need one.")
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Read the log shard by shard; it may be larger than memory.")
    ] = False,
    start: Annotated[
        Path | None, typer.Option("--from", help="A model to start from: its weights, curves and transform.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Use lists shown from this day on, e.g. 2026-11-10.")] = None,
    until: Annotated[str | None, typer.Option(help="Use lists shown before this day.")] = None,
    half_life: Annotated[float | None, typer.Option(help="Days after which the weight of a list halves.")] = None,
    time: Annotated[str | None, typer.Option(help="Stop after this time, e.g. 10m, and keep what was learned.")] = None,
    grade: Grade = None,
    sum_grades: SumGrades = False,
    options: SetOptions = None,
    allow_code: AllowCode = False,
    memory: Memory = constant("data.clicks.within_memory:MEMORY"),
    seed: Seed = 0,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a ranker on a click log. An interrupted run resumes when you repeat the command."""
    from unskew.comparison.automatic import SAFE
    from unskew.data.clicks.windows import window
    from unskew.processes import is_first
    from unskew.public.learning import AUTO, DEFAULT_METHOD
    from unskew.serving.model_files import ABOUT
    from unskew.training.distributed import joined

    check_folder(out, ABOUT, overwrite=overwrite)
    every = {**grading(grade, sum_grades), **parse_options(options or [])}
    if method == AUTO or (method is None and start is None and DEFAULT_METHOD == AUTO):
        useless = _without_use(validate, judged, interventions, ranker, out, time)
        if not useless:
            windowed = any(part is not None for part in (since, until, half_life))
            clicks = window(unskew.open_log(log), since, until, half_life) if windowed else None
            given: dict[str, Any] = {"seed": seed, "overwrite": overwrite, "json": json, "quiet": quiet}
            run_auto(log, out, every, clicks=clicks, start=start, memory=memory, force=True, **given)
            return
        if method is not None:
            raise ValueError(f"auto cannot use {useless[0]}: choose a method with --method, or leave {useless[0]} out")
        if is_first():
            errors.print(f"training {SAFE}, because auto cannot use {' and '.join(useless)}", highlight=False)
    first = None if start is None else unskew.load_model(start)
    every = {"seed": seed, **({} if ranker is None else {"ranker": ranker}), **every}
    if first is None:
        recipe = unskew.Recipe.of(load_part(method or SAFE, allow_code=allow_code), **every)
    else:
        recipe = first.recipe.changed(method or first.recipe.method, **every)
    checkpoint = (out.parent if remote(out) is None else Path()) / f".{out.name}.checkpoint"
    with joined():
        model = unskew.fit(
            recipe,
            window(unskew.open_log(log) if stream else unskew.read_log(log), since, until, half_life),
            judged=judged,
            interventions=interventions,
            validate=_share_or_name(validate),
            progress=is_first() and not (quiet or json),
            checkpoint=checkpoint,
            start=first,
            memory=memory,
            time=time,
        )
        if is_first():
            unskew.save_model(model, out, overwrite=overwrite)
            checkpoint.unlink(missing_ok=True)
            _show_model(model, out, json)


def _without_use(
    validate: str | None,
    judged: str | None,
    interventions: Path | None,
    ranker: str | None,
    out: Path,
    time: str | None,
) -> list[str]:
    """The given options that apply only to training one named method."""
    asked = {
        "--validate": validate is not None,
        "--judged": judged is not None,
        "--interventions": interventions is not None,
        "--ranker trees": ranker == "trees",
        "--time": time is not None,
        "an output folder on object storage": remote(out) is not None,
        "several processes": int(os.environ.get("WORLD_SIZE", "1")) > 1,
    }
    return [name for name, given in asked.items() if given]


def _share_or_name(text: str | None) -> float | str | None:
    """The value of `--validate`: a share of the queries, or judged data."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _show_model(model: Model, out: Path, json: bool) -> None:
    from unskew.data.column_table import grouped
    from unskew.serving.card import MISSING
    from unskew.training.model import curve_rows

    curve = model.examination()
    history = model.history
    never_shown = model.trained_on.get("never_shown", [])
    if json:
        show_json(
            {
                "model": out,
                "method": model.recipe.method,
                "best_step": history.best_step,
                "best_value": history.best_value,
                "seconds": history.seconds,
                "ending": history.ended,
                "examination": None if curve is None else curve.tolist(),
                "examination_by_level": {level: each.tolist() for level, each in model.examinations().items()},
                "never_shown": never_shown,
                "feedback": model.trained_on.get("feedback"),
                "started_from": model.trained_on.get("started_from"),
                "warnings": history.warnings,
                "columns": {column.name: column.became for column in model.columns()},
            }
        )
        return
    best = "" if history.best_value is None else f", best {model.trained_on['validation']} {history.best_value:.4f}"
    trees = "" if model.trees is None else "; the ranker is LightGBM, trained on its debiased targets"
    console.print(
        f"{model.recipe.method} trained in {history.seconds:.1f} s{best}{trees}; written to {out}",
        markup=False,
        highlight=False,
    )
    if model.trained_on.get("feedback", "clicks") != "clicks":
        console.print(f"Learned from {model.trained_on['feedback']}", markup=False, highlight=False)
    if history.ended:
        console.print(f"Training {history.ended}", markup=False, highlight=False)
    if transformed := model.columns():
        show_table("Transforms of the features", ("transform", "columns", "names"), grouped(transformed), left=3)
        if any("missing in" in column.became for column in transformed):
            console.print(MISSING)
    started = model.trained_on.get("started_from")
    if started is not None:
        new = f"; new, initialized to the average: {', '.join(started['extended'])}" if started["extended"] else ""
        console.print(f"Started from a {started['method']} model of {started['steps']:,} steps{new}", markup=False)
    if curve is not None:
        by_level = model.examinations()
        columns, rows = ("position", "examination", *by_level), curve_rows([curve, *by_level.values()], never_shown)
        show_table("Learned examination relative to the top (positions from 1)", columns, rows)
