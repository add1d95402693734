"""Label-free evaluation, as tasks: a method, or production, measured by held-out clicks.

The log is split by query once, identically for all methods and seeds, so that differences are paired. What a criterion
needs besides clicks (propensities, a model of relevance) is estimated from the training queries. There are no labels to
choose a state of training by: it ends when clicks on some of its own queries are predicted no better
(`unskew.training.ending`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unskew.comparison.rows import Outcome
from unskew.comparison.sources import Definition, judged_split, own_log, recipe_of, remembered
from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.public_logs.id_pages import is_public_log, read_pages
from unskew.evaluation.click_prediction import predict_clicks
from unskew.evaluation.criteria import (
    CRITERIA,
    Contender,
    Evidence,
    click_log_likelihood,
    leading_criterion,
    measure_all,
    pattern_log_likelihood,
)
from unskew.evaluation.criteria import measure_production as by_held_out_clicks
from unskew.evaluation.differences import mean_interval
from unskew.evaluation.evaluate import evaluate_scorer
from unskew.evaluation.held_out import HeldOut, NotMeasured, Vector
from unskew.evaluation.offline import fit_relevance
from unskew.evaluation.production import LatestRanker, Production, production_of_judged, production_of_log
from unskew.propensities.curve import NotIdentified
from unskew.propensities.estimate import estimate_propensities
from unskew.reporting.answers import Refusal, attempt, known
from unskew.training.fitting import fit_recipe
from unskew.training.model import Model

HELD_OUT = 0.2  # share of the queries
SPLIT_SEED = 0
CHOOSING_SEED = 1  # splits the held-out queries again, to choose hyper-parameters
GRADED = "ndcg@10"
NO_PROPENSITIES = Refusal("the log does not identify propensities")


@dataclass(frozen=True, eq=False)
class Case:
    """A log, split into queries for learning and queries for comparing."""

    learning: ClickLog
    evidence: Evidence
    production: Contender
    about: dict[str, Any]
    choosing: Evidence | None = None  # other held-out queries, which choose hyper-parameters

    def with_production(self, which: str | LatestRanker) -> Case:
        """The case with the production ranker that the user named, or that was found in the log."""
        if isinstance(which, str):
            return self._with(production_of_log(self.evidence.held_out.log, which), "")
        if which.which is None:
            return self
        try:
            return self._with(production_of_log(self.evidence.held_out.log, which.which), f"; {which.line}")
        except ValueError as missing:  # the user did not name this ranker: use all sessions
            return self._with(production_of_log(self.evidence.held_out.log), f"; {which.line}, but {missing}")

    def _with(self, known: Production, remark: str) -> Case:
        about = {**self.about, "production": f"{known.described}{remark}"}
        return replace(self, production=Contender(known.scores), about=about)


def make_case(log: ClickLog, share: float = HELD_OUT, *, choosing: bool = False) -> Case:
    """Split a log by query, and estimate what criteria need from the training part."""
    learning, held_out = log.split(share, SPLIT_SEED)
    other = None
    if choosing:
        held_out, other = held_out.split(0.5, CHOOSING_SEED)
    propensities = attempt(lambda: _propensities(learning, log.n_positions), NotIdentified)
    curve = known(propensities)
    predict = None if curve is None or not log.features.shape[1] else fit_relevance(learning, curve)

    def evidence(part: ClickLog) -> Evidence:
        own = HeldOut(part.of_queries(np.unique(part.queries)))
        evidence = Evidence(own, NO_PROPENSITIES if curve is None else curve)
        return evidence if predict is None else replace(evidence, relevance=predict(own.log.features))

    of_held_out = evidence(held_out)
    production = production_of_log(of_held_out.held_out.log)
    about = {
        "learning_queries": len(np.unique(learning.queries)),
        "held_out_queries": of_held_out.held_out.n_queries,
        "held_out_clicks": held_out.n_clicks,
        "propensities": propensities.reason if isinstance(propensities, Refusal) else propensities.tolist(),
        "production": production.described,
    }
    return Case(learning, of_held_out, Contender(production.scores), about, None if other is None else evidence(other))


def contender_of(model: Model, held_out: HeldOut) -> Contender:
    """A trained model as a contender for criteria."""
    scores, of_all = _scores(model, held_out, "shown"), _scores(model, held_out, "all")
    if not _predicts_clicks(model):
        return Contender(scores, of_all)
    log = model.encode(held_out.log)
    return Contender(
        scores=scores,
        scores_of_all=of_all,
        click_model=model.method.click_model,
        log_likelihood=click_log_likelihood(model.method, log),
        pattern_likelihood=pattern_log_likelihood(model.method, log),
    )


def _scores(model: Model, held_out: HeldOut, which: str) -> Vector:
    """Scores of the candidates, `[documents]`, by features or ids; NaN for other documents."""
    log = held_out.log
    if not model.method.has_ranker:  # it predicts clicks but does not rank
        return np.zeros(len(log.features))
    if not model.method.uses_ids:
        return held_out.score(model.ranker(), which)
    scores = np.full(len(log.features), np.nan)
    documents, _ = held_out.candidates(which)
    queries, urls = log.query_ids[log.version_queries], log.document_ids[log.version_documents]
    scores[documents] = _scores_by_id(model, queries[documents], urls[documents], log.features[documents])
    return scores


def _scores_by_id(model: Model, queries: NDArray, urls: NDArray, features: NDArray[np.float32]) -> Vector:
    """Scores of documents known by their ids, `[documents]`."""
    assert model.vocabulary is not None
    codes = torch.from_numpy(model.vocabulary.numbers(queries, urls))
    with torch.inference_mode():
        found = model.ranker()(
            torch.from_numpy(features)[None], torch.ones(1, len(codes), dtype=torch.bool), codes[None]
        )
    return found[0].double().numpy()


def _predicts_clicks(model: Model) -> bool:
    """Whether the network that predicts clicks is the ranker: not with trees, nor in an average of rankers."""
    return model.trees is None and not model.others


def _as_evaluated(model: Model, path: str, held_out: HeldOut) -> dict[str, list[float]]:
    """What `evaluate` reports on held-out clicks, and nDCG if the log has grades: value and 95% interval.

    Empty: the method does not predict every click, or the log does not keep which documents were clicked together.
    """
    try:
        found = predict_clicks(model.method, model.encode(held_out.log)).summary() if _predicts_clicks(model) else {}
    except NotMeasured:
        return {}
    values = {name: [entry.value, entry.low, entry.high] for name, entry in found.items()}
    judged = _grades(path)
    if judged is None or not found or not (model.method.has_ranker and model.method.uses_ids):
        return values
    scores = _scores_by_id(model, np.repeat(judged.query_ids, judged.sizes), judged.document_ids, judged.features)
    graded = evaluate_scorer(scores, judged, [GRADED]).values(GRADED)[np.isin(judged.query_ids, held_out.query_ids)]
    return values | ({GRADED: list(mean_interval(graded))} if np.isfinite(graded).sum() > 1 else {})


@remembered(1)
def _grades(path: str) -> JudgedSet | None:
    """Grades of a public log of ids; None: it has none, or it is another log."""
    return read_pages(path).judged() if is_public_log(path) and not Path(path).exists() else None


def measure_held_out(definition: Definition) -> Outcome:
    """Train a method on one part of a log and measure it by the clicks of the other."""
    case = own_case(definition)
    recipe = recipe_of(definition["recipe"])
    taught = recipe.method_class.learns_from == "judgements"
    judged = judged_split(definition, "judged") if taught else None
    model = fit_recipe(recipe, None if taught else case.learning, judged=judged)
    values, reasons = measure_all(contender_of(model, case.evidence.held_out), case.evidence)
    curve = model.examination()
    about = {
        "reasons": reasons,
        "click_prediction": _as_evaluated(model, definition["log"]["path"], case.evidence.held_out),
        "examination": None if curve is None else curve.tolist(),
        "examination_by_level": {level: each.tolist() for level, each in model.examinations().items()},
        "best_step": model.history.best_step,
        **case.about,
    }
    if case.choosing is not None:
        about["validation"] = _chosen_by(definition["criterion"], contender_of(model, case.choosing.held_out), case)
    return Outcome(values, case.evidence.held_out.query_ids, about)


def measure_production(definition: Definition) -> Outcome:
    """Measure the production ranking: on judged queries if there are any, otherwise by held-out clicks."""
    if definition.get("test") is not None:
        judged = judged_split(definition, "test")
        known = production_of_judged(own_log(definition["log"]["path"]), judged, definition.get("which"))
        remark = f"; {definition['found']}" if definition.get("found") else ""
        result = evaluate_scorer(
            known.scores,
            judged,
            definition["metrics"],
            undefined=definition["undefined"],
            max_grade=definition["max_grade"],
        )
        values = {name: result.values(name) for name in definition["metrics"]}
        return Outcome(values, result.query_ids, {"production": f"{known.described}{remark}"})
    case = own_case(definition)
    if definition.get("found") is not None:
        case = case.with_production(LatestRanker(definition.get("which"), definition["found"]))
    elif definition.get("which") is not None:
        case = case.with_production(definition["which"])
    values, reasons = by_held_out_clicks(case.production, case.evidence)
    return Outcome(values, case.evidence.held_out.query_ids, {"reasons": reasons, **case.about})


def own_case(definition: Definition) -> Case:
    """The log of a definition, split."""
    return _own_case(definition["log"], definition["held_out"])


@remembered(2)
def _own_case(log: Definition, held_out: Definition) -> Case:
    return make_case(own_log(log["path"]), held_out["share"], choosing=held_out["choosing"])


def _propensities(log: ClickLog, n_positions: int) -> Vector:
    """The examination curve of a log."""
    if log.graded:
        raise NotIdentified("feedback is graded")
    return estimate_propensities(log, n_bootstrap=0).propensities(n_positions)


def _chosen_by(asked: str | None, contender: Contender, case: Case) -> float:
    """The number that hyper-parameters are chosen by; higher is better."""
    assert case.choosing is not None
    values, reasons = measure_all(contender, case.choosing, [asked] if asked else tuple(CRITERIA))
    name = leading_criterion({"": list(values)}, asked)
    if name in reasons:
        raise ValueError(f"hyper-parameters cannot be chosen by {CRITERIA[name].title}: {reasons[name]}")
    return float(np.nanmean(values[name])) * (1 if CRITERIA[name].higher_is_better else -1)
