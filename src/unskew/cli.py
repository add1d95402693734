"""The command line: the declared commands, ordered from events to a ranking.

A command is built when it is called, from the source of its function; nothing that it needs for its work is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from unskew.command_line.declarations import COMMANDS


def command_of(name: str) -> Callable[..., None]:
    """A command as a function that typer reads."""
    from unskew.commands import app  # not needed for a list of commands

    return app.command_of(name)


class LazyGroup(TyperGroup):
    """A group that builds a command when it is called."""

    def __init__(self, **options: Any):
        super().__init__(**{**options, "commands": dict.fromkeys(COMMANDS)})

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command. If there is too little memory to import it, report that in one line too."""
        try:
            return super().main(*args, **options)
        except (MemoryError, ImportError) as error:
            from unskew.commands.app import refuse

            raise SystemExit(refuse(error)) from error

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """A command as a list shows it, without options."""
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name].summary) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name is None or command is None:
            return name, command, rest
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        single.command(name)(command_of(name))
        return name, typer.main.get_command(single), rest


app = typer.Typer(
    cls=LazyGroup,
    help="Unbiased learning to rank from click logs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from unskew import __version__

        typer.echo(f"unskew {__version__}")
        raise typer.Exit
