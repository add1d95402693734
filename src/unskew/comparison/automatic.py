"""Auto: look at a log, try the methods that can work on it, choose one, certify it, and train it on everything.

Two parts of the held-out queries do two jobs: one chooses (`choice.choose_method`), the other certifies the choice
against plain clicks and production. With checkpoints, an interrupted run resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from unskew.comparison.against_production import TO_RANK_PRODUCTION, Standing
from unskew.comparison.choice import BY_LOOKS, PLAIN, Choice, Measured, certify, choose_method, tried_first, tried_later
from unskew.comparison.held_out import Case, contender_of, make_case
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import read_log
from unskew.diagnosis.advice import Advice, worth_comparing
from unskew.diagnosis.advice import facts as facts_of
from unskew.diagnosis.assemble import diagnose
from unskew.diagnosis.verdict import verdict as verdict_of
from unskew.display import Displayed, Screen
from unskew.evaluation.criteria import CRITERIA, measure_all, measure_production
from unskew.evaluation.held_out import Vector
from unskew.evaluation.latest_ranker import latest_ranker
from unskew.fitting import fit
from unskew.methods import METHODS, hyper_parameters
from unskew.model import Model
from unskew.recipe import SETTING_NAMES, Recipe
from unskew.reporting.sheets import signed
from unskew.warm_start import check_columns

HELD_OUT = 0.3  # share of the queries: half of them choose, half certify
FEWEST_QUERIES = 40  # twelve of which are held out
SAFE = "dla"  # where nothing can be tried
BETTER, NOT_BETTER, UNKNOWN = "better", "not better", "unknown"

Values = dict[str, Vector]  # criterion -> one value per query
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class AutoVerdict:
    """The choice, its reason, and the comparison with production."""

    method: str
    reason: str
    production: str  # BETTER, NOT_BETTER or UNKNOWN
    against_production: str  # in one sentence
    log: tuple[str, ...] = ()  # what the log can tell
    coupling: str = ""
    tried: tuple[Advice, ...] = ()
    means: dict[str, dict[str, float]] = field(default_factory=dict)  # method -> criterion, on the queries that choose
    standings: tuple[Standing, ...] = ()
    surer: tuple[str, ...] = ()  # what to log or randomize

    def __str__(self) -> str:
        return " ".join(
            part for part in (f"{self.method}: {self.reason}.", self.coupling, self.against_production) if part
        )


@dataclass(frozen=True, eq=False, repr=False)
class Chosen(Displayed):
    """A model trained by the method that was chosen, and the verdict."""

    model: Model
    verdict: AutoVerdict

    @classmethod
    def of(cls, model: Model, found: AutoVerdict) -> Chosen:
        """The model that keeps what was found, when it is saved too."""
        kept = {name: getattr(found, name) for name in ("method", "reason", "production", "against_production")}
        trained_on = {**model.trained_on, "chosen_by": f"auto: {found.reason}", "verdict": kept}
        return cls(replace(model, trained_on=trained_on), found)

    def to_table(self) -> pa.Table:
        """One row per method that was tried, with its means on the queries that chose."""
        means = self.verdict.means
        criteria = list(dict.fromkeys(name for values in means.values() for name in values))
        columns = {name: pa.array([values.get(name) for values in means.values()], pa.float64()) for name in criteria}
        return pa.table({"method": pa.array(list(means), pa.string()), **columns})

    def screen(self) -> Screen:
        table = self.to_table()
        rows = [
            [row["method"], *("" if row[name] is None else f"{row[name]:.4f}" for name in table.column_names[1:])]
            for row in table.to_pylist()
        ]
        found = self.verdict
        notes = [f"{found.reason}.", found.coupling, found.against_production, *found.surer]
        return Screen(f"Chosen: {found.method}", table.column_names, rows, [note for note in notes if note])


def auto(
    log: ClickLog | str | Path,
    *,
    production: str | None = None,
    start: Model | None = None,
    seed: int = 0,
    checkpoints: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Chosen:
    """Choose a method for a log without a judged document, and train it on everything.

    `fit` trains the method you name, `compare` measures several and leaves the choice to you.

    Args:
        log: a click log in memory, or its folder.
        production: the production ranker: since=DATE, score=COLUMN or logger=COLUMN:VALUE. Default: the latest in
            the log.
        start: yesterday's model: where its method is chosen again, the last training goes on from it. Methods are tried
            again, since it may have learned from the clicks that choose.
        checkpoints: folder for finished trainings; an interrupted run resumes from it.
        progress: called with trainings done and trainings in all.
        options: of training and network, for every method.
    """
    check_options(options)
    clicks = log if isinstance(log, ClickLog) else read_log(log)
    if start is not None:
        check_columns(start, clicks)
    runs = _Runs(clicks, {**options, "seed": seed}, None if checkpoints is None else Path(checkpoints), progress)
    found = _verdict(clicks, runs, production)
    model = runs.train(found.method, clicks, "final", start if start and start.recipe.method == found.method else None)
    return Chosen.of(model, found)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that not every method has."""
    for name in options:
        owners = [method for method, found in METHODS.items() if name in hyper_parameters(found)]
        if owners and name not in SETTING_NAMES:
            raise ValueError(
                f"'{name}' is an option of {', '.join(owners)}: name one, auto takes what all methods have"
            )
    Recipe.of(PLAIN, **options)


