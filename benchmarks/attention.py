"""What a record of looks is worth under coupling: raw clicks, true observation, and `attention` on faulty records.

    python benchmarks/attention.py runs/attention world:small:100-104
    python benchmarks/attention.py runs/attention world:small:100-104 --rows "misses .2" "interest .5" --coupling 0.3

One file for each world, form of coupling, strength and row is written to the folder; what is there is not run again.
At the end it prints nDCG@10 on the test queries, the mean over worlds, and the difference from training with the true
observation with its 95% interval over worlds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from intervals import mean_text
from unskew.comparison.tasks import ORACLES
from unskew.data.judged.catalogue import load_split
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.evaluate import evaluate_scorer
from unskew.networks.registry import Network
from unskew.simulation.simulate import simulate
from unskew.simulation.users import make_user
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe
from unskew.training.settings import Settings

FORMS = ("power", "logistic")
TRUE = "true observation"


@dataclass(frozen=True)
class Row:
    """A method on a record of looks; without a record it learns from clicks alone."""

    method: str = "attention"
    record: Mapping[str, float] | None = None
    hyper: Mapping[str, Any] | None = None
    interventions: Mapping[str, float] | None = None  # an unknown rate of false alarms needs documents that moved


ALARMS = {"false_alarms": 0.2}
ROWS = {
    "raw clicks": Row("naive"),
    TRUE: Row("naive"),
    "misses .2": Row(record={"misses": 0.2}),
    "false alarms .2, given": Row(record=ALARMS, hyper=ALARMS),
    "false alarms .2, estimated": Row(record=ALARMS, hyper={"false_alarms": None}, interventions={"shuffle": 0.02}),
    "false alarms .2, ignored": Row(record=ALARMS),
    "interest .5": Row(record={"interest": 0.5}),
    "interest .8": Row(record={"interest": 0.8}),
    "interest 1": Row(record={"interest": 1.0}),
    "a tenth of the sessions": Row(record={"share": 0.1}),
    "misses .2, by weights": Row(record={"misses": 0.2}, hyper={"learn": "weights"}),
    "low_rank": Row("low_rank"),
    "low_rank, seen, misses .2": Row("low_rank", record={"misses": 0.2}, hyper={"choose": "seen"}),
}


@dataclass(frozen=True)
class Case:
    """One run."""

    world: str
    form: str
    coupling: float
    row: str
    sessions: int
    steps: int
    network: str

    def file(self, folder: Path) -> Path:
        return folder / f"{'-'.join(str(part) for part in asdict(self).values())}.json".replace(" ", "_")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("worlds", help="world:small:100-104, or one world")
    parser.add_argument("--coupling", type=float, nargs="+", default=[0.3, 0.6])
    parser.add_argument("--form", nargs="+", default=list(FORMS))
    parser.add_argument("--rows", nargs="+", default=list(ROWS), help=f"of: {', '.join(ROWS)}")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--sessions", type=int, default=128)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    found: dict[tuple[str, float], dict[str, dict[str, float]]] = {}
    for world in worlds(arguments.worlds):
        for case, value in run_world(world, arguments):
            found.setdefault((case.form, case.coupling), {}).setdefault(case.row, {})[world] = value
    for (form, coupling), rows in found.items():
        show(f"{form}, coupling {coupling}", rows)


def worlds(name: str) -> list[str]:
    head, _, seeds = name.rpartition(":")
    first, dash, last = seeds.partition("-")
    return [f"{head}:{seed}" for seed in range(int(first), int(last) + 1)] if dash else [name]


def run_world(world: str, arguments: argparse.Namespace) -> Iterator[tuple[Case, float]]:
    network = Network().kind
    cases = [
        Case(world, form, coupling, row, arguments.sessions, arguments.steps, network)
        for coupling in arguments.coupling
        for form in arguments.form
        for row in arguments.rows
    ]
    train = test = None
    for case in cases:
        file = case.file(arguments.folder)
        if not file.exists():
            if train is None or test is None:
                train, test = (load_split(world, split) for split in ("train", "test"))
            done = {**asdict(case), **measure(case, train, test)}
            file.with_suffix(".part").write_text(json.dumps(done))
            file.with_suffix(".part").rename(file)
            print(
                f"{world} {case.form} {case.coupling}: {case.row:32} {done['ndcg@10']:.4f} {done['found'] or ''}",
                flush=True,
            )
        yield case, json.loads(file.read_text())["ndcg@10"]


def measure(case: Case, train: JudgedSet, test: JudgedSet) -> dict[str, Any]:
    row = ROWS[case.row]
    user = make_user("coupled", coupling=case.coupling, form=case.form, crux_scale="standard").fit(train)
    options = {"record": row.record, "interventions": row.interventions}
    simulated = simulate(train, "svm", user, sessions=case.sessions, **options)
    log = ORACLES["observation"](simulated) if case.row == TRUE else simulated.log
    model = fit_recipe(Recipe(row.method, dict(row.hyper or {}), Settings(steps=case.steps)), log)
    value = evaluate_scorer(model.ranker(), test, metrics=["ndcg@10"]).mean("ndcg@10")
    return {"ndcg@10": float(value), "found": model.method.findings()}


def show(title: str, rows: Mapping[str, Mapping[str, float]]) -> None:
    print(f"\n{title}")
    truth = rows.get(TRUE, {})
    for name, values in rows.items():
        both = [world for world in values if world in truth]
        text = mean_text([values[world] - truth[world] for world in both]) if name != TRUE and both else ""
        print(f"{name:32} {np.mean(list(values.values())):.4f}  {text}  ({len(values)} worlds)")


if __name__ == "__main__":
    main()
