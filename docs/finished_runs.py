"""Finished experiments on disk, read for the page of results.

RUNS/NAME-DATA/out.json      what `unskew reproduce NAME --data DATA --json` printed
RUNS/NAME-DATA/*.md, *.svg   tables and figures
RUNS/NAME-DATA/runs.parquet  one line per run

A folder is refused if out.json is not whole, if it disagrees with the tables, or if its runs are not those that the
experiment plans today: then it is older than the experiment, or was cut off. Runs that failed are kept and counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from unskew.comparison.plan import plan
from unskew.papers.experiment_files import load_experiment
from unskew.papers.settings import PaperExperiment as Experiment


@dataclass(frozen=True)
class Sheet:
    """A table as the experiment wrote it."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str
    left: int = 1  # columns of text, before those of numbers


@dataclass(frozen=True)
class Done:
    """A finished experiment on one data set."""

    experiment: Experiment
    data: str
    folder: Path
    said: dict[str, Any]  # out.json
    sheets: dict[str, Sheet]
    repetitions: int
    trained: int  # runs, those of the grids included
    code: tuple[str, ...]  # states of the code that made the rows


def folder_of(runs: Path, name: str, data: str) -> Path:
    return runs / f"{name}-{data.replace(':', '-').replace('/', '-')}"


def read_sheet(text: str) -> Sheet:
    """A table from its Markdown."""
    title, _, *rest = text.splitlines()
    lines = [line for line in rest if line.startswith("| ")]
    head, rule, *rows = ([cell.strip() for cell in line[1:-1].split(" | ")] for line in lines)
    left = next((place for place, cell in enumerate(rule) if cell == "---:"), len(rule))
    return Sheet(title.strip("*"), head, rows, "\n".join(rest[len(lines) :]).strip(), left)


def read_done(runs: Path, name: str, data: str) -> Done:
    """The results of an experiment; ValueError if they are not complete or not of today's experiment."""
    folder = folder_of(runs, name, data)
    again = f"run `unskew reproduce {name} --data {data} --out {folder} --json > {folder}/out.json` to its end"
    try:
        said = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{folder} is not finished, its out.json cannot be read ({error}): {again}") from error
    experiment = load_experiment(name)
    experiment = experiment.varied(experiment.variant_for(data))
    if (said["experiment"], said["data"]) != (name, data):
        raise ValueError(f"{folder} holds {said['experiment']} on {said['data']}: {again}")
    if [entry["claim"] for entry in said["verdicts"]] != [claim.text for claim in experiment.claims]:
        raise ValueError(f"{folder} judges other claims than {name}.toml makes: {again}")
    sheets = {sheet: read_sheet((folder / f"{sheet}.md").read_text(encoding="utf-8")) for sheet in said["tables"]}
    for sheet, rows in said["tables"].items():
        if [[cell.strip("*") for cell in row] for row in sheets[sheet].rows] != rows:
            raise ValueError(f"{folder}: {sheet}.md and out.json have different numbers: {again}")
    if not experiment.methods:  # nothing to train
        return Done(experiment, data, folder, said, sheets, 1, 0, ())
    rows = pq.read_table(folder / "runs.parquet", columns=["key", "data", "seed", "chosen", "code"]).to_pylist()
    repetitions = len({(row["data"], row["seed"]) for row in rows})
    missing = count_missing(experiment, data, len({row["seed"] for row in rows}), rows)
    if missing > len(said["failed"]):
        raise ValueError(f"{folder} lacks {missing} runs that {name} plans today, it is older or cut off: {again}")
    code = tuple(sorted({row["code"] for row in rows}))
    return Done(experiment, data, folder, said, sheets, repetitions, len(rows), code)


def count_missing(experiment: Experiment, data: str, seeds: int, rows: Sequence[Mapping[str, Any]]) -> int:
    """How many planned runs have no row: points of grids on the first repetition, the chosen ones on the others."""
    keys = {row["key"]: row["chosen"] for row in rows}
    missing = 0
    for group in plan(experiment, data, seeds):
        missing += sum(run.key not in keys for run in group.candidates)
        chosen = next((run for run in group.candidates if keys.get(run.key)), None)
        missing += sum(run.key not in keys for run in group.again(chosen)) if chosen else 0
    return missing


def figures_of(done: Done) -> dict[str, Path]:
    """Figures that were drawn, by their title."""
    files = {figure.title: done.folder / f"{figure.file}.svg" for figure in done.experiment.figures}
    return {title: file for title, file in files.items() if file.is_file()}
