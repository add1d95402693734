"""Write the pages of results from docs/results/runs.jsonl: docs/results.md and one page per paper in docs/results/.

    make results

Every number comes from finished runs of `results.py`, words from docs/results/notes.toml. Runs of several states of the
code are refused; what is missing of a cell is said on its page.
"""

from __future__ import annotations

import csv
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from results_cells import HERE, Cell, Line, every_run, key_of, read_cells, read_lines, results_of
from unskew.comparison.run import Results
from unskew.comparison.statistics import Table
from unskew.papers.claims import ALPHA, judge_together
from unskew.papers.experiment_files import load_experiment, shipped
from unskew.papers.figures import draw
from unskew.papers.settings import PaperExperiment
from unskew.papers.sheets import SHEETS
from unskew.reporting.sheets import VERDICTS, ClaimResult, markdown, options_text

PAGES = {  # how `paper` of an experiment begins -> its page
    "Chen et al., NeurIPS 2022": "lbd",
    "Chen et al., KDD 2022": "vectorization",
    "Yu et al., 2024": "cdla_ld",
    "our own": "ours",
}
SHOWN = ("results", "chosen")  # sheets on a page begin so; all of them are files
MANY = 6  # comparisons of a claim that are listed below it


@dataclass(frozen=True, eq=False)
class Done:
    """What is finished of a cell."""

    cell: Cell
    experiment: PaperExperiment
    results: Results
    missing: int
    claims: list[ClaimResult]

    @property
    def page(self) -> str:
        return page_of(self.experiment)


def page_of(experiment: PaperExperiment) -> str:
    return next((page for start, page in PAGES.items() if experiment.paper.startswith(start)), "ours")


def read_done(cells: Sequence[Cell], lines: Mapping[str, Line]) -> list[Done]:
    """Cells with their verdicts, corrected over all comparisons of a paper."""
    parts = []
    for cell in cells:
        experiment = cell.restricted()
        parts.append((cell, experiment, *results_of(cell.groups(), lines, experiment.metric)))
    done = []
    for page in dict.fromkeys(PAGES.values()):
        own = [part for part in parts if page_of(part[1]) == page]
        judged = judge_together(
            [(part[1].claims, {part[0].data: Table(part[2].results)}, part[1].metric) for part in own]
        )
        done += [Done(*part, claims) for part, claims in zip(own, judged, strict=True)]
    return _with_runs_of_their_own(done)


def _with_runs_of_their_own(done: Sequence[Done]) -> list[Done]:
    """Cells; an unfinished one that only repeats runs of others counts in the correction, but shows no results."""
    seen: set[str] = set()
    kept = []
    for entry in done:
        keys = {key_of(result.run) for result in entry.results.results}
        kept.append(entry if keys - seen or not entry.missing else replace(entry, results=Results((), (), (), 0, 0)))
        seen |= keys
    return kept


def verdicts_text(done: Done) -> str:
    """Each claim with its verdict, and the numbers below it."""
    lines = []
    for claim, found in zip(done.experiment.claims, done.claims, strict=True):
        ours = " *(ours)*" if claim.ours else ""
        lines.append(f"* {claim.text}{ours} **{found.words}**")
        details = [text for text in found.detail.split("; ") if text]
        lines += [f"    * {text}" for text in details[:MANY]]
        if len(details) > MANY:
            lines.append(f"    * and {len(details) - MANY} more: tables/{done.cell.file}-claims.csv")
    return "\n".join(lines) + "\n"


def stopping_text(done: Done) -> str:
    """What choosing a state on judged validation queries is worth: validation there less at the last step."""
    gains: dict[str, list[float]] = {}
    for result in done.results.results:
        steps = result.outcome.about.get("validation_by_step") or []
        if len(steps) > 1:
            gains.setdefault(result.run.label, []).append(max(steps) - steps[-1])
    if not gains:
        return ""
    gained = ", ".join(f"{label} {np.mean(values):.3f}" for label, values in gains.items())
    return (
        f"**Early stopping.** Each method keeps the state with the best {done.experiment.metric} on judged validation "
        f"queries. Gain over its last step, on these same queries (so an upper bound): {gained}.\n"
    )


