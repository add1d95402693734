"""The plan of an experiment: which runs there are, each with its complete definition.

The definition of a run contains everything that decides its result, including defaults; its hash names the row on disk.
So a change of a setting, or of a default in the code, makes a new row, and an old one is never reused for it.

A repetition is a fold (or a world of `world:small:100-104`) and a seed. The seed draws everything that a reader wants
to generalize over: the logging policy, the direction of visual attraction, the clicks and the training. Logging policy
and direction are also drawn anew in every fold. If the experiment sets a seed for the policy or the user, it is kept.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from unskew.comparison.settings import Entry, Experiment, OptionTable, Setting
from unskew.data.judged.catalogue import load, own_files
from unskew.data.judged.catalogue_entries import CATALOGUE, FOLDS
from unskew.data.judged.metrics import metric
from unskew.extensions import described, find, is_outside, outside_name, outside_parts
from unskew.methods import Method, hyper_parameters
from unskew.options import near, options_of
from unskew.simulation.policies import POLICIES, make_policy
from unskew.simulation.users import USERS, describe, make_user
from unskew.training.recipe import Recipe

WORLD_GRADE = 4.0
FOLD_OVERLAP = 1 / 3  # in five folds, three parts train and one tests
ONLY_SHOWN = "shown"  # an `oracle` for methods that learn from judgements: only judgements of shown documents
OF_CATALOGUE = "catalogue"  # the transform that the catalogue suggests for the data
REFERENCE_ROWS = {"logger": "Logger", "lightgbm": "LightGBM", "lightgbm_position": "LightGBM position"}
WORLDS = re.compile(r"(?P<size>world:\w+):(?P<first>\d+)-(?P<last>\d+)")
FORMAT = 2
SEEDS = 5


@dataclass(frozen=True)
class Repetition:
    """One repetition of all runs: a fold or world, and a seed."""

    number: int
    data: str  # a fold, a world, or the data set itself
    seed: int
    data_set: str = ""  # the data set that it is a fold of; default: `data` itself
    overlap: float = 0.0  # overlap of its training data with those of other folds, see `differences.Paired`
    draw: int = -1  # seed of logging policy and direction, different for every fold and seed; default: the seed

    def __post_init__(self) -> None:
        object.__setattr__(self, "data_set", self.data_set or self.data)
        object.__setattr__(self, "draw", self.seed if self.draw < 0 else self.draw)


@dataclass(frozen=True, eq=False)
class Run:
    """One training, or another task, and where its result belongs."""

    setting: str
    label: str
    point: OptionTable  # of the grid
    repetition: Repetition
    definition: OptionTable = field(repr=False)

    @cached_property
    def record(self) -> OptionTable:
        """The definition as plain data; user-defined classes by name, with their version or a source digest."""
        return json.loads(json.dumps(self.definition, sort_keys=True, default=plain_part))

    @cached_property
    def key(self) -> str:
        """The name of its row: a hash of the definition."""
        return _digest(self.record)

    @cached_property
    def family(self) -> str:
        """Equal for all runs that differ only in the code of user-defined classes; empty if there are none."""
        if not outside_parts(self.definition):
            return ""
        return _digest(json.loads(json.dumps(self.definition, sort_keys=True, default=outside_name)))

    @property
    def unit(self) -> str:
        """The unit of repetition: folds or worlds if there are several, otherwise seeds."""
        return self.repetition.data if self.repetition.data != self.repetition.data_set else str(self.repetition.seed)

    @property
    def title(self) -> str:
        choice = " ".join(f"{name}={value}" for name, value in self.point.items())
        parts = (self.setting, self.label if choice in self.label else f"{self.label} {choice}")
        return f"{', '.join(part for part in parts if part)}, {self.repetition.data}, seed {self.repetition.seed}"


@dataclass(frozen=True, eq=False)
class Group:
    """All runs of one method in one setting: the points of its grid first, then repetitions of the chosen one."""

    setting: str
    label: str
    candidates: tuple[Run, ...]  # on the first repetition
    again: Callable[[Run], list[Run]] = field(repr=False)  # the same run on the other repetitions


def plan(
    experiment: Experiment,
    data: str,
    seeds: int | None = None,
    own: OptionTable | None = None,
    folds: Sequence[int] | None = None,
) -> list[Group]:
    """Groups of runs; an unknown method, option or data set is an error here, before any work.

    Args:
        seeds: number of seeds per fold; default: as in the experiment, or 5, or 1 if there are folds.
        own: your own log, and judged data for validation and test, instead of a simulation on `data`.
        folds: the folds to run, counted from 1; default: as in the experiment, or all.
    """
    repetitions = repetitions_of(data, experiment.seeds if seeds is None else seeds, folds or experiment.folds)
    if own is None:
        for name in dict.fromkeys(repetition.data for repetition in repetitions):
            load(name)  # raises if files are missing
    groups = []
    for setting in experiment.settings or (Setting(""),):
        for entry in experiment.methods:
            groups += _groups(experiment, setting, entry, repetitions, own)
        groups += [_reference_group(experiment, setting, row, repetitions) for row in _known_rows(experiment)]
    return groups


def _known_rows(experiment: Experiment) -> list[str]:
    """Rows besides the methods; those of LightGBM only if it is installed."""
    trees = importlib.util.find_spec("lightgbm") is not None
    left_out = [row for row in experiment.rows if "lightgbm" in row and not trees]
    if left_out:
        text = "LightGBM is not installed, so its rows are left out: pip install 'unskew[trees]'"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    return [row for row in experiment.rows if row not in left_out]


def repetitions_of(data: str, seeds: int | None = None, folds: Sequence[int] = ()) -> list[Repetition]:
    """All repetitions on a data set: every fold with every seed, the first seed of all folds first.

    Args:
        seeds: number of seeds per fold; None: 5, or 1 if there are folds.
        folds: numbers of the folds, or worlds, from 1; empty: all.
    """
    names = folds_of(data)
    seeds = (SEEDS if len(names) == 1 else 1) if seeds is None else seeds
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    wrong = [fold for fold in folds if not 1 <= fold <= len(names)]
    if wrong:
        have = f"folds 1 to {len(names)}" if len(names) > 1 else "no folds"
        raise ValueError(f"there is no fold {wrong[0]}: {data} has {have}")
    chosen = [names[fold - 1] for fold in folds] or names
    overlap = FOLD_OVERLAP if names[0] in CATALOGUE and len(names) > 1 else 0.0
    every = [(name, seed) for seed in range(seeds) for name in chosen]
    return [
        Repetition(number, name, seed, data, overlap, seed * len(names) + names.index(name))
        for number, (name, seed) in enumerate(every)
    ]


def folds_of(data: str) -> list[str]:
    """Names of the folds of a data set, or of the worlds of `world:SIZE:FIRST-LAST`; otherwise its own name."""
    worlds = WORLDS.fullmatch(data)
    if worlds is not None:
        return [f"{worlds['size']}:{seed}" for seed in range(int(worlds["first"]), int(worlds["last"]) + 1)] or [data]
    folds = [f"{data}/{fold}" for fold in FOLDS if f"{data}/{fold}" in CATALOGUE]
    return folds or [data]


def highest_grade(data: str) -> float:
    """The highest grade of the scale of a data set."""
    if data in CATALOGUE:
        return float(CATALOGUE[data].grades.rpartition("-")[2])
    if own_files(data):
        splits = load(data)
        return max(splits.train.max_grade, splits.valid.max_grade, splits.test.max_grade)
    return WORLD_GRADE


@cache
def data_digest(files: tuple[str, ...]) -> str:
    """A hash of the user's files, so that rows of other data are never reused."""
    digest = hashlib.sha256()
    for file in files:
        for part in file.split("+"):  # judgements and features of a table
            with Path(part).open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:24]


