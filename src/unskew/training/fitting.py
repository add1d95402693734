"""Fit: a method's name, a log and settings become a fitted model.

The command line, the estimator and the experiments all train through this module: it fits the feature transform, builds
the problem, estimates what a method asks for, runs the stages, and returns a ranker that takes raw features.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.build import first_rows
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.feedback import Feedback, feedback_of
from unskew.data.clicks.lineage import Lineage
from unskew.data.clicks.shard_batches import ClickSource, ShardBatches, SourceBatches
from unskew.data.clicks.storage import Log, LogFolder
from unskew.data.clicks.vocabulary import Vocabulary
from unskew.data.files import array_digest
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.raw_columns import RawColumns
from unskew.data.transformed import (
    feature_categories,
    feature_names,
    transform_for,
    transform_judged,
    transform_log,
)
from unskew.evaluation.plausibility import reversal, runaway, shown_order_agreement
from unskew.methods import METHODS, Method
from unskew.networks.registry import Problem
from unskew.processes import alone, is_first, once
from unskew.propensities.curve import NotIdentified
from unskew.propensities.estimate import estimate_by, estimate_propensities, propensity_matrix
from unskew.training.boosting import boost_debiased, boost_scores
from unskew.training.ending import part_held_out, share_held_out
from unskew.training.model import Model, ModelRanker
from unskew.training.plan import Source, queries_of
from unskew.training.recipe import Recipe
from unskew.training.settings import usual_batch
from unskew.training.train import Progress, train
from unskew.training.validation import Validation, on_clicks, on_judgements, on_order
from unskew.training.warm_start import as_model_sees, carry_over, check_columns, joined_levels, start_recipe
from unskew.training.watching import Watch


def fit_recipe(
    recipe: Recipe,
    log: Log | ClickSource | None = None,
    *,
    judged: JudgedSet | None = None,
    interventions: ClickLog | None = None,
    validate: JudgedSet | float | None = None,
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
    start: Model | None = None,
    watch: Watch | None = None,
    time_limit: float | None = None,
) -> Model:
    """Train a method.

    Args:
        log: clicks to learn from, in memory or, from `open_log`, read shard by shard; or a source that gives the
            lists of each step, such as `FreshClicks`.
        judged: judged queries to learn from, for methods that use them.
        interventions: a log with randomized or swapped rankings, for methods that need one; default: those of `log`.
        validate: judged queries, or a share of the log's queries to hold out, which choose the state to keep; None: if
            the recipe names no number of steps, some held-out queries say when to end; otherwise the last state is
            kept.
            (A log from `from_arrays` has one query per list. Merge repeated showings of a list into one row with
            counts; otherwise the split may separate them.)
        checkpoint: file for checkpoints; an existing one is resumed.
        start: a model of the same method and features; training starts from its weights, curves and transform.
        watch: a callable that receives every step and every validation, see `training.watching`.
        time_limit: seconds after which training ends with what it has learned.
    """
    steps: ClickSource | None = None
    if isinstance(log, ClickSource):
        _check_fixed(recipe, validate, start)
        steps, log = log, log.documents
    source = log if log is not None else judged
    if source is None:
        raise ValueError(f"{recipe.method} has nothing to learn from: pass a click log (or judged data for 'labelled')")
    n_inputs = source.n_features if isinstance(source, JudgedSet) else source.n_inputs
    _check_sources(recipe, log, judged)
    _check_features(recipe, n_inputs)
    if start is None:
        transform = transform_for(recipe.transform if n_inputs else "identity", source)
        names = feature_names(source)
        categories: Mapping[str, tuple[str, ...]] = feature_categories(source)
    else:
        assert isinstance(start.transform, RawColumns)
        recipe, transform = _started(recipe, start, log), start.transform
        names, categories = start.feature_names, start.categories
    learning, held_out = (log, None) if steps is not None else _split(recipe, log, validate)
    vocabulary = _vocabulary(recipe, learning)
    feedback = Feedback() if log is None else feedback_for(recipe, log)
    data = _Data(recipe, log, learning, steps, judged, start, transform, feedback, vocabulary)
    logs = data.sources(interventions)
    if isinstance(validate, JudgedSet):
        named = validate.with_features(names, categories, () if log is None else log.context_names)
        logs["validation"] = transform_judged(named, transform)
    problem = data.problem(n_inputs)
    hyper = _with_estimates(recipe, learning, problem)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(recipe.settings.seed)
        method = recipe.method_class(problem, **hyper)
    _warn_of_nothing_to_learn(method, log)
    started = {} if start is None else {"started_from": carry_over(start, method, problem)}
    with alone():
        logs = dict(method.prepare(logs))
    criterion = data.criterion(logs.get("validation"), held_out)
    same = {"hyper_parameters": json.loads(json.dumps(hyper)), "features": _checksum(logs), **data.lineage("lineage")}
    if start is not None:
        same["start"] = array_digest([tensor.cpu().numpy() for tensor in start.method.state_dict().values()])
    settings = recipe.settings if start is None else recipe.settings.restarted()
    history = train(method, logs, settings, criterion, progress, checkpoint, same, watch, time_limit)
    once(lambda: _finish(method, logs), method)
    method.to("cpu")  # the transform is there, and models are saved from there
    model = Model(
        recipe=replace(recipe, hyper_parameters=hyper).resolved(),
        problem=problem,
        method=method,
        transform=transform,
        history=history,
        feature_names=names,
        categories=categories,
        trained_on={**data.summary(criterion), **started, **method.findings()},
        vocabulary=vocabulary if method.uses_ids else None,
        trees=data.trees(method, names) if recipe.ranker == "trees" else None,
    )
    _watch_order(model, logs.get("clicks"), learning)
    return model


@dataclass(frozen=True)
class _Data:
    """What a method learns from, and how a network sees it."""

    recipe: Recipe
    log: Log | None  # of clicks; if lists are drawn at every step, their documents
    learning: Log | None  # the log without the queries that are held out
    steps: ClickSource | None  # draws the lists of every step
    judged: JudgedSet | None
    start: Model | None
    transform: RawColumns
    feedback: Feedback
    vocabulary: Vocabulary | None

    def levels(self, log: Log) -> dict[str, tuple[str, ...] | None]:
        """The levels of bias columns, those of the start first."""
        return log.levels if self.start is None else joined_levels(self.start, log)

    def seen(self, part: ClickLog) -> ClickLog:
        """A part of the log as a network sees it."""
        part = self.feedback.of(part)
        if self.start is not None and self.log is not None:
            part = as_model_sees(part, self.start, self.levels(self.log))
        part = transform_log(part, self.transform)
        return part if self.vocabulary is None else self.vocabulary.encode(part)

    def sources(self, interventions: ClickLog | None) -> dict[str, Source]:
        """What the stages of a method learn from, by name."""
        log, settings, method = self.learning, self.recipe.settings, self.recipe.method_class
        logs: dict[str, Source] = {}
        if self.steps is not None:
            logs["clicks"] = SourceBatches(self.steps, settings.lists, detail=method.detail, prepare=self.seen)
        elif isinstance(log, LogFolder):
            logs["clicks"] = ShardBatches(
                log,
                settings.batch_size or usual_batch(log.n_lists, log.n_sessions, queries_of(log), settings.together),
                seed=settings.seed,
                detail=method.detail,
                together=settings.together,
                lanes=settings.lanes,
                prepare=self.seen,
            )
        elif log is not None:
            clicks = self.seen(log)
            if not clicks.n_clicks:
                raise ValueError(f"{self.feedback}: the log has no such event, so there is nothing to learn from")
            logs["clicks"] = clicks
            if interventions is None and clicks.interventions is not None and (clicks.interventions.values > 0).any():
                logs["interventions"] = clicks.intervened()
        if interventions is None and isinstance(log, LogFolder) and method.prepare is not Method.prepare:
            interventions = log.intervened_lists()
        if interventions is not None:
            logs["interventions"] = self.seen(interventions)
        if self.judged is not None:
            logs["judgements"] = transform_judged(self.judged, self.transform)
        return logs

    def problem(self, n_inputs: int) -> Problem:
        """The sizes that the method is built for."""
        n_features, categories = self.transform.width(n_inputs), self.transform.categories()
        if self.log is None:
            return Problem(n_features, n_positions=1, network=self.recipe.network, categories=categories)
        n_ids = None if self.vocabulary is None else self.vocabulary.sizes
        n_positions = max(self.log.n_positions, 1 if self.start is None else self.start.problem.n_positions)
        return Problem(n_features, n_positions, self.levels(self.log), self.recipe.network, n_ids, categories)

    def criterion(self, judged: Source | None, held_out: ClickLog | None) -> Validation | None:
        """What says which state is best; None: nothing does."""
        if isinstance(judged, JudgedSet):
            return on_judgements(judged, self.recipe.settings.metric)
        if held_out is None:
            return None
        return (on_order if self.recipe.method_class.click_model is None else on_clicks)(self.seen(held_out))

    def trees(self, method: Method, names: tuple[str, ...]) -> str:
        """The trees that rank instead of the method's network."""
        assert self.learning is not None
        log, recipe = self.learning.whole(), self.recipe
        more: dict[str, Any] = {"settings": recipe.boosting, "seed": recipe.settings.seed}
        if recipe.tree_targets == "scores":
            log = log.with_context_as_features()
            ranker = ModelRanker(self.transform, method.ranker()).eval()
            return boost_scores(log, ranker, names, list(log.categories), **more)
        curve = method.examination()
        assert curve is not None
        examination = curve.detach().cpu().numpy().astype(np.float64)
        log = self.feedback.of(log)
        return boost_debiased(log, examination, names, list(log.categories), **more)

    def lineage(self, name: str) -> dict[str, Any]:
        """Under this name, the digests of what clicks come from; none without clicks."""
        if self.log is None:
            return {}
        return {name: (self.log.lineage if self.steps is None else Lineage(self.steps.digest)).to_json()}

    def summary(self, criterion: Validation | None) -> dict[str, Any]:
        """Facts about the data, for `trained_on`."""
        log = self.log
        summary: dict[str, Any] = {"validation": None if criterion is None else criterion.name}
        if log is not None:
            summary |= {name: getattr(log, f"n_{name}") for name in ("lists", "sessions", "clicks")}
            summary |= {"feedback": str(self.feedback)}
            summary |= {"context": list(log.context_names)} if log.context_names else {}
        summary |= self.lineage("log")
        if isinstance(log, ClickLog):
            shown = np.bincount(log.positions[log.mask], minlength=log.n_positions)
            if log.first_shown is not None and len(log.first_shown):
                ends = np.array([log.first_shown.min(), log.first_shown.max()]).astype("datetime64[us]")
                summary["first_list"], summary["last_list"] = (str(time.astype("datetime64[s]")) for time in ends)
            summary["never_shown"] = np.flatnonzero(
                shown == 0
            ).tolist()  # positions where a learned curve means nothing
        if self.judged is not None:
            summary |= {"judged_queries": self.judged.n_queries}
        return summary


