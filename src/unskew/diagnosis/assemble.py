"""Assemble all parts of a diagnosis of one log.

A part that the log does not support is a `Refusal` with its reason, which is reported like any other result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from unskew.data.clicks.click_log import ClickLog
from unskew.diagnosis.click_kinds import click_matrix_without_grades
from unskew.diagnosis.click_rank import ClickRank, Trust, click_rank, trust_bias
from unskew.diagnosis.click_rates import ClickRates, click_rates, single_documents
from unskew.diagnosis.connectivity import Connectivity, PairCauses, connectivity, connectivity_by, pair_causes
from unskew.diagnosis.coupling import Coupling, coupling
from unskew.diagnosis.fitted import LEARNT, LearntCurve, ModelBounds, learnt_curve, model_bounds
from unskew.diagnosis.leaks import ClickLeaks, PositionLeaks, click_leaks, position_leaks
from unskew.diagnosis.logging_policy import (
    LoggerStrength,
    ShuffledClicks,
    logger_strength,
    order_from_features,
    shuffled_clicks,
)
from unskew.diagnosis.recorded import Looks, looks
from unskew.diagnosis.traffic import CappedUsers, Traffic, heavy_users, scale_heavy_users, traffic
from unskew.display import Displayed, Screen, new_axes
from unskew.evaluation.production import LatestRanker, latest_ranker
from unskew.propensities.curve import Curve, draw_curves
from unskew.propensities.estimate import ESTIMATORS, LevelCurves, curves_by_level
from unskew.propensities.harvesting import all_pairs
from unskew.propensities.position_pairs import Coverage, intervention_coverage
from unskew.propensities.randomization import display

if TYPE_CHECKING:
    from unskew.diagnosis.verdict import Verdict

Result = TypeVar("Result")
Progress = Callable[[int, int], None]

QUICK = "skipped by --quick"
N_PARTS = 14  # besides estimators, bias columns and fitted models
RARE = 0.01  # significance of each test that may reject scalar examination: there are three
BY_LIST = ("randomization", "display")  # estimators that need whole lists


@dataclass(frozen=True)
class Refusal:
    """A part that this log does not support, and why."""

    reason: str


NO_MATRIX = Refusal("it needs a click matrix, see scalar examination")


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
    learnt: Mapping[str, LearntCurve | Refusal]
    bounds: ModelBounds | Refusal
    part: str = ""  # what was read of a log larger than the memory limit

    @property
    def lineage(self) -> dict[str, Any]:
        """The digest of the log."""
        return {"log": self.log.lineage.to_json()}

    @property
    def curve(self) -> Curve | None:
        """The curve estimated from clicks with the narrowest interval."""
        found = [curve for curve in self.curves.values() if isinstance(curve, Curve)]
        return min(found, key=_width) if found else None

    @property
    def recorded_curve(self) -> Curve | None:
        """Recorded examination relative to the top; None: no record, or a position that was never examined."""
        return None if isinstance(self.looks, Refusal) else self.looks.curve

    @property
    def verdict(self) -> Verdict:
        """The verdict: sentences, and advice for each method."""
        from unskew.diagnosis.verdict import verdict  # imports this module

        return verdict(self)

    def to_table(self) -> pa.Table:
        """One row per position, from 0: impressions, click rate, and examination by every estimator, with intervals.

        `seen_…` is recorded examination.
        """
        table = pa.Table.from_pylist(self.rates.rows())
        for name, curve in {**self.curves, "seen": self.recorded_curve}.items():
            if isinstance(curve, Curve):
                own = {row["position"]: row for row in curve.rows()}
                for part in ("propensity", "low", "high"):
                    values = [own.get(place, {}).get(part) for place in table["position"].to_pylist()]
                    table = table.append_column(f"{name}_{part}", pa.array(values, pa.float64()))
        return table

    def screen(self) -> Screen:
        from unskew.diagnosis.findings import findings  # imports this module

        rows = [(found.question, found.answer) for found in findings(self)]
        notes = [*([f"{self.part}."] if self.part else []), *self.verdict.lines]
        return Screen(f"Diagnosis of {self.log!r}", ("what the log says", ""), rows, notes, left=2)

    def plot(self, ax: Any = None) -> Any:
        """Plot examination by every estimator with its interval, recorded examination, and the click rate."""
        axes = new_axes(ax)
        rates = self.rates
        axes.plot(rates.positions + 1, rates.rates / max(rates.rates[0], 1e-12), color="grey", label="click rate")
        curves = {**self.curves, "seen": self.recorded_curve}
        return draw_curves({name: curve for name, curve in curves.items() if isinstance(curve, Curve)}, axes)


def diagnose(
    log: ClickLog,
    *,
    quick: bool = False,
    users: str | None = None,
    cap: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Diagnosis:
    """Diagnose a log.

    Args:
        quick: skip what needs a trained model.
        users: the bias column that names users; it is counted, not used as bias.
        cap: maximum number of sessions per user; the excess has no weight and is counted.
        progress: called with the number of finished and of all parts.
    """
    if not log.n_sessions or not log.mask.any():
        raise ValueError("the log is empty: there is nothing to diagnose")
    if users is not None and users not in log.bias:
        has = ", ".join(log.bias) if log.bias else "none; ingest the column with --bias COLUMN"
        raise ValueError(f"the log has no bias column '{users}' with users. Found: {has}")
    if cap is not None and users is None:
        raise ValueError("a cap needs the column with users: pass --users COLUMN (in Python users=…)")
    estimators = {**ESTIMATORS, **({} if log.display_probabilities is None else {"display": display})}
    steps = _Steps(
        progress, N_PARTS + len(log.bias) + len(log.context_names) + len(estimators) + (0 if quick else len(LEARNT) + 1)
    )
    counted = steps.part(lambda: _counted_users(log, users, cap))
    log = _without_users(log, users, cap)
    single = single_documents(log)
    rates = click_rates(single)
    coverage = steps.part(lambda: intervention_coverage(single))
    known = None if isinstance(coverage, Refusal) else coverage
    causes = pair_causes(log)
    matrix = steps.part(lambda: click_matrix_without_grades(single, seed=seed))
    found = Diagnosis(
        log=log,
        traffic=traffic(log),
        users=counted,
        rates=rates,
        coverage=coverage,
        connectivity=steps.part(lambda: connectivity(single, rates=rates, coverage=known, n_sessions=log.n_sessions)),
        by_column={name: steps.part(partial(connectivity_by, log, name)) for name in log.bias},
        curves={
            name: steps.part(partial(estimate, log if name in BY_LIST else single, seed=seed))
            for name, estimate in estimators.items()
        },
        looks=steps.part(lambda: looks(log, seed=seed)),
        by_context={name: steps.part(partial(curves_by_level, log, name, seed=seed)) for name in log.context_names},
        causes=causes,
        across_versions=steps.part(lambda: _across_versions(single, causes, seed)),
        rank=matrix
        if isinstance(matrix, Refusal)
        else steps.part(lambda: click_rank(matrix, significance=RARE, seed=seed)),
        trust=NO_MATRIX if isinstance(matrix, Refusal) else steps.part(lambda: trust_bias(matrix)),
        coupling=steps.part(lambda: coupling(single, seed=seed)),
        strength=Refusal("it needs an examination curve"),
        shuffled=steps.part(lambda: shuffled_clicks(log)),
        ranker=steps.part(lambda: latest_ranker(log)),
        order=steps.part(lambda: order_from_features(log, seed=seed)),
        position_leaks=steps.part(lambda: position_leaks(log, seed=seed)),
        click_leaks=steps.part(lambda: click_leaks(single, seed=seed)),
        learnt={
            name: Refusal(QUICK) if quick else steps.part(partial(learnt_curve, log, name, seed=seed))
            for name in LEARNT
        },
        bounds=Refusal(QUICK) if quick else steps.part(lambda: model_bounds(log, seed=seed)),
    )
    curve = found.curve
    if curve is not None:
        found = replace(found, strength=steps.part(lambda: logger_strength(rates, curve)))
    steps.end()
    return found


def _across_versions(single: ClickLog, causes: PairCauses, seed: int) -> Curve:
    if not causes.features:
        raise ValueError("no document was moved by a change of its features alone")
    return all_pairs(single, seed=seed, across_versions=True)


class _Steps:
    """Runs parts, turns errors into refusals, and reports progress."""

    def __init__(self, progress: Progress | None, total: int):
        self.progress, self.total, self.done = progress, total, 0

    def end(self) -> None:
        """Count the parts that were skipped because another part was refused."""
        if self.progress is not None:
            self.progress(self.total, self.total)

    def part(self, run: Callable[[], Result]) -> Result | Refusal:
        try:
            return run()
        except ValueError as reason:  # NotIdentified is one
            return Refusal(str(reason))
        finally:
            self.done += 1
            if self.progress is not None:
                self.progress(min(self.done, self.total), self.total)


def _counted_users(log: ClickLog, users: str | None, cap: float | None) -> CappedUsers:
    if users is None:
        raise ValueError(
            "a log counts sessions, not users: pass the bias column with users (--users COLUMN), or cap users when "
            "you ingest the log (unskew ingest --cap-user COLUMN=N)"
        )
    return heavy_users(log, users, cap)


def _without_users(log: ClickLog, users: str | None, cap: float | None) -> ClickLog:
    if users is None:
        return log
    if cap is not None:
        log = scale_heavy_users(log, users, cap)
    return replace(log, bias={name: column for name, column in log.bias.items() if name != users})


def _width(curve: Curve) -> float:
    """Mean width of the interval on a log scale."""
    with np.errstate(divide="ignore", invalid="ignore"):
        widths = np.log(curve.high / curve.low)
    return float(np.nan_to_num(widths, nan=np.inf, posinf=np.inf).mean())
