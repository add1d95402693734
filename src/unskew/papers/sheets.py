"""Tables of the papers' experiments, by task, with the paper's numbers next to ours.

Of few labels: a draw of judged queries is random, and a seed is a log. So a cell shows the mean over seeds of the mean
over draws, and the range of nine of ten draws; tests compare uses seed by seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from unskew.comparison.plan import folds_of
from unskew.comparison.run import Result, Results
from unskew.comparison.settings import Experiment
from unskew.comparison.statistics import Table
from unskew.comparison.tables import Beside, chosen_sheet, difference_sheet, result_sheets
from unskew.data.judged.catalogue import load
from unskew.data.judged.judged_set import JudgedSet
from unskew.display import Best, Screen
from unskew.evaluation.differences import corrected, paired
from unskew.papers.few_labels import CHOSEN, TUNED, UNLABELLED, USES
from unskew.papers.selection import selection_sheets
from unskew.papers.settings import PaperExperiment
from unskew.reporting.drawing import line_figure
from unskew.reporting.sheets import NOTHING, interval_text, p_value, shown_number, signed

# How states and hyper-parameters are chosen in tasks without validation queries.
CHOSEN_BY = {
    "selection": "the last step",
    "few_labels": "the mean of the last steps; what labels choose, on the drawn judged queries",
}


def expected_beside(experiment: PaperExperiment, data: str) -> Beside:
    """The paper's numbers in a setting: on the same data if it has them, otherwise on all of its data."""

    def beside(setting: str) -> Mapping[str, Mapping[str, float]]:
        entries = [entry for entry in experiment.expected if entry.setting in ("", setting)]
        entries = [entry for entry in entries if experiment.metric in entry.metrics]
        entries = [entry for entry in entries if entry.catalogue == data] or entries
        return {
            f"paper, {entry.data}: {experiment.metric}": {
                label: values[entry.metrics.index(experiment.metric)] for label, values in entry.values.items()
            }
            for entry in entries
        }

    return beside


def _training_sheets(experiment: PaperExperiment, results: Results, data: str) -> list[Screen | None]:
    table = Table(results.results)
    return [
        *result_sheets(experiment, table, data, expected_beside(experiment, data)),
        difference_sheet(experiment, table),
        chosen_sheet(experiment, table, experiment.chosen_in_paper),
    ]


def _time_sheets(experiment: PaperExperiment, results: Results, data: str) -> list[Screen | None]:
    """Scoring times relative to an ordinary ranker."""
    rows = []
    for (_, label), repetitions in Table(results.results).results.items():
        abouts = [result.outcome.about for result in repetitions.values()]
        own, scalar, ratio = (
            float(np.median([about[key] for about in abouts])) for key in ("time", "scalar_time", "ratio")
        )
        paper = next((entry.values[label] for entry in experiment.expected if label in entry.values), None)
        times = (f"{own * 1000:.2f} ms", f"{scalar * 1000:.2f} ms", f"{ratio:.3f}")
        rows.append((label, *times, f"{paper[2]:g}" if paper else NOTHING))
    columns = ("ranker", "its time", "scalar ranker", "ratio", "ratio in the paper")
    note = "Medians of repeats in turns, on processors; the paper measured 0.136 s and 0.112 s on a Tesla K80."
    return [Screen(f"{experiment.title}, on {data}", columns, rows, [note], name="results")]


def _matrix_sheets(experiment: PaperExperiment, results: Results, data: str) -> list[Screen | None]:
    """Singular values of the matrix of click rates."""
    values = [value for result in results.results[:1] for value in result.outcome.about["singular_values"]]
    paper = next((entry.values.get("singular values") for entry in experiment.expected), None) or []
    known = [shown_number(value, "g") for value in paper[: len(values)]] + [NOTHING] * (len(values) - len(paper))
    rows = [(str(n), f"{value:.3f}", own) for n, (value, own) in enumerate(zip(values, known, strict=True), start=1)]
    columns = ("singular value", "of the log", "paper")
    note = "A matrix that factors into examination and relevance has one singular value above 0."
    return [Screen(f"{experiment.title}, on {data}", columns, rows, [note], name="results")]


