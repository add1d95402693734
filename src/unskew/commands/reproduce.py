"""`unskew reproduce`: experiments of papers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import unskew
from unskew.commands.app import AllowCode, Json, Quiet, SetOptions, command
from unskew.commands.experiment_output import show_experiment
from unskew.papers.experiment_files import experiment_text
from unskew.papers.reproduce import descriptions
from unskew.terminal import parse_options, show_json, show_table


@command
def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="An experiment, as --list names them, or a TOML file of your own.")
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="Describe the experiments.")] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print the TOML of an experiment, to be changed: --show > mine.toml.")
    ] = False,
    data: Annotated[
        str | None, typer.Option(help="A data set of the catalogue; folds are repetitions. Default: a built-in world.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Repetitions. Default: as the experiment says.")] = None,
    jobs: Annotated[int, typer.Option(help="Runs side by side; threads are divided among them.")] = 2,
    out: Annotated[Path | None, typer.Option(help="Folder for results. Default: runs/NAME-DATA.")] = None,
    variant: Annotated[
        str | None, typer.Option(help="A size of the experiment, e.g. paper. Default: what the data call for.")
    ] = None,
    options: SetOptions = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run again what is there already.")] = False,
    allow_code: AllowCode = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment of a paper and write tables, figures and a report. Goes on where it was cut off."""
    if list_all or name is None:
        rows = descriptions()
        if json:
            show_json([{"name": row[0], "title": row[1], "paper": row[2]} for row in rows])
        else:
            show_table("Experiments", ("name", "what it shows", "paper"), rows, left=3)
        return
    if show:
        sys.stdout.write(experiment_text(name))
        return
    done = unskew.reproduce(
        name,
        data=data,
        seeds=seeds,
        jobs=jobs,
        out=out,
        variant=variant,
        options=parse_options(options or []),
        fresh=fresh,
        allow_code=allow_code,
        progress=not (quiet or json),
    )
    show_experiment(done, json)
