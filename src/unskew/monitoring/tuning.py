"""Tune: a model that learned from clicks, trained further on a few judged queries.

Cross-validation on the judged queries chooses the number of steps and the learning rate, and whether to set the
parameter that clicks do not identify (`low_rank`). Not training at all is always a candidate. The gain is estimated by
outer folds: each part of the queries is ranked by a model for which all choices were made on the other parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from unskew.data.files import array_digest, json_digest, sole_writer, write_file
from unskew.data.inputs import Judged, Place, as_judged
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.transformed import transform_judged
from unskew.data.untrusted import read_json
from unskew.display import Displayed, Screen
from unskew.evaluation.differences import mean_interval, paired
from unskew.evaluation.evaluate import evaluate_scorer, score_documents
from unskew.methods.bias.labelled import Labelled
from unskew.methods.method import Method
from unskew.networks.documents import Ranker
from unskew.networks.registry import Problem
from unskew.reporting.terminal import Follow, counting_progress, followed
from unskew.serving.saved_ranker import as_model
from unskew.training.model import Model
from unskew.training.settings import Settings
from unskew.training.train import train
from unskew.training.validation import on_judgements

Values = dict[tuple[float, int], list[float]]  # learning rate, steps -> metric on each fold
Interval = tuple[float, float, float]  # mean, low, high


@dataclass(frozen=True)
class Plan:
    """The limits of tuning."""

    metric: str = "ndcg@10"
    steps: int = 100
    every: int = 10
    batch_size: int = 32
    rates: tuple[float, ...] = (0.01, 0.1)
    folds: int = 3
    seed: int = 0


@dataclass(frozen=True)
class Choice:
    """The choice of cross-validation."""

    number: bool  # whether the method chooses its unidentified parameter on judged queries
    rate: float
    steps: int


@dataclass(frozen=True, eq=False, repr=False)
class Tuned(Displayed):
    """A tuned model, the choice, and a cross-validated estimate of the gain."""

    model: Model
    choice: Choice
    metric: str
    before: Interval
    after: Interval  # over queries, each ranked by a model that was not trained on it
    difference: Interval  # paired
    n_queries: int
    left_out: int  # judged queries without a relevant document, or with nothing else

    def to_json(self) -> dict[str, Any]:
        intervals = {name: list(getattr(self, name)) for name in ("before", "after", "difference")}
        counts = {"queries": self.n_queries, "left_out": self.left_out}
        return {"metric": self.metric, **intervals, **counts, "choice": vars(self.choice)}

    def to_table(self) -> pa.Table:
        """Before, after and the difference, each with its interval over queries."""
        rows = [(name, *getattr(self, name)) for name in ("before", "after", "difference")]
        return pa.table(dict(zip(("what", "mean", "low", "high"), zip(*rows, strict=True), strict=True)))

    def screen(self) -> Screen:
        rows = [
            (row["what"], f"{row['mean']:.4f}", f"{row['low']:.4f} to {row['high']:.4f}")
            for row in self.to_table().to_pylist()
        ]
        title = (
            f"A model of {self.model.recipe.method}, tuned on {self.n_queries:,} judged queries, by cross-validation"
        )
        notes = [f"Chosen: {self.choice.steps} steps at a learning rate of {self.choice.rate:g}"]
        notes += ["The parameter that clicks do not identify was chosen on these queries"] if self.choice.number else []
        notes += [f"{self.left_out:,} queries have a single grade and were left out"] if self.left_out else []
        return Screen(title, (self.metric, "mean", "95% interval"), rows, notes)


def tune(
    model: Model | Place,
    judged: Judged,
    *,
    checkpoint: Place | None = None,
    progress: Follow = True,
    **options: Any,
) -> Tuned:
    """Train a model further on judged queries; cross-validation chooses how long.

    An interrupted run resumes; `.model` is the new model.
    Use `fit("labelled", judged=...)` to train on judged queries alone.

    Args:
        judged: judged queries, or a data set of the catalogue (its valid split).
        checkpoint: file for finished trainings of cross-validation; an existing one is resumed.
        progress: False for no bar, or a function that receives the number of finished and of all trainings.
        options: fields of `unskew.monitoring.tuning.Plan`: metric, steps (the most that are tried), rates, folds, seed.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> model = unskew.fit("naive", log, steps=3, progress=False)
    >>> tuned = unskew.tune(model, "world:tiny", steps=2, rates=(0.01,))
    >>> tuned.model.recipe.method
    'naive'
    """
    plan, fitted, queries = Plan(**options), as_model(model), as_judged(judged, "valid")
    _check_model(fitted)
    named = queries.with_features(fitted.feature_names, fitted.categories, fitted.trained_on.get("context", ()))
    if named.n_features != fitted.n_features:
        raise ValueError(f"the judged data have {named.n_features} features, but the model has {fitted.n_features}")
    useful = _tells_apart(named)
    kept = named.select(useful)
    if kept.n_queries < 2 * plan.folds:
        raise ValueError(
            f"{kept.n_queries} of {queries.n_queries} judged queries have a relevant document and a less relevant one, "
            f"but cross-validation needs at least {2 * plan.folds}: judge more queries"
        )
    prepared = transform_judged(kept, fitted.transform)
    n_trials = (plan.folds + 1) * (1 + (_judging(fitted) is not None)) * len(plan.rates) * plan.folds
    with (
        followed(progress, counting_progress, "tune", "trainings") as report,
        Trials.opened(checkpoint, n_trials, _digest(fitted, prepared, plan), report) as trials,
    ):
        before, after = _outer_folds(fitted, prepared, plan, trials)
        choice = _choose(fitted, prepared, plan, trials)
    method = _tuned(fitted, prepared, plan, choice)
    gained = paired(after, before)
    return Tuned(
        model=_with_method(fitted, method, choice, plan.metric, kept.n_queries),
        choice=choice,
        metric=plan.metric,
        before=mean_interval(before),
        after=mean_interval(after),
        difference=(gained.mean, *gained.interval()),
        n_queries=kept.n_queries,
        left_out=queries.n_queries - kept.n_queries,
    )


def cross_validated(
    new: Callable[[JudgedSet], Ranker],
    problem: Problem,
    judged: JudgedSet,
    plan: Plan,
    trials: Callable[[Callable[[], Curve]], Curve] = lambda train: train(),
) -> Values:
    """The metric on each fold, of rankers trained on the other folds, by learning rate and steps.

    Args:
        new: returns the ranker to start with, which may depend on its training queries.
        trials: runs each training, or returns its stored result.
    """
    values: Values = {}
    queries, folds = np.arange(judged.n_queries), min(plan.folds, judged.n_queries)
    for rate in plan.rates:
        for fold in range(folds):
            away = queries % folds == fold
            part, held_out = judged.select(queries[~away]), judged.select(queries[away])

            def run(part: JudgedSet = part, held_out: JudgedSet = held_out, rate: float = rate) -> Curve:
                return train_further(new(part), problem, part, plan, rate, plan.steps, held_out)

            for step, value in trials(run):
                values.setdefault((rate, step), []).append(value)
    return values


def best(values: Values) -> tuple[float, int]:
    """Rate and steps with the highest mean; the first in case of ties."""
    return max(values, key=lambda point: np.nanmean(values[point]) if np.isfinite(values[point]).any() else -np.inf)


def train_further(
    ranker: Ranker,
    problem: Problem,
    judged: JudgedSet,
    plan: Plan,
    rate: float,
    steps: int,
    held_out: JudgedSet | None = None,
) -> Curve:
    """Train a ranker in place; returns steps and metric during training, if queries are held out."""
    settings = Settings(
        steps=steps,
        batch_size=plan.batch_size,
        validate_every=plan.every,
        metric=plan.metric,
        average=0.0,
        optimizer="adagrad",  # its decay keeps the model's weights; that of AdamW would shrink them
        learning_rate=rate,
        warm_up=0,  # the chosen steps are trained as they were in cross-validation, however many that tried
        seed=plan.seed,
    )
    with torch.random.fork_rng():
        method = Labelled(problem)
    method.relevance = ranker
    validate = None if held_out is None else on_judgements(held_out, plan.metric)
    before = [] if validate is None else [(0, validate(method))]
    history = train(method, {"judgements": judged}, settings, validate)
    return [*before, *history.column("validation")]


def _digest(model: Model, judged: JudgedSet, plan: Plan) -> str:
    """What must be equal for a tuning to resume."""
    weights = [tensor.cpu().numpy() for tensor in model.method.state_dict().values()]
    return array_digest([*weights, judged.features, judged.grades, judged.offsets]) + json_digest(asdict(plan))


def _check_model(model: Model) -> None:
    reason = None
    if model.others:
        reason = f"it is an average of rankers ({model.name}): tune one of its methods"
    elif model.trees is not None:
        reason = "trees cannot be trained further: tune a model with a network, or train trees on judged data"
    elif model.vocabulary is not None:
        reason = f"this {model.recipe.method} model ranks by document ids, which the judged queries do not share"
    elif not model.method.has_ranker:
        reason = f"{model.recipe.method} predicts clicks but cannot rank"
    if reason is not None:
        raise ValueError(f"the model cannot be tuned: {reason}")


def _tells_apart(judged: JudgedSet) -> NDArray[np.bool_]:
    """Queries with a relevant document and one that is less relevant."""
    starts = judged.offsets[:-1]
    full = judged.sizes > 0
    most, least = np.zeros(judged.n_queries), np.zeros(judged.n_queries)
    most[full] = np.maximum.reduceat(judged.grades, starts[full])
    least[full] = np.minimum.reduceat(judged.grades, starts[full])
    return (most > 0) & (most > least)


def _start(model: Model, judged: JudgedSet, metric: str, *, number: bool) -> Method:
    """A copy of the method, with its unidentified parameter chosen on these queries if wanted."""
    if not number:
        return deepcopy(model.method)
    method = _judging(model)
    assert method is not None
    method.tune(judged, metric)
    return method


def _judging(model: Model) -> Method | None:
    """The method, set to choose its parameter on judged queries; None if there is nothing to choose."""
    changes = model.method.judged_choice
    if not changes:
        return None
    try:
        method = model.recipe.method_class(model.problem, **{**model.recipe.hyper_parameters, **changes})
        method.load_state_dict(model.method.state_dict())
    except (ValueError, RuntimeError):  # all its parameters are identified
        return None
    return method.eval()


def _choose(model: Model, judged: JudgedSet, plan: Plan, trials: Trials) -> Choice:
    numbers = (False,) if _judging(model) is None else (False, True)
    found: dict[tuple[bool, float, int], list[float]] = {}
    for number in numbers:

        def new(part: JudgedSet, number: bool = number) -> Ranker:
            return _start(model, part, plan.metric, number=number).ranker()

        values = cross_validated(new, model.problem, judged, plan, trials)
        found |= {(number, *point): folds for point, folds in values.items()}
    # Smallest change first: it wins ties.
    order = sorted(found, key=lambda point: (point[2], point[0], point[1]))
    number, rate, steps = max(order, key=lambda point: np.nanmean(found[point]))
    return Choice(number, rate, steps)


def _tuned(model: Model, judged: JudgedSet, plan: Plan, choice: Choice) -> Method:
    method = _start(model, judged, plan.metric, number=choice.number)
    if choice.steps:
        ranker = method.ranker()
        train_further(ranker, model.problem, judged, plan, choice.rate, choice.steps)
        method.eval()
        if not np.allclose(score_documents(ranker, judged), score_documents(method.ranker(), judged), atol=1e-5):
            raise ValueError(f"{model.recipe.method} rebuilds its ranker and would lose the tuning: tune another")
    return method


def _outer_folds(
    model: Model, judged: JudgedSet, plan: Plan, trials: Trials
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The metric of each query before tuning, and after tuning on queries of the other folds."""
    fold_of = np.random.default_rng(plan.seed).permutation(judged.n_queries) % plan.folds
    before, after = np.empty(judged.n_queries), np.empty(judged.n_queries)
    for fold in range(plan.folds):
        rest, held_out = judged.select(fold_of != fold), judged.select(fold_of == fold)
        method = _tuned(model, rest, plan, _choose(model, rest, plan, trials))
        for values, ranker in ((before, model.method.ranker()), (after, method.ranker())):
            values[fold_of == fold] = evaluate_scorer(ranker.eval(), held_out, [plan.metric]).values(plan.metric)
    return before, after


