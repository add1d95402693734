"""Commands that train: `auto`, `train` and `tune`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import typer

import unskew
from unskew.command_line.repeating import command_line
from unskew.commands.app import Given, call, grading, print_result, shows_progress
from unskew.comparison.automatic import NOT_BETTER, SAFE, write_auto
from unskew.comparison.learning import AUTO, DEFAULT_METHOD
from unskew.data.clicks.log_checks import refuse_positions
from unskew.data.clicks.windows import window
from unskew.data.files import check_folder
from unskew.data.object_storage import remote
from unskew.extensions import load_part
from unskew.processes import is_first
from unskew.reporting.terminal import errors
from unskew.serving.model_files import ABOUT
from unskew.training.distributed import joined

NOTHING_BETTER = 3  # exit code: production is better, and no model was written


def auto(given: Given, log: Any = None) -> None:
    """Choose a method, train it, and write the model and its report.

    Args:
        log: the part of the log to learn from; default: all of it.
    """
    out: Path = given["out"]
    check_folder(out, ABOUT, overwrite=given["overwrite"])
    _check_features(given)
    scratch = out.with_name(f".{out.name}.auto")
    chosen = call("auto", given, log=given["log"] if log is None else log, checkpoints=scratch)
    refused = chosen.verdict.production == NOT_BETTER and not given["force"]
    if not refused:
        unskew.save_model(chosen.model, out, overwrite=given["overwrite"])
    kept = {name: value for name, value in given.items() if name not in ("json", "quiet", "set", "overwrite")}
    again = command_line("auto", {**kept, "options": given["set"] or {}})
    report = write_auto(chosen, out.with_name(f"{out.name}.html"), str(given["log"]), again)
    shutil.rmtree(scratch, ignore_errors=True)
    written = "No model was written; use --force to write it anyway" if refused else f"Model written to {out}"
    files = {"model": None if refused else out, "report": report}
    print_result(chosen, given, f"{written}. Report: {report}", files)
    if refused:
        raise typer.Exit(NOTHING_BETTER)


def train(given: Given) -> None:
    """Train with `auto` or by a recipe, in one process or several, and write the model."""
    out, method, place = given["out"], given["method"], given["start"]
    days = [given[name] for name in ("since", "until", "half_life")]
    check_folder(out, ABOUT, overwrite=given["overwrite"])
    _check_features(given)
    if method == AUTO or (method is None and place is None and DEFAULT_METHOD == AUTO):
        useless = _without_use(given)
        if not useless:
            windowed = window(unskew.open_log(given["log"]), *days) if any(part is not None for part in days) else None
            auto({**given, "force": True, "production": None}, windowed)
            return
        if method is not None:
            raise ValueError(f"auto cannot use {useless[0]}: choose a method with --method, or leave {useless[0]} out")
        if is_first():
            errors.print(f"training {SAFE}, because auto cannot use {' and '.join(useless)}", highlight=False)
    start = None if place is None else unskew.load_model(place)
    options = {"seed": given["seed"], **({} if given["ranker"] is None else {"ranker": given["ranker"]})}
    options |= {**grading(given), **(given["set"] or {})}
    if start is None:
        recipe = unskew.Recipe.of(load_part(method or SAFE, allow_code=given["allow_code"]), **options)
    else:
        recipe = start.recipe.changed(method or start.recipe.method, **options)
    checkpoint = (out.parent if remote(out) is None else Path()) / f".{out.name}.checkpoint"
    with joined():
        log = window((unskew.open_log if given["stream"] else unskew.read_log)(given["log"]), *days)
        own = {name: given[name] for name in ("judged", "interventions", "validate", "memory", "time")}
        progress = is_first() and shows_progress(given)
        model = unskew.fit(recipe, log, **own, checkpoint=checkpoint, start=start, progress=progress)
        if is_first():
            unskew.save_model(model, out, overwrite=given["overwrite"])
            checkpoint.unlink(missing_ok=True)
            print_result(model, given, f"Written to {out}", {"model": out})


def _check_features(given: Given) -> None:
    """Refuse a feature that is the position, by the first shard, unless told otherwise."""
    log = unskew.open_log(given["log"])
    if not given["allow_position"] and log.n_features and log.n_shards:
        refuse_positions(log.shard(0))


def tune(given: Given) -> Any:
    out: Path = given["out"]
    check_folder(out, ABOUT, overwrite=given["overwrite"])
    checkpoint = out.with_name(f".{out.name}.tuning")
    plan = {name: given[name] for name in ("metric", "steps", "folds", "seed")}
    tuned = call("tune", given, checkpoint=checkpoint, **plan)
    unskew.save_model(tuned.model, out, overwrite=given["overwrite"])
    checkpoint.unlink(missing_ok=True)
    return tuned


def _without_use(given: Given) -> list[str]:
    """The given options that apply only to training one named method."""
    asked = {
        "--validate": given["validate"] is not None,
        "--judged": given["judged"] is not None,
        "--interventions": given["interventions"] is not None,
        "--ranker trees": given["ranker"] == "trees",
        "--time": given["time"] is not None,
        "an output folder on object storage": remote(given["out"]) is not None,
        "several processes": int(os.environ.get("WORLD_SIZE", "1")) > 1,
    }
    return [name for name, is_given in asked.items() if is_given]
