"""Processor time to a quality, with networks run once per distinct document and once per place, as it was before.

The goal is the mean of the last validations of the former way, in which every list is shuffled by itself. A log with
5% shuffled sessions shows a query in about 7 orders, one without shows it in a single one. Validation is not counted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

import unskew
from distinct_documents import EachPlace
from unskew.data.clicks.batches import ClickBatches
from unskew.data.fitted_transforms import fit_transform
from unskew.data.transformed import transform_judged, transform_log
from unskew.methods.dla import DLA
from unskew.methods.method import Method
from unskew.networks.registry import Problem
from unskew.training.settings import Settings
from unskew.training.train import train
from unskew.training.validation import on_judgements

Row = tuple[str, str, str]
SEEDS = (8, 9, 10)
STEPS, EVERY, LAST = 800, 50, 5
LOGS: dict[str, dict[str, float]] = {"5% of the sessions shuffled": {"shuffle": 0.05}, "a single order per query": {}}


def run() -> list[Row]:
    world = unskew.load("world:small")
    transform = fit_transform("automatic", world.train.features)
    validate = on_judgements(transform_judged(world.valid, transform))
    rows = []
    for name, interventions in LOGS.items():
        pairs, ends = [], []
        for seed in SEEDS:
            simulation = unskew.simulate(
                world.train, "svm", "position_based", sessions=128, interventions=interventions, seed=seed
            )
            log = transform_log(simulation.log, transform)
            former = learn(EachPlace(log, 128, seed=seed, together=1), validate, seed)
            now = learn(ClickBatches(log, 128, seed=seed), validate, seed)
            goal = statistics.mean(value for _, value in former[-LAST:])
            pairs.append((reached(now, goal), reached(former, goal)))
            ends.append(statistics.mean(value for _, value in now[-LAST:]) - goal)
        rows.append((f"dla, {name}: seconds to the goal, now / before", spelt(pairs), ""))
        rows.append((f"dla, {name}: nDCG@10 after equal steps, now - before", spelt_mean(ends), "within .003"))
    return rows


def learn(batches: ClickBatches, validate: Callable[[Method], float], seed: int) -> list[tuple[float, float]]:
    """Processor seconds of training, without validation, and nDCG@10 by then."""
    path: list[tuple[float, float]] = []
    paused = 0.0
    started = time.process_time()

    def timed(method: Method) -> float:
        nonlocal paused
        before = time.process_time()
        path.append((before - started - paused, validate(method)))
        paused += time.process_time() - before
        return path[-1][1]

    torch.manual_seed(seed)
    log = batches.log
    settings = Settings(steps=STEPS, validate_every=EVERY, seed=seed)
    train(DLA(Problem(log.n_features, log.n_positions)), {"clicks": batches}, settings, timed)
    return path


def reached(path: list[tuple[float, float]], goal: float) -> float:
    return next((seconds for seconds, value in path if value >= goal), float("inf"))


def spelt(pairs: list[tuple[float, float]]) -> str:
    return ", ".join(f"{now:.1f} / {before:.1f}" for now, before in pairs)


def spelt_mean(differences: list[float]) -> str:
    error = statistics.stdev(differences) / len(differences) ** 0.5
    return f"{statistics.mean(differences):+.4f} ± {error:.4f}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    for what, measured, target in run():
        print(f"{what:80} {measured:>24}  {target}")
