"""What a terminal adds to a function: options as typed words, one line per error, exit codes, the printed result."""

from __future__ import annotations

import functools
import inspect
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Annotated, Any

import click
import typer
from rich.markup import escape

from unskew.command_line.declarations import COMMANDS, Option, options_of
from unskew.command_line.signatures import NEEDED, parameters
from unskew.display import Screen
from unskew.reporting.terminal import BAD_INPUT, console, errors, show_json, show_screen, show_warning

Given = dict[str, Any]  # what was typed: values by the name of the option
INTERRUPTED = 130  # exit code of Ctrl-C in a shell: 128 + SIGINT
NO_MEMORY_WORDS = (  # messages of torch, Python, C++ and the loader of shared libraries
    *("can't allocate memory", "cannot allocate memory", "can't start new thread", "std::bad_alloc"),
    *("failed to map segment from shared object", "cannot create shared object descriptor"),
)
LESS_MEMORY = (
    "train with --stream or a smaller --set batch_size, use a smaller --memory, "
    "rank a table in several files, or diagnose with --quick"
)


def command_of(name: str) -> Callable[..., None]:
    """A declared command as a function that typer reads: its signature has the declared options."""
    declared, options = COMMANDS[name], options_of(name)

    @command
    def typed(**values: Any) -> None:
        given = {key: _parsed(options[key], value) for key, value in values.items()}
        result = _loaded(declared.run)(given) if declared.run else call(name, given)
        if result is not None:
            files = {key: given[option] for key, option in declared.files.items()}
            print_result(result, given, declared.end.format(**given), files)

    typed.__name__, typed.__doc__ = name, declared.summary
    typed.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_typed(key, option, argument=key in declared.arguments) for key, option in options.items()]
    )
    typed.__annotations__ = {}
    return typed


def call(name: str, given: Given, **changed: Any) -> Any:
    """Call the function of a command with what was typed; changed values go by the name of the parameter.

    Options that the function takes by `**options` are those of `--set` and changed ones.
    """
    function, options = COMMANDS[name].function, options_of(name)
    known = parameters(function)
    typed = {options[key].to: value for key, value in given.items() if key in options}
    values = {key: value for key, value in typed.items() if value is not None} | changed
    extra: Given = {**grading(given), **(values.pop("options", None) or {})} if "set" in options else {}
    extra |= {key: value for key, value in changed.items() if key not in known}
    if "options" in known:
        extra = {"options": extra}
    elif "seed" in given and "seed" not in known:
        extra = {"seed": given["seed"], **extra}
    if "progress" in known:
        values.setdefault("progress", shows_progress(given))
    return _loaded(function)(**{key: value for key, value in values.items() if key in known}, **extra)


def shows_progress(given: Given) -> bool:
    return not (given.get("quiet") or given.get("json"))


def print_result(
    result: Any, given: Given, end: str = "", files: Mapping[str, Any] | None = None, content: Any = None
) -> None:
    """Print a result or a screen, and a last line; or one JSON document.

    Args:
        files: paths that come first in the document.
        content: the document; default: what the result holds.
    """
    if given.get("json"):
        content = result.to_json() if content is None else content
        show_json({**files, **content} if files else content)
        return
    show_screen(result if isinstance(result, Screen) else result.screen())
    if end:
        console.print(end, markup=False, highlight=False, soft_wrap=True)


def grading(given: Given) -> Given:
    """Training options from `--grade` and `--sum-grades`; empty if neither was given."""
    grade = {} if given.get("grade") is None else {"grade": given["grade"]}
    return {**grade, "sum_grades": True} if given.get("sum_grades") else grade


def _typed(name: str, option: Option, *, argument: bool) -> inspect.Parameter:
    """An option as typer reads it."""
    more: Any = {"help": option.help, "metavar": option.metavar, "min": option.least, "rich_help_panel": option.panel}
    optional = option.kind if option.default is not None else option.kind | None
    default = inspect.Parameter.empty if option.default is NEEDED else option.default
    told = typer.Argument(**more) if argument else typer.Option(option.flag, **more)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[optional, told]
    )


def _parsed(option: Option, value: Any) -> Any:
    return value if value is None or option.form is None else option.form.read(value)


def _loaded(place: str) -> Any:
    """The function at `module:name` in this package."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"unskew.{module}"), name)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function report bad input in one line with exit code 2."""

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
    from unskew.data.files import is_out_of_space  # numpy takes long to import, and most commands end well

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
