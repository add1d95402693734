"""Shared by all commands: error messages, exit codes and common options."""

from __future__ import annotations

import functools
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import click
import typer
from rich.markup import escape

from unskew.data.files import is_out_of_space
from unskew.options import parse_grades
from unskew.terminal import BAD_INPUT, errors, show_warning

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]
Seed = Annotated[int, typer.Option(help="Random seed; the same seed gives the same result.")]
Overwrite = Annotated[bool, typer.Option(help="Overwrite existing output.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Hide the progress display.")]
SetOptions = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set an option, e.g. steps=500. Repeatable.")
]
Production = Annotated[
    str | None,
    typer.Option(
        metavar="WHICH",
        help="The production ranker: since=DATE, score=COLUMN or logger=COLUMN:VALUE. Default: the latest in the log.",
    ),
]
Fresh = Annotated[
    list[str] | None, typer.Option(help="Run this method again, by label; 'all' for everything. Repeatable.")
]
AllowCode = Annotated[bool, typer.Option("--allow-code", help="Allow module:Class to import and run your own code.")]
Grade = Annotated[
    str | None,
    typer.Option(
        metavar="KIND=WEIGHT,…",
        help="Event weights for training, e.g. click=1,add_to_cart=3,purchase=5. Default: the weights set at ingest; "
        "click=1 uses only clicks.",
    ),
]
Memory = Annotated[
    str,
    typer.Option(
        help="Memory for what is held of the log, such as 16GB; of a larger log, a random sample of its queries."
    ),
]
SumGrades = Annotated[bool, typer.Option("--sum-grades", help="Add up the weights of all events on an impression.")]
INTERRUPTED = 130  # exit code of Ctrl-C in a shell: 128 + SIGINT
NO_MEMORY_WORDS = (  # messages of torch, Python, C++ and the loader of shared libraries
    *("can't allocate memory", "cannot allocate memory", "can't start new thread", "std::bad_alloc"),
    *("failed to map segment from shared object", "cannot create shared object descriptor"),
)
LESS_MEMORY = (
    "train with --stream or a smaller --set batch_size, use a smaller --memory, "
    "rank a table in several files, or diagnose with --quick"
)
RANKER_HELP = "A saved model, an exported .onnx file (run by onnxruntime), or exported trees (.txt, .json)."
DATA_HELP = "A data set of the catalogue (NAME or NAME@split), a LETOR file, or a table."


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command report bad input in one line with exit code 2. `cli.COMMANDS` gives it its name."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> None:
        received: list[int] = []
        try:
            with warnings.catch_warnings(), _terminated_like_interrupted(received):
                warnings.showwarning = show_warning
                function(*args, **kwargs)
        except KeyboardInterrupt as interrupt:
            errors.print("stopped", highlight=False)
            raise typer.Exit(128 + received[0] if received else INTERRUPTED) from interrupt
        except Exception as error:
            if received and "interrupt" in str(error).lower():  # DuckDB raises an error of its own
                errors.print("stopped", highlight=False)
                raise typer.Exit(128 + received[0]) from error
            if hasattr(error, "exit_code"):  # typer's own errors, and runs that were asked to stop
                # typer may bring its own click, so both are named
                if isinstance(error, typer.Exit | click.exceptions.Exit | click.ClickException):
                    raise
                errors.print(str(error), highlight=False, markup=False, soft_wrap=True)
                raise typer.Exit(error.exit_code) from error
            raise typer.Exit(refuse(error)) from error

    return guarded


def refuse(error: Exception) -> int:
    """Print in one line why a command cannot continue, and return its exit code; re-raise our own bugs."""
    message = _refusal(error)
    if message is None:
        raise error
    errors.print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
    return BAD_INPUT


def grading(grade: str | None, sum_grades: bool) -> dict[str, Any]:
    """Training options from `--grade` and `--sum-grades`; empty if neither was given."""
    found: dict[str, Any] = {} if grade is None else {"grade": parse_grades(grade)}
    return {**found, "sum_grades": True} if sum_grades else found


@contextmanager
def _terminated_like_interrupted(received: list[int]) -> Iterator[None]:
    """Turn SIGTERM into an exception as Ctrl-C is one, so that scratch files are removed; note which signal came."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, stop)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # ignored in the background: leave it so
        before[signal.SIGINT] = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _refusal(error: Exception) -> str | None:
    """The one-line message of an error; None for our own bugs, which need a traceback."""
    name = type(error).__name__
    no_memory = name == "OutOfMemoryException" or any(words in str(error).lower() for words in NO_MEMORY_WORDS)
    if isinstance(error, MemoryError) or no_memory:
        detail = f" ({error})" if str(error) else ""
        return f"out of memory{detail}: {LESS_MEMORY}"
    if is_out_of_space(error):
        return str(error) if "disk is full" in str(error) else f"the disk is full ({error}): free space, then repeat"
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    refusals = (ValueError, OSError, KeyError, ModuleNotFoundError, FloatingPointError)
    return str(error) if isinstance(error, refusals) else None


def fresh_methods(labels: list[str] | None) -> bool | list[str]:
    """The value of `--fresh`: everything, some methods, or nothing."""
    return "all" in labels or labels if labels else False


def model_with_code(model: Path, *, allow_code: bool) -> Any:
    """The model with its own code if that is allowed, otherwise the path."""
    from unskew.parts import load_part
    from unskew.serving.model_files import ABOUT, load_model, needed_parts

    if not allow_code or not (model / ABOUT).is_file():
        return model
    return load_model(model, [load_part(name, allow_code=True) for name in needed_parts(model)])
