"""Commands that run many trainings, `compare`, `reproduce` and `demo`; and `methods`, which lists them."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path

import typer
from rich.markup import escape

from unskew.commands.app import Given, call, print_result
from unskew.comparison.outputs import Finished
from unskew.display import Screen
from unskew.extensions import load_part
from unskew.methods import METHODS, hyper_parameters
from unskew.papers.experiment_files import experiment_text
from unskew.papers.reproduce import descriptions
from unskew.reporting.terminal import console, errors, show_json, show_screen


def compare(given: Given) -> None:
    names = given["methods"]
    methods = names and [load_part(name, allow_code=given["allow_code"]) for name in names]
    _show(call("compare", given, methods=methods), given)


def reproduce(given: Given) -> None:
    name = given["name"]
    if given["list_all"] or name is None:
        rows = descriptions()
        if given["json"]:
            show_json([dict(zip(("name", "title", "paper"), row, strict=True)) for row in rows])
        else:
            show_screen(Screen("Experiments", ("name", "what it shows", "paper"), rows, left=3))
    elif given["show"]:
        sys.stdout.write(experiment_text(name))
    else:
        _show(call("reproduce", given), given)


def demo(given: Given) -> None:
    call("demo", given)  # it prints step by step
    if console.is_terminal and (sys.platform != "linux" or {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ)):
        webbrowser.open(Path(given["out"]).resolve().as_uri())


def methods(given: Given) -> None:
    defaults = {name: {key: o.default for key, o in hyper_parameters(m).items()} for name, m in METHODS.items()}
    if given["json"]:
        about = {name: {"paper": m.paper, "assumes": m.assumes, "needs": m.detail} for name, m in METHODS.items()}
        show_json({name: {**about[name], "hyper_parameters": defaults[name]} for name in METHODS})
        return
    rows = [
        (name, method.paper, method.assumes, "\n".join(f"{key}={value}" for key, value in defaults[name].items()))
        for name, method in METHODS.items()
    ]
    show_screen(Screen("Methods", ("name", "paper", "assumes", "hyper-parameters (--set)"), rows, left=4))


def _show(done: Finished, given: Given) -> None:
    """Tables and verdicts of a finished experiment, and what failed; exit code 1 if a run did."""
    print_result(done, given)
    results = done.results
    if not given["json"]:
        for run, error in results.failed:
            errors.print(f"[red]failed:[/] {escape(f'{run.title}: {error}')}", highlight=False, soft_wrap=True)
        if results.changed:
            titles = "; ".join(results.changed[:3]) + ("; …" if len(results.changed) > 3 else "")
            text = f"{len(results.changed)} runs were repeated because your own code has changed: {titles}"
            errors.print(escape(text))
        if results.other_code:
            text = (
                f"{results.other_code} rows come from an earlier version of the code; run them again with --fresh all"
            )
            errors.print(text)
    if results.failed:
        raise typer.Exit(1)
