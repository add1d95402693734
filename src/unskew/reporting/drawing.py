"""Drawing in one style: readable in print, in grey and by the colour-blind.

Colours are those of Okabe and Ito; every line also has a marker and a dash pattern of its own.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from unskew.data.files import new_file
from unskew.display import draw_intervals
from unskew.texts import file_name, for_html, shown

Line = tuple[Sequence[float], Sequence[float]]  # x and y, or low and high

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 2)))
TRUTH = "#555555"
STYLE: Any = {  # matplotlib wants its own kind of keys
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: it can be found, read aloud and restyled
    "text.parse_math": False,  # a level may be named `$x`
    "svg.hashsalt": "unskew",  # the same figure gives the same file
}
WIDTH, HEIGHT = 6.4, 3.6
NARROW = 5.2  # inches: with its legend below, still readable on a phone
LEGEND_COLUMNS = 3
LEGEND_WIDTH, LEGEND_LINE = 90, 8  # characters of all columns together, and of the line beside each name
UNDATED: dict[str, Any] = {"svg": {"Date": None}, "png": None, "pdf": {"CreationDate": None}}  # metadata by kind


@dataclass(frozen=True, eq=False)
class Drawn:
    """A figure with its caption."""

    file: str
    title: str
    figure: Figure

    def svg(self) -> str:
        """The figure as an element to be put into a page."""
        with _styled():
            buffer = io.StringIO()
            self.figure.savefig(buffer, format="svg", metadata={"Date": None})
        return _for_page(shown(buffer.getvalue()), self.title, self.file)

    def save(self, folder: Path) -> list[Path]:
        """SVG, PNG and PDF in this folder."""
        paths = [folder / f"{file_name(self.file)}.{kind}" for kind in UNDATED]
        with _styled():
            for path in paths:
                kind = path.suffix[1:]
                with new_file(path) as scratch:
                    self.figure.savefig(scratch, format=kind, dpi=160, metadata=UNDATED[kind])
        return paths


@contextmanager
def _styled() -> Iterator[None]:
    """Our style; letters that matplotlib's font lacks are drawn by the reader's."""
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        yield


def line_figure(
    lines: Mapping[str, Line],
    *,
    x_label: str,
    y_label: str,
    bands: Mapping[str, Line] | None = None,
    reference: Mapping[str, Line] | None = None,
) -> Figure:
    """Lines of (x, y) with shaded bands of (low, high); references are drawn in grey without a marker."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(NARROW, HEIGHT), layout="constrained")
        axes = figure.add_subplot()
        for number, (label, (x, y)) in enumerate(lines.items()):
            axes.plot(x, y, label=shown(label), **line_style(number))
            if bands and label in bands:
                axes.fill_between(x, *bands[label], color=COLOURS[number % len(COLOURS)], alpha=0.15, linewidth=0)
        for number, (label, (x, y)) in enumerate((reference or {}).items()):
            axes.plot(x, y, label=label, color=TRUTH, linestyle=DASHES[number % len(DASHES)], linewidth=2.5, alpha=0.6)
        if all(float(place).is_integer() for x, _ in lines.values() for place in x):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # no position 1.5
        if y_label.startswith("examination"):  # a share: its height is read from 0
            axes.set_ylim(bottom=0)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        _legend(figure, axes)
        return figure


def position_figure(
    curves: Mapping[str, Iterable[float]],
    y_label: str = "examination, relative to the top",
    *,
    reference: Mapping[str, Iterable[float]] | None = None,
    bands: Mapping[str, Line] | None = None,
) -> Figure:
    """Curves by position, which counts from 1."""
    lines, references = (
        {name: (range(1, 1 + len(values)), values) for name, each in (some or {}).items() for values in [[*each]]}
        for some in (curves, reference)
    )
    return line_figure(lines, x_label="position", y_label=y_label, reference=references, bands=bands)


def interval_figure(rows: Sequence[tuple[str, float, float | None, float | None]], x_label: str) -> Figure:
    """One line per (label, value, low, high), with a mark at 0."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(NARROW, 1.1 + 0.32 * len(rows)), layout="constrained")
        draw_intervals(rows, x_label, figure.add_subplot())
        return figure


def heatmap(axes: Axes, values: np.ndarray, columns: list[str], rows: list[str], digits: int = 4) -> None:
    """Numbers in shaded fields, the largest framed."""
    axes.imshow(values, cmap="Blues", aspect="auto")
    axes.grid(False)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "white" if value > middle else "black"
            text = f"{value:.{digits}f}".lstrip("0")
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    best = np.unravel_index(np.nanargmax(values), values.shape)
    frame = Rectangle((best[1] - 0.5, best[0] - 0.5), 1, 1, fill=False, edgecolor=COLOURS[1], linewidth=2)
    axes.add_patch(frame)


def line_style(number: int) -> dict[str, Any]:
    """Colour, marker and dashes of the line of this number; colours repeat with another marker and other dashes."""
    turn = number // len(COLOURS)
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[(number + 3 * turn) % len(MARKERS)],
        "linestyle": DASHES[(number + 3 * turn) % len(DASHES)],
        "markersize": 4.5,
        "linewidth": 1.4,
    }


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:  # one line is named by its axis
        fitting = LEGEND_WIDTH // (LEGEND_LINE + max(len(label) for label in labels))
        columns = max(1, min(LEGEND_COLUMNS, len(labels), fitting))
        figure.legend(handles, labels, loc="outside lower center", fontsize=8, handlelength=3, ncols=columns)


def _for_page(svg: str, title: str, name: str) -> str:
    """An SVG document as an element: no prologue, ids of its own, scaled by the page, named for readers."""
    element = svg[svg.index("<svg") :]
    stem = file_name(name)
    element = re.sub(r'\bid="([^"]+)"', rf'id="{stem}-\1"', element)
    element = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{stem}-", element)
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r'<svg ([^>]*?)width="[^"]+" height="[^"]+"', r"<svg \1", element, count=1)
    return element.replace("<svg ", f'<svg role="img" aria-label="{for_html(title)}" ', 1)