def cell_text(done: Done, tables: Path, figures: Path) -> str:
    """Claims, tables and figures of a cell; the files beside them."""
    experiment, cell = done.experiment, done.cell
    place = "" if cell.file == cell.experiment else f", on {cell.data}"
    parts = [
        f'<a id="{cell.file}"></a>\n\n## {experiment.title}{place}\n',
        " ".join(experiment.question.split()) + "\n",
        size_text(done),
    ]
    tuned = any(len(entry.points()) > 1 for entry in experiment.methods)
    parts += ["### Claims\n\n" + verdicts_text(done)] if experiment.claims else []
    for sheet in SHEETS[experiment.task](experiment, done.results, cell.data):
        if sheet is not None and sheet.name.startswith(SHOWN if tuned else SHOWN[:1]):
            parts.append("### " + markdown(sheet).replace("**", "", 2))
            write_csv(tables / f"{cell.file}-{sheet.name}.csv", sheet.columns, sheet.rows)
    rows = [[found.text, found.verdict, text] for found in done.claims for text in found.detail.split("; ")]
    if rows:
        write_csv(tables / f"{cell.file}-claims.csv", ("claim", "verdict", "comparison"), rows)
    for setting in experiment.figures:
        drawn = draw(setting, experiment, done.results)
        if drawn is not None:
            path = figures / f"{cell.file}-{drawn.file}.svg"
            drawn.figure.savefig(path, metadata={"Date": None})
            parts.append(f"![{drawn.title}](../figures/results/{path.name})\n\n*{drawn.title}.*\n")
    parts.append(stopping_text(done))
    parts += ["".join(f"* {note}\n" for note in experiment.notes)]
    return "\n".join(parts)


def size_text(done: Done) -> str:
    """How it was run, and what of it is missing."""
    cell, experiment = done.cell, done.experiment
    variant = f" --variant {cell.variant}" if cell.variant else ""
    about = f" ({experiment.variants[cell.variant].about})" if cell.variant else ""
    added = experiment.variants[cell.variant].grid if cell.variant else {}
    common = {name: values[0] for name, values in added.items() if len(values) == 1}
    whole = load_experiment(cell.experiment).varied(cell.variant)
    repetitions: dict[str, set[int]] = {}
    for result in done.results.results:
        repetitions.setdefault(result.run.setting, set()).add(result.run.repetition.number)
    numbers = "; ".join(f"{name + ' ' if name else ''}{len(some)}" for name, some in repetitions.items())
    left_out = [entry.name for entry in whole.settings if entry.name not in repetitions]
    parts = [
        f"Run: `unskew reproduce {experiment.name} --data {cell.data}{variant}`{about}.",
        f"Training: {options_text(experiment.training | common)}.",
        f"Grid points per method: {points_text(experiment)}.",
        f"Repetitions of every row: {numbers or 'none'}. Runs that were planned and not done: {done.missing}.",
        f"Settings not run: {'; '.join(left_out)}." if left_out else "",
    ]
    return "\n".join(f"* {part}" for part in parts if part) + "\n"


def points_text(experiment: PaperExperiment) -> str:
    """Sizes of the grids; one number if all methods have equally many points."""
    points = {entry.label: len(entry.points()) for entry in experiment.methods}
    if len(set(points.values())) > 1:
        return ", ".join(f"{label} {number}" for label, number in points.items())
    number = next(iter(points.values()))
    if experiment.selection == "all":
        return f"{number}, each a row"
    return f"{number}, chosen on validation queries of the first repetition" if number > 1 else "one"


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([columns, *rows])