def _groups(
    experiment: Experiment, setting: Setting, entry: Entry, repetitions: list[Repetition], own: OptionTable | None
) -> list[Group]:
    alone = experiment.selection == "all"

    def make(point: OptionTable, repetition: Repetition) -> Run:
        chosen = [f"{name}={value}" for name, value in point.items()] if alone else []
        label = " ".join([entry.label, *chosen])
        definition = define(experiment, setting, entry, point, repetition, own)
        return Run(setting.name, label, point, repetition, definition)

    def again(chosen: Run) -> list[Run]:
        return [make(chosen.point, repetition) for repetition in repetitions[1:]]

    candidates = [make(point, repetitions[0]) for point in entry.points()]
    if alone:
        return [Group(setting.name, run.label, (run,), again) for run in candidates]
    return [Group(setting.name, entry.label, tuple(candidates), again)]


def _reference_group(experiment: Experiment, setting: Setting, row: str, repetitions: list[Repetition]) -> Group:
    """A row that is not a method, such as the logging policy; it is drawn again for every repetition."""
    if row not in REFERENCE_ROWS:
        raise ValueError(f"unknown row '{row}'{near(row, REFERENCE_ROWS)}: choose from {', '.join(REFERENCE_ROWS)}")
    label = REFERENCE_ROWS[row]

    def make(repetition: Repetition) -> Run:
        simulated = _simulated(experiment, setting, repetition)
        registered = _registered(experiment, simulated["simulation"])
        definition = {**_measured(experiment, repetition), "task": row, "row": row} | simulated | registered
        return Run(setting.name, label, {}, repetition, definition)

    return Group(setting.name, label, (make(repetitions[0]),), lambda _: [make(entry) for entry in repetitions[1:]])


