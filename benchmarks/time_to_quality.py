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
from timing import Row
from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.data.fitted_transforms import fit_transform
from unskew.data.transformed import transform_judged, transform_log
from unskew.methods.bias.dla import DLA
from unskew.methods.method import Method
from unskew.networks.registry import Problem
from unskew.training.settings import Settings
from unskew.training.train import train
from unskew.training.validation import on_judgements

WORLD, SESSIONS = "world:small", 128
SEEDS = (8, 9, 10)
BATCH = 128
STEPS, EVERY, LAST = 800, 50, 5
LOGS: dict[str, dict[str, float]] = {"5% of the sessions shuffled": {"shuffle": 0.05}, "a single order per query": {}}


def run() -> list[Row]:
    torch.set_num_threads(1)
    world = unskew.load(WORLD)
    transform = fit_transform("automatic", world.train.features)
    validate = on_judgements(transform_judged(world.valid, transform))
    rows = []
    for name, interventions in LOGS.items():
        pairs, ends = [], []
        for seed in SEEDS:
            simulation = unskew.simulate(
                world.train, "svm", "position_based", sessions=SESSIONS, interventions=interventions, seed=seed
            )
            log = transform_log(simulation.log, transform)
            settings = Settings(steps=STEPS, validate_every=EVERY, seed=seed)
            former = learn(DLA, EachPlace(log, BATCH, seed=seed, together=1), validate, settings)
            now = learn(DLA, ClickBatches(log, BATCH, seed=seed), validate, settings)
            goal = statistics.mean(value for _, value in former[-LAST:])
            pairs.append((reached(now, goal), reached(former, goal)))
            ends.append(statistics.mean(value for _, value in now[-LAST:]) - goal)
        rows.append((f"dla, {name}: seconds to the goal, now / before", spelt(pairs), ""))
        rows.append((f"dla, {name}: nDCG@10 after equal steps, now - before", spelt_mean(ends), "within .003"))
    return rows


def learn(
    method: Callable[[Problem], Method],
    source: ClickLog | ClickBatches,
    validate: Callable[[Method], float],
    settings: Settings,
) -> list[tuple[float, float]]:
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

    torch.manual_seed(settings.seed)
    log = source.log if isinstance(source, ClickBatches) else source
    train(method(Problem(log.n_features, log.n_positions)), {"clicks": source}, settings, timed)
    return path


def reached(path: list[tuple[float, float]], goal: float) -> float:
    return next((seconds for seconds, value in path if value >= goal), float("inf"))


def spelt(pairs: list[tuple[float, float]]) -> str:
    return ", ".join(f"{now:.1f} / {before:.1f}" for now, before in pairs)


def spelt_mean(differences: list[float]) -> str:
    error = statistics.stdev(differences) / len(differences) ** 0.5
    return f"{statistics.mean(differences):+.4f} ± {error:.4f}"
