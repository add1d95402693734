"""What commands share: refusals, exit codes and common options."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.markup import escape

from unskew.terminal import BAD_INPUT, errors, show_warning

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.")]
Overwrite = Annotated[bool, typer.Option(help="Replace what stands at the place of the output.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress display.")]
SetOptions = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="An option, e.g. steps=500.")]
RANKER_HELP = "A saved model, or an exported .onnx file, which onnxruntime runs."
DATA_HELP = "A data set of the catalogue (NAME or NAME@split) or a LETOR file."


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A command whose refusals are one clear line and exit code 2; `cli.COMMANDS` gives it its name."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = show_warning
                function(*args, **kwargs)
        except (ValueError, OSError, KeyError, ModuleNotFoundError, FloatingPointError) as error:
            message = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
            errors.print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
            raise typer.Exit(BAD_INPUT) from error

    return guarded
