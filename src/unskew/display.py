"""Display: how a result describes itself, as text, as HTML in notebooks, and as a table.

`Screen` is the one type of a table that is shown; `reporting.sheets` writes it as Markdown, as LaTeX and on a page.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from unskew.texts import for_html, shown

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS = 20  # so that a result fits on one screen
CELL = 'style="text-align:{};padding:0 0.8em 0 0"'
NUMBER = re.compile(r"(?:< )?([+−-]?[\d,]*\.?\d+)(?:%| ms)?(?: ± [\d.]+| \(.*\))?(?: [+−]{1,2})?")


def number(text: str) -> float | None:
    """The number that a cell is sorted by; None if it holds none.

    >>> [number(text) for text in ("1,000", "−0.5 ± 0.01 ++", "< .001", "3 to 4", "–")]
    [1000.0, -0.5, 0.001, None, None]
    """
    match = NUMBER.fullmatch(text)
    return float(match[1].replace(",", "").replace("−", "-")) if match else None


class Best(str):
    """The text of a cell that is the best of its column."""


@dataclass(frozen=True)
class Screen:
    """One screen of a result: a title, a table if it has one, and notes."""

    title: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    left: int | None = None  # number of text columns; the others are numbers. None: as the cells say, at least one
    n_rows: int | None = None  # total number of rows, if `rows` holds only the first
    more: Sequence[Screen] = ()  # between table and notes, where there is room: in a terminal and in a notebook
    name: str = ""  # of its files

    @property
    def is_text(self) -> list[bool]:
        """For each column, whether it holds no numbers."""
        return [all(number(row[place]) is None for row in self.rows) for place in range(len(self.columns))]

    @property
    def n_left(self) -> int:
        """The number of text columns."""
        return max(1, [*self.is_text, False].index(False)) if self.left is None else self.left

    def to_table(self) -> pa.Table:
        """The table as Arrow has it: numbers where a column has some, else the texts."""
        import pyarrow as pa

        columns = zip(self.columns, self.is_text, strict=True)
        cells = [(name, [row[place] for row in self.rows], text) for place, (name, text) in enumerate(columns)]
        return pa.table({name: texts if text else [*map(number, texts)] for name, texts, text in cells})

    def to_pandas(self) -> Any:
        """The same as a pandas data frame."""
        return self.to_table().to_pandas()

    def text(self) -> str:
        """Aligned plain text."""
        table = [self.columns, *self.rows[:MOST_ROWS]] if self.columns else []
        widths = [max(len(row[place]) for row in table) for place in range(len(self.columns))]
        lines = ["  ".join(self._aligned(row, widths)).rstrip() for row in table]
        return shown("\n".join([self.title, *lines, *self._left_out(), *self.notes]))

    def html(self) -> str:
        """The same as HTML."""
        parts = [f"<strong>{for_html(self.title)}</strong>"]
        if self.columns:
            rows = [self._html_row("th", self.columns), *(self._html_row("td", row) for row in self.rows[:MOST_ROWS])]
            parts.append(f"<table>{''.join(rows)}</table>")
        parts += [f"<div>{for_html(text)}</div>" for text in self._left_out()]
        parts += [*(part.html() for part in self.more), *(f"<div>{for_html(note)}</div>" for note in self.notes)]
        return f"<div>{''.join(parts)}</div>"

    def _aligned(self, row: Sequence[str], widths: Sequence[int]) -> list[str]:
        left = self.n_left
        cells = enumerate(zip(row, widths, strict=True))
        return [text.ljust(width) if place < left else text.rjust(width) for place, (text, width) in cells]

    def _html_row(self, tag: str, row: Sequence[str]) -> str:
        sides = ["left" if place < self.n_left else "right" for place in range(len(row))]
        cells = [f"<{tag} {CELL.format(side)}>{for_html(text)}</{tag}>" for side, text in zip(sides, row, strict=True)]
        return f"<tr>{''.join(cells)}</tr>"

    def _left_out(self) -> list[str]:
        more = (len(self.rows) if self.n_rows is None else self.n_rows) - min(len(self.rows), MOST_ROWS)
        return [f"… and {more:,} more rows; to_table() returns all of them"] if more > 0 else []


def cell(value: Any) -> str:
    """A value as a table shows it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


class OnScreen:
    """A result that describes itself on one screen, as text and in notebooks."""

    def screen(self) -> Screen:
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.screen().text()

    def _repr_html_(self) -> str:
        return self.screen().html()


class Displayed(OnScreen):
    """A result that also returns its numbers as a table."""

    def to_table(self) -> pa.Table:
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """The table of `to_table` as a pandas data frame."""
        return self.to_table().to_pandas()


def rows_table(rows: Sequence[Any], kind: type) -> pa.Table:
    """A table of dataclass instances of this kind: one row each, one column per field, even without rows."""
    import pyarrow as pa

    return pa.table({entry.name: pa.array([getattr(row, entry.name) for row in rows]) for entry in fields(kind)})


def new_axes(ax: Any = None) -> Any:
    """The given matplotlib axes, or those of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6.4, 3.6), layout="constrained")[1]


def draw_intervals(
    rows: Sequence[tuple[str, float, float | None, float | None]], x_label: str, ax: Any = None, *, origin: bool = True
) -> Any:
    """Plot numbers with intervals, one line per (label, value, low, high), the first at the top.

    Args:
        origin: draw a line at 0, which means no difference.
    """
    axes = new_axes(ax)
    for place, (_, value, low, high) in enumerate(reversed(rows)):
        if low is not None and high is not None:
            axes.plot([low, high], [place, place], color="grey")
        axes.plot([value], [place], "o", color="black")
    if origin:
        axes.axvline(0.0, color="grey", linestyle="--")
    axes.set_yticks(range(len(rows)), [row[0] for row in reversed(rows)])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(x_label)
    return axes
