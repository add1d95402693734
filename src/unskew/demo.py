"""The demo: the main job from end to end on the built-in world."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from unskew.data.catalogue import load
from unskew.data.click_log import ClickLog
from unskew.evaluation.compare import compare
from unskew.evaluation.evaluate import Evaluation, evaluate
from unskew.fit import Model, Recipe, fit
from unskew.simulation.policies import make_policy
from unskew.simulation.simulate import simulate
from unskew.simulation.truth import Simulation
from unskew.simulation.users import make_user
from unskew.terminal import console, counting_progress, show_table, training_progress

TRAINED = ("naive", "two_tower", "dla")
PRODUCTION = "production (as shown)"


def run_demo(data: str, out: Path, seed: int) -> None:
    """Simulate a biased log, look at it, train plain and debiased rankers, compare them."""
    world = load(data)
    console.print(f"1. The world: {world.train!r}", highlight=False)
    policy = make_policy("svm").fit(world.train)
    with counting_progress("simulate", "sessions") as progress:
        simulation = simulate(world.train, policy, make_user("position_based"), seed=seed, progress=progress)
    console.print(f"2. The log: {simulation.log!r}\n", highlight=False)
    models: dict[str, Model] = {}
    for name in TRAINED:
        with training_progress(f"train {name}") as report:
            models[name] = fit(Recipe.of(name, seed=seed), simulation.log, validate=world.valid, progress=report)
    _show_bias(simulation, models)
    rankers = {PRODUCTION: policy.scores(world.test), **{name: model.ranker() for name, model in models.items()}}
    _show_comparison({name: evaluate(ranker, world.test) for name, ranker in rankers.items()})


def _show_bias(simulation: Simulation, models: Mapping[str, Model]) -> None:
    """Clicks by position beside the true and the learnt examination, all relative to the top."""
    curves = {"clicks": click_rates(simulation.log)}
    if simulation.truth.position_curve is not None:
        curves["true"] = np.asarray(simulation.truth.position_curve)
    for name, model in models.items():
        curve = model.examination()
        if curve is not None:
            curves[name] = curve
    places = range(simulation.log.n_positions)
    rows = [[str(place + 1), *(f"{curve[place] / curve[0]:.3f}" for curve in curves.values())] for place in places]
    show_table("3. The bias: how much is seen at each position, relative to the top", ("position", *curves), rows)


def _show_comparison(results: Mapping[str, Evaluation]) -> None:
    """Metrics of all rankers, and what they gain over plain clicks."""
    against = compare({name: result.values("ndcg@10") for name, result in results.items()}, "naive")
    metrics = list(results["naive"].per_query)
    rows = [
        [
            row.name,
            *(f"{results[row.name].mean(metric):.4f}" for metric in metrics),
            "" if row.p is None else f"{row.difference:+.4f}",
            "" if row.p_holm is None else f"{row.p_holm:.2g}",
        ]
        for row in against
    ]
    columns = ("ranker", *metrics, "ndcg@10 over naive", "p (Holm)")
    show_table("4. The rankers, on judged test queries that nobody trained on", columns, rows)


def click_rates(log: ClickLog) -> np.ndarray:
    """Clicks a showing at each position."""
    shown = np.where(log.mask, log.sessions[:, None], 0.0)
    places = np.where(log.mask, log.positions, 0).ravel()
    clicks = np.bincount(places, weights=log.clicks.ravel(), minlength=log.n_positions)
    return clicks / np.maximum(np.bincount(places, weights=shown.ravel(), minlength=log.n_positions), 1e-9)
