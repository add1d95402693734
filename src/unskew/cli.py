"""The command line: a table of commands, in the order of a log's way from events to a ranking.

A command's module is imported when the command is called, so that help and version cost no more than Python itself.
To add a command: its file in `commands/`, its Python function in `unskew`, and one line here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup


class Entry(NamedTuple):
    """Where a command is, and the first line of its help."""

    place: str  # module of `unskew.commands` and function, "module:function"
    help: str  # as the function's docstring begins


COMMANDS = {
    "demo": Entry(
        "demo:demo",
        "The main job in one go: simulate a biased log, look at it, train plain and debiased rankers, compare them.",
    ),
    "simulate": Entry("simulate:simulate", "Show judged data to simulated users and write the click log."),
    "shop": Entry(
        "shop:shop", "Write the event table of a made-up shop, as messy as real ones, and judged queries beside it."
    ),
    "events": Entry("events:events", "Write a click log as a search engine would have logged it; `ingest` reads it."),
    "ingest": Entry(
        "ingest:ingest",
        "Count an event table into a click log. What cannot be used is left out, counted and shown.",
    ),
    "diagnose": Entry(
        "diagnose:diagnose", "Look at a click log: what it can tell, and which methods are worth training on it."
    ),
    "compare": Entry(
        "compare:compare",
        "Compare methods and production on a log of your own: by judgements, or without any by held-out clicks.",
    ),
    "auto": Entry(
        "auto:auto",
        "Choose a method by what the log can tell, check it against production, and train it. Exit code 3: not better.",
    ),
    "train": Entry("train:train", "Train a ranker on a click log. A run that was cut off goes on where it was."),
    "tune": Entry("tune:tune", "Train a model further on judged queries, as far as cross-validation on them says."),
    "drift": Entry(
        "drift:drift",
        "Tell what changed between two logs: features, clicks, order, traffic, bias columns, coverage.",
    ),
    "readout": Entry(
        "readout:readout", "Tell what an A/B test or a team-draft interleaving says, with intervals over queries."
    ),
    "evaluate": Entry(
        "evaluate:evaluate", "Measure a model on judged data, or by how well it predicts the clicks of a log."
    ),
    "export": Entry("export:export", "Write a model for serving, checked against torch."),
    "explain": Entry(
        "explain:explain",
        "Show which features a ranker goes by, or which decided between two documents of a query.",
    ),
    "rank": Entry(
        "rank:rank",
        "Score and rank documents, keyed by their query and document ids. A table may exceed memory.",
    ),
    "weights": Entry(
        "weights:weights", "Write debiased targets and weights that LightGBM and XGBoost take as they are."
    ),
    "judgements": Entry(
        "judgements:judgements",
        "Write ratings of documents, by clicks that are corrected for position, with intervals and COEC beside them.",
    ),
    "forget": Entry(
        "forget:forget", "Remove all rows of named users from a click log; it is replaced whole or not at all."
    ),
    "reproduce": Entry(
        "reproduce:reproduce",
        "Run an experiment of a paper and write tables, figures and a report. Goes on where it was cut off.",
    ),
    "methods": Entry(
        "listings:methods", "The methods, with their paper, what they assume, and their hyper-parameters."
    ),
    "data": Entry("listings:data", "The data sets of the catalogue, and which of them are here."),
}


def command_function(name: str) -> Any:
    """The function behind a command; imports its module."""
    module, _, function = COMMANDS[name].place.partition(":")
    return getattr(import_module(f"unskew.commands.{module}"), function)


class LazyGroup(TyperGroup):
    """A group that knows names and help of its commands, and loads the one that is called."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command; where memory does not even suffice to load what it needs, that is one line too."""
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
    help="Learn to rank from biased clicks.",
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
