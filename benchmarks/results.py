"""Run the cells of the results pages, one run after the other, each a line in docs/results/runs.jsonl.

    python benchmarks/results.py --plan              number of runs and their estimated time
    python benchmarks/results.py --minutes 60        run what is missing, repetition by repetition

A line holds means over test queries: tests are over repetitions, so no more is needed. Lines stay in the repository.
Runs that are there are not run again, whichever experiment made them; all are of one state of the code that decides
numbers, and another state adds nothing to them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unskew.comparison.claims import Claims
from unskew.comparison.code_digest import code_digest
from unskew.comparison.plan import Group, Run, plan
from unskew.comparison.rows import Outcome
from unskew.comparison.run import Result, Results, best_candidate
from unskew.comparison.tasks import perform
from unskew.options import build
from unskew.papers.experiment_files import load_experiment, shipped
from unskew.papers.settings import PaperExperiment
from unskew.papers.tasks import PAPER_TASKS

HERE = Path(__file__).parents[1] / "docs" / "results"
KEPT = (
    "validation",
    "validation_by_step",
    "best_step",
    "examination",
    "true_examination",
    "warnings",
    "chosen",
)
DIGITS = 5  # of curves
LAG = 5  # repetitions by which rows wait that no claim is about, or that are not named first: time may be short
BEFORE_STEPS, PER_STEP = 1.0, 0.0025  # seconds of one core
Line = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """An experiment on data."""

    experiment: str
    data: str
    seeds: int | None = None
    variant: str = ""
    settings: tuple[str, ...] = ()  # empty: all
    turn: int = 1  # cells of a later turn wait until all of the earlier ones are finished
    later: tuple[str, ...] = ()  # settings of the second turn
    first: tuple[str, ...] = ()  # labels that are run before others; empty: those of the claims

    @property
    def file(self) -> str:
        """The start of its files' names: the experiment, and other data than worlds."""
        place = "" if self.data.startswith("world:") else f"-{self.data.replace('/', '-')}"
        return f"{self.experiment}{place}"

    @property
    def name(self) -> str:
        return f"{self.experiment} on {self.data}"

    def restricted(self) -> PaperExperiment:
        """The experiment with these settings only, and the claims about them."""
        experiment = load_experiment(self.experiment).varied(self.variant)
        if not self.settings:
            return experiment
        strangers = set(self.settings) - {entry.name for entry in experiment.settings}
        if strangers:
            raise ValueError(f"{self.experiment} has no setting '{strangers.pop()}'")
        claims = [
            replace(claim, settings=tuple(name for name in claim.settings if name in self.settings))
            for claim in experiment.claims
            if not claim.settings or set(claim.settings) & set(self.settings)
        ]
        kept = tuple(entry for entry in experiment.settings if entry.name in self.settings)
        return replace(experiment, settings=kept, claims=tuple(claims))

    def groups(self) -> list[Group]:
        return plan(self.restricted(), self.data, self.seeds)


def read_cells(path: Path = HERE / "cells.toml") -> list[Cell]:
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("cells", [])
    return [build(Cell, entry, f"{path.name}, {entry.get('experiment', '')}") for entry in entries]


def full_size() -> list[Cell]:
    """Every experiment that trains something, as it is shipped, on five worlds."""
    return [Cell(name, "world:small:200-204") for name in shipped() if load_experiment(name).methods]


def key_of(run: Run) -> str:
    """What decides a run, but the version of the package: that is what the digest of the code is for."""
    record = {name: value for name, value in run.record.items() if name != "version"}
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:20]


def read_lines(path: Path) -> dict[str, Line]:
    """Finished runs by key; ValueError if they are of several states of the code."""
    if not path.is_file():
        return {}
    texts = path.read_text(encoding="utf-8").splitlines(keepends=True)
    lines = [json.loads(text) for text in texts if text.endswith("\n")]  # not one that was cut off by a kill
    codes = sorted({line["code"] for line in lines})
    if len(codes) > 1:
        raise ValueError(f"{path.name} has rows of several states of the code: {', '.join(codes)}. Keep those of one")
    return {line["key"]: line for line in lines}


