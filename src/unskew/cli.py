"""The command line: a table of commands, ordered from events to a ranking.

A command's module is imported when the command is called, so that `--help` and `--version` start fast.
To add a command, write its file in `commands/`, its Python function in `unskew`, and one line here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup


class Entry(NamedTuple):
    """The location of a command, and the first line of its help."""

    place: str  # "module:function" in `unskew.commands`
    help: str  # equals the first line of the function's docstring


COMMANDS = {
    "demo": Entry(
        "demo:demo",
        "Run the whole pipeline on simulated data: make a biased log, diagnose it, train rankers, compare them.",
    ),
    "simulate": Entry("simulate:simulate", "Simulate users who click on judged data, and write the click log."),
    "shop": Entry("shop:shop", "Simulate the messy event table of a shop, with judged queries."),
    "events": Entry("events:events", "Write a click log as an event table, which `ingest` can read."),
    "ingest": Entry(
        "ingest:ingest",
        "Turn an event table into a click log. Rows that cannot be used are counted and reported.",
    ),
    "diagnose": Entry(
        "diagnose:diagnose", "Diagnose a click log: what it identifies, and which methods are worth training on it."
    ),
    "compare": Entry(
        "compare:compare",
        "Compare methods with production on your log, by labels or by held-out clicks.",
    ),
    "auto": Entry(
        "auto:auto",
        "Train a ranker without labels and test it against production. Exit code 3: production is better.",
    ),
    "train": Entry(
        "train:train", "Train a ranker on a click log. An interrupted run resumes when you repeat the command."
    ),
    "tune": Entry("tune:tune", "Train a model further on judged queries; cross-validation chooses how long."),
    "drift": Entry(
        "drift:drift",
        "Report what changed between two logs: features, clicks, order, traffic, bias columns, coverage.",
    ),
    "readout": Entry(
        "readout:readout", "Evaluate an A/B test or a team-draft interleaving, with intervals over queries."
    ),
    "evaluate": Entry(
        "evaluate:evaluate", "Evaluate a model on judged data, or by how well it predicts the clicks of a log."
    ),
    "export": Entry("export:export", "Export a model to a file for serving; its scores are checked against torch."),
    "explain": Entry(
        "explain:explain",
        "Explain a ranker: which features matter, or which decided between two documents.",
    ),
    "rank": Entry(
        "rank:rank",
        "Score and rank candidates, and keep their ids. The table may be larger than memory.",
    ),
    "weights": Entry("weights:weights", "Write debiased targets and weights for LightGBM and XGBoost."),
    "judgements": Entry(
        "judgements:judgements",
        "Write relevance ratings from clicks, corrected for position, with intervals and clicks over expected clicks.",
    ),
    "forget": Entry("forget:forget", "Remove all rows of the given users from a click log, atomically."),
    "reproduce": Entry(
        "reproduce:reproduce",
        "Run an experiment of a paper; write tables, figures and a report. Finished runs are kept.",
    ),
    "methods": Entry("listings:methods", "List the methods with their papers, assumptions and hyper-parameters."),
    "data": Entry("listings:data", "List the data sets of the catalogue, and which are available here."),
}


def command_function(name: str) -> Any:
    """The function behind a command; imports its module."""
    module, _, function = COMMANDS[name].place.partition(":")
    return getattr(import_module(f"unskew.commands.{module}"), function)


class LazyGroup(TyperGroup):
    """A group that knows the names and help of its commands, and imports a command when it is called."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command. If there is too little memory to import it, report that in one line too."""
        try:
            return super().main(*args, **options)
        except (MemoryError, ImportError) as error:
            from unskew.commands.app import refuse

            raise SystemExit(refuse(error)) from error

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, found, rest = super().resolve_command(ctx, args)
        if name is None or found is None:
            return name, found, rest
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        single.command(name)(command_function(name))
        return name, typer.main.get_command(single), rest


app = typer.Typer(
    cls=LazyGroup,
    help="Unbiased learning to rank from click logs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for name, entry in COMMANDS.items():
    app.command(name, help=entry.help)(lambda: None)


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from unskew import __version__

        typer.echo(f"unskew {__version__}")
        raise typer.Exit
