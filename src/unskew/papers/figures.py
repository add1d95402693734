"""Figures of an experiment, drawn from its results; kinds by name in `KINDS`."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unskew.comparison.run import Result, Results
from unskew.comparison.settings import Experiment
from unskew.comparison.statistics import Cell, Table, summarize
from unskew.evaluation.differences import mean_interval
from unskew.papers.settings import FigureSetting
from unskew.papers.sheets import label_lines
from unskew.reporting.drawing import (
    COLOURS,
    HEIGHT,
    MARKERS,
    STYLE,
    WIDTH,
    Drawn,
    heatmap,
    line_figure,
    line_style,
    position_figure,
)


def draw(setting: FigureSetting, experiment: Experiment, results: Results) -> Drawn | None:
    """A figure of an experiment; None if the runs that it shows are missing."""
    if setting.kind not in KINDS:
        raise ValueError(f"{experiment.name}: unknown kind of figure '{setting.kind}': choose from {', '.join(KINDS)}")
    if not results.results:
        return None
    with matplotlib.rc_context(STYLE):
        figure = KINDS[setting.kind](experiment, results, setting.options)
    return None if figure is None else Drawn(setting.file, setting.title, figure)


def _lines(experiment: Experiment, results: Results, options: dict[str, Any]) -> Figure | None:
    """The main metric over settings, one line per method."""
    table = Table(results.results)
    places = {entry.name: entry.x for entry in experiment.settings if entry.x is not None}
    cells = _cells(experiment, table)
    found = {}
    for label in options.get("labels", table.labels()):
        points = [(places[name], cells[name, label]) for name in places if (name, label) in cells]
        found[label] = sorted(points, key=lambda point: point[0])
    return _metric_lines(found, experiment.metric, options.get("x_label", "setting"))


def _option_lines(experiment: Experiment, results: Results, options: dict[str, Any]) -> Figure | None:
    """The main metric over the values of an option, one line per setting; other methods are horizontal lines."""
    name = options["option"]
    table = Table(results.results)
    cells = _cells(experiment, table)
    points: dict[str, list[tuple[float, Cell]]] = {}
    level: dict[tuple[str, str], Cell] = {}
    for setting, label in table.results:
        run = table.of(setting, label)[0].run
        if name in run.point:
            points.setdefault(setting, []).append((float(run.point[name]), cells[setting, label]))
        else:
            level[setting, label] = cells[setting, label]
    if not points:
        return None
    every = sorted({x for line in points.values() for x, _ in line})
    for (setting, label), cell in level.items():
        points[f"{label}{f', {setting}' if setting else ''}"] = [(x, cell) for x in every]
    return _metric_lines(points, experiment.metric, options.get("x_label", name))


def _metric_lines(curves: dict[str, list[tuple[float, Cell]]], metric: str, x_label: str) -> Figure | None:
    curves = {label: points for label, points in curves.items() if points}
    if not curves:
        return None
    lines = {label: ([x for x, _ in points], [cell.mean for _, cell in points]) for label, points in curves.items()}
    bands = {
        label: (
            [cell.mean if cell.low is None else cell.low for _, cell in points],
            [cell.mean if cell.high is None else cell.high for _, cell in points],
        )
        for label, points in curves.items()
    }
    return line_figure(lines, x_label=x_label, y_label=metric, bands=bands)


def _bars(experiment: Experiment, results: Results, options: dict[str, Any]) -> Figure | None:  # noqa: ARG001
    """The main metric of every method, one panel per setting."""
    table = Table(results.results)
    panels = table.settings
    figure = Figure(figsize=(WIDTH, 0.9 + 0.26 * len(table.labels())), layout="constrained")
    cells = _cells(experiment, table)
    first = None
    for place, setting in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), place + 1, sharex=first)  # panels are compared by eye
        first = first or axes
        entries = [cells[setting, label] for label in table.labels() if (setting, label) in cells]
        for height, cell in enumerate(reversed(entries)):
            number = table.labels().index(cell.label)
            error = None if cell.low is None else [[cell.mean - cell.low], [(cell.high or 0) - cell.mean]]
            shape = {key: value for key, value in line_style(number).items() if key in ("color", "marker")}
            axes.errorbar(cell.mean, height, xerr=error, linestyle="none", capsize=3, **shape)
        axes.set_yticks(range(len(entries)), [cell.label if place == 0 else "" for cell in reversed(entries)])
        axes.set_ylim(-0.6, len(entries) - 0.4)
        axes.set_title(textwrap.fill(setting, max(8, 42 // len(panels) + 4)), fontsize=9)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.set_xlabel(experiment.metric)
    return figure


def _curves(experiment: Experiment, results: Results, options: dict[str, Any]) -> Figure | None:
    """Learned examination curves relative to the top, with the truth and click rates of the log."""
    table = Table(results.results)
    setting = options.get("setting", table.settings[0])
    lines, bands, rates, truths = {}, {}, [], []
    for label in options.get("labels", table.labels(setting)):
        abouts = [result.outcome.about for result in table.of(setting, label)]
        curves = [about["examination"] for about in abouts if about.get("examination")]
        if curves:
            relative = np.array([np.divide(curve, curve[0]) for curve in curves])
            lines[label] = relative.mean(axis=0).tolist()
            if len(curves) > 1:
                bands[label] = _band(relative)
        rates += [about["click_rates"] for about in abouts if about.get("click_rates")]
        truths += [about["true_examination"] for about in abouts if about.get("true_examination")]
    if not lines:
        return None
    reference = {}
    for label, known in (("truth", truths), ("click rate", rates)):
        if known and label in options.get("references", ["truth"]):
            mean = np.mean(known, axis=0)
            reference[label] = (mean / mean[0]).tolist()
    del experiment
    return position_figure(lines, reference=reference, bands=bands)


def _learning_curves(experiment: Experiment, results: Results, options: dict[str, Any]) -> Figure | None:
    """Validation over training steps, with the 95% interval over repetitions."""
    table = Table(results.results)
    setting = options.get("setting", table.settings[0])
    lines, bands = {}, {}
    for label in options.get("labels", table.labels(setting)):
        abouts = [result.outcome.about for result in table.of(setting, label)]
        curves = [
            dict(zip(about["steps"], about["validation_by_step"], strict=True)) for about in abouts if "steps" in about
        ]
        if not curves:  # the logger does not learn
            continue
        steps = sorted(set.intersection(*map(set, curves)))  # early stopping ends some before others
        if steps:
            values = np.array([[curve[step] for step in steps] for curve in curves])
            lines[label] = ([float(step) for step in steps], values.mean(axis=0).tolist())
            if len(curves) > 1:
                bands[label] = _band(values)
    if not lines:
        return None
    return line_figure(lines, x_label="step", y_label=f"{experiment.metric}, validation", bands=bands)


def _band(values: np.ndarray) -> tuple[list[float], list[float]]:
    """The 95% interval of each column."""
    intervals = [mean_interval(column)[1:] for column in values.T]
    return [low for low, _ in intervals], [high for _, high in intervals]


def _heatmaps(experiment: Experiment, results: Results, options: dict[str, Any]) -> Figure | None:
    """The main metric over two hyper-parameters, one panel per setting; the best cell is framed."""
    table = Table(results.results)
    down, across = options["down"], options["across"]
    settings = [name for name in table.settings if any(down in result.run.point for result in _all(table, name))]
    if not settings:
        return None
    figure = Figure(figsize=(max(WIDTH, 2.3 * len(settings)), 2.9), layout="constrained")
    for place, setting in enumerate(settings):
        fields = {
            (label.run.point[down], label.run.point[across]): float(
                table.means(setting, label.run.label, experiment.metric).mean()
            )
            for label in _all(table, setting)
            if down in label.run.point
        }
        rows, columns = (sorted({key[axis] for key in fields}) for axis in (0, 1))
        values = np.array([[fields.get((row, column), np.nan) for column in columns] for row in rows])
        axes = figure.add_subplot(1, len(settings), place + 1)
        heatmap(axes, values, [f"{value:g}" for value in columns], [f"{value:g}" for value in rows])
        axes.set_title(textwrap.fill(setting, 24), fontsize=9)
        axes.set_xlabel(options.get("across_label", across))
        if place == 0:
            axes.set_ylabel(options.get("down_label", down))
    return figure


def _click_matrix(experiment: Experiment, results: Results, options: dict[str, Any]) -> Figure | None:  # noqa: ARG001
    """Click rates by grade and position, in the log of the first run."""
    matrix = np.array(results.results[0].outcome.about["matrix"])
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    heatmap(axes, matrix, [str(k + 1) for k in range(matrix.shape[1])], [str(g) for g in range(len(matrix))], digits=3)
    axes.set_xlabel("position")
    axes.set_ylabel("grade")
    return figure


def _embeddings(experiment: Experiment, results: Results, options: dict[str, Any]) -> Figure | None:  # noqa: ARG001
    """Relevance embeddings coloured by grade, directions of positions, and of the base vector."""
    panels = {result.run.setting: result for result in reversed(results.results)}
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    for place, (setting, result) in enumerate(reversed(panels.items())):
        about = result.outcome.about
        axes = figure.add_subplot(1, len(panels), place + 1)
        points, grades = np.array(about["relevance"]), np.array(about["grades"])
        for number, grade in enumerate(np.unique(grades)):
            chosen = points[grades == grade]
            marker = MARKERS[number % len(MARKERS)]
            axes.scatter(
                chosen[:, 0],
                chosen[:, 1],
                s=8,
                marker=marker,
                color=COLOURS[number],
                label=f"grade {grade:g}",
                linewidths=0,
            )
        reach = float(np.abs(points).max())
        for vector, colour, width in [
            *((v, "#999999", 0.8) for v in about["observation"]),
            (about["base"], "black", 2.0),
        ]:
            end = np.array(vector) / max(float(np.linalg.norm(vector)), 1e-9) * reach
            axes.plot([0, end[0]], [0, end[1]], color=colour, linewidth=width, linestyle="--" if width < 1 else "-")
        axes.set_title(f"{setting} (grey: positions, black: base vector)", fontsize=8)
        if place == 0:
            axes.legend(fontsize=7, markerscale=2)
    return figure


def _by_position(experiment: Experiment, results: Results, options: dict[str, Any]) -> Figure | None:  # noqa: ARG001
    """The main metric when relevance embeddings are projected onto the embedding of each position."""
    table = Table(results.results)
    lines, reference = {}, {}
    for setting, label in table.results:
        values = [result.outcome.about["by_position"] for result in table.of(setting, label)]
        name = setting or label
        lines[f"{name}: a position's embedding"] = np.mean(values, axis=0).tolist()
        base = float(table.means(setting, label, experiment.metric).mean())
        reference[f"{name}: base vector"] = [base] * len(values[0])
    return position_figure(lines, experiment.metric, reference=reference)


KINDS: dict[str, Callable[[Experiment, Results, dict[str, Any]], Figure | None]] = {
    "lines": _lines,
    "option_lines": _option_lines,
    "bars": _bars,
    "curves": _curves,
    "learning_curves": _learning_curves,
    "heatmaps": _heatmaps,
    "click_matrix": _click_matrix,
    "embeddings": _embeddings,
    "by_position": _by_position,
    "few_labels": label_lines,
}


def _cells(experiment: Experiment, table: Table) -> dict[tuple[str, str], Cell]:
    return {
        (setting, cell.label): cell
        for setting in table.settings
        for cell in summarize(table, setting, experiment.metric, None)
    }


def _all(table: Table, setting: str) -> list[Result]:
    """One result of each label of a setting."""
    return [table.of(setting, label)[0] for label in table.labels(setting)]
