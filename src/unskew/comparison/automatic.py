"""Auto: diagnose a log, fit a small family of observation models, choose one by held-out clicks, and certify it.

Some queries say when each training ends and which model is chosen (`choice.choose`); where criteria can rank
production, other queries certify the choice. The model of the choice is served and not trained again, unless only a
part of the log fits into memory or a previous model is continued. With checkpoints, an interrupted run resumes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unskew.comparison.against_production import PRODUCTION, TO_RANK_PRODUCTION, Standing
from unskew.comparison.choice import (
    BY_DOCUMENT,
    BY_LOOKS,
    BY_POSITION,
    FAMILY,
    PLAIN,
    Certificate,
    Choice,
    Step,
    certify,
    choose,
)
from unskew.comparison.held_out import Case, contender_of, make_case
from unskew.comparison.safety import Stakes, stakes, surer_lines
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.lineage import lineage_line
from unskew.data.clicks.storage import LogFolder
from unskew.data.clicks.within_memory import MEMORY
from unskew.data.inputs import LogOrPlace, Place, as_part
from unskew.diagnosis.advice import Advice, Facts, scalar_violated, worth_comparing
from unskew.diagnosis.advice import facts as facts_of
from unskew.diagnosis.advice import verdict as verdict_of
from unskew.diagnosis.page import diagnose
from unskew.display import Displayed, Screen
from unskew.evaluation.criteria import CRITERIA, Contender, Evidence, click_likelihood
from unskew.evaluation.held_out import HeldOut, Vector
from unskew.evaluation.production import LatestRanker, latest_ranker, production_of_log
from unskew.methods import METHODS, hyper_parameters
from unskew.reporting.answers import attempt
from unskew.reporting.answers import known as known_result
from unskew.reporting.drawing import Drawn, interval_figure, position_figure
from unskew.reporting.sheets import Section, signed, write_report
from unskew.reporting.terminal import Follow, counting_progress, followed
from unskew.serving.saved_ranker import as_model
from unskew.training.ending import held_out_share
from unskew.training.fitting import feedback_for, fit_recipe
from unskew.training.history import History
from unskew.training.model import Model, average_models
from unskew.training.recipe import SETTING_NAMES, Recipe
from unskew.training.warm_start import check_columns

CERTIFYING = 0.15  # share of the queries that certify the choice, where the log can
CHOOSING = 100  # queries: an interval over the held-out tenth of fewer could choose nothing
LINE = 120  # characters of a note on the screen
SAFE = "dla"  # where auto cannot use what was asked for
BETTER, NOT_BETTER, UNKNOWN = "better", "not better", "unknown"
GAIN = (
    "Gain: how much better the larger model predicts the place of a click in its list, in log-likelihood per click of "
    "queries that it did not learn from, with 95% intervals over queries, for all models of a level together. A model "
    "is accepted if its interval is above 0."
)
NO_VERDICT = "No verdict on production: whether it is better cannot be told from this log."
ASSUMED = "Every criterion assumes examination by position alone."

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class AutoVerdict:
    """The choice, its reason, and the comparison with production."""

    method: str  # or two, of which the average is one ranker: "two_tower + naive"
    reason: str  # one sentence, with the number that decided
    production: str  # BETTER, NOT_BETTER or UNKNOWN
    against_production: str  # in one sentence
    log: tuple[str, ...] = ()  # what the log identifies
    steps: tuple[Step, ...] = ()  # models that were compared by held-out clicks
    stakes: Stakes | None = None  # how far it is from production
    tried: tuple[Advice, ...] = ()
    standings: tuple[Standing, ...] = ()  # production and the choice, criterion by criterion
    criteria: tuple[str, ...] = ()  # the criteria of these standings
    shares: Mapping[str, float] = field(default_factory=dict)  # of methods in the score
    surer: tuple[str, ...] = ()  # what to log or randomize
    part: str = ""  # what was read of a log larger than the memory limit, for everything but the last training

    def __str__(self) -> str:
        return f"{self.method}: {self.reason}. {self.against_production}"

    @property
    def climb(self) -> Screen:
        """The models that were compared by held-out clicks, from the simplest upwards."""
        rows = [
            (each.method, each.part, each.over, *each.numbers, "yes" if each.accepted else "no") for each in self.steps
        ]
        columns = ("model", "adds", "to", "gain per click", "interval", "accepted")
        return Screen("Models compared by held-out clicks", columns, rows, [GAIN], name="steps")

    @property
    def considered(self) -> Screen:
        """The methods that were considered, and what the diagnosis says about each."""
        rows = [(entry.method, entry.word, entry.reason) for entry in self.tried]
        return Screen("Methods", ("method", "diagnosis", "reason"), rows, name="tried")


@dataclass(frozen=True, eq=False, repr=False)
class Chosen(Displayed):
    """A model trained with the chosen method, and the verdict."""

    model: Model
    verdict: AutoVerdict

    @classmethod
    def of(cls, model: Model, found: AutoVerdict) -> Chosen:
        """The model with the verdict in `trained_on`, so that it is saved too."""
        kept = {name: getattr(found, name) for name in ("method", "reason", "production", "against_production")}
        trained_on = {**model.trained_on, "chosen_by": f"auto: {found.reason}", "verdict": kept}
        return cls(replace(model, trained_on=trained_on), found)

    def to_table(self) -> pa.Table:
        """One row per model that was compared with a smaller one by held-out clicks."""
        names = ("method", "over", "gain", "low", "high", "n_queries")
        rows = [asdict(step) | {"accepted": step.accepted} for step in self.verdict.steps]
        kinds = [pa.string()] * 2 + [pa.float64()] * 3 + [pa.int64(), pa.bool_()]
        fields = zip((*names, "accepted"), kinds, strict=True)
        return pa.Table.from_pylist(rows, pa.schema(list(fields)))

    def to_json(self) -> dict[str, Any]:
        return {"started_from": self.model.trained_on.get("started_from"), **asdict(self.verdict)}

    def screen(self) -> Screen:
        found, started = self.verdict, self.model.trained_on.get("started_from")
        start = "" if started is None else f"Started from a model of {started['steps']:,} steps."
        risks = () if found.stakes is None else found.stakes.lines
        notes = [f"{found.reason}.", found.against_production, *risks, *found.surer, *found.log, start]
        lines = [line for note in notes for line in textwrap.wrap(note, LINE)]
        more = [found.considered] if found.tried else []
        return replace(found.climb, title=f"Chosen: {found.method}", notes=lines, more=more)


def auto(
    log: LogOrPlace,
    *,
    production: str | None = None,
    start: Model | Place | None = None,
    seed: int = 0,
    checkpoints: Place | None = None,
    memory: str | None = MEMORY,
    progress: Follow = True,
    **options: Any,
) -> Chosen:
    """Train a ranker without labels, by the observation model that held-out clicks support; it is `unskew auto`.

    `fit` trains the method you name, `compare` measures several and leaves the choice to you.

    Args:
        log: a click log, or its folder.
        production: the production ranker: since=DATE, score=COLUMN or logger=COLUMN:VALUE. Default: the latest in
            the log.
        start: a previous model, or its path: if its method is chosen again, a last training starts from it. Methods are
            tried from scratch, because it may have learned from the clicks that choose.
        checkpoints: folder for finished trainings; an interrupted run resumes from it.
        memory: limit for a log on disk; None: no limit. If the log needs more, a random sample of its queries decides,
            and a last training reads the whole log shard by shard.
        progress: False for no bar, or a function that receives the number of finished and of all trainings.
        options: options of training and network, for every method.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, progress=False).log
    >>> unskew.auto(log, steps=5, progress=False).verdict.production
    'unknown'
    """
    check_options(options)
    clicks, part = as_part(log, memory, more=". The last training reads every shard")
    clicks = replace(clicks, origin=clicks.lineage)  # so that no part of it is hashed again
    first = None if start is None else as_model(start)
    if first is not None:
        check_columns(first, clicks)
    place = None if checkpoints is None else Path(checkpoints)
    with followed(progress, counting_progress, "auto", "trainings") as report:
        runs = _Runs({**options, "seed": seed}, place, report)
        found = _verdict(clicks, runs, production)
        if part is not None:
            found = replace(found, part=f"{part.note}. The last training read every shard")
        whole = clicks if part is None else part.source.sampled(clicks)
        starts = {} if first is None else _members(first)
        starts = starts if set(found.shares) <= set(starts) else {}
        models = [runs.last(name, whole, starts.get(name)) for name in found.shares]
        return Chosen.of(average_models(models, tuple(found.shares.values())), found)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that only some methods have."""
    for name in options:
        owners = [method for method, found in METHODS.items() if name in hyper_parameters(found)]
        if owners and name not in SETTING_NAMES:
            raise ValueError(
                f"'{name}' is an option of {', '.join(owners)} only: name such a method, or leave the option out; auto "
                "accepts only options of all methods"
            )
    Recipe.of(PLAIN, **options)