def define(
    experiment: Experiment,
    setting: Setting,
    entry: Entry,
    point: OptionTable,
    repetition: Repetition,
    own: OptionTable | None = None,
) -> OptionTable:
    """The complete definition of a run."""
    options = {**experiment.training, **setting.options, **entry.options, **point}
    if options.get("transform") == OF_CATALOGUE:
        known = CATALOGUE.get(repetition.data)
        options["transform"] = "automatic" if known is None else known.transform
    recipe = Recipe.of(entry.method, **{**options, "metric": experiment.metric, "seed": repetition.seed})
    recipe.settings.torch_device()  # raises before any run if the device is not available
    definition = {
        **_measured(experiment, repetition),
        "task": experiment.task,
        "task_options": experiment.task_options,
        "recipe": recipe_definition(recipe),
    }
    if own is not None:
        return definition | own | _registered(experiment)
    needs_logger = any(metric(name).among for name in experiment.metrics)
    taught = recipe.method_class.learns_from == "judgements"
    if entry.oracle and taught != (entry.oracle == ONLY_SHOWN):
        allowed = f"use '{ONLY_SHOWN}' for methods that learn from judgements, others for those that learn from clicks"
        raise ValueError(f"{entry.label}: {entry.method} cannot use the oracle '{entry.oracle}': {allowed}")
    if taught and not needs_logger and not entry.oracle:  # from no log
        return definition | _registered(experiment)
    simulated = _simulated(experiment, setting, repetition)
    if simulated["simulation"]["clicks"] == "fresh" and not _learns_fresh(recipe, entry):
        simulated["simulation"]["clicks"] = "fixed"  # the method needs a whole log
    told = {"interventions": dict(entry.interventions), "oracle": entry.oracle}
    return definition | simulated | told | _registered(experiment, simulated["simulation"])


def _measured(experiment: Experiment, repetition: Repetition) -> OptionTable:
    """The part of a definition that decides how a row is measured."""
    definition = {
        "format": FORMAT,
        "version": version("unskew"),
        "data": repetition.data,
        "metrics": list(experiment.metrics),
        "metric": experiment.metric,
        "undefined": experiment.undefined,
        "max_grade": highest_grade(repetition.data),
    }
    files = own_files(repetition.data)
    return definition | ({"data_digest": data_digest(tuple(files.values()))} if files else {})


def _simulated(experiment: Experiment, setting: Setting, repetition: Repetition) -> OptionTable:
    """The part of a definition that decides the log.

    Unless the experiment sets them, the users' highest grade is that of the data, and a repetition draws the logging
    policy and the users' direction anew.
    """
    simulation, grade = experiment.simulation.changed(setting.simulation), highest_grade(repetition.data)
    policy, user = dict(simulation.policy), dict(simulation.user)
    of_policy = options_of(find("policy", POLICIES, policy.get("name", "")))
    of_user = options_of(find("user", USERS, user.get("name", "")))
    if "max_grade" in of_user:
        user.setdefault("max_grade", grade)
    if "rows" in of_user and grade == 2:  # three grades use the rows of the lowest, middle and highest grade
        user.setdefault("rows", [0, 2, 4])
    if "seed" in of_policy:
        policy.setdefault("seed", repetition.draw)
    if "direction_seed" in of_user:
        user.setdefault("direction_seed", repetition.draw)
    simulation = replace(simulation, policy=policy, user=user)
    return {
        "simulation": asdict(simulation),
        "policy_defaults": describe(POLICIES, make_policy(simulation.policy)),
        "user_defaults": describe(USERS, make_user(simulation.user)),
        "simulation_seed": repetition.seed,
    }


def _registered(experiment: Experiment, simulation: OptionTable | None = None) -> OptionTable:
    """Parts that an installed package registered by name: their code is part of the definition."""
    parts: list[Any] = [metric(name).outside for name in experiment.metrics if isinstance(name, str)]
    for what, choices in (("policy", POLICIES), ("user", USERS)) if simulation is not None else ():
        name = simulation[what]["name"]  # type: ignore[index]
        parts += [find(what, choices, name)] if isinstance(name, str) else []
    outside = [part for part in parts if part is not None and is_outside(part)]
    return {"registered": outside} if outside else {}


def _learns_fresh(recipe: Recipe, entry: Entry) -> bool:
    """Whether a method can learn from fresh clicks at every step."""
    method = recipe.method_class
    whole = method.prepare is not Method.prepare or method.finish is not Method.finish
    estimated = any(recipe.hyper_parameters.get(name) is None for name in method.estimated)
    return not (whole or estimated or entry.oracle or entry.interventions)


def recipe_definition(recipe: Recipe) -> OptionTable:
    """A recipe as plain data, with the defaults of the method's hyper-parameters written out."""
    defaults = {name: entry.default for name, entry in hyper_parameters(recipe.method_class).items()}
    trees = {"tree_targets": recipe.tree_targets, **recipe.tree_options()}
    return {
        "method": recipe.outside or recipe.method,
        "hyper_parameters": {**defaults, **recipe.hyper_parameters},
        "settings": recipe.settings.to_json(),
        "network": recipe.network.to_json() | ({"kind": recipe.network.outside} if recipe.network.outside else {}),
        "transform": recipe.transform,
        **({} if recipe.ranker == "network" else {"ranker": recipe.ranker, **trees}),
    }


def as_json(value: Any) -> str:
    """The same text for equal data, as a key for results kept within a process."""
    return json.dumps(
        value, sort_keys=True, default=lambda part: f"{part!r} {id(part)}" if callable(part) else repr(part)
    )


def plain_part(part: Any) -> Any:
    """What JSON holds of a part: a user-defined class by name, with its version or a source digest."""
    return described(part) if is_outside(part) else repr(part)


def _digest(record: OptionTable) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:24]