def paper_page(page: str, done: Sequence[Done], notes: Mapping[str, Any], folder: Path = HERE) -> str:
    """The page of one paper."""
    own = [entry for entry in done if entry.page == page and entry.results.results]
    words = notes[page]
    run = {entry.experiment.name for entry in own}
    others = [load_experiment(name) for name in shipped()]
    cut = [f"* `{other.name}`: {other.title}\n" for other in others if page_of(other) == page and other.name not in run]
    parts = [
        f"# {words['title']}\n",
        MADE,
        *(words[key].strip() + "\n" for key in ("intro", "findings") if key in words),
    ]
    parts += [cell_text(entry, folder / "tables", folder.parent / "figures" / "results") for entry in own]
    parts += [words[key].strip() + "\n" for key in ("remarks", "deviations") if key in words]
    parts += [f"## Not run\n\n{NOT_MEASURED}\n{''.join(cut)}"] if cut else []
    return "\n".join(parts)


def summary_page(done: Sequence[Done], lines: Mapping[str, Line], notes: Mapping[str, Any]) -> str:
    """What was measured, how, every claim with its verdict, and what was cut."""
    shown = [entry for entry in done if entry.results.results]
    rows, counts = [], {"papers": Counter[str](), "ours": Counter[str]()}
    for entry in shown:
        for claim, found in zip(entry.experiment.claims, entry.claims, strict=True):
            whose = "ours" if claim.ours or entry.page == "ours" else "papers"
            counts[whose][found.verdict] += 1
            link = f"[{entry.cell.file}](results/{entry.page}.md#{entry.cell.file})"
            ours = " *(ours)*" if claim.ours or entry.page == "ours" else ""
            rows.append(f"| {link} | {claim.text}{ours} | {found.words} |")
    codes = ", ".join(sorted({line["code"] for line in lines.values()})) or "none"
    totals = [f"| {verdict} | {counts['papers'][verdict]} | {counts['ours'][verdict]} |" for verdict in VERDICTS]
    unfinished = [f"{entry.cell.name} ({missing_text(entry)})" for entry in done if entry.missing]
    seconds = sum(line["cpu_seconds"] for line in lines.values())
    parts = [
        "# Results\n",
        MADE,
        notes["summary"]["intro"].strip().replace("{alpha}", f"{ALPHA:g}") + "\n",
        f"{len(lines)} runs, {seconds / 60:.0f} minutes of one core. "
        f"Code that decides numbers: `{codes}` (commit `{notes['summary']['commit']}`).\n",
        "## All claims\n",
        "\n".join(["| experiment | claim | verdict |", "|---|---|---|", *rows]) + "\n",
        "\n".join(["| verdict | claims of the papers | ours |", "|---|---:|---:|", *totals]) + "\n",
        notes["summary"]["cut"].strip() + "\n",
        f"Planned, but not finished when the time was over: {'; '.join(unfinished) or 'nothing'}.\n",
    ]
    return "\n".join(parts)


def missing_text(done: Done) -> str:
    """How many of the planned runs of a cell are missing."""
    return f"{done.missing} of {sum(len(every_run(group)) for group in done.cell.groups())} runs"


NOT_MEASURED = """These experiments ship with the package (`unskew reproduce NAME`), but were not run with this code.
"""
MADE = "<!-- Written by `make results`: change benchmarks/results_pages.py or docs/results/notes.toml instead. -->\n"


def build(folder: Path = HERE) -> None:
    """Write all pages."""
    matplotlib.rcParams["svg.hashsalt"] = "unskew"  # the same runs draw the same files
    lines = read_lines(folder / "runs.jsonl")
    notes = tomllib.loads((folder / "notes.toml").read_text(encoding="utf-8"))
    done = read_done(read_cells(folder / "cells.toml"), lines)
    (folder.parent / "figures" / "results").mkdir(parents=True, exist_ok=True)
    for page in dict.fromkeys(PAGES.values()):
        (folder / f"{page}.md").write_text(paper_page(page, done, notes, folder), encoding="utf-8")
    (folder.parent / "results.md").write_text(summary_page(done, lines, notes), encoding="utf-8")


if __name__ == "__main__":
    build()
