"""Commands that run many trainings: `compare` and `reproduce`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer
from rich.markup import escape

from unskew.commands.app import Given, call, print_result
from unskew.extensions import load_part
from unskew.reporting.terminal import errors, show_json, show_table

if TYPE_CHECKING:
    from unskew.comparison.outputs import Finished


def compare(given: Given) -> None:
    names = given["methods"]
    methods = names and [load_part(name, allow_code=given["allow_code"]) for name in names]
    _show(call("compare", given, methods=methods), given)


def reproduce(given: Given) -> None:
    name = given["name"]
    if given["list_all"] or name is None:
        from unskew.papers.reproduce import descriptions

        rows = descriptions()
        if given["json"]:
            show_json([dict(zip(("name", "title", "paper"), row, strict=True)) for row in rows])
        else:
            show_table("Experiments", ("name", "what it shows", "paper"), rows, left=3)
    elif given["show"]:
        from unskew.papers.experiment_files import experiment_text

        sys.stdout.write(experiment_text(name))
    else:
        _show(call("reproduce", given), given)


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