def _with_method(model: Model, method: Method, choice: Choice, metric: str, n_queries: int) -> Model:
    recipe = model.recipe
    if choice.number:
        recipe = replace(recipe, hyper_parameters={**recipe.hyper_parameters, **method.judged_choice})
    about = {"metric": metric, "queries": n_queries, **vars(choice), "model": model.digest}
    return replace(
        model, recipe=recipe, method=method, trained_on={**model.trained_on, **method.findings(), "tuned": about}
    )


Curve = list[tuple[int, float]]  # steps and the metric on held-out queries
Progress = Callable[[int, int], None]


@dataclass
class Trials:
    """Runs trainings, or returns the results of those that have finished before."""

    n_trials: int
    digest: str  # of everything that they depend on
    place: Path | None = None
    progress: Progress | None = None
    finished: list[Curve] = field(default_factory=list)
    done: int = 0

    @classmethod
    @contextmanager
    def opened(
        cls, place: str | Path | None, n_trials: int, digest: str, progress: Progress | None
    ) -> Iterator[Trials]:
        """Trials stored in a file, which is locked; results of another tuning are not used."""
        if place is None:
            yield cls(n_trials, digest, progress=progress)
            return
        with sole_writer(Path(place)):
            yield cls(n_trials, digest, Path(place), progress, _read(Path(place), digest))

    def __call__(self, train: Callable[[], Curve]) -> Curve:
        self._tell()
        if self.done == len(self.finished):
            self.finished.append(train())
            if self.place is not None:
                content = {"digest": self.digest, "finished": self.finished}
                write_file(self.place, json.dumps({**content, "content": json_digest(content)}).encode())
        self.done += 1
        self._tell()
        return self.finished[self.done - 1]

    def _tell(self) -> None:
        if self.progress is not None:
            self.progress(self.done, self.n_trials)


def _read(place: Path, digest: str) -> list[Curve]:
    try:
        data = read_json(place)
        if data["digest"] != digest or data.pop("content") != json_digest(data):
            return []
        return [[(int(step), float(value)) for step, value in curve] for curve in data["finished"]]
    except (OSError, ValueError, KeyError, TypeError):  # missing or damaged: start over
        return []