def outcome_of(line: Line) -> Outcome:
    """A finished run as tables take it: its means stand for its queries."""
    per_query = {name: np.array([value]) for name, value in line["metrics"].items()}
    return Outcome(per_query, None, {name: line[name] for name in KEPT if name in line})


def results_of(groups: Iterable[Group], lines: Mapping[str, Line], metric: str) -> tuple[Results, int]:
    """What is finished of a plan, and how many runs are missing; a grid is chosen from only when it is whole."""
    chosen, tried, missing = [], [], 0
    for group in groups:
        finished = {run.key: outcome_of(lines[key_of(run)]) for run in group.candidates if key_of(run) in lines}
        tried += [Result(run, finished[run.key]) for run in group.candidates if run.key in finished]
        missing += len(group.candidates) - len(finished)
        best = best_candidate(group, finished, metric) if len(finished) == len(group.candidates) else None
        later = group.again(group.candidates[0] if best is None else best)
        if best is None:
            missing += len(later)
            continue
        done = [run for run in later if key_of(run) in lines]
        missing += len(later) - len(done)
        chosen += [Result(best, finished[best.key]), *(Result(run, outcome_of(lines[key_of(run)])) for run in done)]
    return Results(tuple(chosen), tuple(tried), (), len(chosen), 0), missing


def claimed_first(experiment: PaperExperiment) -> dict[str, int]:
    """Labels of the claims in their order, so that what is cut off by time can be judged."""
    labels = [label for claim in experiment.claims for label in (claim.label, *claim.than)]
    return {label: number for number, label in enumerate(dict.fromkeys(labels))}


def waiting(cells: Iterable[Cell], lines: Mapping[str, Line]) -> Iterator[tuple[Cell, Run]]:
    """Runs that are missing: grids first, then turn by turn one repetition of every cell after the other."""
    found: list[tuple[tuple[int, int], Cell, Run]] = []
    for cell in cells:
        experiment = cell.restricted()
        metric, order = experiment.metric, claimed_first(experiment)
        for group in sorted(cell.groups(), key=lambda group: order.get(group.label, len(order))):
            if len(group.candidates) > 1:
                yield from ((cell, run) for run in group.candidates if key_of(run) not in lines)
            finished = {run.key: outcome_of(lines[key_of(run)]) for run in group.candidates if key_of(run) in lines}
            best = best_candidate(group, finished, metric) or group.candidates[0]
            turn = max(cell.turn, 2 if group.setting in cell.later else 1)
            lag = LAG * ((group.label not in (cell.first or order)) + (group.label not in order))
            found += [((turn, run.repetition.number + lag), cell, run) for run in (best, *group.again(best))]
    for _, cell, run in sorted(found, key=lambda entry: entry[0]):
        if key_of(run) not in lines:
            yield cell, run


def line_of(run: Run, cell: Cell, outcome: Outcome) -> Line:
    about = {name: _short(outcome.about[name]) for name in KEPT if outcome.about.get(name)}
    return {
        "key": key_of(run),
        "experiment": cell.experiment,
        "setting": run.setting,
        "label": run.label,
        "point": run.point,
        "data": run.repetition.data,
        "seed": run.repetition.seed,
        "metrics": {name: float(np.nanmean(values)) for name, values in outcome.per_query.items()},
        **about,
        "code": code_digest(),
    }


def _short(value: Any) -> Any:
    return (
        [round(entry, DIGITS) if isinstance(entry, float) else entry for entry in value]
        if isinstance(value, list)
        else value
    )


