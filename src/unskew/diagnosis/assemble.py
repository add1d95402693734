"""A diagnosis: all parts, the verdict, and the whole as text, table, plot and JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from unskew.data.clicks.click_log import ClickLog
from unskew.diagnosis.advice import Verdict, verdict
from unskew.diagnosis.click_rank import ClickRank, Trust
from unskew.diagnosis.click_rates import ClickRates, PairCauses
from unskew.diagnosis.connectivity import Connectivity
from unskew.diagnosis.coupling import Coupling
from unskew.diagnosis.examination_record import Looks
from unskew.diagnosis.leaks import ClickLeaks, PositionLeaks
from unskew.diagnosis.logging_policy import LoggerStrength, ShuffledClicks
from unskew.diagnosis.model_based import ModelBounds
from unskew.diagnosis.parts import PARTS, narrowest
from unskew.diagnosis.traffic import CappedUsers, Traffic
from unskew.display import Displayed, Screen, new_axes
from unskew.evaluation.production import LatestRanker
from unskew.propensities.curve import Curve, draw_curves
from unskew.propensities.estimate import LevelCurves
from unskew.propensities.position_pairs import Coverage
from unskew.reporting.answers import Finding, Refusal, all_known, known

LEFT_OUT = ("log", "covariances")  # of plain data: too large


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(Displayed):
    """A diagnosis, part by part."""

    log: ClickLog
    traffic: Traffic
    users: CappedUsers | Refusal
    rates: ClickRates
    coverage: Coverage | Refusal
    connectivity: Connectivity | Refusal
    by_column: Mapping[str, Connectivity | Refusal]
    curves: Mapping[str, Curve | Refusal]
    looks: Looks | Refusal  # the record of examination
    by_context: Mapping[str, LevelCurves | Refusal]  # whether context features change examination
    causes: PairCauses
    across_versions: Curve | Refusal  # all_pairs including documents whose features changed, which `curves` leaves out
    rank: ClickRank | Refusal
    trust: Trust | Refusal
    coupling: Coupling | Refusal
    strength: LoggerStrength | Refusal
    shuffled: ShuffledClicks | Refusal
    ranker: LatestRanker | Refusal  # whether the log shows several rankers, and which is the latest
    order: float | Refusal  # share of pairs whose shown order a linear function of the features predicts
    position_leaks: PositionLeaks | Refusal
    click_leaks: ClickLeaks | Refusal
    learnt: Mapping[str, Curve | Refusal]  # by methods, along with a ranker
    bounds: ModelBounds | Refusal
    part: str = ""  # what was read of a log larger than the memory limit
    name: str = "LOG"  # where it lies

    @property
    def lineage(self) -> dict[str, Any]:
        """The digest of the log."""
        return {"log": self.log.lineage.to_json()}

    @property
    def curve(self) -> Curve | None:
        """The curve estimated from clicks with the narrowest interval."""
        return narrowest(all_known(self.curves).values())

    @property
    def recorded_curve(self) -> Curve | None:
        """Recorded examination relative to the top; None: no record, or a position that was never examined."""
        return None if isinstance(self.looks, Refusal) else self.looks.curve

    @property
    def known_curves(self) -> dict[str, Curve]:
        """The curves that the log supports, by estimator; `seen` is recorded examination."""
        recorded = self.recorded_curve
        return all_known(self.curves) | ({} if recorded is None else {"seen": recorded})

    @property
    def verdict(self) -> Verdict:
        """The verdict: sentences, and advice for each method."""
        return verdict(self)

    def findings(self) -> list[Finding]:
        """The answers of all parts."""
        return [entry for name, part in PARTS.items() for entry in part.findings(getattr(self, name), self)]

    def refused(self) -> dict[str, str]:
        """What was not measured, and why."""
        return {
            title: reason for name, part in PARTS.items() for title, reason in part.refused(getattr(self, name)).items()
        }

    def to_table(self) -> pa.Table:
        """One row per position, from 0: impressions, click rate, and examination by every estimator, with intervals.

        `seen_…` is recorded examination.
        """
        table = pa.Table.from_pylist(self.rates.rows())
        for name, curve in self.known_curves.items():
            own = {row["position"]: row for row in curve.rows()}
            for column in ("propensity", "low", "high"):
                values = [own.get(place, {}).get(column) for place in table["position"].to_pylist()]
                table = table.append_column(f"{name}_{column}", pa.array(values, pa.float64()))
        return table

    def screen(self) -> Screen:
        rows = [(found.question, found.answer) for found in self.findings()]
        columns, places = position_rows(self)
        advice = [(names, word, reason) for word, reason, names in self.verdict.by_reason()]
        more = [Screen("Positions (from 1)", columns, places), Screen("Methods", ("methods", "", ""), advice, left=3)]
        notes = [*([f"{self.part}."] if self.part else []), *self.verdict.lines]
        return Screen(f"Diagnosis of {self.log!r}", ("what the log says", ""), rows, notes, left=2, more=more)

    def plot(self, ax: Any = None) -> Any:
        """Plot examination by every estimator with its interval, recorded examination, and the click rate."""
        axes = new_axes(ax)
        rates = self.rates
        axes.plot(rates.positions + 1, rates.rates / max(rates.rates[0], 1e-12), color="grey", label="click rate")
        return draw_curves(self.known_curves, axes)

    def to_json(self) -> dict[str, Any]:
        """The whole as plain data: numbers, text, lists and dictionaries. A refused part is `{"refused": reason}`."""
        parts = {entry.name: _plain(getattr(self, entry.name)) for entry in fields(self) if entry.name != "log"}
        return {
            "positions_count_from": 0,  # as in a log; texts for people count from 1
            "lineage": self.lineage,
            **parts,
            "best_curve": None if self.curve is None else self.curve.estimator,
            "findings": _plain(self.findings()),
            "methods": _plain(self.verdict.methods),
            "verdict": list(self.verdict.lines),
        }


def position_rows(diagnosis: Diagnosis) -> tuple[tuple[str, ...], list[list[str]]]:
    """Columns and rows of the table of positions, as text."""
    rates, best, recorded = diagnosis.rates, diagnosis.curve, diagnosis.recorded_curve
    strength = known(diagnosis.strength)
    curves = {} if best is None else {f"examination ({best.estimator})": best}
    curves |= {} if recorded is None else {"recorded examination": recorded}
    columns = ["position", "impressions", "click rate", f"{rates.level:.0%} interval"]
    for title, curve in curves.items():
        columns += [title, f"{curve.level:.0%} interval"]
    rows = []
    for number, row in enumerate(rates.rows()):
        cells = [f"{row['position'] + 1}", f"{row['impressions']:,.0f}", f"{row['rate']:.4f}"]
        cells.append(_interval(row["low"], row["high"], 4))
        for curve in curves.values():
            cells += curve_cells(curve, row["position"])
        if strength is not None:
            cells.append(f"{strength.relevance[number]:.2f}" if number < len(strength.relevance) else "–")
        rows.append(cells)
    return (*columns, *([] if strength is None else ["relevance"])), rows


def curve_cells(curve: Curve, position: int) -> list[str]:
    """Value and interval of a curve at a position; dashes if it does not cover it."""
    place = int(np.searchsorted(curve.positions, position))
    if place == len(curve.positions) or curve.positions[place] != position:
        return ["–", "–"]
    return [f"{curve.values[place]:.3f}", _interval(curve.low[place], curve.high[place], 3)]


def _interval(low: float, high: float, digits: int) -> str:
    """Both ends, or a dash where there are too few impressions for an interval."""
    return f"{low:.{digits}f}–{high:.{digits}f}" if math.isfinite(low) and math.isfinite(high) else "–"


def _plain(value: Any) -> Any:
    """A value as JSON can represent it; NaN and infinity become None."""
    if isinstance(value, Refusal):
        return {"refused": value.reason}
    if isinstance(value, ClickRank):
        return _plain(value.to_json())
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: _plain(getattr(value, entry.name)) for entry in fields(value) if entry.name not in LEFT_OUT}
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value