def _members(model: Model) -> dict[str, Model]:
    """The models that an average is made of, by method."""
    own = replace(model, others=(), weights=())
    others = [
        replace(own, recipe=each.recipe, problem=each.problem, method=each.method, history=History())
        for each in model.others
    ]
    return {each.recipe.method: each for each in (own, *others)}


@dataclass
class _Runs:
    """Trains methods, keeps their checkpoints, and reports progress."""

    options: dict[str, Any]
    folder: Path | None
    progress: Progress | None
    own: dict[str, dict[str, Any]] = field(default_factory=dict)  # options of single methods
    models: dict[str, Model] = field(default_factory=dict)  # that were tried
    total: int = 1

    def recipe(self, method: str) -> Recipe:
        return Recipe.of(method, **self.options, **self.own.get(method, {}))

    def attempt(self, method: str, log: ClickLog, held_out: float) -> Model:
        """A training that ends by the clicks of some queries, which also choose; each is done once."""
        if method not in self.models:
            self.models[method] = self._train(self.recipe(method), log, method, validate=held_out)
        return self.models[method]

    def last(self, method: str, log: ClickLog | LogFolder, start: Model | None) -> Model:
        """The model to serve; it is trained again only if it was not, or not on all of the log, or from another."""
        if start is not None:
            recipe = start.recipe.changed(method, **self.options, **self.own.get(method, {}))
            return self._train(recipe, log, f"last-{method}", start=start)
        if method in self.models and isinstance(log, ClickLog):
            return self.models[method]
        return self._train(self.recipe(method), log, f"last-{method}")

    def _train(self, recipe: Recipe, log: ClickLog | LogFolder, name: str, **more: Any) -> Model:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            more["checkpoint"] = self.folder / f"{name}.checkpoint"
        done = len(self.models)
        self.total = max(self.total, done + 1)
        if self.progress is not None:
            self.progress(done, self.total)
        model = fit_recipe(recipe, log, **more)
        if self.progress is not None:
            self.progress(done + 1, self.total)
        return model


