"""Tables of the papers' experiments, by task, with the paper's numbers next to ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from unskew.comparison.plan import folds_of
from unskew.comparison.run import Results
from unskew.comparison.statistics import Table
from unskew.comparison.tables import Beside, chosen_sheet, difference_sheet, result_sheets
from unskew.data.judged.catalogue import load
from unskew.data.judged.judged_set import JudgedSet
from unskew.display import Screen
from unskew.papers.label_sheets import label_sheets
from unskew.papers.selection import selection_sheets
from unskew.papers.settings import PaperExperiment
from unskew.reporting.sheets import NOTHING, shown_number

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
