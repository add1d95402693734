"""History: loss terms and validation of a training run, to read, save and plot."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from unskew.display import Displayed, Screen, new_axes
from unskew.training.ending import Ending

if TYPE_CHECKING:
    import pyarrow as pa

LAST = 10  # records shown on a screen


@dataclass(repr=False)
class History(Displayed):
    """Loss terms and validation values by step."""

    # Step, stage, seconds, loss terms (means over the steps since the previous row), and optionally "validation".
    rows: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    best_step: int | None = None
    best_value: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # that were used, with those that depend on the log
    ending: Ending | None = None  # why training ended
    passes: float | None = None  # over the log; None: it has no end

    @property
    def seconds(self) -> float:
        return float(self.rows[-1]["seconds"]) if self.rows else 0.0

    @property
    def ended(self) -> str:
        """Why training ended, and how much of the log it has seen; empty for models of 0.2."""
        if self.ending is None:
            return ""
        share = "" if self.passes is None else f"; {_passes(self.passes)}"
        return f"{self.ending}{share}"

    def column(self, name: str) -> list[tuple[int, float]]:
        """(step, value) pairs of a loss term or of `validation`, for the steps that recorded it."""
        return [(row["step"], row[name]) for row in self.rows if name in row]

    def to_table(self) -> pa.Table:
        """One row per record: step, stage, seconds, loss terms, validation; null if a value was not recorded."""
        import pyarrow as pa

        names = self._names() or ["step", "stage", "seconds"]
        return pa.table({name: [row.get(name) for row in self.rows] for name in names})

    def screen(self) -> Screen:
        names = self._names()
        rows = [[_cell(row.get(name)) for name in names] for row in self.rows[-LAST:]]
        best = "" if self.best_value is None else f", best validation {self.best_value:.4f} at step {self.best_step}"
        steps = self.rows[-1]["step"] if self.rows else 0
        title = f"Training of {steps:,} steps in {self.seconds:.1f} s{best}; the last records"
        notes = [f"Training {self.ended}"] if self.ended else []
        return Screen(title, names, rows, [*notes, *self.warnings], left=0)

    def plot(self, ax: Any = None) -> Any:
        """Plot loss terms by step, and validation on a second scale."""
        axes = new_axes(ax)
        terms = [name for name in self._names() if name not in {"step", "stage", "seconds", "validation"}]
        for name in terms:
            axes.plot(*zip(*self.column(name), strict=True), label=name)
        axes.set_xlabel("step")
        axes.set_ylabel("loss per session")
        if validation := self.column("validation"):
            right = axes.twinx()
            right.plot(*zip(*validation, strict=True), color="black", marker="o", markersize=3, label="validation")
            right.set_ylabel("validation")
        if terms:
            axes.legend(frameon=False)
        return axes

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "warnings": self.warnings,
            "best_step": self.best_step,
            "best_value": self.best_value,
            "settings": self.settings,
            "ending": None if self.ending is None else asdict(self.ending),
            "passes": self.passes,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> History:
        rows = [dict(row) for row in data["rows"]]
        if any(not {"step", "stage", "seconds"} <= set(row) for row in rows):
            raise ValueError("a row without step, stage or seconds")
        said, settings = [str(text) for text in data["warnings"]], dict(data.get("settings", {}))  # 0.2 has no settings
        ending = Ending(**data["ending"]) if data.get("ending") else None
        return cls(rows, said, data["best_step"], data["best_value"], settings, ending, data.get("passes"))

    def _names(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row))


@dataclass
class MeanTerms:
    """Loss terms, averaged over the steps since they were last taken."""

    sums: dict[str, float] = field(default_factory=dict)
    steps: int = 0

    def add(self, terms: Mapping[str, float]) -> None:
        """Add the terms of a step; a skipped step has none and does not count."""
        self.steps += bool(terms)
        for name, value in terms.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def take(self) -> dict[str, float]:
        means = {name: total / self.steps for name, total in self.sums.items()}
        self.sums, self.steps = {}, 0
        return means


@dataclass(frozen=True)
class Report:
    """What a progress display receives."""

    stage: str
    step: int  # finished steps, over all stages
    steps: int  # total number of steps
    terms: Mapping[str, float]  # means over the steps since the previous report
    validation: float | None
    started: float  # time.monotonic() of the first step
    first_step: int  # steps done before this run was resumed

    @property
    def rate(self) -> float:
        """Steps per second."""
        return (self.step - self.first_step) / max(time.monotonic() - self.started, 1e-9)

    @property
    def seconds_left(self) -> float:
        return (self.steps - self.step) / max(self.rate, 1e-9)


def _passes(passes: float) -> str:
    """How often the lists of the log were seen."""
    if passes < 1:
        return f"{passes:.0%} of the lists were seen"
    return "every list was seen " + ("about once" if passes < 1.5 else f"about {passes:,.0f} times")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)
