"""Tables of an experiment: results with marks, paired differences, chosen hyper-parameters.

Further columns, such as the numbers of a paper, are passed in as `beside`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from unskew.comparison.run import Results
from unskew.comparison.settings import Experiment, OptionTable
from unskew.comparison.statistics import Cell, Table, pick_baseline, summarize
from unskew.data.judged.metrics import metric
from unskew.display import Best, Screen
from unskew.reporting.sheets import NOTHING, directed, interval_text, options_text, p_value, shown_number, signed
from unskew.training.recipe import find_method

Beside = Callable[[str], Mapping[str, Mapping[str, float]]]  # setting -> column -> label -> number


def result_sheets(experiment: Experiment, table: Table, data: str, beside: Beside = lambda _: {}) -> list[Screen]:
    """Results: one table per setting, or one table of the main metric if settings lie on an axis."""
    if len(experiment.settings) > 3:
        return [_by_setting(experiment, table, data)]
    return [_by_metric(experiment, table, setting, data, beside(setting)) for setting in table.settings]


def difference_sheet(experiment: Experiment, table: Table) -> Screen | None:
    """Differences from the baseline with the p-values of all tests, by the main metric."""
    rows = []
    for setting in table.settings:
        baseline = baseline_of(experiment, table, setting)
        for cell in summarize(table, setting, experiment.metric, baseline):
            if cell.difference is None:
                continue
            interval = interval_text(cell.difference_low, cell.difference_high)
            names = (_where(setting, cell.label), str(baseline))
            rows.append((*names, signed(cell.difference), interval, p_value(cell.p), p_value(cell.p_queries)))
    if not rows:
        return None
    columns = ("method", "baseline", "difference", "95% interval", "p", "p, these rankers")
    note = (
        f"Paired, two-sided, over {units_text(table)}; p is Holm-corrected over the methods of a setting. The last "
        "column is over queries: it refers to the rankers trained here, not to their methods."
    )
    return Screen(f"Differences in {experiment.metric}", columns, rows, [note], name="tests")


def seen_sheet(experiment: Experiment, results: Results, seen: Mapping[str, bool]) -> Screen | None:
    """The main metric on test queries that occur in the click log, and on those that do not; None if none does."""
    n_seen = sum(seen.values())
    if not n_seen:
        return None
    means: dict[str, list[list[float]]] = {}
    for result in results.results:
        ids, values = result.outcome.query_ids, result.outcome.per_query.get(experiment.metric)
        if ids is not None and values is not None:
            known = np.array([seen.get(str(name), False) for name in ids.tolist()], dtype=bool)
            means.setdefault(result.run.label, []).append([_mean(values[known]), _mean(values[~known])])
    rows = [(label, *map(shown_number, np.mean(pairs, axis=0).tolist())) for label, pairs in means.items()]
    columns = ("method", f"in the log ({n_seen:,})", f"not in the log ({len(seen) - n_seen:,})")
    note = f"{n_seen:,} of {len(seen):,} test queries also occur in the click log. Means over repetitions."
    return Screen(f"{experiment.metric} on queries in the log and on others", columns, rows, [note], name="seen")


def _mean(values: NDArray[np.float64]) -> float:
    """The mean of values that are not NaN; NaN if there are none."""
    counted = values[~np.isnan(values)]
    return float(counted.mean()) if len(counted) else math.nan


def data_set_sheet(experiment: Experiment, tables: Mapping[str, Table]) -> Screen:
    """The main metric of every method on every data set, as papers print it."""
    columns: dict[str, dict[str, str]] = {}
    for data, table in tables.items():
        columns[data] = {}
        for setting in table.settings:
            texts = _column(experiment, table, setting, experiment.metric)
            columns[data] |= {_where(setting, label): text for label, text in texts.items()}
    labels = dict.fromkeys(label for column in columns.values() for label in column)
    units = ", ".join(f"{data}: {units_text(table)}" for data, table in tables.items())
    note = f"Mean ± half of the 95% interval. {units}."
    if experiment.baseline:
        note += " +/− p < .05 and ++/−− p < .005 against the baseline of each data set, Holm-corrected."
    title = f"{experiment.title}: {experiment.metric} on all data sets"
    return _of_columns(title, columns, list(labels), note, "data-sets")


def _where(setting: str, label: str) -> str:
    return f"{setting}: {label}" if setting else label


def chosen_sheet(
    experiment: Experiment, table: Table, reported: Mapping[str, OptionTable] | None = None
) -> Screen | None:
    """Hyper-parameters chosen on validation, and those that a paper reports."""
    rows = []
    for (setting, label), results in table.results.items():
        run = next(iter(results.values())).run
        grids = [entry.grid for entry in experiment.methods if entry.label == label]
        if run.point and grids and any(len(values) > 1 for values in grids[0].values()):
            rows.append((_where(setting, label), options_text(run.point), "ours"))
    rows += [(where, options_text(options), "paper") for where, options in (reported or {}).items()]
    if not rows:
        return None
    note = "Chosen on the validation queries of the first repetition, then used in all."
    return Screen("Chosen hyper-parameters", ("setting", "hyper-parameters", "from"), rows, [note], name="chosen")


def baseline_of(experiment: Experiment, table: Table, setting: str) -> str | None:
    return pick_baseline(table, setting, experiment.baseline, experiment.metric)


def _by_metric(
    experiment: Experiment, table: Table, setting: str, data: str, beside: Mapping[str, Mapping[str, float]]
) -> Screen:
    columns = {
        directed(name, metric(name).higher_is_better): _column(experiment, table, setting, name)
        for name in experiment.metrics
    }
    columns |= {name: {label: f"{value:g}" for label, value in values.items()} for name, values in beside.items()}
    title = f"{experiment.title}{f', {setting}' if setting else ''}, on {data}"
    alone = Table(result for label in table.labels(setting) for result in table.of(setting, label))
    note = _note(alone, setting, baseline_of(experiment, table, setting))
    return _of_columns(title, columns, table.labels(setting), note, _file_name("results", setting))


def _by_setting(experiment: Experiment, table: Table, data: str) -> Screen:
    columns = {setting: _column(experiment, table, setting, experiment.metric) for setting in table.settings}
    title = f"{experiment.title}: {experiment.metric} on {data}"
    baselines = {name for setting in table.settings if (name := baseline_of(experiment, table, setting))}
    note = _note(table, table.settings[0], " or ".join(sorted(baselines)) or None)
    return _of_columns(title, columns, table.labels(), note, "results")


def _column(experiment: Experiment, table: Table, setting: str, name: str) -> dict[str, str]:
    """One measure of each method in a setting, as text."""
    cells = summarize(table, setting, name, baseline_of(experiment, table, setting))
    best = _best(cells, experiment)
    return {cell.label: _shown(cell, best) for cell in cells}


def _of_columns(
    title: str, columns: Mapping[str, Mapping[str, str]], labels: Sequence[str], note: str, name: str
) -> Screen:
    """A row for each label."""
    rows = [(label, *(column.get(label, NOTHING) for column in columns.values())) for label in labels]
    return Screen(title, ("method", *columns), rows, [note], name=name)


def units_text(table: Table) -> str:
    """The unit of repetition in words: `5 folds`, `5 folds with 3 seeds each`, `5 seeds`."""
    runs = [result.run for results in table.results.values() for result in results.values()]
    n_seeds = len({run.repetition.seed for run in runs})
    parts = {run.repetition.data for run in runs if run.repetition.data != run.repetition.data_set}
    if not parts:
        return "one repetition" if n_seeds == 1 else f"{n_seeds} seeds"
    kind = "world" if all(name.startswith("world:") for name in parts) else "fold"
    return f"{len(parts)} {kind}{'s' * (len(parts) > 1)}" + (f" with {n_seeds} seeds each" if n_seeds > 1 else "")


def _note(table: Table, setting: str, baseline: str | None) -> str:
    repetitions = max((len(results) for results in table.results.values()), default=0)
    units = max(
        (len({result.run.unit for result in results.values()}) for results in table.results.values()), default=0
    )
    folds = any(result.run.repetition.overlap for results in table.results.values() for result in results.values())
    shared = ", which allows for the training data that folds share" if folds else ""
    parts = [
        f"Mean over {units_text(table)} ± half of the 95% interval{shared}."
        if units > 1
        else f"Mean of {units_text(table)}."
    ]
    within = [cell.seed_deviation for cell in _all_cells(table, setting) if cell.seed_deviation is not None]
    if within:
        parts.append(f"Deviation between seeds of one fold: {max(within):.4f} at most.")
    if baseline:
        over = f"paired over {units_text(table)}" if units > 1 else "over queries, so of these trained rankers only"
        parts.append(f"+/− p < .05 and ++/−− p < .005 against {baseline}, {over}, Holm-corrected.")
    short = [
        f"{label} ({len(results)})"
        for (where, label), results in table.results.items()
        if where == setting and len(results) < repetitions
    ]
    return " ".join([*parts, *([f"Fewer repetitions: {', '.join(short)}."] if short else [])])


def _all_cells(table: Table, setting: str) -> list[Cell]:
    outcome = table.of(setting, table.labels(setting)[0])[0].outcome
    return summarize(table, setting, next(iter(outcome.per_query)), None) if outcome.per_query else []


def _shown(cell: Cell, best: str | None) -> str:
    half = "" if cell.low is None or cell.high is None else f" ± {(cell.high - cell.low) / 2:.4f}"
    mark = cell.mark.replace("-", "−")
    return (Best if cell.label == best else str)(f"{cell.mean:.4f}{half}{f' {mark}' if mark else ''}")


def _best(cells: Sequence[Cell], experiment: Experiment) -> str | None:
    """The best label; methods that learn from judgements or from the truth are upper bounds and do not compete."""
    taught = {
        entry.label
        for entry in experiment.methods
        if find_method(entry.method).learns_from == "judgements" or entry.oracle
    }
    racing = [cell for cell in cells if cell.label not in taught]
    if len(racing) < 2:
        return None
    sign = 1 if metric(racing[0].metric).higher_is_better else -1
    return max(racing, key=lambda cell: sign * cell.mean).label


def _file_name(stem: str, setting: str) -> str:
    return "-".join(
        [stem, *("".join(c if c.isalnum() else "-" for c in setting.lower()).split("-") if setting else [])]
    )
