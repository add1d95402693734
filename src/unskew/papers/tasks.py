"""Tasks of the papers besides training and evaluating a ranker."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unskew.comparison.held_out import HELD_OUT, Case, contender_of, make_case
from unskew.comparison.outside import ROW_TASKS
from unskew.comparison.rows import Outcome
from unskew.comparison.sources import (
    Definition,
    as_method,
    dataset,
    judged_split,
    policy_of,
    recipe_of,
    remembered,
    simulation_of,
)
from unskew.comparison.tasks import TASKS, Task, about_training, evaluate_run, fit_model
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.criteria import measure_all
from unskew.evaluation.differences import standard_error
from unskew.evaluation.evaluate import evaluate_scorer
from unskew.evaluation.held_out import Vector
from unskew.methods.bias.vectorization import FixedBase, ProjectedRanker
from unskew.papers.few_labels import few_labels
from unskew.training.fitting import fit_recipe
from unskew.training.model import Model

SCALAR = "naive"  # an ordinary ranker, to compare scoring times with


def selection(definition: Definition) -> Outcome:
    """Train a method on simulated clicks, and measure it by held-out clicks and by the judgements of test queries."""
    case = _simulated_case({name: definition[name] for name in SIMULATED})
    model = fit_recipe(recipe_of(definition["recipe"]), case.learning)
    values, reasons = measure_all(contender_of(model, case.evidence.held_out), case.evidence)
    result = evaluate_scorer(model.ranker(), dataset(definition["data"]).test, definition["metrics"])
    return Outcome(
        per_query={name: result.values(name) for name in definition["metrics"]},
        query_ids=result.query_ids,
        about={"criteria": _summary(values), "reasons": reasons, **case.about},
    )


SIMULATED = ("data", "simulation", "simulation_seed", "task_options", "metric")


@remembered(2)
def _simulated_case(entry: Definition) -> Case:
    """A simulated log, and the true quality of its production ranking."""
    case = make_case(simulation_of(entry).log, entry["task_options"].get("held_out", HELD_OUT))
    test = dataset(entry["data"]).test
    scores = policy_of(entry["data"], entry["simulation"]["policy"]).scores(test)
    values, _ = measure_all(case.production, case.evidence)
    about = {
        "production_criteria": _summary(values),
        "production_truth": evaluate_scorer(scores, test, [entry["metric"]]).mean(entry["metric"]),
    }
    case.about.update(about)
    return case


def inference_time(definition: Definition) -> Outcome:
    """Time to score a batch of lists, relative to an ordinary ranker of the same size, measured alternately."""
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
    """The embeddings of documents and positions that Vectorization learns, and the ranking by each position's."""
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
        evaluate_run(definition, _Transformed(model, ProjectedRanker(method.embedding, FixedBase(vector))), test).mean(
            metric
        )
        for vector in positions
    ]
    result = evaluate_run(definition, model.ranker(), test)
    return Outcome(
        per_query={name: result.values(name) for name in definition["metrics"]},
        query_ids=result.query_ids,
        about={
            **about_training(definition, model),
            "relevance": relevance.tolist(),
            "grades": test.grades[some].tolist(),
            "observation": positions.tolist(),
            "base": _mean_base(model, test).tolist(),
            "by_position": by_position,
        },
    )


class _Transformed(nn.Module):
    """A ranker of transformed features, applied to raw features."""

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


def _summary(values: dict[str, Vector]) -> dict[str, list[float]]:
    """Estimate and standard error of each criterion."""
    return {name: [float(np.nanmean(entry)), standard_error(entry)] for name, entry in values.items()}


PAPER_TASKS: dict[str, Task] = {
    **TASKS,
    **ROW_TASKS,
    "inference_time": inference_time,
    "click_matrix": click_matrix,
    "embeddings": embeddings,
    "selection": selection,
    "few_labels": few_labels,
}
