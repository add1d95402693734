"""What the terminal shows: tables, progress, errors; and options as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from unskew.training.history import Report

console = Console()
errors = Console(stderr=True)

BAD_INPUT = 2  # exit code: what was asked cannot be done; nothing was written


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """An aligned table; the first `left` columns are text, the others numbers."""
    console.print(f"\n[bold]{title}[/]", highlight=False)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def cell(value: Any) -> str:
    """A value as a table shows it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def show_json(data: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(data, indent=2, default=str) + "\n")


@contextmanager
def training_progress(label: str, *, quiet: bool = False) -> Iterator[Callable[[Report], None]]:
    """A bar with stage, loss terms, validation, rate and time left."""
    with _bar(quiet) as bar:
        task = bar.add_task(label, total=None, detail="")

        def update(report: Report) -> None:
            terms = "  ".join(f"{name} {value:.3f}" for name, value in report.terms.items())
            validation = "" if report.validation is None else f"  validation {report.validation:.4f}"
            detail = f"{report.stage}: {terms}{validation}  {report.rate:.0f} steps/s"
            bar.update(task, completed=report.step, total=report.steps, detail=detail)

        yield update


@contextmanager
def counting_progress(label: str, unit: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A bar for `(done, total)`."""
    with _bar(quiet) as bar:
        task = bar.add_task(label, total=None, detail=unit)

        def update(done: int, total: int) -> None:
            speed = bar.tasks[0].speed
            detail = unit if not speed else f"{unit}, {speed:,.0f}/s"
            bar.update(task, completed=done, total=total, detail=detail)

        yield update


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """`name=value` pairs; values are JSON where they parse as such, lists of numbers with commas, else text."""
    options = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"'{pair}' is no option: write name=value, e.g. max_weight=10")
        options[name.replace("-", "_")] = _value(text)
    return options


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for candidate in (text, f"[{text}]"):
        try:
            return json.loads(candidate)
        except ValueError:
            continue
    return text


def _bar(quiet: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[detail]}"),
        console=errors,
        transient=True,
        disable=quiet or not errors.is_terminal,
    )