def _verdict(log: ClickLog, runs: _Runs, which: str | None) -> AutoVerdict:
    """Everything but the last training."""
    diagnosis = diagnose(log, quick=True, progress=False)
    told, known = verdict_of(diagnosis), facts_of(diagnosis)
    if not known.n_clicks or not known.features:
        what = "clicks" if not known.n_clicks else "features to rank by"
        raise ValueError(
            f"the log has no {what}, so auto has nothing to choose from: run unskew diagnose to see what to do"
        )
    able = family_of(worth_comparing(told.methods), known)
    if known.false_alarms:
        runs.own[BY_LOOKS] = {"false_alarms": None}  # estimated
    if known.n_positions < 2:
        return untried(PLAIN, "every list has only one document", told.lines[:1])
    enough = diagnosis.traffic.n_queries * (1 - CERTIFYING) >= CHOOSING
    case = make_case(log, CERTIFYING) if known.connected and enough else None  # else nothing can be certified
    learning = log if case is None else case.learning
    n_queries = len(np.unique(learning.queries))
    share = held_out_share(n_queries, learning.n_lists) if n_queries >= CHOOSING else 0.0
    _, some = learning.split(share, runs.options["seed"]) if share else (learning, None)
    if some is None or not some.n_clicks:
        few = f"{n_queries:,} queries are too few for a choice, which needs {CHOOSING} and clicks of each tenth"
        return untried(PLAIN, few, told.lines[:1])
    held_out = HeldOut(feedback_for(runs.recipe(PLAIN), some).of(some.of_queries(np.unique(some.queries))))
    evidence = Evidence(held_out)
    runs.total = len(able) + 1
    tried: dict[str, Contender] = {}

    def likelihood(name: str) -> Vector:
        if name not in tried:
            tried[name] = contender_of(runs.attempt(name, learning, share), held_out)
        return click_likelihood(tried[name], evidence)

    likelihood(PLAIN)
    choice = choose(able, likelihood)
    latest = latest_ranker(log) if which is None else which
    found, status, line = _certified(choice, runs, case, known, latest)
    own = found.choice.served(tried)
    surer = surer_lines(
        log,
        {name: found.own(name) for name in found.criteria},
        choice.steps,
        open_number=found.choice.method == BY_DOCUMENT,
        criteria=bool(found.criteria),
        varied=known.connected,
    )
    which = latest if isinstance(latest, str) else latest.which
    shown = attempt(lambda: production_of_log(held_out.log, which).scores)  # it may not have been shown there
    return AutoVerdict(
        method=found.choice.label,
        reason=found.choice.reason,
        production=status,
        against_production=line,
        log=told.lines[:1],
        steps=choice.steps,
        stakes=stakes(own.scores, tried[PLAIN].scores, known_result(shown), held_out),
        tried=tuple(entry for entry in told.methods if entry.method in tried),
        standings=tuple(entry for name in found.criteria for entry in (found.by_criterion or {})[name]),
        criteria=found.criteria,
        shares=found.choice.shares,
        surer=tuple(surer),
    )