def _data_sheets(experiment: PaperExperiment, results: Results, data: str) -> list[Screen | None]:  # noqa: ARG001
    """Statistics of a data set, next to those that the papers report."""
    columns = ("data set", "queries", "documents", "features", "relevance levels", "documents per query")
    rows = []
    for name in folds_of(data)[:1]:
        splits = load(name)
        parts: dict[str, JudgedSet] = {split: getattr(splits, split) for split in ("train", "valid", "test")}
        for split, part in parts.items():
            rows.append(_data_row(f"{name}@{split}", part.n_queries, part.n_documents, part))
        n_queries, n_documents = (sum(getattr(p, key) for p in parts.values()) for key in ("n_queries", "n_documents"))
        rows.append(_data_row(name, n_queries, n_documents, *parts.values()))
    for entry in experiment.expected:
        for label, values in entry.values.items():
            shown = [f"{int(value):,}" for value in values[:4]]
            rows.append((f"{label} ({entry.data})", *shown, f"{values[1] / values[0]:.2f}"))
    return [Screen(experiment.title, columns, rows, name="results")]


def _data_row(name: str, n_queries: int, n_documents: int, *parts: JudgedSet) -> tuple[str, ...]:
    levels = len(np.unique(np.concatenate([part.grades for part in parts])))
    numbers = (n_queries, n_documents, parts[0].n_features, levels)
    return (name, *(f"{value:,}" for value in numbers), f"{n_documents / n_queries:.2f}")


RANGE = (5, 95)  # percent of the draws
OURS = (CHOSEN, TUNED)

Draws = Mapping[tuple[str, str], list[list[float]]]  # use, number of judged queries -> seeds -> draws


def label_sheets(experiment: Experiment, results: Results, data: str) -> list[Screen | None]:
    """For each setting, the result of every use, and whether low rank makes the best use of the labels."""
    sheets: list[Screen | None] = []
    tests: list[tuple[str, ...]] = []
    for setting, of_setting in _by_setting(results.results).items():
        sheets.append(_use_sheet(experiment, setting, of_setting, data))
        tests += _tests(setting, of_setting)
    columns = ("setting, judged queries", "use", "best other use", "use − it", "95% interval", "p (Holm)")
    note = (
        "The best use without low rank, by its mean over all seeds and draws; differences, on the draws that both "
        "have, and paired t-tests over seeds."
    )
    return [*sheets, Screen(f"Against the best other use, {experiment.metric}", columns, tests, [note], name="tests")]


def label_lines(experiment: Experiment, results: Results, options: dict[str, Any]) -> Figure | None:
    """The main metric over the number of judged queries, one line per use; rankers without labels are horizontal."""
    of_setting = _by_setting(results.results).get(options["setting"])
    if of_setting is None:
        return None
    numbers, draws = _numbers(of_setting), _draws(of_setting)
    x = [float(n) for n in numbers]
    lines = {use: (x, [_mean(draws[use, n]) for n in numbers]) for use in USES}
    bands = {CHOSEN: tuple(np.array([_range(draws[CHOSEN, n]) for n in numbers]).T.tolist())}
    level = {name: (x, [_mean_level(of_setting, name)] * len(x)) for name in UNLABELLED}
    figure = line_figure(lines, x_label="judged queries", y_label=experiment.metric, bands=bands, reference=level)
    axes = figure.axes[0]
    axes.set_xscale("log")
    axes.set_xticks(x, numbers)
    axes.minorticks_off()
    return figure


def _by_setting(results: Sequence[Result]) -> dict[str, list[Result]]:
    by_setting: dict[str, list[Result]] = {}
    for result in results:
        by_setting.setdefault(result.run.setting, []).append(result)
    return by_setting


