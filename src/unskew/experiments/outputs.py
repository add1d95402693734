"""Outputs of an experiment: tables, figures and the report, from its results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from unskew.experiments.run import Results
from unskew.experiments.settings import Experiment
from unskew.experiments.statistics import Table, Verdict, judge
from unskew.experiments.tables import Sheet, chosen_sheet, latex, markdown, result_sheets, test_sheet


@dataclass(frozen=True, eq=False)
class Written:
    """What was made of the results."""

    sheets: tuple[Sheet, ...]
    verdicts: tuple[Verdict, ...]
    report: Path | None


def write_outputs(experiment: Experiment, data: str, results: Results, out: Path, command: str) -> Written:  # noqa: ARG001
    """Write tables, figures and the report of an experiment."""
    table = Table(results.results)
    sheets = [*result_sheets(experiment, table, data), test_sheet(experiment, table), chosen_sheet(experiment, table)]
    kept = tuple(sheet for sheet in sheets if sheet is not None)
    for sheet in kept:
        (out / f"{sheet.name}.md").write_text(markdown(sheet), encoding="utf-8")
        (out / f"{sheet.name}.tex").write_text(latex(sheet), encoding="utf-8")
    verdicts = tuple(judge(claim, table, experiment.metric) for claim in experiment.claims)
    return Written(kept, verdicts, None)
