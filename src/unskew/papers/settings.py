"""Settings of a paper's experiment: the paper's numbers, its claims, figures and variants."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from unskew.comparison.settings import Experiment, Grid, OptionTable, Setting
from unskew.options import Limits


@dataclass(frozen=True)
class Expected:
    """Values reported by the paper."""

    data: str  # its name in the paper
    metrics: tuple[str, ...]
    values: dict[str, list[float]]  # label -> one value per metric
    setting: str = ""  # empty: every setting
    catalogue: str = ""  # its name in the catalogue


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that results can confirm or refute."""

    text: str
    relation: Literal["better", "similar", "no_worse", "falls", "rises", "untestable"]
    label: str = ""
    than: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()  # empty: all
    metric: str = ""  # empty: the main one
    margin: Annotated[float, Limits(above=0)] = 0.01  # of "similar" and "no_worse", fixed before the results are seen
    ours: bool = False  # not a claim of the paper: counted separately
    reason: str = ""  # why it cannot be tested


@dataclass(frozen=True)
class FigureSetting:
    """A figure to draw from the results."""

    kind: str
    file: str
    title: str
    options: OptionTable = field(default_factory=dict)


@dataclass(frozen=True)
class Variant:
    """A variant of the same experiment, such as the paper's own sizes."""

    about: str
    data: tuple[str, ...] = ()  # data sets for which it is the default
    training: OptionTable = field(default_factory=dict)
    simulation: OptionTable = field(default_factory=dict)
    grids: dict[str, Grid] = field(default_factory=dict)  # label -> grid
    grid: Grid = field(default_factory=dict)  # added to the grid of every method
    options: dict[str, OptionTable] = field(default_factory=dict)  # setting -> options
    methods: dict[str, OptionTable] = field(default_factory=dict)  # label -> options, overriding the experiment
    settings: tuple[Setting, ...] = ()  # in addition to those of the experiment
    seeds: int | None = None  # None: as in the experiment


@dataclass(frozen=True)
class PaperExperiment(Experiment):
    """The definition of a paper's experiment, except the data; `experiment_files` reads it."""

    paper: str = field(kw_only=True)
    expected: tuple[Expected, ...] = ()
    chosen_in_paper: dict[str, dict[str, Any]] = field(default_factory=dict)  # "data, setting" -> hyper-parameters
    claims: tuple[Claim, ...] = ()
    figures: tuple[FigureSetting, ...] = ()
    variants: dict[str, Variant] = field(default_factory=dict)

    def variant_for(self, data: str) -> str:
        """Name of the default variant for this data set; empty: none."""
        return next((name for name, variant in self.variants.items() if data in variant.data), "")

    def varied(self, name: str) -> PaperExperiment:
        """The experiment in this variant; the empty name is the experiment itself."""
        if not name:
            return self
        if name not in self.variants:
            raise ValueError(f"{self.name} has no variant '{name}'. Found: {', '.join(self.variants) or 'none'}")
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
            methods=tuple(
                replace(
                    entry,
                    grid={**variant.grids.get(entry.label, entry.grid), **variant.grid},
                    options={**entry.options, **variant.methods.get(entry.label, {})},
                )
                for entry in self.methods
            ),
        )