@dataclass
class _Runs:
    """Trains methods, keeps their checkpoints, and says how far it is."""

    log: ClickLog
    options: dict[str, Any]
    folder: Path | None
    progress: Progress | None
    own: dict[str, dict[str, Any]] = field(default_factory=dict)  # options of single methods
    total: int = 1
    done: int = 0

    def train(self, method: str, log: ClickLog, name: str, start: Model | None = None) -> Model:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        if self.progress is not None:
            self.progress(self.done, self.total)
        place = None if self.folder is None else self.folder / f"{name}.checkpoint"
        new = Recipe.of if start is None else start.recipe.changed
        recipe = new(method, **self.options, **self.own.get(method, {}))
        model = fit(recipe, log, checkpoint=place, start=start)
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total)
        return model


def _verdict(log: ClickLog, runs: _Runs, which: str | None) -> AutoVerdict:
    """Everything but the last training."""
    diagnosis = diagnose(log, quick=True)
    told, known = verdict_of(diagnosis), facts_of(diagnosis)
    if not known.n_clicks or not known.features:
        what = "a click" if not known.n_clicks else "features to rank by"
        raise ValueError(
            f"the log lacks {what}, so auto has nothing to choose from: run unskew diagnose to see what to do"
        )
    able = worth_comparing(told.methods)
    if known.false_alarms:
        runs.own[BY_LOOKS] = {"false_alarms": None}  # estimated
    names = tried_first(able) if known.n_positions > 1 else [PLAIN]
    if diagnosis.traffic.n_queries < FEWEST_QUERIES:
        few = f"{diagnosis.traffic.n_queries:,} queries are too few to choose by, at least {FEWEST_QUERIES} are needed"
        return untried(SAFE if SAFE in names else PLAIN, few, told.lines[:1])
    try:
        case = make_case(log, HELD_OUT, choosing=True)
    except ValueError as error:
        return untried(SAFE if SAFE in names else PLAIN, str(error), told.lines[:1])
    case = case.with_production(which or latest_ranker(log))
    runs.total = len(names) + 1
    choosing, certifying = _measure(names, case, runs)
    later = tried_later(able, choosing, trust=known.trust)
    runs.total += len(later)
    for measured, more in zip((choosing, certifying), _measure(later, case, runs), strict=True):
        measured.update(more)
    choice = choose_method(choosing, trust=known.trust)
    production, _ = measure_production(case.production, case.evidence)
    choice, criterion, standings = certify(certifying, production, choice)
    status, line = _against_production(choice, criterion, standings, case)
    return AutoVerdict(
        method=choice.method,
        reason=choice.reason,
        production=status,
        against_production=line,
        log=told.lines[:1],
        coupling="" if choice.coupling is None else choice.coupling.line,
        tried=tuple(entry for entry in told.methods if entry.method in choosing),
        means=_means(choosing),
        standings=tuple(standings),
        surer=tuple(_surer(status, choice, standings)),
    )


def untried(method: str, why: str, log: tuple[str, ...] = ()) -> AutoVerdict:
    """The verdict on a safe method where nothing could be tried."""
    reason = f"it is the safe choice; nothing could be tried ({why})"
    return AutoVerdict(method, reason, UNKNOWN, _no_verdict(), log, surer=(f"{TO_RANK_PRODUCTION}.",))


def _measure(names: list[str], case: Case, runs: _Runs) -> tuple[dict[str, Values], dict[str, Values]]:
    """Criteria of each method, on the queries that choose and on those that certify."""
    assert case.choosing is not None
    choosing: dict[str, Values] = {}
    certifying: dict[str, Values] = {}
    for name in names:
        model = runs.train(name, case.learning, name)
        choosing[name], _ = measure_all(contender_of(model, case.choosing.held_out), case.choosing)
        certifying[name], _ = measure_all(contender_of(model, case.evidence.held_out), case.evidence)
    return choosing, certifying


def _means(measured: Measured) -> dict[str, dict[str, float]]:
    return {
        method: {name: float(vector[vector == vector].mean()) for name, vector in values.items()}  # NaN is left out
        for method, values in measured.items()
    }


def _no_verdict() -> str:
    return "No verdict on production: no criterion can rank it on this log."


def _against_production(
    choice: Choice, criterion: str | None, standings: list[Standing], case: Case
) -> tuple[str, str]:
    own = next((entry for entry in standings if entry.label == choice.method), None)
    if criterion is None or own is None or own.difference is None or own.least is None or own.most is None:
        return UNKNOWN, _no_verdict()
    where = f"production ({case.about['production']}, {case.about['held_out_queries']} other queries)"
    numbers = f"{signed(own.difference)} {CRITERIA[criterion].title} ({signed(own.least)} to {signed(own.most)})"
    if own.beats:
        return BETTER, f"{choice.method} beats {where} by {numbers}."
    return NOT_BETTER, f"Nothing was shown to be better than {where}: {choice.method} differs by {numbers}."


def _surer(status: str, choice: Choice, standings: list[Standing]) -> list[str]:
    lines = []
    own = next((entry for entry in standings if entry.label == choice.method), None)
    if status == UNKNOWN:
        lines.append(
            f"{TO_RANK_PRODUCTION}. Start by swapping the first document with another in a tenth of the sessions."
        )
    elif own is not None and own.difference and own.least is not None and own.verdict == "no clear difference":
        more = ((own.difference - own.least) / own.difference) ** 2
        lines.append(f"If the difference is real, about {more:,.1f} times as many held-out queries would show it.")
    if choice.coupling is not None and choice.coupling.found and choice.method != BY_LOOKS:
        lines.append(
            "Clicks cannot separate a relevant document from one that catches the eye: judge 20 to 50 queries "
            "(low_rank, choose=judged), or record which documents were examined."
        )
    return lines
