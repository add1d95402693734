"""Warm starts against training from scratch, over simulated weeks: is a third of the steps as good?

Every repetition is a world of its own (`world:tiny:NUMBER`) whose prices, traffic and logger change from day to day.
Each day `dla` is trained from scratch, and the model of the day before goes on with a third of the steps. The verdict
is one of
non-inferiority: the 95% interval over worlds of the mean difference in nDCG@10 must lie above `-MARGIN`. The margin
was fixed before this run, after a look at worlds 0 to 2, which served to choose how a start trains; these are others.

Resumable: a finished world is kept in UNSKEW_BENCH (default: a folder of its own, thrown away).
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

import unskew
from intervals import mean_text
from timing import Row, kept_folder
from unskew.evaluation.differences import mean_interval
from unskew.simulation.policies import NoisyOracle, PlackettLuce

MARGIN = 0.005  # nDCG@10
WORLDS = range(100, 120)
DAYS = 7
STEPS = 300
PRICE = 3  # a column that the logger does not rank by
CHANGES = ("price", "traffic", "logger", "nothing")


def run() -> list[Row]:
    with kept_folder() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warm, anew = np.array([_week(number, folder / f"warm_start_{number}.json") for number in WORLDS]).mean(2).T
    _, low, _ = mean_interval(warm - anew)
    verdict = "not worse" if low > -MARGIN else "not shown"
    return [
        (f"nDCG@10 anew, {STEPS} steps, {len(WORLDS)} worlds", f"{anew.mean():.4f}", ""),
        (f"nDCG@10 warm, {STEPS // 3} steps", f"{warm.mean():.4f}", ""),
        ("warm less anew, 95% interval", mean_text(warm - anew), f"above {-MARGIN}: {verdict}"),
    ]


def _week(number: int, place: Path) -> list[list[float]]:
    """nDCG@10 of each day from the second on, of warm starts and of training from scratch."""
    if place.is_file():
        return json.loads(place.read_text())
    world = unskew.load(f"world:tiny:{number}")
    rng = np.random.default_rng(number)
    traffic, raised, seed = np.full(world.train.n_queries, 32), 0.0, number
    options = {"hidden": (16,), "progress": False}
    model, values = None, []
    for day in range(DAYS):
        change = CHANGES[(day - 1) % len(CHANGES)] if day else "nothing"
        raised += 0.3 * (change == "price")
        seed += change == "logger"
        traffic = rng.permutation(np.repeat([8, 56], len(traffic) // 2)) if change == "traffic" else traffic
        logger = PlackettLuce(logger=NoisyOracle(strength=0.5, seed=seed), temperature=0.5)
        log = unskew.simulate(
            _dearer(world.train, raised), logger, "position_based", sessions=traffic, seed=100 * number + day
        )
        anew = unskew.fit("dla", log, steps=STEPS, **options)
        if model is None:
            model = anew
            continue
        model = unskew.fit("dla", log, start=model, steps=STEPS // 3, **options)
        test = _dearer(world.test, raised)
        values.append([unskew.evaluate(each, test, ["ndcg@10"]).mean("ndcg@10") for each in (model, anew)])
    found = np.array(values).T.tolist()
    place.write_text(json.dumps(found))
    return found


def _dearer(judged: unskew.JudgedSet, by: float) -> unskew.JudgedSet:
    features = judged.features.copy()
    features[:, PRICE] += by
    return replace(judged, features=features)
