"""Auto: diagnose a log, try the methods that can work on it, choose some, certify them, and train them on everything.

One half of the held-out queries chooses (`choice.choose`), the other half certifies the choice against plain clicks and
production. Rankers that fail in different ways are averaged into one. With checkpoints, an interrupted run resumes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from unskew.comparison.against_production import PRODUCTION, TO_RANK_PRODUCTION, Standing
from unskew.comparison.choice import (
    BY_DOCUMENT,
    BY_LOOKS,
    HALFWAY,
    PLAIN,
    Certificate,
    certify,
    choose,
    read_signs,
    spread,
    tried_first,
)
from unskew.comparison.held_out import Case, contender_of, make_case
from unskew.comparison.imitation import ordered_as_production, ordered_folder
from unskew.comparison.surer import surer_lines
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import LogFolder
from unskew.data.clicks.within_memory import MEMORY
from unskew.data.inputs import LogOrPlace, Place, as_part
from unskew.diagnosis.advice import Advice, scalar_violated, worth_comparing
from unskew.diagnosis.advice import facts as facts_of
from unskew.diagnosis.advice import verdict as verdict_of
from unskew.diagnosis.page import diagnose
from unskew.display import Displayed, Screen
from unskew.evaluation.criteria import CRITERIA, Contender, Evidence, measure_all
from unskew.evaluation.production import LatestRanker, latest_ranker, production_of_log
from unskew.methods import METHODS, hyper_parameters
from unskew.reporting.sheets import signed
from unskew.reporting.terminal import Follow, counting_progress, followed
from unskew.serving.saved_ranker import as_model
from unskew.training.fitting import fit_recipe
from unskew.training.history import History
from unskew.training.model import Model, average_models
from unskew.training.recipe import SETTING_NAMES, Recipe
from unskew.training.warm_start import check_columns

HELD_OUT = 0.3  # share of the queries: half of them choose, half certify
LINE = 120  # characters of a note on the screen
FEWEST_QUERIES = 40  # twelve of which are held out
SAFE = "dla"  # if nothing can be tried
BETTER, NOT_BETTER, UNKNOWN = "better", "not better", "unknown"
NO_VERDICT = "No verdict on production: no criterion can rank it on this log."

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class AutoVerdict:
    """The choice, its reason, and the comparison with production."""

    method: str  # or several, of which the average is one ranker: "dla + low_rank"; "production" is its imitation
    reason: str
    production: str  # BETTER, NOT_BETTER or UNKNOWN
    against_production: str  # in one sentence
    log: tuple[str, ...] = ()  # what the log identifies
    coupling: str = ""
    tried: tuple[Advice, ...] = ()
    means: dict[str, dict[str, float]] = field(default_factory=dict)  # method -> criterion, on the queries that choose
    standings: tuple[Standing, ...] = ()  # production and the choice, criterion by criterion
    criteria: tuple[str, ...] = ()  # the criteria of these standings
    surer: tuple[str, ...] = ()  # what to log or randomize
    shares: tuple[float, ...] = ()  # of the members in the average
    part: str = ""  # what was read of a log larger than the memory limit, for everything but the last training

    @property
    def members(self) -> tuple[str, ...]:
        """The methods whose rankers are averaged; a single method ranks alone."""
        return tuple(self.method.split(" + "))

    def __str__(self) -> str:
        return " ".join(
            part for part in (f"{self.method}: {self.reason}.", self.coupling, self.against_production) if part
        )


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
        """One row per tried method, with its means on the queries that decided the choice."""
        means = self.verdict.means
        criteria = list(dict.fromkeys(name for values in means.values() for name in values))
        columns = {name: pa.array([values.get(name) for values in means.values()], pa.float64()) for name in criteria}
        return pa.table({"method": pa.array(list(means), pa.string()), **columns})

    def to_json(self) -> dict[str, Any]:
        return {"started_from": self.model.trained_on.get("started_from"), **asdict(self.verdict)}

    def screen(self) -> Screen:
        found, started = self.verdict, self.model.trained_on.get("started_from")
        table = self.to_table()
        rows = [
            [row["method"], *("" if row[name] is None else f"{row[name]:.4f}" for name in table.column_names[1:])]
            for row in table.to_pylist()
        ]
        start = "" if started is None else f"Started from a model of {started['steps']:,} steps."
        notes = [*found.log, found.coupling, f"{found.reason}.", found.against_production, *found.surer, start]
        lines = [line for note in notes for line in textwrap.wrap(note, LINE)]
        tried = [(entry.method, entry.word, textwrap.shorten(entry.reason, LINE)) for entry in found.tried]
        more = [Screen("Methods", ("method", "diagnosis", "reason"), tried, left=3)] if tried else []
        return Screen(f"Chosen: {found.method}", table.column_names, rows, lines, more=more)


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
    """Train a ranker without labels, averaged from suitable methods; the command is `unskew auto`.

    `fit` trains the method you name, `compare` measures several and leaves the choice to you.

    Args:
        log: a click log, or its folder.
        production: the production ranker: since=DATE, score=COLUMN or logger=COLUMN:VALUE. Default: the latest in
            the log.
        start: a previous model, or its path: the final training starts from it if it contains the chosen rankers.
            Methods are tried from scratch, because it may have learned from the clicks that choose.
        checkpoints: folder for finished trainings; an interrupted run resumes from it.
        memory: limit for a log on disk; None: no limit. If the log needs more, a random sample of its queries decides,
            and the final training reads the whole log shard by shard.
        progress: False for no bar, or a function that receives the number of finished and of all trainings.
        options: options of training and network, for every method.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, progress=False).log
    >>> unskew.auto(log, steps=5, progress=False).verdict.production
    'unknown'
    """
    check_options(options)
    clicks, part = as_part(log, memory, more=". The final training reads every shard")
    clicks = replace(clicks, origin=clicks.lineage)  # so that no part of it is hashed again
    first = None if start is None else as_model(start)
    if first is not None:
        check_columns(first, clicks)
    place = None if checkpoints is None else Path(checkpoints)
    with followed(progress, counting_progress, "auto", "trainings") as report:
        runs = _Runs(clicks, {**options, "seed": seed}, place, report, None if part is None else part.source)
        return _chosen(clicks, runs, production, first, "" if part is None else part.note)


def _chosen(clicks: ClickLog, runs: _Runs, production: str | None, start: Model | None, part: str) -> Chosen:
    """The verdict, and its methods trained on everything; several become one ranker."""
    found, case, which = _verdict(clicks, runs, production)
    found = replace(found, part=f"{part}. The final training read every shard" if part else "")
    starts = {} if start is None else _members(start)
    if not set(found.members) <= set(starts):
        starts = {}
    models = [runs.last(name, which, starts.get(name)) for name in found.members]
    if len(models) == 1:
        return Chosen.of(models[0], found)
    assert case is not None
    assert case.choosing is not None
    shown = case.choosing.held_out
    spreads = [spread(shown.score(each.ranker()), shown) for each in models]
    shares = [share / each for share, each in zip(found.shares, spreads, strict=True)]
    return Chosen.of(average_models(models, shares), found)


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
    """The models that an average is made of, by name."""
    own = replace(model, others=(), weights=())
    others = [
        replace(own, recipe=each.recipe, problem=each.problem, method=each.method, history=History())
        for each in model.others
    ]
    return dict(zip(model.name.split(" + "), [own, *others], strict=True))


@dataclass
class _Runs:
    """Trains methods, keeps their checkpoints, and reports progress."""

    log: ClickLog
    options: dict[str, Any]
    folder: Path | None
    progress: Progress | None
    whole: LogFolder | None = None  # if `log` is only a part of it
    own: dict[str, dict[str, Any]] = field(default_factory=dict)  # options of single methods
    total: int = 1
    done: int = 0

    def last(self, method: str, which: str | None, start: Model | None) -> Model:
        """A training on everything; production is imitated by plain clicks on its order."""
        everything = self.log if self.whole is None else self.whole
        if method != PRODUCTION:
            return self._train(method, everything, f"final-{method}", self.options, start)
        if isinstance(everything, ClickLog):
            shown: ClickLog | LogFolder = ordered_as_production(everything, which)
        else:
            shown = ordered_folder(everything, which)
        return self._train(PLAIN, shown, f"final-{method}", self.options, start)

    def attempt(self, method: str, log: ClickLog) -> Model:
        """A training on some of the queries; with a number of steps, as many passes as the final one on all of them."""
        asked = self.options.get("steps")
        steps = None if asked is None else max(1, round((1 - HELD_OUT) * asked))
        return self._train(method, log, method, {**self.options, "steps": steps})

    def _train(
        self, method: str, log: ClickLog | LogFolder, name: str, options: dict[str, Any], start: Model | None = None
    ) -> Model:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        if self.progress is not None:
            self.progress(self.done, self.total)
        place = None if self.folder is None else self.folder / f"{name}.checkpoint"
        new = Recipe.of if start is None else start.recipe.changed
        recipe = new(method, **options, **self.own.get(method, {}))
        source = log if isinstance(log, ClickLog) else log.sampled(self.log)
        model = fit_recipe(recipe, source, checkpoint=place, start=start)
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total)
        return model


def _verdict(log: ClickLog, runs: _Runs, which: str | None) -> tuple[AutoVerdict, Case | None, str | None]:
    """Everything but the last training; and the flag of the ranker that production is."""
    diagnosis = diagnose(log, quick=True, progress=False)
    told, known = verdict_of(diagnosis), facts_of(diagnosis)
    if not known.n_clicks or not known.features:
        what = "clicks" if not known.n_clicks else "features to rank by"
        raise ValueError(
            f"the log has no {what}, so auto has nothing to choose from: run unskew diagnose to see what to do"
        )
    able = worth_comparing(told.methods)
    if known.false_alarms:
        runs.own[BY_LOOKS] = {"false_alarms": None}  # estimated
    if known.n_positions < 2:
        return untried(PLAIN, "every list has only one document", told.lines[:1]), None, None
    names = tried_first(able)
    if diagnosis.traffic.n_queries < FEWEST_QUERIES:
        few = f"{diagnosis.traffic.n_queries:,} queries are too few for a choice, which needs at least {FEWEST_QUERIES}"
        return untried(SAFE if SAFE in names else PLAIN, few, told.lines[:1]), None, None
    try:
        case = make_case(log, HELD_OUT, choosing=True)
    except ValueError as error:
        return untried(SAFE if SAFE in names else PLAIN, str(error), told.lines[:1]), None, None
    latest = latest_ranker(log) if which is None else which
    case = case.with_production(latest)
    assert case.choosing is not None
    runs.total = len(names) + 2
    choosing, certifying = _try([name for name in names if name != PLAIN] or names, case, runs)
    shown = _production_of(case.choosing, latest)
    rejected = scalar_violated(known) is not None
    signs = read_signs(choosing, shown, case.choosing.held_out, coupled=known.coupled, rejected=rejected)
    choice = choose(choosing, signs, able)
    if choice.criteria and PLAIN not in choosing:  # else nothing is certified, and plain clicks are not needed
        for known_part, part in zip((choosing, certifying), _try([PLAIN], case, runs), strict=True):
            known_part.update(part)
    runs.total = len(choosing) + len(choice.members)
    found = certify(choice, certifying, case.production, case.evidence)
    status, line = _against_production(found, case)
    surer = surer_lines(
        log,
        {name: found.own(name) for name in found.criteria},
        open_number=bool({BY_DOCUMENT, HALFWAY} & set(found.choice.members)),
        criteria=bool(found.criteria or not choice.criteria),
        varied=known.connected,
    )
    verdict = AutoVerdict(
        method=found.choice.label,
        reason=found.choice.reason,
        production=status,
        against_production=line,
        log=told.lines[:1],
        coupling=choice.signs.line,
        tried=tuple(entry for entry in told.methods if entry.method in choosing),
        means=_means(choosing, case.choosing),
        standings=tuple(entry for name in found.criteria for entry in (found.by_criterion or {})[name]),
        criteria=found.criteria,
        surer=tuple(surer),
        shares=found.choice.shares,
    )
    return verdict, case, latest if isinstance(latest, str) else latest.which


def _production_of(part: Evidence, latest: str | LatestRanker) -> Contender:
    """Production on the queries that choose."""
    log = part.held_out.log
    if isinstance(latest, str):
        return Contender(production_of_log(log, latest).scores)
    try:
        return Contender(production_of_log(log, latest.which).scores)
    except ValueError:  # production was not shown for these queries
        return Contender(production_of_log(log).scores)


def untried(method: str, why: str, log: tuple[str, ...] = ()) -> AutoVerdict:
    """The verdict on the safe method, if nothing could be tried."""
    reason = f"it is the safe choice; nothing could be tried ({why})"
    return AutoVerdict(method, reason, UNKNOWN, NO_VERDICT, log, surer=(f"{TO_RANK_PRODUCTION}.",))


def _try(names: list[str], case: Case, runs: _Runs) -> tuple[dict[str, Contender], dict[str, Contender]]:
    """Each method as a contender, on the queries that choose and on those that certify."""
    assert case.choosing is not None
    choosing: dict[str, Contender] = {}
    certifying: dict[str, Contender] = {}
    for name in names:
        model = runs.attempt(name, case.learning)
        choosing[name] = contender_of(model, case.choosing.held_out)
        certifying[name] = contender_of(model, case.evidence.held_out)
    return choosing, certifying


def _means(tried: dict[str, Contender], evidence: Evidence) -> dict[str, dict[str, float]]:
    """Means of all criteria, without the queries that a criterion leaves out (NaN)."""
    measured = {method: measure_all(contender, evidence)[0] for method, contender in tried.items()}
    return {
        method: {name: float(vector[vector == vector].mean()) for name, vector in values.items()}
        for method, values in measured.items()
    }


def _against_production(found: Certificate, case: Case) -> tuple[str, str]:
    label = found.choice.label
    if not found.criteria:
        assumed = "No verdict on production: every criterion assumes examination by position alone."
        return UNKNOWN, NO_VERDICT if found.choice.criteria else assumed
    where = f"production on {case.about['held_out_queries']} other queries"
    source = f"Production: {case.about['production']}."
    numbers = " and ".join(_numbers(name, found.own(name)) for name in found.criteria)
    if found.better:
        return BETTER, f"{label} beats {where} by {numbers}. {source}"
    if found.worse:
        return NOT_BETTER, f"Nothing is better than {where}: {label} differs by {numbers}. {source}"
    return UNKNOWN, f"No clear difference between {label} and {where}: {numbers}. {source}"


def _numbers(criterion: str, own: Standing) -> str:
    difference, least, most = (signed(value or 0.0) for value in (own.difference, own.least, own.most))
    return f"{difference} {CRITERIA[criterion].title} ({least} to {most})"
