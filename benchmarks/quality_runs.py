"""The runs behind the tables of quality: what is trained, and the row that comes of it.

A run of the defaults is a method with nothing chosen, on a log and a seed of clicks and training. A run of the grid is
one long training at a multiple of the default rate; it is measured after several numbers of steps, each time as a
training of that many steps would end.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import unskew
from quality_logs import WITH_OTHERS, Case, QualityLog, Scene, open_scene
from row_file import Row
from unskew.comparison.code_digest import code_digest, program_of
from unskew.comparison.outside import train_lightgbm
from unskew.data.clicks.click_log import ClickLog
from unskew.methods import METHODS
from unskew.serving.model_files import OLD_DEFAULTS
from unskew.training.fitting import fit_recipe
from unskew.training.history import Report
from unskew.training.model import Model
from unskew.training.optimizing import AVERAGED, AveragedMethod
from unskew.training.plan import plan_stages
from unskew.training.recipe import Recipe

MAIN = ("dla", "two_tower", "low_rank", "lbd", "vectorization", "naive")
OTHERS = tuple(name for name, method in METHODS.items() if method.has_ranker and name not in MAIN)
OPPONENT = "lightgbm position"
# The method "dla mlp" is `dla` as 0.2 trained it with this network.
MLP_OF_0_2: Mapping[str, Any] = {
    "network": "mlp",
    "steps": 1_000,
    "optimizer": "adagrad",
    "batch_size": 128,
    "warm_up": 0,
    "average": 0.0,
}
SEEDS = (0, 1, 2)
GRID_STEPS = (500, 1_000, 2_000, 4_000, 8_000, 16_000)
RATES = (1 / 3, 1.0, 3.0)  # relative to the default
GRID_SEEDS = (0, 1)
METRIC = "ndcg@10"
PLACES = (2, 5, 10)  # positions, counted from 1, at which examination is recorded
SWAPPED = 4  # sessions per query of the swaps that hte learns from: its forests take minutes on more
DIGITS = 5
FAILURES = (ArithmeticError, ValueError, RuntimeError)  # with which a training may end
DECIDES = ("quality_logs", "quality_runs", "default_worlds")

Key = tuple[str, str, int, float | None]


class SeveralPaths(ValueError):
    """A training of more steps does not pass through one of fewer: each number of steps is trained by itself."""


@dataclass(frozen=True)
class Run:
    """A training."""

    log: QualityLog
    method: str
    seed: int
    rate: float | None = None  # of the grid: relative to the default learning rate; None: defaults only
    most: int = GRID_STEPS[-1]  # steps of the grid

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(steps for steps in GRID_STEPS if steps <= self.most)

    @property
    def key(self) -> Key:
        return self.log.name, self.method, self.seed, self.rate


def key_of(row: Row) -> Key:
    return row["log"], row["method"], row["seed"], row.get("rate")


def default_runs(
    logs: Sequence[QualityLog], methods: Sequence[str] = (*MAIN, OPPONENT), seeds: Sequence[int] = SEEDS
) -> list[Run]:
    """The runs of the defaults, log by log and seed by seed, so that each log is made once."""
    runs = []
    for entry in logs:
        runs += [Run(entry, name, seed) for seed in seeds for name in methods]
        if entry.name in WITH_OTHERS and set(MAIN) <= set(methods):
            runs += [Run(entry, name, seeds[0]) for name in OTHERS]
    return runs


def grid_runs(
    logs: Sequence[QualityLog],
    methods: Sequence[str] = MAIN,
    seeds: Sequence[int] = GRID_SEEDS,
    rates: Sequence[float] = RATES,
    most: int = GRID_STEPS[-1],
) -> list[Run]:
    """The runs of the grid."""
    return [
        Run(entry, name, seed, rate, most) for entry in logs for seed in seeds for name in methods for rate in rates
    ]


@cache
def state_of_code() -> str:
    """A digest of the code that decides rows."""
    files = [Path(__file__).with_name(f"{name}.py") for name in DECIDES]
    programs = [program_of(file.read_text(encoding="utf-8")) for file in files]
    return hashlib.sha256("\0".join([code_digest(), *programs]).encode()).hexdigest()[:12]


@lru_cache(maxsize=1)
def case_of(entry: QualityLog, seed: int) -> Case:
    return open_scene(entry).case(seed)


def measure(run: Run) -> Row:
    """Do a run; one that ends with an error has no quality. `total_seconds` include drawing clicks and evaluation."""
    started = time.process_time()
    case = case_of(run.log, run.seed)
    with _noted_warnings() as texts:
        found = _measure_grid(run, case) if run.rate is not None else _measure_defaults(run, case)
    rate = {} if run.rate is None else {"rate": run.rate}
    same = {"log": run.log.name, "method": run.method, "seed": run.seed, **rate}
    about = {"total_seconds": _seconds(started), "warnings": list(dict.fromkeys(texts)), "code": state_of_code()}
    return {**same, **found, **about}


def _measure_defaults(run: Run, case: Case) -> Row:
    if run.method == OPPONENT:
        return {"steps": None, **_measured(lambda: train_lightgbm(case.log, position=True, seed=run.seed), case)}
    models: list[Model] = []

    def trained() -> Model:
        models.append(_train_default(run, case))
        return models[0]

    found = _measured(trained, case)
    return {"steps": models[0].history.rows[-1]["step"] if models else None, **found}


def _train_default(run: Run, case: Case) -> Model:
    """Train with defaults; a few methods need more than a log."""
    scene = open_scene(run.log)
    log: ClickLog | None = case.log
    options: dict[str, Any] = {}
    more: dict[str, Any] = {}
    if run.method == "labelled":
        log, more = None, {"judged": case.train}
    elif run.method == "ipw":
        options = {"propensities": case.curve}
    elif run.method == "hte" and isinstance(scene, Scene):
        swapped = {"interventions": {"swap_top": 1.0}, "sessions": SWAPPED}
        more = {"interventions": scene.simulation(run.seed, **swapped).log}
    elif run.method == "attention" and isinstance(scene, Scene):
        log = scene.simulation(run.seed, record={"misses": 0.2}).log
    method, _, network = run.method.partition(" ")
    options |= {**OLD_DEFAULTS.get(method, {}), **MLP_OF_0_2} if network else {}
    return fit_recipe(Recipe.of(method, seed=run.seed, **options), log, **more)


def _measure_grid(run: Run, case: Case) -> Row:
    usual = Recipe.of(run.method).settings.learning_rate
    assert run.rate is not None
    recipe = Recipe.of(run.method, seed=run.seed, learning_rate=usual * run.rate)
    try:
        points = [
            {**_quality(model, case), "cpu_seconds": spent} for model, spent in long_run(recipe, case.log, run.steps)
        ]
    except FAILURES:  # also if the longest ran away: the shorter ones may not
        points = [_measured(partial(fit_recipe, _changed(recipe, steps=steps), case.log), case) for steps in run.steps]
    columns = {name: [point.get(name) for point in points] for name in (METRIC, "examination", "cpu_seconds")}
    return {"steps": list(run.steps), **columns}


def _measured(train: Callable[[], Any], case: Case) -> Row:
    """Quality and processor seconds of a training, or the error with which it ends."""
    started = time.process_time()
    try:
        ranker = train()
        seconds = _seconds(started)
        return {**_quality(ranker, case), "cpu_seconds": seconds}
    except FAILURES as error:
        text = f"{type(error).__name__}: {error}"
        return {METRIC: None, "examination": None, "cpu_seconds": _seconds(started), "error": text}


def long_run(recipe: Recipe, log: ClickLog, grid: Sequence[int] = GRID_STEPS) -> list[tuple[Model, float]]:
    """Models after several numbers of steps of one training, each as `steps=n` gives it, and their processor seconds.

    `SeveralPaths` if there is no such training, as for `vectorization`, whose last stage has a fixed number of steps.
    Every number of steps has an average of its own, which ends there. Only one of them would be needed for one number
    of steps, so the time of averaging is left out.
    """
    trained: list[Any] = []  # the method, and what it learns from

    class Observed(recipe.method_class):  # type: ignore[name-defined, misc]
        def prepare(self, logs: Mapping[str, Any]) -> Mapping[str, Any]:
            logs = super().prepare(logs)
            trained[:] = self, logs
            return logs

    averages: dict[int, AveragedMethod] = {}
    spent: dict[int, float] = {}
    paused, started = 0.0, time.process_time()

    def watch(report: Report) -> None:
        nonlocal paused
        now = time.process_time()
        method = trained[0]
        if not averages:
            averages.update(_averages(method, recipe, grid))
        if report.stage == method.stages()[-1].name:
            for steps, average in averages.items():
                average.update() if report.step <= steps else None
        if report.step in grid:
            spent[report.step] = now - started - paused
        paused += time.process_time() - now

    model = fit_recipe(replace(_changed(recipe, steps=max(grid), average=0.0), outside=Observed), log, watch=watch)
    found = []
    for steps, average in averages.items():
        now = time.process_time()
        average.method.finish(trained[1])
        own = replace(model, recipe=_changed(recipe, steps=steps), method=average.method)
        found.append((own, round(spent[steps] + time.process_time() - now, 2)))
    return found


def _averages(method: Any, recipe: Recipe, grid: Sequence[int]) -> dict[int, AveragedMethod]:
    """An average for each number of steps, which ends there."""
    plans = {steps: plan_stages(method.stages(), steps) for steps in grid}
    before = {tuple(steps for _, steps in plan[:-1]) for plan in plans.values()}
    if len(before) > 1 or any(stage.selects for plan in plans.values() for stage, _ in plan[:-1]):
        raise SeveralPaths(f"stages of {recipe.method} before the last depend on the number of steps")
    share = AVERAGED if recipe.settings.average is None else recipe.settings.average
    return {steps: AveragedMethod(method, share) for steps in plans}


def _changed(recipe: Recipe, **settings: Any) -> Recipe:
    return replace(recipe, settings=replace(recipe.settings, **settings))


def _quality(ranker: Any, case: Case) -> Row:
    """nDCG@10 on judged queries, and the learned curve."""
    value = unskew.evaluate(ranker, case.test, [METRIC]).mean(METRIC)
    curve = ranker.examination() if isinstance(ranker, Model) else None
    places = None if curve is None else [round(float(curve[min(place, len(curve)) - 1]), DIGITS) for place in PLACES]
    return {METRIC: round(value, DIGITS), "examination": places}


def _seconds(started: float) -> float:
    return round(time.process_time() - started, 2)


@contextmanager
def _noted_warnings() -> Iterator[list[str]]:
    """Texts of the warnings of a block, instead of the warnings."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
        texts += [str(entry.message) for entry in caught if issubclass(entry.category, (RuntimeWarning, UserWarning))]