def run_missing(cells: list[Cell], path: Path, until: float) -> None:
    """Run until nothing is missing or the time is over; several processes may share a file if no cell has a grid."""
    lines = read_lines(path)
    _mend(path)
    codes = {line["code"] for line in lines.values()}
    if codes - {code_digest()}:
        raise SystemExit(f"{path} is of code {codes.pop()}, this is {code_digest()}: check out the code that began it")
    folder = path.with_suffix(".claims")
    folder.mkdir(exist_ok=True)
    with Claims(folder) as claims:
        for cell, run in waiting(cells, lines):
            if time.time() > until:
                return
            key = key_of(run)
            if not claims.take(key):
                continue
            lines |= read_lines(path)  # another process may have finished it
            if key not in lines:
                started = time.process_time()
                try:
                    outcome = perform(PAPER_TASKS[run.definition["task"]], run.definition)
                except Exception as error:  # the other runs go on; it is tried again next time
                    print(f"failed: {cell.name}, {run.title}: {type(error).__name__}: {error}", flush=True)
                    continue
                seconds = round(time.process_time() - started, 2)
                lines[key] = {**line_of(run, cell, outcome), "cpu_seconds": seconds}
                with path.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(lines[key]) + "\n")
                print(f"{seconds:6.1f} s  {cell.name}, {run.title}", flush=True)
            claims.release(key)


def _mend(path: Path) -> None:
    """Take away a last line that was cut off by a kill."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text and not text.endswith("\n"):
        path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")


def show_plan(cells: list[Cell], path: Path) -> None:
    """Number of runs of every cell, and their time: by finished runs of the same method, else by their steps."""
    lines = read_lines(path)
    seconds: dict[str, list[float]] = {}
    for line in lines.values():
        seconds.setdefault(line["label"], []).append(line["cpu_seconds"])
    totals = np.zeros(3)
    print(f"{'cell':<46}{'runs':>7}{'missing':>9}{'minutes left':>14}")
    for cell in cells:
        runs = [run for group in cell.groups() for run in every_run(group)]
        missing = [run for run in runs if key_of(run) not in lines]
        left = sum(np.mean(seconds.get(run.label, [expected_seconds(run)])) for run in missing) / 60
        totals += len(runs), len(missing), left
        print(f"{cell.name:<46}{len(runs):>7}{len(missing):>9}{left:>14.1f}")
    print(f"{'all':<46}{totals[0]:>7.0f}{totals[1]:>9.0f}{totals[2]:>14.1f}")
    print("cut:", *cut_from(cells), sep="\n  ")


def cut_from(cells: Iterable[Cell]) -> list[str]:
    """Experiments that no cell runs, and the settings that cells leave out."""
    kept: dict[str, set[str]] = {}
    for cell in cells:
        kept.setdefault(cell.experiment, set()).update(entry.name for entry in cell.restricted().settings)
    cut = []
    for name in shipped():
        experiment = load_experiment(name)
        left_out = [entry.name for entry in experiment.settings if entry.name not in kept.get(name, ())]
        if experiment.methods and name not in kept:
            cut.append(name)
        elif left_out:
            cut.append(f"{name}: {'; '.join(left_out)}")
    return cut


def expected_seconds(run: Run) -> float:
    """By steps alone, as measured with a few methods on `world:small`: small networks take less, listwise ones more."""
    steps = run.definition["recipe"]["settings"]["steps"] or 1_000 if "recipe" in run.definition else 0
    return BEFORE_STEPS + PER_STEP * steps


def every_run(group: Group) -> list[Run]:
    return [*group.candidates, *group.again(group.candidates[0])]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--plan", action="store_true", help="print the number of runs, their time and what was cut; run nothing"
    )
    parser.add_argument("--everything", action="store_true", help="all experiments at full size instead of the cells")
    parser.add_argument("--cells", type=Path, default=HERE / "cells.toml")
    parser.add_argument("--runs", type=Path, default=HERE / "runs.jsonl")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this many")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells = full_size() if options.everything else read_cells(options.cells)
    if options.plan:
        show_plan(cells, options.runs)
    else:
        run_missing(cells, options.runs, time.time() + 60 * options.minutes)


if __name__ == "__main__":
    main()
