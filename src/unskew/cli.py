"""The command line: the declared commands, ordered from events to a ranking.

A command is built when it is called, from the source of its function; nothing that it needs for its work is imported.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from unskew.command_line.declarations import COMMANDS
from unskew.texts import redacted, secrets_of, shown

PANELS = {
    "From events to a ranking": "ingest diagnose train compare export rank",
    "More on rankers": "auto tune evaluate explain look weights judgements methods",
    "Logs over time": "drift readout forget",
    "Data and simulation": "demo data simulate shop events",
    "Papers": "reproduce",
}


def command_of(name: str) -> Callable[..., None]:
    """A command as a function that typer reads."""
    from unskew.commands import app  # not needed for a list of commands

    return app.command_of(name)


def _without_secrets(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    """The traceback of our own bug."""
    sys.stderr.write(redacted("".join(traceback.format_exception(kind, error, where))))


class LazyGroup(TyperGroup):
    """A group that builds a command when it is called."""

    def __init__(self, **options: Any):
        super().__init__(**{**options, "commands": dict.fromkeys(COMMANDS)})

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command. If there is too little memory to import it, report that in one line too."""
        sys.excepthook = _without_secrets
        typed = args[0] if args and args[0] is not None else options.get("args")
        with secrets_of(sys.argv if typed is None else typed):
            try:
                return super().main(*args, **options)
            except (MemoryError, ImportError) as error:
                from unskew.commands.app import refuse

                raise SystemExit(refuse(error)) from error

    def invoke(self, ctx: Any) -> Any:
        """Typing errors of an option, which repeat what was typed, without secrets."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if isinstance(getattr(error, "message", None), str) and hasattr(error, "exit_code"):
                error.message = shown(error.message)  # type: ignore[attr-defined]
            raise

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """A command as a list shows it, without options."""
        if cmd_name not in COMMANDS:
            return None
        panel = next((panel for panel, names in PANELS.items() if cmd_name in names.split()), "More")
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name].summary, rich_help_panel=panel)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """The main path first."""
        return list(dict.fromkeys([*" ".join(PANELS.values()).split(), *COMMANDS]))

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
