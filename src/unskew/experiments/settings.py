"""Settings of an experiment: data, what was shown, who clicked, methods with their grids, how hyper-parameters are
chosen, seeds, metrics, what the paper measured and what it claims. `experiment_files` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

Options = dict[str, Any]
Grid = dict[str, list[Any]]


@dataclass(frozen=True)
class Simulation:
    """How clicks are made from judged data."""

    policy: Options = field(default_factory=lambda: {"name": "svm"})
    user: Options = field(default_factory=lambda: {"name": "position_based"})
    sessions: int = 128  # of each query
    n_shown: int = 10
    joint: bool = False
    drop_clickless: bool = False
    interventions: Options = field(default_factory=dict)

    def changed(self, changes: Options) -> Simulation:
        """With these entries in place of its own; options of the same user or policy are added to the old ones."""
        merged = dict(changes)
        for part in ("policy", "user"):
            if part in merged and "name" not in merged[part]:
                merged[part] = {**getattr(self, part), **merged[part]}
        return replace(self, **merged)


@dataclass(frozen=True)
class Setting:
    """One of several worlds or architectures in which all methods are compared."""

    name: str
    x: float | None = None  # its place on the axis of a figure
    simulation: Options = field(default_factory=dict)  # changes
    options: Options = field(default_factory=dict)  # of training and network, for every method


@dataclass(frozen=True)
class Entry:
    """A method as a row of a table."""

    label: str
    method: str
    options: Options = field(default_factory=dict)
    grid: Grid = field(default_factory=dict)
    interventions: Options = field(default_factory=dict)  # shares, of a second log for methods that need one
    oracle: str = ""  # what is taken from the truth of the simulation instead of being estimated

    def points(self) -> list[Options]:
        """All points of the grid; one without choices where there is no grid."""
        points: list[Options] = [{}]
        for name, values in self.grid.items():
            points = [{**point, name: value} for point in points for value in values]
        return points


@dataclass(frozen=True)
class Expected:
    """What the paper measured."""

    data: str  # as the paper calls it
    metrics: tuple[str, ...]
    values: dict[str, list[float]]  # label -> one value a metric
    setting: str = ""  # empty: of every setting
    catalogue: str = ""  # its name in the catalogue


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that results can confirm or refute."""

    text: str
    relation: str
    label: str = ""
    than: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()  # empty: all
    metric: str = ""  # empty: the main one
    reason: str = ""  # why it cannot be tested


@dataclass(frozen=True)
class FigureSetting:
    """A figure to draw from the results."""

    kind: str
    file: str
    title: str
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class Variant:
    """Another size of the same experiment, such as the paper's own."""

    about: str
    data: tuple[str, ...] = ()  # used by itself when one of these is named
    training: Options = field(default_factory=dict)
    simulation: Options = field(default_factory=dict)
    grids: dict[str, Grid] = field(default_factory=dict)  # label -> grid
    options: dict[str, Options] = field(default_factory=dict)  # setting -> options
    settings: tuple[Setting, ...] = ()  # besides those of the experiment
    seeds: int = 0  # 0: as the experiment


@dataclass(frozen=True)
class Experiment:
    """Everything that an experiment is, but the data it is run on."""

    name: str
    title: str
    paper: str
    question: str
    task: str = "train"
    data: str = "world:small"
    metrics: tuple[str, ...] = ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "arp")
    metric: str = "ndcg@10"  # the main one: chooses hyper-parameters on validation, leads tables and figures
    undefined: str = "skip"
    seeds: int = 5
    selection: str = "best"
    baseline: tuple[str, ...] = ()  # several: the one that is best on validation
    notes: tuple[str, ...] = ()
    training: Options = field(default_factory=dict)
    task_options: Options = field(default_factory=dict)
    simulation: Simulation = field(default_factory=Simulation)
    settings: tuple[Setting, ...] = ()
    methods: tuple[Entry, ...] = ()
    expected: tuple[Expected, ...] = ()
    chosen_in_paper: dict[str, dict[str, Any]] = field(default_factory=dict)  # "data, setting" -> hyper-parameters
    claims: tuple[Claim, ...] = ()
    figures: tuple[FigureSetting, ...] = ()
    variants: dict[str, Variant] = field(default_factory=dict)

    def variant_for(self, data: str) -> str:
        """Name of the variant that this data set calls for; empty: none."""
        return next((name for name, variant in self.variants.items() if data in variant.data), "")

    def varied(self, name: str) -> Experiment:
        """The experiment in this variant; the empty name is the experiment itself."""
        if not name:
            return self
        if name not in self.variants:
            raise ValueError(f"{self.name} has no variant '{name}': it has {', '.join(self.variants) or 'none'}")
        variant = self.variants[name]
        return replace(
            self,
            training={**self.training, **variant.training},
            simulation=self.simulation.changed(variant.simulation),
            seeds=variant.seeds or self.seeds,
            settings=tuple(
                replace(entry, options={**entry.options, **variant.options.get(entry.name, {})})
                for entry in sorted((*self.settings, *variant.settings), key=lambda entry: entry.x or 0)
            ),
            methods=tuple(replace(entry, grid=variant.grids.get(entry.label, entry.grid)) for entry in self.methods),
        )
