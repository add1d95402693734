"""The demo: the main job from end to end on the built-in world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.command_line.repeating import command_line
from unskew.data.files import check_place
from unskew.data.judged.catalogue import load
from unskew.display import Displayed, Screen
from unskew.evaluation.evaluate import Evaluation, evaluate_scorer
from unskew.propensities.curve import Curve, NotIdentified
from unskew.propensities.estimate import estimate_propensities
from unskew.reporting.drawing import Drawn, position_figure
from unskew.reporting.sheets import Section, write_report
from unskew.reporting.terminal import console, show_screen, training_progress
from unskew.simulation.policies import make_policy
from unskew.simulation.simulate import simulate
from unskew.simulation.truth import Simulation
from unskew.training.fitting import fit_recipe
from unskew.training.model import Model
from unskew.training.recipe import Recipe

TRAINED = ("naive", "two_tower", "dla")
PRODUCTION = "production"
RAW = "raw clicks (naive)"
SHOWN = "dla"  # whose curve is drawn
WIDTH = 48  # characters of a bar
RANDOMIZED = 0.05  # share of the sessions that are shuffled, so that the bias can be estimated without a model
BIAS = (
    "Clicks per impression fall faster than examination, because the best documents are shown at the top. "
    "Clicks divided by examination show relevance."
)
TITLE = "Examination by position: raw clicks, the truth, and what was learned"
Rows = list[list[str]]


class Demonstration(dict[str, Evaluation], Displayed):
    """The evaluation of production and of each trained ranker, by name."""

    __repr__ = Displayed.__repr__

    def to_table(self) -> pa.Table:
        """One row per ranker and metric, as in `Evaluation.to_table`."""
        tables = [
            found.to_table().add_column(0, "ranker", pa.array([name] * len(found.to_table()), pa.string()))
            for name, found in self.items()
        ]
        return pa.concat_tables(tables)

    def screen(self) -> Screen:
        """Metrics of all rankers, and their gain over training on raw clicks."""
        metrics = list(self["naive"].per_query)
        rows = [
            [RAW if name == "naive" else name, *(f"{result.mean(metric):.4f}" for metric in metrics), self._gain(name)]
            for name, result in self.items()
        ]
        columns = ("ranker", *metrics, "over raw clicks")
        return Screen("Rankers on judged test queries", columns, rows, name="rankers")

    def _gain(self, name: str) -> str:
        return "" if name == "naive" else f"{self[name].mean('ndcg@10') - self['naive'].mean('ndcg@10'):+.4f}"


def demo(data: str = "world:small", out: str | Path = "report.html", *, seed: int = 0) -> Demonstration:
    """Run the whole pipeline on simulated data: make a biased log, diagnose it, train rankers, compare them.

    Use `simulate`, `fit` and `evaluate` to run the steps yourself.

    Args:
        data: a world of the catalogue.
        out: file for the report.

    Returns:
        the evaluation of production and of each trained ranker, by name.

    >>> unskew.demo("world:tiny")["dla"].mean("ndcg@10")  # doctest: +SKIP
    """
    check_place(Path(out), overwrite=True)
    world = load(data)
    console.print(f"1. The world: {world.train!r}", highlight=False)
    policy = make_policy("svm").fit(world.train)
    simulation = simulate(world.train, policy, interventions={"shuffle": RANDOMIZED}, seed=seed)
    console.print(f"2. The log: {simulation.log!r}", highlight=False)
    console.print("3. Train on its clicks alone: held-out clicks end each training", highlight=False)
    models: dict[str, Model] = {}
    for name in TRAINED:
        with training_progress(f"train {name}") as report:
            models[name] = fit_recipe(Recipe.of(name, seed=seed), simulation.log, progress=report)
        console.print(f"   {name}: {models[name].history.ended}", highlight=False, soft_wrap=True)
    results = {PRODUCTION: evaluate_scorer(policy.scores(world.test), world.test)}
    results |= {name: evaluate_scorer(model.ranker(), world.test) for name, model in models.items()}
    curves = _curves(simulation, models)
    title = "4. The result, by judged test queries that only this table uses (one world, one seed)"
    show_screen(replace(Demonstration(results).screen(), title=title))
    console.print("\n[bold]5. The bias: examination by position, relative to the top[/]", highlight=False)
    for line in _picture(curves):
        console.print(line, markup=False, highlight=False)
    places = range(simulation.log.n_positions)
    bias = [[str(place + 1), *(f"{curve[place]:.3f}" for curve in curves.values())] for place in places]
    lead = (
        f"Simulated users click on {world.train.n_queries:,} queries of {data}: {simulation.log.sessions.sum():,.0f} "
        f"sessions, {RANDOMIZED:.0%} of them shuffled, seed {seed}. Rankers learn from the clicks alone, and held-out "
        "clicks end their training. Judged queries only measure the result. This is one world: the page of results has "
        "many, with intervals."
    )
    truth = {"true": curves["true"]} if "true" in curves else {}
    figure = position_figure({name: curve for name, curve in curves.items() if name != "true"}, reference=truth)
    sections = [
        Section(
            "Which ranker is best?",
            [_summary(results)],
            sheets=[Demonstration(results).screen()],
        ),
        Section(
            "The bias",
            [BIAS],
            figures=[Drawn("bias", TITLE, figure)],
            sheets=[Screen("Examination, relative to the top", ("position", *curves), bias, name="bias")],
        ),
        Section("Run it again", command=command_line("demo", {"data": data, "seed": seed})),
    ]
    write_report(out, "unskew demo: learning to rank from biased clicks", sections, lead)
    console.print(f"\nReport: {out}", highlight=False)
    return Demonstration(results)


def _picture(curves: Mapping[str, NDArray[np.float64]]) -> list[str]:
    """The learned curve as bars, with marks for the truth and for the click rates."""
    learned, clicks = curves[SHOWN], curves["clicks"]
    truth = curves.get("true")

    def cell(value: float) -> int:
        return int(np.clip(round(WIDTH * value), 0, WIDTH))

    lines = []
    for place, value in enumerate(learned):
        bar = list("█" * cell(value) + " " * (WIDTH + 1 - cell(value)))
        bar[cell(clicks[place])] = "○"
        if truth is not None:
            bar[cell(truth[place])] = "◆"
        lines.append(f"{place + 1:>4} {''.join(bar)} {value:.2f}")
    return [*lines, f"     █ learned by {SHOWN} from clicks   ◆ the truth   ○ clicks per impression"]


def _curves(simulation: Simulation, models: Mapping[str, Model]) -> dict[str, NDArray[np.float64]]:
    """Clicks by position, and the true, the estimated and the learned examination, all relative to the top."""
    curves = {"clicks": simulation.log.click_rates()}
    if simulation.truth.position_curve is not None:
        curves["true"] = np.asarray(simulation.truth.position_curve, dtype=np.float64)
    try:
        estimate: Curve = estimate_propensities(simulation.log)
        curves[estimate.estimator] = estimate.propensities(simulation.log.n_positions)
    except NotIdentified as reason:
        console.print(f"No estimate without a model: {reason}", highlight=False)
    for name, model in models.items():
        curve = model.examination()
        if curve is not None:
            curves[name] = curve
    return {name: curve / curve[0] for name, curve in curves.items()}


def _summary(results: Mapping[str, Evaluation]) -> str:
    """One sentence: the best ranker, compared with raw clicks and production."""
    means = {name: result.mean("ndcg@10") for name, result in results.items()}
    best = max(means, key=lambda name: means[name])
    others = ", ".join(f"{name} {mean:.4f}" for name, mean in means.items() if name != best)
    return f"{best} ranks best: nDCG@10 of {means[best]:.4f} on test queries with labels ({others})."