def _watch_order(model: Model, clicks: Source | None, log: Log | None) -> None:
    """Warn of a curve that cannot be right, and of a ranker that reverses the order shown in the log."""
    if isinstance(clicks, ShardBatches) and isinstance(log, LogFolder):
        clicks = clicks.prepare(next(iter(log.shards())))
    if not isinstance(clicks, ClickLog) or not model.method.has_ranker or model.method.uses_ids or not is_first():
        return
    curve = model.examination()
    for message in (
        None if curve is None else runaway(curve, clicks),
        reversal(shown_order_agreement(model.method.ranker().eval(), clicks)),
    ):
        if message is not None:
            model.history.warnings.append(message)
            warnings.warn(message, RuntimeWarning, stacklevel=3)


def _check_fixed(recipe: Recipe, validate: JudgedSet | float | None, start: Model | None) -> None:
    """Refuse options that need a fixed log, when clicks are drawn afresh in every step."""
    method = recipe.method_class
    missing = [name for name in method.estimated if recipe.hyper_parameters.get(name) is None]
    if missing:
        raise ValueError(f"{missing[0]} are estimated from a fixed log: pass {missing[0]}=, or simulate a log")
    if method.prepare is not Method.prepare or method.finish is not Method.finish or recipe.ranker == "trees":
        raise ValueError(f"{recipe.method} needs a whole log and cannot learn from fresh clicks: simulate a log")
    if isinstance(validate, Real) or start is not None:
        raise ValueError(
            "fresh clicks cannot be held out, and training on them cannot start from a model: leave out start, and "
            "validate on judged data or not at all"
        )


