"""Tables of an experiment, as Markdown and LaTeX; the report shows the same ones."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unskew.experiments.settings import Expected, Experiment
from unskew.experiments.statistics import Cell, Table, pick_baseline, signed, summarize
from unskew.metrics import metric

NOTHING = "–"
LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "–": "--", "±": r"$\pm$", "−": "$-$", "↑": "", "↓": ""}
LATEX |= {"η": r"$\eta$", "λ": r"$\lambda$", "≥": r"$\ge$", "<": "$<$", ">": "$>$", "×": r"$\times$"}


@dataclass(frozen=True)
class Shown:
    """What stands in a field, and the number it is sorted by."""

    text: str
    value: float | None = None
    best: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table to be shown; the first column is text."""

    name: str  # of its files
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Shown, ...], ...]
    note: str = ""

    @property
    def is_text(self) -> list[bool]:
        """Which columns hold no number at all."""
        return [all(row[place].value is None for row in self.rows) for place in range(len(self.columns))]


def markdown(sheet: Sheet) -> str:
    """The table in Markdown."""
    lines = [
        f"**{sheet.title}**",
        "",
        _line(sheet.columns),
        _line(["---" if text else "---:" for text in sheet.is_text]),
    ]
    lines += [_line([f"**{cell.text}**" if cell.best else cell.text for cell in row]) for row in sheet.rows]
    return "\n".join([*lines, *(["", sheet.note] if sheet.note else [])]) + "\n"


def latex(sheet: Sheet) -> str:
    """The table in LaTeX, with booktabs."""
    rows = [
        " & ".join(rf"\textbf{{{_escaped(cell.text)}}}" if cell.best else _escaped(cell.text) for cell in row) + r" \\"
        for row in sheet.rows
    ]
    return (
        "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\begin{{tabular}}{{{''.join('l' if text else 'r' for text in sheet.is_text)}}}",
                r"\toprule",
                " & ".join(map(_escaped, sheet.columns)) + r" \\",
                r"\midrule",
                *rows,
                r"\bottomrule",
                r"\end{tabular}",
                rf"\caption{{{_escaped(' '.join([sheet.title + '.', sheet.note]).strip())}}}",
                r"\end{table}",
            ]
        )
        + "\n"
    )


def result_sheets(experiment: Experiment, table: Table, data: str) -> list[Sheet]:
    """Results: one table a setting, or one of the main metric where settings stand along an axis."""
    if len(experiment.settings) > 3:
        return [_by_setting(experiment, table, data)]
    return [_by_metric(experiment, table, setting, data) for setting in table.settings]


def difference_sheet(experiment: Experiment, table: Table) -> Sheet | None:
    """Differences from the baseline with the p-values of all tests, by the main metric."""
    rows = []
    for setting in table.settings:
        baseline = baseline_of(experiment, table, setting)
        for cell in summarize(table, setting, experiment.metric, baseline):
            if cell.difference is None:
                continue
            rows.append(
                (
                    Shown(f"{setting}: {cell.label}" if setting else cell.label),
                    Shown(str(baseline)),
                    Shown(signed(cell.difference), cell.difference),
                    *(p_value(value) for value in (cell.p, cell.p_randomization, cell.p_repetitions)),
                )
            )
    if not rows:
        return None
    columns = ("method", "baseline", "difference", "p, t-test", "p, randomization", "p, over repetitions")
    note = "Two-sided, paired, Holm-corrected over the methods of a setting; over queries but for the last column."
    return Sheet("tests", f"Differences in {experiment.metric}", columns, tuple(rows), note)


def chosen_sheet(experiment: Experiment, table: Table) -> Sheet | None:
    """Hyper-parameters that validation chose, and those that the paper reports."""
    rows = []
    for (setting, label), results in table.results.items():
        run = next(iter(results.values())).run
        grids = [entry.grid for entry in experiment.methods if entry.label == label]
        if run.point and grids and any(len(values) > 1 for values in grids[0].values()):
            rows.append(
                (Shown(f"{setting}: {label}" if setting else label), Shown(options_text(run.point)), Shown("ours"))
            )
    for where, options in experiment.chosen_in_paper.items():
        rows.append((Shown(where), Shown(options_text(options)), Shown("paper")))
    if not rows:
        return None
    note = "Chosen on validation queries, on the first repetition, then used in all."
    return Sheet("chosen", "Chosen hyper-parameters", ("setting", "hyper-parameters", "from"), tuple(rows), note)


def baseline_of(experiment: Experiment, table: Table, setting: str) -> str | None:
    return pick_baseline(table, setting, experiment.baseline, experiment.metric)


