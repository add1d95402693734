"""Tasks: what a run does, from its definition alone."""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.evaluate import Evaluation, evaluate
from unskew.experiments.choice import choose, production, selection
from unskew.experiments.few_labels import few_labels
from unskew.experiments.rows import Outcome
from unskew.experiments.sources import (
    Definition,
    as_method,
    dataset,
    intervention_log,
    judged_split,
    own_log,
    recipe_of,
    simulation_of,
)
from unskew.fitting import fit
from unskew.methods.hte import correct_clicks, oracle_effects
from unskew.methods.vectorization import FixedBase, ProjectedRanker
from unskew.model import Model
from unskew.simulation.truth import Simulation

SCALAR = "naive"  # an ordinary ranker, to compare times with


def perform(definition: Definition) -> Outcome:
    """Do what a definition says."""
    started = time.monotonic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        outcome = TASKS[definition["task"]](definition)
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
    """Train a method, choose its state on validation, measure it on test queries."""
    model, simulation = fit_model(definition)
    result = _evaluate(definition, model.ranker(), judged_split(definition, "test"))
    curve = model.examination()
    return Outcome(
        per_query={name: result.values(name) for name in definition["metrics"]},
        query_ids=result.query_ids,
        about={
            **_about_training(definition, model),
            "examination": None if curve is None else curve.tolist(),
            **({} if simulation is None else _about_log(simulation)),
        },
    )


def inference_time(definition: Definition) -> Outcome:
    """Time to score a batch of lists, relative to an ordinary ranker of the same size, measured in turns."""
    options = definition["task_options"]
    model, _ = fit_model(definition)
    ordinary, _ = fit_model(as_method(definition, SCALAR))
    lists = _batch(judged_split(definition, "test"), options.get("lists", 256))
    rankers = {"ranker": model.ranker(), "scalar": ordinary.ranker()}
    seconds: dict[str, list[float]] = {name: [] for name in rankers}
    with torch.inference_mode():
        for _ in range(options.get("repeats", 200)):
            for name, ranker in rankers.items():
                started = time.perf_counter()
                ranker(*lists)
                seconds[name].append(time.perf_counter() - started)
    own, scalar = median(seconds["ranker"]), median(seconds["scalar"])
    return Outcome(about={"time": own, "scalar_time": scalar, "ratio": own / scalar})


def click_matrix(definition: Definition) -> Outcome:
    """Click rates by grade and position of a simulated log, and the singular values of that matrix."""
    simulation = simulation_of(definition)
    log, judged = simulation.log, dataset(definition["data"]).train
    grades = judged.grades[log.documents].astype(int)
    levels = range(int(definition["max_grade"]) + 1)
    shown = (log.sessions[:, None] * log.mask).astype(np.float64)
    clicks = log.clicks * log.mask
    rates = np.array(
        [
            (clicks * (grades == grade)).sum(axis=0) / np.maximum((shown * (grades == grade)).sum(axis=0), 1)
            for grade in levels
        ]
    )
    return Outcome(about={"matrix": rates.tolist(), "singular_values": np.linalg.svd(rates, compute_uv=False).tolist()})


def embeddings(definition: Definition) -> Outcome:
    """What Vectorization learns: embeddings of documents and positions, and what each position's ranks by."""
    model, _ = fit_model(definition)
    method: Any = model.method
    test = judged_split(definition, "test")
    positions = method.observation.at_positions().detach()
    n_documents = definition["task_options"].get("documents", 600)
    some = np.random.default_rng(0).permutation(test.n_documents)[:n_documents]
    with torch.inference_mode():
        features = torch.from_numpy(model.transform.apply_to(test.features, test.offsets)[some]).unsqueeze(0)
        relevance = method.embedding(features, torch.ones(1, len(some), dtype=torch.bool)).squeeze(0)
    metric = definition["metric"]
    by_position = [
        _evaluate(definition, _Transformed(model, ProjectedRanker(method.embedding, FixedBase(vector))), test).mean(
            metric
        )
        for vector in positions
    ]
    result = _evaluate(definition, model.ranker(), test)
    return Outcome(
        per_query={name: result.values(name) for name in definition["metrics"]},
        query_ids=result.query_ids,
        about={
            **_about_training(definition, model),
            "relevance": relevance.tolist(),
            "grades": test.grades[some].tolist(),
            "observation": positions.tolist(),
            "base": _mean_base(model, test).tolist(),
            "by_position": by_position,
        },
    )


