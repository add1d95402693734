"""`unskew reproduce`: experiments of papers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import unskew
from unskew.commands.app import AllowCode, Fresh, Json, Quiet, SetOptions, command, fresh_methods
from unskew.commands.experiment_output import show_experiment
from unskew.terminal import parse_options, show_json, show_table


@command
def reproduce(
    name: Annotated[str | None, typer.Argument(help="An experiment from --list, or your own TOML file.")] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    show: Annotated[
        bool,
        typer.Option("--show", help="Print the TOML of an experiment, as a start for your own: --show > mine.toml."),
    ] = False,
    data: Annotated[
        str | None,
        typer.Option(help="Data sets of the catalogue, comma-separated, or files. Default: those of the experiment."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds per fold. Default: those of the experiment, otherwise 5, or 1 with folds.")
    ] = None,
    folds: Annotated[str | None, typer.Option(help="Folds to run, e.g. 1,2. Default: all.")] = None,
    jobs: Annotated[int, typer.Option(help="Runs in parallel; they share the threads.")] = 2,
    out: Annotated[Path | None, typer.Option(help="Output folder. Default: runs/NAME-DATA.")] = None,
    variant: Annotated[
        str | None, typer.Option(help="A variant of the experiment, e.g. paper. Default: chosen by the data.")
    ] = None,
    options: SetOptions = None,
    fresh: Fresh = None,
    shard: Annotated[str | None, typer.Option(help="Run one of several parts, e.g. 2/8.")] = None,
    merge: Annotated[
        list[Path] | None, typer.Option(help="Merge the finished runs of this folder. Repeatable.")
    ] = None,
    allow_code: AllowCode = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment of a paper; write tables, figures and a report. Finished runs are kept."""
    if list_all or name is None:
        from unskew.papers.reproduce import descriptions

        rows = descriptions()
        if json:
            show_json([{"name": row[0], "title": row[1], "paper": row[2]} for row in rows])
        else:
            show_table("Experiments", ("name", "what it shows", "paper"), rows, left=3)
        return
    if show:
        from unskew.papers.experiment_files import experiment_text

        sys.stdout.write(experiment_text(name))
        return
    done = unskew.reproduce(
        name,
        data=None if data is None else data_sets(data),
        seeds=seeds,
        folds=None if folds is None else fold_numbers(folds),
        jobs=jobs,
        out=out,
        variant=variant,
        options=parse_options(options or []),
        fresh=fresh_methods(fresh),
        shard=shard,
        merge=merge or [],
        allow_code=allow_code,
        progress=not (quiet or json),
    )
    show_experiment(done, json)


def data_sets(text: str) -> list[str]:
    """Names of data sets; your own files are `train=FILE,valid=FILE,test=FILE`."""
    return [text] if "=" in text else text.split(",")


def fold_numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ValueError(f"--folds takes comma-separated numbers starting at 1, got '{text}'") from error
