"""The demo: the main job from end to end on the built-in world."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unskew.data.catalogue import load
from unskew.evaluation.compare import compare
from unskew.evaluation.evaluate import evaluate
from unskew.fit import Recipe, fit
from unskew.simulation.policies import make_policy
from unskew.simulation.simulate import simulate
from unskew.simulation.users import make_user
from unskew.terminal import console, counting_progress, show_table, training_progress

METHODS_SHOWN = ("naive", "two_tower", "dla")


def run_demo(data: str, out: Path, seed: int) -> None:
    """Simulate a biased log, look at it, train plain and debiased rankers, compare them."""
    world = load(data)
    console.print(f"[bold]1. The world[/] {world.train!r}, judged from 0 to 4", highlight=False)
    with counting_progress("simulate", "sessions") as progress:
        policy = make_policy("svm").fit(world.train)
        simulation = simulate(
            world.train, policy, make_user("position_based"), sessions=128, seed=seed, progress=progress
        )
    log, truth = simulation.log, simulation.truth
    console.print(f"[bold]2. The log[/] {log!r}", highlight=False)
    models = {}
    for name in METHODS_SHOWN:
        with training_progress(f"train {name}") as report:
            models[name] = fit(Recipe.of(name, seed=seed), log, validate=world.valid, progress=report)
    learnt = {name: curve for name, model in models.items() if (curve := model.examination()) is not None}
    true = np.asarray(truth.position_curve) / truth.position_curve[0]
    rates = log.clicks.sum(0) / log.sessions.sum()
    curves = [rates / rates[0], true, *learnt.values()]
    rows = [[str(place + 1), *(f"{curve[place]:.3f}" for curve in curves)] for place in range(log.n_positions)]
    show_table("3. The bias: examination relative to the top", ("position", "clicks", "true", *learnt), rows)
    results = {name: evaluate(model.ranker(), world.test) for name, model in models.items()}
    everything = {"production (shown order)": evaluate(policy.scores(world.test), world.test), **results}
    metrics = list(results["naive"].per_query)
    table = [[name, *(f"{result.mean(metric):.4f}" for metric in metrics)] for name, result in everything.items()]
    show_table("4. The rankers, on judged test queries", ("ranker", *metrics), table)
    compared = compare({name: result.values("ndcg@10") for name, result in everything.items()}, "naive")
    console.print(out)
