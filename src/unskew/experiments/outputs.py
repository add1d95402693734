"""Outputs of an experiment: tables, figures and the report, from its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unskew.data.judged.catalogue import load
from unskew.data.judged.judged_set import JudgedSet
from unskew.experiments.against_production import Outlook, criteria_sheets, outlook, standing_sheet
from unskew.experiments.drawing import Drawn
from unskew.experiments.label_sheets import label_sheets
from unskew.experiments.plan import folds_of
from unskew.experiments.plots import draw
from unskew.experiments.report import Section, write_report
from unskew.experiments.run import Results
from unskew.experiments.selection import selection_sheets
from unskew.experiments.settings import Experiment
from unskew.experiments.statistics import Table, Verdict, judge
from unskew.experiments.tables import (
    NOTHING,
    Sheet,
    Shown,
    chosen_sheet,
    difference_sheet,
    latex,
    markdown,
    options_text,
    result_sheets,
)
from unskew.experiments.tasks import versions

# How states and hyper-parameters are chosen in tasks without validation queries.
CHOSEN_BY = {
    "choose": "the last step; hyper-parameters by other held-out clicks, first repetition",
    "selection": "the last step",
    "few_labels": "the last steps, averaged; what judged queries choose, on those that were drawn",
}
DETAILS = ("tests", "chosen", "meaning")  # tables that stand below the results


@dataclass(frozen=True, eq=False)
class Written:
    """What was made of the results."""

    sheets: tuple[Sheet, ...]
    figures: tuple[Drawn, ...]
    verdicts: tuple[Verdict, ...]
    report: Path
    outlook: Outlook | None = None  # against production, in a comparison


def write_outputs(
    experiment: Experiment, data: str, results: Results, out: Path, command: str, criterion: str | None = None
) -> Written:
    """Write tables, figures and the report of an experiment."""
    found = outlook(experiment, results, criterion)
    sheets = [sheet for sheet in SHEETS[experiment.task](experiment, results, data) if sheet is not None]
    sheets = [*([standing_sheet(found, experiment.seeds)] if found else []), *sheets]
    for sheet in sheets:
        (out / f"{sheet.name}.md").write_text(markdown(sheet), encoding="utf-8")
        (out / f"{sheet.name}.tex").write_text(latex(sheet), encoding="utf-8")
    figures = [drawn for entry in experiment.figures if (drawn := draw(entry, experiment, results)) is not None]
    for figure in figures:
        figure.save(out)
    table = Table(results.results)
    verdicts = [judge(claim, table, experiment.metric) for claim in experiment.claims]
    sections = _sections(experiment, data, results, sheets, figures, verdicts, command)
    if found is not None:
        sections.insert(1, Section("Does anything beat production?", [f"{found.line[0].upper()}{found.line[1:]}."]))
    lead = f"{experiment.paper}. Data: {data}." if experiment.paper else f"Data: {data}."
    report = write_report(out / "report.html", experiment.title, sections, lead)
    return Written(tuple(sheets), tuple(figures), tuple(verdicts), report, found)


def _sections(
    experiment: Experiment,
    data: str,
    results: Results,
    sheets: Sequence[Sheet],
    figures: Sequence[Drawn],
    verdicts: Sequence[Verdict],
    command: str,
) -> list[Section]:
    main = [sheet for sheet in sheets if sheet.name not in DETAILS]
    details = [sheet for sheet in sheets if sheet.name in DETAILS]
    sections = [Section("The question", [experiment.question.strip()])]
    if verdicts:
        sections.append(Section("What held and what did not", verdicts=verdicts))
    sections.append(Section("Results", sheets=main, figures=figures))
    if details:
        sections.append(Section("Details", sheets=details))
    if results.failed:
        failed = [f"{run.title}: {error}" for run, error in results.failed]
        sections.append(Section(f"Runs that failed ({len(failed)})", failed))
    sections.append(Section("The setting", experiment.notes, _facts(experiment, data, results)))
    sections.append(Section("To repeat it", _provenance(results), versions(), command))
    return sections


def _facts(experiment: Experiment, data: str, results: Results) -> dict[str, str]:
    simulation = experiment.simulation
    seeds = sorted({result.run.repetition.seed for result in results.results})
    seconds = [result.outcome.about["seconds"] for result in (*results.results, *results.tried)]
    facts = {"data": data}
    simulated = not any("log" in result.run.definition for result in results.results)
    if experiment.methods and simulated:
        facts |= {
            "shown by": options_text(simulation.policy).removeprefix("name "),
            "clicked by": options_text(simulation.user).removeprefix("name "),
            "sessions": f"{simulation.sessions} a query, {simulation.n_shown} documents shown",
            "settings": _settings_text(experiment),
        }
    if experiment.methods:
        facts |= {
            "training": options_text(experiment.training),
            "methods": ", ".join(f"{entry.label} ({entry.method})" for entry in experiment.methods),
            "chosen by": CHOSEN_BY.get(experiment.task, f"{experiment.metric} on validation queries, first repetition"),
            "seeds": ", ".join(map(str, seeds)),
            "time of a run": f"{np.median(seconds):.1f} s (median of {len(seconds)})" if seconds else NOTHING,
        }
    return {name: value for name, value in facts.items() if value}


def _settings_text(experiment: Experiment) -> str:
    parts = []
    for entry in experiment.settings:
        changes = {key: value for key, value in entry.simulation.items() if not isinstance(value, dict)}
        for part in entry.simulation.values():
            changes |= part if isinstance(part, dict) else {}
        parts.append(f"{entry.name}: {options_text(entry.options | changes)}")
    return "; ".join(parts)


def _provenance(results: Results) -> list[str]:
    if not results.other_code:
        return []
    return [f"{results.other_code} of the rows were made by an earlier state of the code; --fresh runs them again."]


def _training_sheets(experiment: Experiment, results: Results, data: str) -> list[Sheet | None]:
    table = Table(results.results)
    return [
        *result_sheets(experiment, table, data),
        difference_sheet(experiment, table),
        chosen_sheet(experiment, table),
    ]


def _choice_sheets(experiment: Experiment, results: Results, data: str) -> list[Sheet | None]:  # noqa: ARG001
    return [*criteria_sheets(results), chosen_sheet(experiment, Table(results.results))]


def _selection_sheets(experiment: Experiment, results: Results, data: str) -> list[Sheet | None]:
    return [*selection_sheets(experiment, results, data)]


def _time_sheets(experiment: Experiment, results: Results, data: str) -> list[Sheet | None]:
    """Scoring times relative to an ordinary ranker."""
    rows = []
    for (_, label), repetitions in Table(results.results).results.items():
        abouts = [result.outcome.about for result in repetitions.values()]
        own, scalar, ratio = (
            float(np.median([about[key] for about in abouts])) for key in ("time", "scalar_time", "ratio")
        )
        paper = next((entry.values[label] for entry in experiment.expected if label in entry.values), None)
        rows.append(
            (
                Shown(label),
                Shown(f"{own * 1000:.2f} ms", own),
                Shown(f"{scalar * 1000:.2f} ms", scalar),
                Shown(f"{ratio:.3f}", ratio),
                Shown(f"{paper[2]:g}" if paper else NOTHING, paper[2] if paper else None),
            )
        )
    columns = ("ranker", "its time", "scalar ranker", "ratio", "ratio in the paper")
    note = "Medians of repeats in turns, on processors; the paper measured 0.136 s and 0.112 s on a Tesla K80."
    return [Sheet("results", f"{experiment.title}, on {data}", columns, tuple(rows), note)]


def _matrix_sheets(experiment: Experiment, results: Results, data: str) -> list[Sheet | None]:
    """Singular values of the matrix of click rates."""
    rows = []
    for result in results.results[:1]:
        values = result.outcome.about["singular_values"]
        paper = next((entry.values.get("singular values") for entry in experiment.expected), None) or []
        for number, value in enumerate(values):
            known = paper[number] if number < len(paper) else None
            rows.append(
                (
                    Shown(str(number + 1), number + 1),
                    Shown(f"{value:.3f}", value),
                    Shown(f"{known:g}" if known else NOTHING, known),
                )
            )
    note = "A matrix that factors into examination and relevance has one singular value above 0."
    return [
        Sheet("results", f"{experiment.title}, on {data}", ("singular value", "of the log", "paper"), tuple(rows), note)
    ]


def _data_sheets(experiment: Experiment, results: Results, data: str) -> list[Sheet | None]:  # noqa: ARG001
    """What a data set holds, beside what the papers report of theirs."""
    columns = ("data set", "queries", "documents", "features", "relevance levels", "documents a query")
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
            mean = values[1] / values[0]
            shown = [Shown(f"{int(value):,}", value) for value in values[:4]]
            rows.append((Shown(f"{label} ({entry.data})"), *shown, Shown(f"{mean:.2f}", mean)))
    return [Sheet("results", experiment.title, columns, tuple(rows))]


def _data_row(name: str, n_queries: int, n_documents: int, *parts: JudgedSet) -> tuple[Shown, ...]:
    levels = len(np.unique(np.concatenate([part.grades for part in parts])))
    numbers: list[Any] = [n_queries, n_documents, parts[0].n_features, levels]
    mean = n_documents / n_queries
    return (Shown(name), *(Shown(f"{value:,}", value) for value in numbers), Shown(f"{mean:.2f}", mean))


# What the tables of a task show.
SHEETS: dict[str, Callable[[Experiment, Results, str], list[Sheet | None]]] = {
    "train": _training_sheets,
    "embeddings": _training_sheets,
    "inference_time": _time_sheets,
    "click_matrix": _matrix_sheets,
    "data_statistics": _data_sheets,
    "choose": _choice_sheets,
    "selection": _selection_sheets,
    "few_labels": label_sheets,
}
