"""Few labels: the value of a few judged queries, by use.

A run learns from clicks without any label, to its last step. Then it draws judged queries repeatedly, and puts each
draw to every use: choose the parameter of low-rank observation that clicks do not identify, correct the scores of plain
clicks by the observation of another method, train either further, or train on the labels alone. Cross-validation on the
drawn queries chooses the number of steps and the learning rate, so every use sees the same labels.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.comparison.rows import Outcome
from unskew.comparison.sources import Definition, as_method, judged_split, recipe_of, simulation_of
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.transformed import transform_judged
from unskew.evaluation.evaluate import evaluate_scorer
from unskew.methods.line_search import ScoredLists, of_metric, search, spread_axes
from unskew.monitoring.tuning import Plan, best, cross_validated, train_further
from unskew.networks.documents import Ranker
from unskew.training.fitting import fit_recipe
from unskew.training.model import Model, ModelRanker

PLAIN, LBD = "naive", "lbd"
N_JUDGED = (5, 20, 50, 200)
N_DRAWS = 20  # draws of queries, for uses without training
N_TAUGHT = 4  # draws for uses with training
FOLDS = 3
STEPS, EVERY, BATCH = 100, 10, 32  # of training on judged queries
RATES = (0.01, 0.1)
CAUTION = 1.0  # standard errors, as in low_rank

Observation = Callable[[Tensor, Tensor], Tensor]  # features, mask -> traits of examination [batch, docs, n]


@dataclass(frozen=True, eq=False)
class Learnt:
    """Models that learned from clicks alone, and the data to evaluate draws on."""

    plain: Model
    low_rank: Model
    lbd: Model
    metric: str


class Moved(Ranker):
    """Scores of a ranker, corrected by traits of observation."""

    def __init__(self, ranker: Ranker, observation: Observation, numbers: Tensor):
        super().__init__()
        self.ranker = ranker
        self.observation = observation
        self.numbers = numbers

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        return self.ranker(features, mask) + (self.observation(features, mask) * self.numbers).sum(-1)


def choose_number(learnt: Learnt, judged: JudgedSet) -> ModelRanker:
    """Low rank with its unidentified parameter chosen on these queries."""
    model = learnt.low_rank
    method: Any = deepcopy(model.method)
    method.choose = "judged"  # training is the same
    method.tune(transform_judged(judged, model.transform), learnt.metric)
    return ModelRanker(model.transform, method.ranker()).eval()


def move(learnt: Learnt, judged: JudgedSet, model: Model, observation: Observation) -> Ranker:
    """Raw clicks corrected by the observation of another model, by the same line search."""
    ranker = learnt.plain.ranker()

    def seen(features: Tensor, mask: Tensor) -> Tensor:
        return observation(model.transform(features, mask), mask)

    with torch.no_grad():
        parts = [
            ScoredLists(
                ranker(lists.features, lists.mask),
                seen(lists.features, lists.mask),
                lists.mask,
                of_metric(lists, learnt.metric),
            )
            for _, lists in judged.batches()
        ]
    found = search(parts, lambda scores, traits, c: scores + (traits * c).sum(-1), spread_axes(parts), CAUTION)
    return Moved(ranker, seen, found.numbers)


def teach(learnt: Learnt, judged: JudgedSet, start: ModelRanker | None) -> Ranker:
    """A ranker trained on these queries, from another ranker or from scratch, as cross-validation on them chooses."""
    model = learnt.plain
    transform = model.transform if start is None else start.transform
    prepared = transform_judged(judged, transform)
    plan = Plan(metric=learnt.metric, steps=STEPS, every=EVERY, batch_size=BATCH, rates=RATES, folds=FOLDS)

    def new(_: JudgedSet) -> Ranker:
        if start is not None:
            return deepcopy(start.ranker)
        with torch.random.fork_rng():
            torch.manual_seed(model.recipe.settings.seed)
            return model.problem.new_ranker()

    rate, steps = best(cross_validated(new, model.problem, prepared, plan))
    if steps == 0 and start is not None:
        return start
    taught = new(prepared)
    train_further(taught, model.problem, prepared, plan, rate, max(steps, 1))
    return ModelRanker(transform, taught).eval()


def _of_low_rank(learnt: Learnt, judged: JudgedSet) -> Ranker:
    method: Any = learnt.low_rank.method
    return move(learnt, judged, learnt.low_rank, lambda features, _: method.traits(features))


def _of_lbd(learnt: Learnt, judged: JudgedSet) -> Ranker:
    method: Any = learnt.lbd.method
    return move(learnt, judged, learnt.lbd, lambda features, _: method.deviation(features).mean(-1, keepdim=True))


# Uses of judged queries.
CHOSEN = "low rank, number chosen"
TUNED = "low rank, number chosen, fine-tuned"
USES: dict[str, Callable[[Learnt, JudgedSet], Ranker]] = {
    CHOSEN: choose_number,
    "raw clicks + c · low rank's e": _of_low_rank,
    "raw clicks + c · LBD's observation": _of_lbd,
    TUNED: lambda learnt, judged: teach(learnt, judged, choose_number(learnt, judged)),
    "raw clicks, fine-tuned": lambda learnt, judged: teach(learnt, judged, learnt.plain.ranker()),
    "labels alone": lambda learnt, judged: teach(learnt, judged, None),
}
TAUGHT = (TUNED, "raw clicks, fine-tuned", "labels alone")
# Without any label.
UNLABELLED: dict[str, Callable[[Learnt], Model]] = {
    "low rank, no labels": lambda learnt: learnt.low_rank,
    "raw clicks, no labels": lambda learnt: learnt.plain,
    "LBD, no labels": lambda learnt: learnt.lbd,
}


def few_labels(definition: Definition) -> Outcome:
    """Learn from simulated clicks, then put draws of judged queries to every use, and measure each on test queries."""
    options, metric = definition["task_options"], definition["metric"]
    numbers = options.get("judged", N_JUDGED)
    if min(numbers) < 2:
        raise ValueError(f"judged = {numbers}: cross-validation needs at least 2 judged queries")
    log = simulation_of(definition).log
    learnt = Learnt(
        plain=fit_recipe(recipe_of(as_method(definition, PLAIN)["recipe"]), log),
        low_rank=fit_recipe(recipe_of(definition["recipe"]), log),
        lbd=fit_recipe(recipe_of(as_method(definition, LBD)["recipe"]), log),
        metric=metric,
    )
    valid, test = judged_split(definition, "valid"), judged_split(definition, "test")

    def measured(ranker: Ranker) -> float:
        return evaluate_scorer(ranker, test, [metric], max_grade=definition["max_grade"]).mean(metric)

    found: dict[str, dict[str, list[float]]] = {use: {} for use in USES}
    for n in (*numbers, valid.n_queries):
        draws = _draws(valid, n, options.get("draws", N_DRAWS), definition["simulation_seed"])
        for use, make in USES.items():
            taken = draws[: options.get("taught_draws", N_TAUGHT)] if use in TAUGHT else draws
            found[use][str(n)] = [measured(make(learnt, valid.select(draw))) for draw in taken]
    level = {name: measured(model(learnt).ranker()) for name, model in UNLABELLED.items()}
    return Outcome(about={"uses": found, "no_labels": level})


def _draws(judged: JudgedSet, n: int, times: int, seed: int) -> list[NDArray[np.int64]]:
    """Queries drawn without replacement, several times; all of them once if all are requested."""
    if n >= judged.n_queries:
        return [np.arange(judged.n_queries)]
    generator = np.random.default_rng([seed, n])
    return [np.sort(generator.choice(judged.n_queries, n, replace=False)) for _ in range(times)]
