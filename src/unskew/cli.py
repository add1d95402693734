"""The command line: names of commands, in the order of a log's way from events to a ranking."""

from __future__ import annotations

from typing import Annotated

import typer

from unskew import __version__
from unskew.commands import (
    compare,
    demo,
    diagnose,
    evaluate,
    events,
    export,
    ingest,
    listings,
    rank,
    reproduce,
    simulate,
    train,
    weights,
)
from unskew.terminal import console

COMMANDS = {
    "demo": demo.demo,
    "simulate": simulate.simulate,
    "events": events.events,
    "ingest": ingest.ingest,
    "diagnose": diagnose.diagnose,
    "compare": compare.compare,
    "train": train.train,
    "evaluate": evaluate.evaluate,
    "export": export.export,
    "rank": rank.rank,
    "weights": weights.weights,
    "reproduce": reproduce.reproduce,
    "methods": listings.methods,
    "data": listings.data,
}

app = typer.Typer(
    help="Learn to rank from biased clicks.", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
for name, function in COMMANDS.items():
    app.command(name)(function)


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        console.print(f"unskew {__version__}")
        raise typer.Exit
