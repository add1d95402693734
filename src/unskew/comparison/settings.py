"""Settings of an experiment: data, logging policy, users, methods with their grids, how hyper-parameters are chosen,
seeds and metrics.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from unskew.methods import Method
from unskew.options import Limits, NotEmpty

OptionTable = dict[str, Any]
Grid = dict[str, Annotated[list[Any], NotEmpty]]


@dataclass(frozen=True)
class SimulationSettings:
    """The simulation of clicks on judged data."""

    policy: OptionTable = field(default_factory=lambda: {"name": "svm"})
    user: OptionTable = field(default_factory=lambda: {"name": "position_based"})
    sessions: int = 128  # per query
    n_shown: int = 10
    joint: bool = False
    drop_clickless: bool = False
    interventions: OptionTable = field(default_factory=dict)
    clicks: Literal["fixed", "fresh"] = "fixed"  # one log, or new clicks at every step of training

    def changed(self, changes: OptionTable) -> SimulationSettings:
        """The settings with these changes; options of the same user or policy are added to the old ones."""
        merged = dict(changes)
        for part in ("policy", "user"):
            if part in merged and "name" not in merged[part]:
                merged[part] = {**getattr(self, part), **merged[part]}
        return replace(self, **merged)


@dataclass(frozen=True)
class Setting:
    """One of several worlds or architectures in which all methods are compared."""

    name: str
    x: float | None = None  # its coordinate on the axis of a figure
    simulation: OptionTable = field(default_factory=dict)  # changes
    options: OptionTable = field(default_factory=dict)  # options of training and network, for every method


@dataclass(frozen=True)
class Entry:
    """A method as a row of a table."""

    label: str
    method: str | type[Method]
    options: OptionTable = field(default_factory=dict)
    grid: Grid = field(default_factory=dict)
    interventions: OptionTable = field(default_factory=dict)  # shares in a second log, for methods that need one
    oracle: str = ""  # quantity taken from the truth of the simulation instead of being estimated

    def points(self) -> list[OptionTable]:
        """All points of the grid; one empty point if there is no grid."""
        points: list[OptionTable] = [{}]
        for name, values in self.grid.items():
            points = [{**point, name: value} for point in points for value in values]
        return points


@dataclass(frozen=True)
class Experiment:
    """The definition of an experiment, except the data."""

    name: str
    title: str
    question: str
    task: str = "train"
    # Names of the catalogue, or files for train, valid and test; several make one table of data sets and methods.
    data: str | dict[str, str] | list[str] = "world:small"
    metrics: tuple[str, ...] = ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "arp")
    metric: str = "ndcg@10"  # the main metric: it chooses hyper-parameters on validation, and is first in tables
    undefined: str = "skip"
    seeds: Annotated[int, Limits(1)] | None = None  # per fold; None: 5, or 1 if the data have folds
    folds: tuple[int, ...] = ()  # folds to run, from 1; empty: all
    # The point of each grid that is best on validation, on the first repetition; or every point as a row of its own.
    selection: Literal["best", "all"] = "best"
    baseline: tuple[str, ...] = ()  # of several, the one that is best on validation
    notes: tuple[str, ...] = ()
    training: OptionTable = field(default_factory=dict)
    task_options: OptionTable = field(default_factory=dict)
    simulation: SimulationSettings = field(default_factory=SimulationSettings)
    settings: tuple[Setting, ...] = ()
    methods: tuple[Entry, ...] = ()
    rows: tuple[str, ...] = ()  # besides the methods: logger, lightgbm, lightgbm_position
