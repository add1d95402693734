"""Run the plan of an experiment, then write results, tables, figures and the report.

OUT/runs/                rows of finished runs; a run that is here is not run again
OUT/results.parquet      one line per run and test query
OUT/runs.parquet         one line per run: hyper-parameters, means, seconds, best step, learned examination curves
OUT/*.md, *.tex          tables        OUT/*.svg, *.png, *.pdf  figures        OUT/report.html  everything on one page
OUT/provenance.json      the experiment with all its settings, grid sizes, versions, machine
"""

from __future__ import annotations

import json
import os
import platform
import re
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from unskew.comparison.against_production import PRODUCTION, Outlook
from unskew.comparison.code_digest import code_digest
from unskew.comparison.plan import Group, plain_part
from unskew.comparison.run import Fresh, Progress, Result, Results, run_plan
from unskew.comparison.settings import Experiment
from unskew.comparison.tasks import Task, versions
from unskew.data.files import write_text
from unskew.display import Displayed, Screen, draw_intervals
from unskew.options import near, unknown_name
from unskew.reporting.drawing import Drawn
from unskew.reporting.sheets import NOTHING, ClaimResult, Section, latex, markdown, options_text, write_report
from unskew.serving.ratings import write_rows
from unskew.texts import file_name
from unskew.training.watching import Watch

DEFAULT_JOBS = 2
AGAINST_PRODUCTION = ("low", "high", "difference", "least", "most", "verdict")
LINE = 120  # characters of a note on the screen
VERDICT = ("verdict", "held", "failed", "of", "detail")  # of a claim
FILES_ONLY = ("meaning", "truth", "choices")  # too wide for a terminal; see the output folder and the report
DETAILS = ("tests", "chosen", "meaning")  # tables below the results


@dataclass(frozen=True, eq=False)
class Presentation:
    """The presentation of results: tables, figures, claims."""

    sheets: Sequence[Screen]
    figures: Sequence[Drawn] = ()
    claims: Sequence[ClaimResult] = ()
    outlook: Outlook | None = None  # the comparison with production
    chosen_by: str = ""  # how states and hyper-parameters are chosen; empty: on validation queries
    lead: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Finished(Displayed):
    """A finished experiment, and the files it wrote."""

    experiment: Experiment
    data: str
    results: Results
    shown: Presentation
    out: Path
    report: Path

    @property
    def verdict(self) -> str:
        """One sentence on whether anything beats production; only in a comparison."""
        return "" if self.shown.outlook is None else self.shown.outlook.line

    def to_table(self) -> pa.Table:
        """One row per setting and method: repetitions, means of all measures, and how it compares with production."""
        standings = {} if self.shown.outlook is None else {one.label: one for one in self.shown.outlook.standings}
        cells: dict[tuple[str, str, str], list[Result]] = {}
        for result in self.results.results:
            run = result.run
            cells.setdefault((run.repetition.data_set, run.setting, run.label), []).append(result)
        rows: list[dict[str, object]] = []
        for (data, setting, label), results in cells.items():
            names = [name for name in results[0].outcome.per_query if all(name in r.outcome.per_query for r in results)]
            means = {name: float(np.mean([np.nanmean(r.outcome.per_query[name]) for r in results])) for name in names}
            standing = standings.get(label)
            against = {} if standing is None else {name: getattr(standing, name) for name in AGAINST_PRODUCTION}
            rows.append(
                {"data": data, "setting": setting, "method": label, "repetitions": len(results), **means, **against}
            )
        columns = list(dict.fromkeys(name for row in rows for name in row))
        return pa.table({name: pa.array([row.get(name) for row in rows]) for name in columns})

    def to_json(self) -> dict[str, Any]:
        """What was run, what failed, all tables as text, and the verdicts."""
        results, shown = self.results, self.shown
        return {
            "experiment": self.experiment.name,
            "data": self.data,
            "out": self.out,
            "runs": len(results.results),
            "found": results.found,
            "changed": list(results.changed),
            "failed": [{"run": run.title, "error": error} for run, error in results.failed],
            "tables": {sheet.name: sheet.rows for sheet in shown.sheets},
            "verdicts": [
                {"claim": each.text} | {name: getattr(each, name) for name in VERDICT} for each in shown.claims
            ],
            **({} if shown.outlook is None else {"against_production": shown.outlook.to_json()}),
        }

    def screen(self) -> Screen:
        results, outlook = self.results, self.shown.outlook
        shown = [sheet for sheet in self.shown.sheets if sheet.name not in FILES_ONLY] or [Screen("")]
        wrapped = [[line for note in sheet.notes for line in textwrap.wrap(note, LINE)] for sheet in shown]
        first, *others = [replace(sheet, notes=lines) for sheet, lines in zip(shown, wrapped, strict=True)]
        claims = [Screen(f"{each.words}: {each.text}", notes=[f"  {each.detail}"]) for each in self.shown.claims]
        notes = [f"{self.verdict}."] if self.verdict else []
        if outlook is not None and outlook.explanation:
            pointer = f"What each criterion shows, and what it does not: {self.out / 'meaning.md'}"
            notes += [*textwrap.wrap(outlook.explanation, LINE), pointer]
        notes += [f"failed: {run.title}" for run, _ in results.failed]
        notes += [f"{results.found} runs had already finished"] if results.found else []
        notes.append(f"All tables and figures: {self.report}")
        title = f"{self.experiment.title}: {first.title}".removesuffix(": ")
        return replace(first, title=title, notes=[*first.notes, *notes], more=[*others, *claims])

    def plot(self, ax: Any = None) -> Any:
        """Plot differences from production with their intervals; only in a comparison."""
        outlook = self.shown.outlook
        if outlook is None or not outlook.rivals:
            raise ValueError(f"this experiment has no comparison with production; its figures are in {self.out}")
        better = "more" if outlook.higher_is_better else "less"
        return draw_intervals(
            outlook.intervals, f"{outlook.measure}, difference from production ({better} is better)", ax
        )