TASKS: dict[str, Callable[[Definition], Outcome]] = {
    "train": train,
    "inference_time": inference_time,
    "click_matrix": click_matrix,
    "embeddings": embeddings,
    "choose": choose,
    "production": production,
    "selection": selection,
    "few_labels": few_labels,
}


def fit_model(definition: Definition) -> tuple[Model, Simulation | None]:
    """The model that a definition describes, and the simulated log it learnt from."""
    recipe = recipe_of(definition["recipe"])
    valid = judged_split(definition, "valid")
    if "log" in definition:
        log = own_log(definition["log"]["path"])
        judged = judged_split(definition, "judged") if recipe.method == "labelled" else None
        return fit(recipe, None if judged is not None else log, judged=judged, validate=valid), None
    if recipe.method == "labelled":
        return fit(recipe, judged=dataset(definition["data"]).train, validate=valid), None
    simulation = simulation_of(definition)
    interventions = intervention_log(definition) if definition["interventions"] else None
    log = ORACLES[definition["oracle"]](simulation)
    return fit(recipe, log, interventions=interventions, validate=valid), simulation


def _with_true_effects(simulation: Simulation) -> ClickLog:
    """Clicks raised to what they would have been on top, by the truth."""
    return correct_clicks(simulation.log, oracle_effects(simulation.truth))


def _with_true_observation(simulation: Simulation) -> ClickLog:
    """Clicks divided by the true chance that their document was seen where it stood."""
    log, seen = simulation.log, simulation.truth.examination
    clicks = np.divide(log.clicks, seen, out=np.zeros_like(log.clicks), where=seen > 0)
    return replace(log.marginal(), clicks=clicks, graded=True)


# What a method may be told of the truth, to see how far it would get with a perfect estimate.
ORACLES: dict[str, Callable[[Simulation], ClickLog]] = {
    "": lambda simulation: simulation.log,
    "hte": _with_true_effects,
    "observation": _with_true_observation,
}


class _Transformed(nn.Module):
    """A ranker of transformed features, on raw ones."""

    def __init__(self, model: Model, ranker: nn.Module):
        super().__init__()
        self.transform, self.ranker = model.transform, ranker

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        return self.ranker(self.transform(features, mask), mask)


def _mean_base(model: Model, judged: JudgedSet) -> Tensor:
    """The base vector averaged over some queries."""
    method: Any = model.method
    ranker = method.ranker()
    features, mask = _batch(judged, 256)
    with torch.inference_mode():
        transformed = model.transform(features, mask)
        return ranker.base.vector(transformed, ranker.embedding.trunk(transformed, mask), mask).mean(0)


def _batch(judged: JudgedSet, n_lists: int) -> tuple[Tensor, Tensor]:
    lists = judged.select(np.arange(min(n_lists, judged.n_queries)))
    _, batch = max(lists.batches(), key=lambda entry: entry[1].n_lists)
    return batch.features, batch.mask


def _evaluate(definition: Definition, ranker: Any, judged: JudgedSet) -> Evaluation:
    return evaluate(
        ranker, judged, definition["metrics"], undefined=definition["undefined"], max_grade=definition["max_grade"]
    )


def _about_training(definition: Definition, model: Model) -> dict[str, Any]:
    """What is known of a training; `validation` is the number that hyper-parameters are chosen by."""
    valid = judged_split(definition, "valid")
    chosen_by = evaluate(model.ranker(), valid, [definition["metric"]], max_grade=definition["max_grade"])
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
    """What figures of examination curves need of a log and its truth."""
    log = simulation.log
    shown = np.maximum((log.sessions[:, None] * log.mask).sum(axis=0), 1)
    seen = simulation.truth.mean_examination(log)
    return {
        "click_rates": ((log.clicks * log.mask).sum(axis=0) / shown).tolist(),
        "true_examination": (seen / seen[0]).tolist() if seen[0] > 0 else None,
        "sessions": log.n_sessions,
        "clicks": log.n_clicks,
    }