def _by_metric(experiment: Experiment, table: Table, setting: str, data: str) -> Sheet:
    baseline = baseline_of(experiment, table, setting)
    cells = {name: summarize(table, setting, name, baseline) for name in experiment.metrics}
    papers = _expected(experiment, setting, data)
    best = {name: _best(entries, experiment) for name, entries in cells.items()}
    rows = []
    for number, cell in enumerate(cells[experiment.metric]):
        own = [_shown(cells[name][number], best[name]) for name in experiment.metrics]
        rows.append((Shown(cell.label), *own, *(_paper_value(entry, cell.label, experiment) for entry in papers)))
    columns = ("method", *map(_with_direction, experiment.metrics))
    columns += tuple(f"paper, {entry.data}: {experiment.metric}" for entry in papers)
    title = f"{experiment.title}{f', {setting}' if setting else ''}, on {data}"
    return Sheet(_file_name("results", setting), title, columns, tuple(rows), _note(table, setting, baseline))


def _by_setting(experiment: Experiment, table: Table, data: str) -> Sheet:
    baselines = {setting: baseline_of(experiment, table, setting) for setting in table.settings}
    cells = {
        setting: {cell.label: cell for cell in summarize(table, setting, experiment.metric, baselines[setting])}
        for setting in table.settings
    }
    best = {setting: _best(list(entries.values()), experiment) for setting, entries in cells.items()}
    rows = [
        (
            Shown(label),
            *(
                _shown(cells[setting][label], best[setting]) if label in cells[setting] else Shown(NOTHING)
                for setting in table.settings
            ),
        )
        for label in table.labels()
    ]
    title = f"{experiment.title}: {experiment.metric} on {data}"
    named = {name for name in baselines.values() if name}
    note = _note(table, table.settings[0], " or ".join(sorted(named)) or None)
    return Sheet("results", title, ("method", *table.settings), tuple(rows), note)


def _note(table: Table, setting: str, baseline: str | None) -> str:
    repetitions = max((len(results) for results in table.results.values()), default=0)
    parts = [
        f"Mean over {repetitions} repetitions ± half of the 95 % interval." if repetitions > 1 else "One repetition."
    ]
    if baseline:
        parts.append(f"+/− p < .05 and ++/−− p < .005 against {baseline}, t-test over queries, Holm-corrected.")
    short = [
        f"{label} ({len(results)})"
        for (where, label), results in table.results.items()
        if where == setting and len(results) < repetitions
    ]
    return " ".join([*parts, *([f"Fewer repetitions: {', '.join(short)}."] if short else [])])


def _shown(cell: Cell, best: str | None) -> Shown:
    half = "" if cell.low is None or cell.high is None else f" ± {(cell.high - cell.low) / 2:.4f}"
    mark = cell.mark.replace("-", "−")
    return Shown(f"{cell.mean:.4f}{half}{f' {mark}' if mark else ''}", cell.mean, best=cell.label == best)


def _best(cells: Sequence[Cell], experiment: Experiment) -> str | None:
    """The best label; what is taught by judgements or by the truth is an upper bound and not in the race."""
    taught = {entry.label for entry in experiment.methods if entry.method == "labelled" or entry.oracle}
    racing = [cell for cell in cells if cell.label not in taught]
    if len(racing) < 2:
        return None
    sign = 1 if metric(racing[0].metric).higher_is_better else -1
    return max(racing, key=lambda cell: sign * cell.mean).label


def _expected(experiment: Experiment, setting: str, data: str) -> list[Expected]:
    """What the paper measured in this setting: on the same data where it has them, else on all of its own."""
    entries = [entry for entry in experiment.expected if entry.setting in ("", setting)]
    entries = [entry for entry in entries if experiment.metric in entry.metrics]
    return [entry for entry in entries if entry.catalogue == data] or entries


def _paper_value(entry: Expected, label: str, experiment: Experiment) -> Shown:
    if label not in entry.values:
        return Shown(NOTHING)
    value = entry.values[label][entry.metrics.index(experiment.metric)]
    return Shown(f"{value:g}", value)


def p_value(value: float | None) -> Shown:
    """A p-value as it is shown; nothing where there is none."""
    if value is None or math.isnan(value):
        return Shown(NOTHING)
    return Shown("< .001" if value < 0.001 else f"{value:.3f}", value)


def _with_direction(name: str) -> str:
    return f"{name} {'↑' if metric(name).higher_is_better else '↓'}"


def options_text(options: Mapping[str, object]) -> str:
    """Options as a reader likes them: `penalty 0.1, cancel 0.2`."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    return ", ".join(f"{name} {text}" for name, text in texts.items())


def _file_name(stem: str, setting: str) -> str:
    return "-".join(
        [stem, *("".join(c if c.isalnum() else "-" for c in setting.lower()).split("-") if setting else [])]
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text).strip()