def _use_sheet(experiment: Experiment, setting: str, results: Sequence[Result], data: str) -> Screen:
    numbers, draws = _numbers(results), _draws(results)
    best = {n: max(USES, key=lambda use, n=n: _mean(draws[use, n])) for n in numbers}  # type: ignore[misc]
    rows: list[tuple[str, ...]] = []
    for use in USES:
        cells = []
        for n in numbers:
            mean, (low, high) = _mean(draws[use, n]), _range(draws[use, n])
            cells.append((Best if use == best[n] else str)(f"{mean:.4f} ({low:.3f}–{high:.3f})"))
        rows.append((use, *cells))
    rows += [(name, *[f"{_mean_level(results, name):.4f}"] * len(numbers)) for name in UNLABELLED]
    note = (
        f"{experiment.metric} on test queries: mean over {len(results)} seeds and their draws of judged queries, in "
        "brackets the range of nine in ten draws. Bold: the best use."
    )
    columns = ("use of the labels", *(f"{n} judged queries" for n in numbers))
    return Screen(f"{setting}, on {data}", columns, rows, [note], name=f"uses-{_slug(setting)}")


def _tests(setting: str, results: Sequence[Result]) -> list[tuple[str, ...]]:
    numbers, draws = _numbers(results), _draws(results)
    others = [use for use in USES if use not in OURS]
    rows = []
    for use, n in product(OURS, numbers):
        rival = max(others, key=lambda other, n=n: _mean(draws[other, n]))  # type: ignore[misc]
        both = zip(draws[use, n], draws[rival, n], strict=True)
        ours, theirs = map(_by_seed, zip(*(_on_same(own, other) for own, other in both), strict=True))
        rows.append((n, use, rival, paired(ours, theirs)))
    p_values = corrected({str(number): pairs.p() for number, (*_, pairs) in enumerate(rows)})
    intervals = [interval_text(*pairs.interval()) if len(results) > 1 else NOTHING for *_, pairs in rows]
    return [
        (f"{setting}, {n}", use, rival, signed(pairs.mean), interval, p_value(p_values.get(str(number))))
        for number, ((n, use, rival, pairs), interval) in enumerate(zip(rows, intervals, strict=True))
    ]


def _on_same(one: list[float], other: list[float]) -> tuple[list[float], list[float]]:
    """Draws that both have: uses that train have fewer."""
    n = min(len(one), len(other))
    return one[:n], other[:n]


def _numbers(results: Sequence[Result]) -> list[str]:
    return list(results[0].outcome.about["uses"][CHOSEN])


def _draws(results: Sequence[Result]) -> Draws:
    abouts = [result.outcome.about["uses"] for result in results]
    return {(use, n): [about[use][n] for about in abouts] for use in USES for n in _numbers(results)}


def _by_seed(draws: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    return np.array([np.mean(entry) for entry in draws])


def _mean(draws: Sequence[Sequence[float]]) -> float:
    return float(_by_seed(draws).mean())


def _range(draws: Sequence[Sequence[float]]) -> tuple[float, float]:
    low, high = np.percentile(np.concatenate([np.asarray(entry) for entry in draws]), RANGE)
    return float(low), float(high)


def _mean_level(results: Sequence[Result], name: str) -> float:
    return float(np.mean([result.outcome.about["no_labels"][name] for result in results]))


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in name).strip("-") or "all"


# What the tables of a task show.
SHEETS: dict[str, Callable[[PaperExperiment, Results, str], Sequence[Screen | None]]] = {
    "train": _training_sheets,
    "embeddings": _training_sheets,
    "inference_time": _time_sheets,
    "click_matrix": _matrix_sheets,
    "data_statistics": _data_sheets,
    "selection": selection_sheets,
    "few_labels": label_sheets,
}