def _finish(method: Method, logs: Mapping[str, Source]) -> float:
    method.finish(logs)
    return 0.0


def _started(recipe: Recipe, start: Model, log: Log | None) -> Recipe:
    if log is None:
        raise ValueError("a warm start needs a click log; use unskew.tune to train further on judged queries")
    check_columns(start, log)
    return start_recipe(recipe, start)


def feedback_for(recipe: Recipe, log: Log) -> Feedback:
    """The feedback that the recipe learns from: graded feedback if its method supports it, otherwise clicks."""
    found, settings = recipe.method_class, recipe.settings
    why = f"{recipe.method} needs binary clicks" if found.counts_only or found.detail != "counts" else ""
    return feedback_of(log, settings.grade, add_up=settings.sum_grades, only_clicks=why)


def _split(recipe: Recipe, log: Log | None, validate: JudgedSet | float | None) -> tuple[Log | None, ClickLog | None]:
    """Training data and held-out data.

    By default nothing is held out if the number of steps is given, or if a method knows documents by their ids, which
    those of other queries say nothing of.
    """
    if log is None or isinstance(validate, JudgedSet):
        return log, None
    if isinstance(validate, Real):
        return share_held_out(log, float(validate), recipe.settings.seed)
    if recipe.settings.steps is not None or recipe.method_class.takes_ids:
        return log, None
    return part_held_out(log, recipe.settings.seed)


