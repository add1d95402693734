"""Tasks: the work of a run, defined by its definition alone. Other tasks are passed to the runner; see `run_plan`."""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unskew.comparison.held_out import measure_held_out, measure_production
from unskew.comparison.plan import ONLY_SHOWN
from unskew.comparison.rows import Outcome
from unskew.comparison.sources import (
    Definition,
    dataset,
    fresh_clicks,
    intervention_log,
    judged_split,
    own_log,
    policy_of,
    recipe_of,
    simulation_of,
)
from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.judged.metrics import metric
from unskew.evaluation.evaluate import Evaluation, evaluate_scorer
from unskew.methods.bias.hte import correct_clicks
from unskew.simulation.truth import Simulation
from unskew.training.fitting import fit_recipe
from unskew.training.model import Model
from unskew.training.watching import Watch

Task = Callable[[Definition], Outcome]


WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)  # of the current run


def perform(task: Task, definition: Definition, watch: Watch | None = None) -> Outcome:
    """Do a task, and record its warnings, time and versions.

    Args:
        watch: receives every step and validation of the training.
    """
    started = time.monotonic()
    WATCH.set(watch)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        outcome = task(definition)
    texts = list(dict.fromkeys(str(entry.message) for entry in caught))
    about = {
        **outcome.about,
        "warnings": texts,
        "seconds": time.monotonic() - started,
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }
    return Outcome(outcome.per_query, outcome.query_ids, about)


def versions() -> dict[str, str]:
    return {
        "unskew": version("unskew"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def train(definition: Definition) -> Outcome:
    """Train a method, choose its state on validation queries, and measure it on test queries."""
    model, simulation = fit_model(definition)
    result = evaluate_run(definition, model.ranker(), judged_split(definition, "test"))
    curve = model.examination()
    return Outcome(
        per_query={name: result.values(name) for name in definition["metrics"]},
        query_ids=result.query_ids,
        about={
            **about_training(definition, model),
            "examination": None if curve is None else curve.tolist(),
            "examination_by_level": {level: each.tolist() for level, each in model.examinations().items()},
            **({} if simulation is None else _about_log(simulation)),
        },
    )


TASKS: dict[str, Task] = {
    "train": train,
    "choose": measure_held_out,
    "production": measure_production,
}


def fit_model(definition: Definition) -> tuple[Model, Simulation | None]:
    """The model that a definition describes, and the simulated log it learned from."""
    recipe = recipe_of(definition["recipe"])
    valid = judged_split(definition, "valid")
    taught = recipe.method_class.learns_from == "judgements"
    if "log" in definition:
        log = own_log(definition["log"]["path"])
        judged = judged_split(definition, "judged") if taught else None
        return fit_recipe(recipe, None if judged is not None else log, judged=judged, validate=valid), None
    if taught:
        judged = dataset(definition["data"]).train
        if definition.get("oracle") == ONLY_SHOWN:
            judged = judged.select_documents(shown_by_logger(definition, judged))
        return fit_recipe(recipe, judged=judged, validate=valid, watch=WATCH.get()), None
    simulation = simulation_of(definition)
    interventions = intervention_log(definition) if definition["interventions"] else None
    if definition["simulation"].get("clicks") == "fresh":
        if definition["simulation"]["interventions"] or definition["interventions"] or definition["oracle"]:
            raise ValueError("fresh clicks have no interventions and no oracle: use clicks = 'fixed' for this method")
        return fit_recipe(recipe, fresh_clicks(definition), validate=valid, watch=WATCH.get()), simulation
    log = ORACLES[definition["oracle"]](simulation)
    return fit_recipe(recipe, log, interventions=interventions, validate=valid, watch=WATCH.get()), simulation


def _with_true_observation(simulation: Simulation) -> ClickLog:
    """Clicks divided by the true examination probability of the document at its position."""
    log, seen = simulation.log, simulation.truth.examination
    clicks = np.divide(log.clicks, seen, out=np.zeros_like(log.clicks), where=seen > 0)
    return replace(log.marginal(), clicks=clicks, graded=True)


# Parts of the truth that a method may use, to see how good it would be with a perfect estimate.
ORACLES: dict[str, Callable[[Simulation], ClickLog]] = {
    "": lambda simulation: simulation.log,
    # Clicks as they would have been at the top, by the true effects of positions.
    "hte": lambda simulation: correct_clicks(simulation.log, simulation.truth.position_effects()),
    "observation": _with_true_observation,
}


def evaluate_run(definition: Definition, ranker: Any, judged: JudgedSet) -> Evaluation:
    """Evaluate a ranker by the metrics of a definition."""
    return evaluate_scorer(
        ranker,
        judged,
        definition["metrics"],
        undefined=definition["undefined"],
        max_grade=definition["max_grade"],
        shown=_shown(definition, judged, definition["metrics"]),
    )


def _shown(definition: Definition, judged: JudgedSet, metrics: Sequence[str]) -> NDArray[np.bool_] | None:
    """The documents that the logging policy would show for these queries; None if no metric needs them."""
    if not any(metric(name).among for name in metrics):
        return None
    if "simulation" not in definition:
        raise ValueError("your own log does not show test queries: leave out metrics with :shown and :never_shown")
    return shown_by_logger(definition, judged)


def shown_by_logger(definition: Definition, judged: JudgedSet) -> NDArray[np.bool_]:
    """Whether each document is among the first that the logging policy would show, `[documents]`."""
    settings = definition["simulation"]
    scores = policy_of(definition["data"], settings["policy"]).scores(judged)
    owners = np.repeat(np.arange(judged.n_queries), judged.sizes)
    places = np.arange(judged.n_documents) - judged.offsets[owners]
    shown = np.zeros(judged.n_documents, dtype=bool)
    for of_logger in scores.reshape(judged.n_documents, -1).T:
        shown[np.lexsort((-of_logger, owners))[places < settings["n_shown"]]] = True
    return shown


def about_training(definition: Definition, model: Model) -> dict[str, Any]:
    """Facts about a training; `validation` is the value that chooses hyper-parameters."""
    valid = judged_split(definition, "valid")
    main = [definition["metric"]]
    shown = _shown(definition, valid, main)
    chosen_by = evaluate_scorer(model.ranker(), valid, main, max_grade=definition["max_grade"], shown=shown)
    steps = model.history.column("validation")
    return {
        "validation": chosen_by.mean(definition["metric"]),
        "best_step": model.history.best_step,
        "steps": [step for step, _ in steps],
        "validation_by_step": [value for _, value in steps],
        "training_seconds": model.history.seconds,
        **({"chosen": model.trained_on["chosen"]} if "chosen" in model.trained_on else {}),
    }


def _about_log(simulation: Simulation) -> dict[str, Any]:
    """The numbers of a log and its truth that figures of examination curves need."""
    log = simulation.log
    shown = np.maximum((log.sessions[:, None] * log.mask).sum(axis=0), 1)
    seen = simulation.truth.mean_examination(log)
    return {
        "click_rates": ((log.clicks * log.mask).sum(axis=0) / shown).tolist(),
        "true_examination": (seen / seen[0]).tolist() if seen[0] > 0 else None,
        "sessions": log.n_sessions,
        "clicks": log.n_clicks,
    }