def family_of(methods: list[str], known: Facts) -> list[str]:
    """The members of the family that can work on a log; where looks are recorded, examination need not be guessed."""
    if BY_LOOKS in methods and known.looks and not known.faulty_looks:
        return [PLAIN, BY_LOOKS]
    return [member.method for member in FAMILY if member.method in methods]


def untried(method: str, why: str, log: tuple[str, ...] = ()) -> AutoVerdict:
    """The verdict on the safe method, if nothing could be tried."""
    reason = f"it is the safe choice; nothing could be tried ({why})"
    surer = (f"{TO_RANK_PRODUCTION}.",)
    return AutoVerdict(method, reason, UNKNOWN, NO_VERDICT, log, shares={method: 1.0}, surer=surer)


def _certified(
    choice: Choice, runs: _Runs, case: Case | None, known: Facts, latest: str | LatestRanker
) -> tuple[Certificate, str, str]:
    """The choice on queries that did not choose it, and what that says of production."""
    if case is None:
        return Certificate(choice), UNKNOWN, NO_VERDICT
    if choice.method not in (PLAIN, BY_POSITION) or scalar_violated(known) is not None:
        return Certificate(choice), UNKNOWN, f"{NO_VERDICT} {ASSUMED}"
    case = case.with_production(latest)
    certifying = {name: contender_of(runs.models[name], case.evidence.held_out) for name in {choice.method, PLAIN}}
    found = certify(choice, certifying, case.production, case.evidence)
    if not found.criteria:
        return found, UNKNOWN, NO_VERDICT
    label = found.choice.label
    where = f"{PRODUCTION} on {case.about['held_out_queries']} other queries"
    source = f"Production: {case.about['production']}."
    numbers = " and ".join(_numbers(name, found.own(name)) for name in found.criteria)
    if found.better:
        return found, BETTER, f"{label} beats {where} by {numbers}. {source}"
    if found.worse:
        return found, NOT_BETTER, f"Nothing is better than {where}: {label} differs by {numbers}. {source}"
    return found, UNKNOWN, f"No clear difference between {label} and {where}: {numbers}. {source}"


def _numbers(criterion: str, own: Standing) -> str:
    difference, least, most = (signed(value or 0.0) for value in (own.difference, own.least, own.most))
    return f"{difference} {CRITERIA[criterion].title} ({least} to {most})"


def write_auto(chosen: Chosen, place: Path, log: str, command: str) -> Path:
    """Write the page."""
    outcome, model = chosen.verdict, chosen.model
    figures = []
    rivals = [one for one in outcome.standings if one.difference is not None]
    if rivals:
        rows = [
            (CRITERIA[name].title, one.difference or 0.0, one.least, one.most)
            for name, one in zip(outcome.criteria, rivals, strict=True)
        ]
        title = f"{outcome.method} against production on other held-out queries, with 95% intervals over queries"
        figures.append(Drawn("production", title, interval_figure(rows, "difference from production")))
    curve = model.examination()
    if curve is not None:
        title = f"Examination by position, as learned by {model.recipe.method}"
        figures.append(Drawn("examination", title, position_figure({"all": curve, **model.examinations()})))
    reasons = [f"{outcome.reason}.", outcome.against_production, *(outcome.stakes.lines if outcome.stakes else [])]
    sections = [
        Section(f"Choice: {outcome.method}", reasons, figures=figures),
        Section("How to be more certain", outcome.surer),
        Section("What the log can tell", outcome.log),
        Section("Models considered", sheets=[*([outcome.climb] if outcome.steps else []), outcome.considered]),
        Section("Run it again", command=command),
    ]
    part = f" {outcome.part}." if outcome.part else ""
    lead = f"Log: {log}. {lineage_line(model.lineage)}.{part}"
    return write_report(place, "A ranker chosen without labels", sections, lead)