def _vocabulary(recipe: Recipe, log: Log | None) -> Vocabulary | None:
    """The documents of the log by their ids, for methods that can use them."""
    if log is None or not recipe.method_class.takes_ids:
        return None
    return Vocabulary.of(log.shards())


def _check_features(recipe: Recipe, n_features: int) -> None:
    if not n_features and not recipe.method_class.takes_ids:
        able = [name for name, entry in METHODS.items() if entry.takes_ids and entry.has_ranker]
        raise ValueError(
            f"{recipe.method} ranks by features, and the log has none: add feature columns to the log (unskew ingest "
            f"--features), or train a click model, which learns documents by their ids: {', '.join(able)}"
        )


def _warn_of_nothing_to_learn(method: Method, log: Log | None) -> None:
    """Warn of a log in memory in which no click or no feature tells the documents of a query apart."""
    if not isinstance(log, ClickLog) or method.learns_from == "judgements":
        return
    sizes = log.mask.sum(axis=1)
    message = None
    if not log.graded and log.n_clicks >= (log.sessions * sizes).sum(dtype=np.float64):
        message = "every document was clicked whenever it was shown: clicks do not say which one is better"
    elif sizes.max() < 2:
        if not method.takes_ids:
            message = (
                "every list has only one document: most methods compare the documents of a list, and learn nothing here"
            )
    elif method.has_ranker and not method.uses_ids and not _differs_within_queries(log):
        message = "all documents of a query have the same features: a ranker of features cannot order them"
    if message is not None and is_first():
        warnings.warn(message, RuntimeWarning, stacklevel=4)


