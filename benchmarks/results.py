"""Run the cells of the results pages, one run after the other, each a line in docs/results/runs.jsonl.

    python benchmarks/results.py --plan              number of runs and their estimated time
    python benchmarks/results.py --minutes 60        run what is missing, repetition by repetition
    python benchmarks/results.py --share 1/2         one of two processes that work on the same file

A line holds means over test queries: tests are over repetitions, so no more is needed. Lines stay in the repository.
Runs that are there are not run again, whichever experiment made them; all are of one state of the code that decides
numbers, and another state adds nothing to them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from results_cells import (
    HERE,
    KEPT,
    Cell,
    Line,
    cut_from,
    every_run,
    full_size,
    key_of,
    planned,
    read_cells,
    read_lines,
    waiting,
)
from row_file import append_row, mend
from unskew.comparison.code_digest import code_digest
from unskew.comparison.plan import Run
from unskew.comparison.rows import Claims, Outcome
from unskew.comparison.tasks import perform
from unskew.papers.tasks import PAPER_TASKS

DIGITS = 5  # of curves
BEFORE_STEPS, PER_STEP, TREES = 1.0, 0.0025, 6.0  # seconds of one core


def line_of(run: Run, cell: Cell) -> Line:
    """Do a run; one that diverges has no metrics."""
    started = time.process_time()
    try:
        found = _found(perform(PAPER_TASKS[run.definition["task"]], run.definition))
    except FloatingPointError as error:
        found = {"diverged": str(error)}
    return {
        "key": key_of(run),
        "experiment": cell.experiment,
        "setting": run.setting,
        "label": run.label,
        "point": run.point,
        "data": run.repetition.data,
        "seed": run.repetition.seed,
        **found,
        "code": code_digest(),
        "cpu_seconds": round(time.process_time() - started, 2),
    }


def _found(outcome: Outcome) -> Line:
    means = {name: float(np.nanmean(values)) for name, values in outcome.per_query.items()}
    return {"metrics": means, **{name: _short(outcome.about[name]) for name in KEPT if outcome.about.get(name)}}


def _short(value: Any) -> Any:
    return (
        [round(entry, DIGITS) if isinstance(entry, float) else entry for entry in value]
        if isinstance(value, list)
        else value
    )


def run_missing(cells: list[Cell], path: Path, until: float, share: tuple[int, int] = (1, 1)) -> None:
    """Run until nothing is missing or the time is over; several processes may share a file."""
    mend(path)
    codes = {line["code"] for line in read_lines(path).values()}
    if codes - {code_digest()}:
        raise SystemExit(f"{path} is of code {codes.pop()}, this is {code_digest()}: check out the code that began it")
    folder = path.with_suffix(".claims")
    folder.mkdir(exist_ok=True)
    plans, failed = planned(cells), set()
    with Claims(folder) as claims:
        while time.time() < until:
            todo = [(cell, run) for cell, run in waiting(plans, read_lines(path), share) if key_of(run) not in failed]
            cell, run = next((entry for entry in todo if claims.take(key_of(entry[1]))), (None, None))
            if cell is None or run is None:
                return
            key = key_of(run)
            if key not in read_lines(path):  # another process may have finished it
                try:
                    line = line_of(run, cell)
                except Exception as error:  # the other runs go on; it is tried again next time
                    failed.add(key)
                    print(f"failed: {cell.name}, {run.title}: {type(error).__name__}: {error}", flush=True)
                else:
                    append_row(path, line)
                    print(f"{line['cpu_seconds']:6.1f} s  {cell.name}, {run.title}", flush=True)
            claims.release(key)


def show_plan(cells: list[Cell], path: Path) -> None:
    """Number of runs of every cell by turn, and their time: by steps, corrected by finished runs of the same row."""
    lines = read_lines(path)
    runs = [(cell.turn_of(group), cell, run) for cell in cells for group in cell.groups() for run in every_run(group)]
    ratios: dict[str, list[float]] = {}
    for _, _, run in runs:
        if key_of(run) in lines:
            ratios.setdefault(run.label, []).append(lines[key_of(run)]["cpu_seconds"] / expected_seconds(run))
    rows: dict[tuple[int, str], list[float]] = {}
    seen: set[str] = set()
    for turn, cell, run in runs:
        row = rows.setdefault((turn, cell.name), [0, 0, 0.0])
        missing = key_of(run) not in lines and key_of(run) not in seen
        seen.add(key_of(run))
        row[0] += 1
        row[1] += missing
        row[2] += missing * expected_seconds(run) * float(np.mean(ratios.get(run.label, [1.0]))) / 60
    print(f"{'turn, cell':<50}{'runs':>7}{'missing':>9}{'minutes left':>14}")
    for (turn, name), row in [
        *sorted(rows.items(), key=lambda entry: entry[0][0]),
        ((0, "all"), sum_of(rows.values())),
    ]:
        print(f"{f'{turn or str()} {name}':<50}{row[0]:>7.0f}{row[1]:>9.0f}{row[2]:>14.1f}")
    print("cut:", *cut_from(cells), sep="\n  ")


def sum_of(rows: Iterable[Sequence[float]]) -> list[float]:
    return [float(total) for total in np.sum(list(rows), axis=0)]


def expected_seconds(run: Run) -> float:
    """By steps alone, as measured with a few methods on `world:small`: small networks take less, listwise ones more."""
    if "recipe" not in run.definition:
        return TREES if "lightgbm" in run.definition["task"] else 0.1
    return BEFORE_STEPS + PER_STEP * (run.definition["recipe"]["settings"]["steps"] or 1_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--plan", action="store_true", help="print the number of runs, their time and what was cut; run nothing"
    )
    parser.add_argument("--everything", action="store_true", help="all experiments at full size instead of the cells")
    parser.add_argument("--cells", type=Path, default=HERE / "cells.toml")
    parser.add_argument("--runs", type=Path, default=HERE / "runs.jsonl")
    parser.add_argument("--share", default="1/1", help="which of how many processes this one is, such as 1/2")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this many")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells = full_size() if options.everything else read_cells(options.cells)
    if options.plan:
        show_plan(cells, options.runs)
    else:
        which, of = map(int, options.share.split("/"))
        run_missing(cells, options.runs, time.time() + 60 * options.minutes, (which, of))


if __name__ == "__main__":
    main()