def run_experiment(
    experiment: Experiment,
    data: str,
    groups: Sequence[Group],
    out: Path,
    *,
    tasks: Mapping[str, Task],
    present: Callable[[Experiment, Results, str], Presentation],
    command: str,
    jobs: int = DEFAULT_JOBS,
    fresh: Fresh = False,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Finished:
    """Run groups and write everything.

    Args:
        tasks: the tasks of runs, by name.
        present: makes tables and figures from the results on these data.
    """
    _check_labels(fresh, groups)
    results = run_plan(
        groups,
        out / "runs",
        experiment.metric,
        tasks=tasks,
        jobs=jobs,
        fresh=fresh,
        progress=progress,
        watch=watch,
    )
    _write_results(results, out)
    write_provenance(experiment, data, groups, results, out)
    shown = present(experiment, results, data)
    for sheet in shown.sheets:
        write_text(out / f"{file_name(sheet.name)}.md", markdown(sheet))
        write_text(out / f"{file_name(sheet.name)}.tex", latex(sheet))
    for figure in shown.figures:
        figure.save(out)
    sections = _sections(experiment, data, results, shown, command, grid_points(groups))
    report = write_report(out / "report.html", experiment.title, sections, shown.lead or f"Data: {data}.")
    return Finished(experiment, data, results, shown, out, report)


def _check_labels(fresh: Fresh, groups: Sequence[Group]) -> None:
    known = dict.fromkeys(group.label for group in groups)
    unknown = None if isinstance(fresh, bool) else unknown_name(fresh, known)
    if unknown is not None:
        raise ValueError(f"no method '{unknown}' to run again{near(unknown, known)}: choose from {', '.join(known)}")


def _sections(
    experiment: Experiment,
    data: str,
    results: Results,
    shown: Presentation,
    command: str,
    points: Mapping[str, int],
) -> list[Section]:
    details = [sheet for sheet in shown.sheets if sheet.name.partition("-")[0] in DETAILS]
    main = [sheet for sheet in shown.sheets if sheet not in details]
    top = [figure for figure in shown.figures if figure.file == PRODUCTION]
    others = [figure for figure in shown.figures if figure not in top]
    verdict = [] if shown.outlook is None else [re.sub("^no", "No", f"{shown.outlook.line}.")]  # not a method's name
    failed = [f"{run.title}: {error}" for run, error in results.failed]
    facts = _facts(experiment, data, results, shown.chosen_by)
    if len(set(points.values())) > 1:  # a larger grid has more chances to win, so report the sizes
        facts["grid points per method"] = ", ".join(f"{label} {number}" for label, number in points.items())
    old = f"{results.other_code} of the rows come from an earlier version of the code; --fresh all runs them again."
    again = [old] if results.other_code else []
    return [
        Section("Does anything beat production?", verdict, figures=top),
        Section("Which claims hold", verdicts=shown.claims),
        Section("The question", [experiment.question.strip()]),
        Section("Results", sheets=main, figures=others),
        Section("Details", sheets=details),
        Section(f"Runs that failed ({len(failed)})", failed),
        Section("The setting", experiment.notes, facts=facts),
        Section("Run it again", again, facts=versions(), command=command),
    ]


def _facts(experiment: Experiment, data: str, results: Results, chosen_by: str) -> dict[str, str]:
    simulation = experiment.simulation
    seeds = sorted({result.run.repetition.seed for result in results.results})
    trained = [each for each in (*results.results, *results.tried) if "recipe" in each.run.definition]
    runs = {result.run.key: result.outcome for result in trained}  # a chosen run is in both lists
    seconds = [outcome.about["seconds"] for outcome in runs.values()]
    names = [one.label if one.label == one.method else f"{one.label} ({one.method})" for one in experiment.methods]
    facts = {"data": data}
    simulated = not any("log" in result.run.definition for result in results.results)
    if experiment.methods and simulated:
        facts |= {
            "logging policy": options_text(simulation.policy).removeprefix("name "),
            "users": options_text(simulation.user).removeprefix("name "),
            "sessions": f"{simulation.sessions} per query, {simulation.n_shown} documents shown",
            "settings": _settings_text(experiment),
        }
    if experiment.methods:
        facts |= {
            "training": options_text(experiment.training),
            "methods": ", ".join(names),
            "chosen by": chosen_by or f"{experiment.metric} on validation queries, first repetition",
            "seeds": ", ".join(map(str, seeds)),
            "time per training": f"{np.median(seconds):.1f} s (median of {len(seconds)})" if seconds else NOTHING,
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


def _write_results(results: Results, out: Path) -> None:
    """Both parquet files."""
    by_query = [_query_rows(result) for result in results.results if result.outcome.per_query]
    if by_query:
        write_rows([pa.concat_tables(by_query, promote_options="permissive")], out / "results.parquet")
    chosen = {result.run.key for result in results.results}
    everything = {result.run.key: result for result in (*results.results, *results.tried)}
    if everything:
        rows = [_run_row(result, result.run.key in chosen) for result in everything.values()]
        write_rows([pa.Table.from_pylist(rows)], out / "runs.parquet")


def _query_rows(result: Result) -> pa.Table:
    run, outcome = result.run, result.outcome
    n_queries = len(next(iter(outcome.per_query.values())))
    names = {"setting": run.setting, "method": run.label, "data": run.repetition.data}
    columns = {name: pa.array([text] * n_queries).dictionary_encode() for name, text in names.items()}
    columns["seed"] = pa.array(np.full(n_queries, run.repetition.seed))
    queries = [str(query) for query in outcome.query_ids] if outcome.query_ids is not None else [None] * n_queries
    columns["query"] = pa.array(queries, pa.string())
    return pa.table(columns | {name: pa.array(values, from_pandas=True) for name, values in outcome.per_query.items()})


def _run_row(result: Result, chosen: bool) -> dict[str, object]:
    run, about = result.run, result.outcome.about
    return {
        "key": run.key,
        "setting": run.setting,
        "method": run.label,
        "data": run.repetition.data,
        "seed": run.repetition.seed,
        "chosen": chosen,
        "hyper_parameters": json.dumps(run.point),
        **{name: float(np.nanmean(values)) for name, values in result.outcome.per_query.items()},
        **{name: about.get(name) for name in ("validation", "best_step", "seconds", "examination", "code")},
        "examination_by_level": json.dumps(about.get("examination_by_level", {})),
    }


def writable(folder: Path) -> Path:
    """The folder, created if necessary; an error before any work if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OSError(f"{folder} cannot be written ({error}): choose another path with --out") from error
    return folder


def write_provenance(experiment: Experiment, data: str, groups: Sequence[Group], results: Results, out: Path) -> None:
    """Write `provenance.json` to the folder of the results."""
    about = {
        "data": data,
        "experiment": asdict(experiment),
        "grid_points": grid_points(groups),
        "repetitions": [
            {"data": data, "seed": seed}
            for data, seed in dict.fromkeys((r.run.repetition.data, r.run.repetition.seed) for r in results.results)
        ],
        "runs": len({result.run.key for result in (*results.results, *results.tried)}),
        "failed": len(results.failed),
        "code": code_digest(),
        "rows_of_other_code": results.other_code,
        "versions": versions(),
        "hardware": hardware(),
    }
    write_text(out / "provenance.json", json.dumps(about, indent=2, ensure_ascii=False, default=plain_part) + "\n")


def grid_points(groups: Sequence[Group]) -> dict[str, int]:
    """The number of grid points per method, the largest over settings."""
    found: Counter[str] = Counter()
    for group in groups:
        found[group.label] = max(found[group.label], len(group.candidates))
    return dict(found)


def hardware() -> dict[str, Any]:
    """The machine that wrote the report; rows from other machines name their own."""
    return {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "accelerators": [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())],
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()
