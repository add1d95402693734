"""The cells of the results pages: what is run for them, what of it is finished, and what comes next."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from row_file import read_rows
from unskew.comparison.plan import Group, Repetition, Run, plan
from unskew.comparison.rows import Outcome
from unskew.comparison.run import Result, Results, best_candidate
from unskew.options import build
from unskew.papers.experiment_files import load_experiment, shipped
from unskew.papers.settings import PaperExperiment

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
FEW = 5  # repetitions of settings that are no headline
LEAST = 3  # repetitions of a setting that is shown
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
    later: tuple[str, ...] = ()  # settings of a later turn, with few repetitions
    later_turn: int = 3

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
        groups = plan(self.restricted(), self.data, self.seeds)
        return [_with_few(group) if group.setting in self.later else group for group in groups]

    def turn_of(self, group: Group) -> int:
        return self.later_turn if group.setting in self.later else self.turn


PlannedCell = tuple[Cell, str, list[Group]]  # and its main metric


def _with_few(group: Group) -> Group:
    return replace(group, again=lambda chosen: group.again(chosen)[: FEW - 1])


def read_cells(path: Path = HERE / "cells.toml") -> list[Cell]:
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("cells", [])
    return [build(Cell, entry, f"{path.name}, {entry.get('experiment', '')}") for entry in entries]


def full_size() -> list[Cell]:
    """Every experiment that trains something, as it is shipped, on five worlds."""
    return [Cell(name, "world:small:200-204") for name in shipped() if load_experiment(name).methods]


@cache
def key_of(run: Run) -> str:
    """What decides a run, but the version of the package: that is what the digest of the code is for."""
    record = {name: value for name, value in run.record.items() if name != "version"}
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:20]


def read_lines(path: Path) -> dict[str, Line]:
    """Finished runs by key; ValueError if they are of several states of the code."""
    lines = read_rows(path)
    codes = sorted({line["code"] for line in lines})
    if len(codes) > 1:
        raise ValueError(f"{path.name} has rows of several states of the code: {', '.join(codes)}. Keep those of one")
    return {line["key"]: line for line in lines}


def outcome_of(line: Line) -> Outcome:
    """A finished run as tables take it: its means stand for its queries."""
    per_query = {name: np.array([value]) for name, value in line["metrics"].items()}
    return Outcome(per_query, None, {name: line[name] for name in KEPT if name in line})


def results_of(groups: Sequence[Group], lines: Mapping[str, Line], metric: str) -> tuple[Results, int]:
    """What is finished of a plan, and how many runs are missing.

    Rows of a setting have the same repetitions: what only some rows have is left out, and a setting with fewer than
    `LEAST` as a whole. A grid is chosen from only when it is whole.
    """
    chosen = [chosen_of(group, lines, metric) or group.candidates[0] for group in groups]
    whole = _whole(groups, chosen, lines)
    results, tried, missing = [], [], 0
    for group, best in zip(groups, chosen, strict=True):
        later = repetitions_of(group, best)
        missing += sum(key_of(run) not in lines for run in (*group.candidates, *later))
        tried += finished_of(group.candidates, lines)
        results += finished_of([run for run in (best, *later) if run.repetition in whole[group.setting]], lines)
    return Results(tuple(results), tuple(tried), (), len(results), 0), missing


def _whole(groups: Sequence[Group], chosen: Sequence[Run], lines: Mapping[str, Line]) -> dict[str, set[Repetition]]:
    """Repetitions of each setting that all of its rows have."""
    whole: dict[str, set[Repetition]] = {}
    for group, best in zip(groups, chosen, strict=True):
        has_grid = all(key_of(run) in lines for run in group.candidates)
        runs = [best, *repetitions_of(group, best)] if has_grid else []
        done = {run.repetition for run in runs if key_of(run) in lines}
        whole[group.setting] = whole.get(group.setting, done) & done
    return {setting: done if len(done) >= LEAST else set() for setting, done in whole.items()}


def finished_of(runs: Iterable[Run], lines: Mapping[str, Line]) -> list[Result]:
    """Runs with a result: not those that are missing or diverged."""
    return [Result(run, outcome_of(lines[key_of(run)])) for run in runs if "metrics" in lines.get(key_of(run), {})]


def chosen_of(group: Group, lines: Mapping[str, Line], metric: str) -> Run | None:
    """The best point of a grid on validation; None until all of its points were tried."""
    if any(key_of(run) not in lines for run in group.candidates):
        return None
    return best_candidate(
        group, {entry.run.key: entry.outcome for entry in finished_of(group.candidates, lines)}, metric
    )


@cache
def repetitions_of(group: Group, chosen: Run) -> list[Run]:
    return group.again(chosen)


def planned(cells: Iterable[Cell]) -> list[PlannedCell]:
    return [(cell, cell.restricted().metric, cell.groups()) for cell in cells]


def waiting(
    cells: Sequence[PlannedCell], lines: Mapping[str, Line], share: tuple[int, int] = (1, 1)
) -> list[tuple[Cell, Run]]:
    """Runs that can be done now: turn by turn, grids first, then every row of one repetition after the other.

    Of several processes each prefers repetitions of its own, so that worlds, users and logs are made once.
    """
    found: list[tuple[tuple[int, bool, bool, int], Cell, Run]] = []
    for cell, metric, groups in cells:
        for group in groups:
            has_choice = len(group.candidates) > 1
            best = chosen_of(group, lines, metric) if has_choice else group.candidates[0]
            runs = group.candidates if best is None else [best, *repetitions_of(group, best)]
            for run in runs:
                number = run.repetition.number
                order = (
                    cell.turn_of(group),
                    best is not None,
                    number % share[1] != share[0] - 1,
                    number,
                )
                found += [(order, cell, run)] if key_of(run) not in lines else []
    return [(cell, run) for _, cell, run in sorted(found, key=lambda entry: entry[0])]


def every_run(group: Group) -> list[Run]:
    return [*group.candidates, *group.again(group.candidates[0])]


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
