"""Terminal output: results, tables, errors, and the progress of long work."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from unskew.display import Screen
from unskew.texts import redacted, shown


class SafeConsole(Console):
    """A console that shows text from data as text: without secrets, with control characters spelled out."""

    def print(self, *objects: Any, **how: Any) -> None:
        super().print(*(shown(each) if isinstance(each, str) else each for each in objects), **how)


console = SafeConsole()
errors = SafeConsole(stderr=True)

Show = Callable[[int, int, str], None]  # done, total, details
Follow = bool | Callable[..., None]  # progress: a bar, none, or the caller's own function
BAR_WIDTH = 24
LINE_SECONDS, MOST_LINE_SECONDS = 5.0, 60.0  # between two lines where there is no terminal
NOTEBOOK_SECONDS = 0.3  # between two updates of a line in a notebook
BAD_INPUT = 2  # exit code: the input or the options are wrong; nothing was written


def show_screen(screen: Screen) -> None:
    """A result as it shows itself, all rows included."""
    if screen.columns:
        console.print(f"\n[bold]{escape(screen.title)}[/]", highlight=False)
        table = Table(box=None, header_style="bold", pad_edge=False)
        for number, name in enumerate(screen.columns):
            side: Any = "left" if number < screen.n_left else "right"
            table.add_column(Text(shown(name)), justify=side, overflow="fold")
        for row in screen.rows:
            table.add_row(*(Text(shown(cell)) for cell in row))  # ids may look like markup
        console.print(table)
    else:
        console.print(screen.title, markup=False, highlight=False, soft_wrap=True)
    for part in screen.more:
        show_screen(part)
    for note in screen.notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)


def show_json(data: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(redacted(json.dumps(data, indent=2, default=str)) + "\n")


def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line, without Python's file and line number."""
    errors.print(f"[bold yellow]warning:[/] {escape(str(message))}", highlight=False, soft_wrap=True)


@contextmanager
def followed(
    progress: Follow | None, bar: Callable[..., AbstractContextManager[Callable[..., None]]], *arguments: Any
) -> Iterator[Callable[..., None]]:
    """The progress callback: the caller's own, or this bar, hidden if `progress` is False or None."""
    if callable(progress):
        yield progress
    else:
        with bar(*arguments, quiet=not progress) as update:
            yield update


@contextmanager
def training_progress(label: str, *, quiet: bool = False) -> Iterator[Callable[..., None]]:
    """A bar for a `Report`: stage, loss terms, validation, rate and time left."""
    with _bar(label, quiet) as show:

        def update(report: Any) -> None:
            terms = "  ".join(f"{name} {value:.3f}" for name, value in report.terms.items())
            validation = "" if report.validation is None else f"  validation {report.validation:.4f}"
            show(report.step, report.steps, f"{report.stage}: {terms}{validation}  {report.rate:.0f} steps/s")

        yield update


@contextmanager
def counting_progress(label: str, unit: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A bar for `(done, total)`."""
    started = time.monotonic()
    with _bar(label, quiet) as show:

        def update(done: int, total: int) -> None:
            show(done, total, f"{unit}, {done / max(time.monotonic() - started, 1e-3):,.0f}/s")

        yield update


@contextmanager
def experiment_progress(label: str, *, quiet: bool = False) -> Iterator[Callable[..., None]]:
    """A bar for a `State` of runs, with the time left; plain lines if there is no terminal."""
    with _bar(label, quiet, lines=False) as show:
        failed: set[str] = set()
        told = 0

        def update(state: Any) -> None:
            nonlocal told
            left = "" if state.seconds_left is None else f"about {timedelta(seconds=round(state.seconds_left))} left"
            parts = [f"{len(state.running)} running", f"{len(state.failed)} failed", left]
            if state.elsewhere:
                parts.insert(1, f"{state.elsewhere} in other processes")
            detail = ", ".join(part for part in parts if part)
            show(state.done, state.total, f"{detail}: {'; '.join(state.running)}")
            if quiet:
                return
            for title in state.failed:
                if title not in failed:
                    errors.print(f"[red]failed:[/] {escape(title)}", highlight=False)
                    failed.add(title)
            if not errors.is_terminal and not errors.is_jupyter and state.done > told:
                told = state.done
                text = f"{label}: {state.done}/{state.total} runs done, {detail}"
                errors.print(text, highlight=False, soft_wrap=True)

        yield update


@contextmanager
def _bar(label: str, quiet: bool, *, lines: bool = True) -> Iterator[Show]:
    """A bar in a terminal, a line that updates itself in a notebook, and elsewhere, as in cron, lines."""
    if not quiet and errors.is_jupyter:
        yield _notebook_line(label)
        return
    if not quiet and not errors.is_terminal and lines:
        yield _plain_lines(label)
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=BAR_WIDTH),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        console=errors,
        transient=True,
        disable=quiet or not errors.is_terminal,
    )
    with bar:
        task = bar.add_task(label, total=None, detail="")
        yield lambda done, total, detail: bar.update(task, completed=done, total=total, detail=shown(detail))


def _plain_lines(label: str) -> Show:
    """A line with the time left for every tenth of the work, or every minute; none for work of seconds."""
    started = told = time.monotonic()
    tenth = 0

    def show(done: int, total: int, detail: str) -> None:
        nonlocal told, tenth
        now, reached = time.monotonic(), 10 * done // max(total, 1)
        if now - told < LINE_SECONDS or (reached <= tenth and now - told < MOST_LINE_SECONDS):
            return
        told, tenth = now, reached
        left = (now - started) * (total - done) / max(done, 1)
        about = f"about {timedelta(seconds=round(left))} left" if done else "not begun"
        text = f"{label}: {done:,}/{total:,}, {about}, {shown(detail)}"
        errors.print(text, highlight=False, markup=False, soft_wrap=True)

    return show


def _notebook_line(label: str) -> Show:
    """One line of output that is rewritten at most a few times per second; it needs no widgets."""
    from IPython.display import display

    line = display({"text/plain": label}, raw=True, display_id=True)
    last = 0.0

    def show(done: int, total: int, detail: str) -> None:
        nonlocal last
        if done < total and time.monotonic() - last < NOTEBOOK_SECONDS:
            return
        last = time.monotonic()
        filled = round(BAR_WIDTH * done / max(total, 1))
        bar = "█" * filled + "░" * (BAR_WIDTH - filled)
        line.update({"text/plain": f"{label} {bar} {done:,}/{total:,} {detail}"}, raw=True)

    return show