def _differs_within_queries(log: ClickLog) -> bool:
    """Whether any feature differs among the documents of any query, or over time."""
    first = first_rows(log.version_queries)[log.version_queries]
    return any(not np.array_equal(column, column[first], equal_nan=True) for column in log.features.T)


def _check_sources(recipe: Recipe, log: Log | None, judged: JudgedSet | None) -> None:
    if log is not None and not log.n_sessions:
        raise ValueError("the log is empty: there is nothing to learn from")
    if log is not None and not log.n_clicks:
        raise ValueError("the log has no clicks: there is nothing to learn from. Check the click column.")
    context = () if log is None else log.context_names
    if context and recipe.network.kind == "linear" and recipe.ranker == "network":
        warnings.warn(
            f"a linear ranker cannot use context ({', '.join(context)}): it adds the same to every document of a list. "
            "Choose another network, or add features that combine document and context",
            RuntimeWarning,
            stacklevel=3,
        )
    if log is not None and log.graded and recipe.method_class.counts_only:
        raise ValueError(
            f"{recipe.method} needs binary clicks, but the log holds graded feedback: choose dla, two_tower, ipw "
            "or naive"
        )
    if log is None and recipe.method_class.learns_from == "clicks":
        raise ValueError(f"{recipe.method} learns from clicks: pass a click log")
    if judged is None and recipe.method_class.learns_from == "judgements":
        raise ValueError(
            f"{recipe.method} learns from judgements: pass judged data (--judged DATA, in Python "
            "unskew.fit(..., judged=...))"
        )


def _estimate_propensities(log: ClickLog, problem: Problem, hyper: Mapping[str, Any]) -> Any:
    by, estimator = hyper.get("by"), hyper.get("estimator", "auto")
    if by is None:
        try:
            return estimate_propensities(log, estimator, n_bootstrap=0).propensities(problem.n_positions).tolist()
        except NotIdentified as error:
            raise NotIdentified(
                f"{error}. If you know the propensities, pass them (propensities=1,0.8,0.5,…, one per position); "
                "dla and two_tower learn them along with the ranker"
            ) from error
    levels = problem.bias.get(by)
    if levels is None:
        raise ValueError(f"by='{by}' is not a bias column with levels. Found: {', '.join(problem.bias) or 'none'}")
    return propensity_matrix(estimate_by(log, by, estimator, n_bootstrap=0), levels, problem.n_positions).tolist()


ESTIMATES: dict[str, Callable[[ClickLog, Problem, Mapping[str, Any]], Any]] = {"propensities": _estimate_propensities}


def _with_estimates(recipe: Recipe, log: Log | None, problem: Problem) -> dict[str, Any]:
    """Hyper-parameters, including those that are estimated from the log for the method."""
    hyper = dict(recipe.hyper_parameters)
    for name in recipe.method_class.estimated:
        if hyper.get(name) is None and log is not None:
            hyper[name] = ESTIMATES[name](log.without_features(), problem, hyper)
    return hyper


def _never_shown_by_level(log: ClickLog) -> dict[str, list[int]]:
    """Positions that rows of each level never had, by "column=level"."""
    found = {}
    for name, column in log.bias.items():
        values = np.broadcast_to(column.values.reshape(log.n_lists, -1), log.mask.shape)
        for number, level in enumerate(column.levels or ()):
            places = log.positions[log.mask & (values == number)]
            found[f"{name}={level}"] = np.flatnonzero(np.bincount(places, minlength=log.n_positions) == 0).tolist()
    return found


def _checksum(logs: Mapping[str, Source]) -> dict[str, float]:
    """Sums that change if the features change."""
    return {
        name: float(source.features.sum(dtype=np.float64))
        for name, source in logs.items()
        if not isinstance(source, ClickBatches | ShardBatches | SourceBatches)
    }
