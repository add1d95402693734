"""The pictures of docs/concepts.md: drawn from formulas, not from data.

Run it from the top of the repository. It writes `docs/figures/concept-*.svg`.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unskew.data.files import new_file
from unskew.reporting.drawing import COLOURS, STYLE, line_style

FOLDER = Path(__file__).parent / "figures"
THETA = np.array([0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06])  # examination by position
PLACES = np.arange(1, len(THETA) + 1)
NAMES = "ABCDE"


def main() -> None:
    with matplotlib.rc_context(STYLE):
        drawn = {"links": links(), "coupling": coupling(), "trust": trust(), "scanning": scanning()}
        for name, figure in drawn.items():
            with new_file(FOLDER / f"concept-{name}.svg") as scratch:
                figure.savefig(scratch, format="svg", metadata={"Date": None})


def links() -> Figure:
    """Which positions share a document, with one order and with four."""
    figure, (left, right) = panels()
    show_orders(left, ["ABCDE"], "One order: no position is linked to another")
    show_orders(right, ["ABCDE", "BACDE", "ABDCE", "ADCBE"], "Four orders: positions 1 to 4 are linked")
    return figure


def show_orders(axes: Axes, orders: list[str], title: str) -> None:
    """Orders as columns; below them the graph of positions."""
    axes.set_title(title, fontsize=10)
    axes.set_axis_off()
    axes.set_xlim(-1.2, 7)
    axes.set_ylim(-6.4, 0.8)
    for column, order in enumerate(orders):
        for place, document in enumerate(order):
            colour = COLOURS[NAMES.index(document)]
            axes.text(column, -place, document, ha="center", va="center", color="white", backgroundcolor=colour)
    for place in range(len(NAMES)):
        axes.text(-0.9, -place, f"{place + 1}", ha="center", va="center", color="#555555")
    at = {(document, place) for order in orders for place, document in enumerate(order)}
    nodes = {place: (5.9, -place) for place in range(len(NAMES))}
    for one in nodes:
        for other in range(one + 1, len(NAMES)):
            if any((document, one) in at and (document, other) in at for document in NAMES):
                bend = f"arc3,rad={0.25 * (other - one - 1) + 0.001}"
                line = {"arrowstyle": "-", "connectionstyle": bend, "color": "#555555", "linewidth": 1.6}
                axes.annotate("", nodes[one], nodes[other], arrowprops=line)
    for place, (x, y) in nodes.items():
        axes.text(x, y, f"{place + 1}", ha="center", va="center", bbox={"boxstyle": "circle", "fc": "white"})
    axes.text((len(orders) - 1) / 2, -5.6, "shown orders", ha="center", color="#555555")
    axes.text(5.9, -5.6, "positions", ha="center", color="#555555")


def coupling() -> Figure:
    """Examination of documents that attract attention more or less: a power of the curve."""
    figure, (left, right) = panels()
    for number, (label, power) in enumerate({"attracts attention": 0.5, "average": 1.0, "easily missed": 1.5}.items()):
        left.plot(PLACES, THETA**power, label=label, **line_style(number))
    attractive, relevant = 0.5 * THETA**0.5, 0.8 * THETA
    right.plot(PLACES, relevant, label="relevance .8, average", **line_style(1))
    right.plot(PLACES, attractive, label="relevance .5, attracts attention", **line_style(0))
    finish(left, "examination", "Examination depends on the document")
    finish(right, "clicks per impression", "Below position 3 the less relevant one wins")
    return figure


def trust() -> Figure:
    """Clicks of relevant and irrelevant documents without and with trust."""
    figure, (left, right) = panels()
    for number, (label, relevance) in enumerate({"relevant": 0.8, "irrelevant": 0.1}.items()):
        trusted = THETA * (relevance + (1 - relevance) * 0.65 / PLACES)
        left.plot(PLACES, THETA * relevance, label=label, **line_style(number))
        right.plot(PLACES, trusted, label=label, **line_style(number))
    finish(left, "clicks per impression", "Position bias: a product")
    finish(right, "clicks per impression", "Trust bias: an affine function")
    return figure


def scanning() -> Figure:
    """Who still examines a position: by position alone, and for users who scan down and may stop after a click."""
    figure, (left, right) = panels()
    for axes, attraction, title in ((left, 0.2, "Documents attract .2"), (right, 0.6, "Documents attract .6")):
        axes.plot(PLACES, THETA / THETA[0], label="position-based", **line_style(0))
        axes.plot(PLACES, (1 - attraction) ** (PLACES - 1), label="cascade", **line_style(1))
        axes.plot(PLACES, (0.9 * (1 - 0.5 * attraction)) ** (PLACES - 1), label="DBN", **line_style(2))
        finish(axes, "examination", title)
    return figure


def panels() -> tuple[Figure, tuple[Axes, Axes]]:
    figure = Figure(figsize=(9, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    return figure, (left, right)


def finish(axes: Axes, y_label: str, title: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("position")
    axes.set_ylabel(y_label)
    axes.set_xticks(PLACES)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)


if __name__ == "__main__":
    main()
