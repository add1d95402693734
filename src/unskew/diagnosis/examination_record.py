r"""Recorded examination in a diagnosis: its curve, its rate of false alarms, and its inconsistencies.

A record that grows with interest, $q = o\,a$ instead of $o$, merely repeats the clicks: clicks per recorded examination
then hardly differ between documents. With $\rho_k$ the clicks per recorded examination at position $k$,
`left_for_relevance` is the variance of $c - \rho_k q$ over documents as a share of that of $c$, both minus the sampling
variance. It is 1 if examination depends on the position alone, and 0 if the record is proportional to clicks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.examination_record import (
    CERTAIN,
    FalseAlarms,
    cells_of,
    examination_rates,
    false_alarms,
    recorded,
)
from unskew.propensities.curve import Curve, NotIdentified
from unskew.propensities.estimate import seen
from unskew.reporting.answers import BAD, GOOD, UNKNOWN, Finding, Refusal, attempt, known

BLIND = 0.25  # share of clicks without recorded examination; fewer misses only rescale the record
CONSTANT = 0.01  # a record in which a smaller share of values differs counts as constant
LEAST_LEFT = 0.15  # share of the variance of clicks that the record must leave to relevance


@dataclass(frozen=True, eq=False)
class Looks:
    """Findings about the record of examination."""

    share: float  # share of the sessions that recorded examination
    rates: NDArray[np.float64]  # [positions], share of the recorded sessions in which each was examined
    curve: Curve | None  # relative to the top; None: some position was never examined
    alarms: FalseAlarms | Refusal
    blind: float  # lower bound of the share of clicks without recorded examination
    faults: tuple[str, ...]  # inconsistencies of the record, one sentence each

    @property
    def sure_alarms(self) -> bool:
        """Whether the record has significantly many documents that were not examined."""
        return isinstance(self.alarms, FalseAlarms) and self.alarms.rate > CERTAIN * self.alarms.error

    def findings(self) -> Iterator[Finding]:
        """The record compared with clicks, and its faults."""
        rates = self.rates
        text = f"{self.share:.0%} of the sessions; {rates[0]:.2f} at the top, {rates[-1]:.2f} at position {len(rates)}"
        if self.blind:
            text += f"; at least {self.blind:.1%} of the clicks have no recorded examination"
        yield Finding("recorded examination", text, BAD if self.faults else GOOD)
        for fault in self.faults:
            yield Finding("record consistent?", f"no: {fault}", BAD)
        if isinstance(self.alarms, Refusal):
            yield Finding("record: false alarms", f"unknown: {self.alarms.short}", UNKNOWN)
            return
        text = f"{self.alarms.rate:.3f} ± {self.alarms.error:.3f} by {self.alarms.n_moved:,} documents that moved"
        yield Finding("record: false alarms", text, BAD if self.sure_alarms else GOOD)


def looks(log: ClickLog, *, seed: int = 0) -> Looks:
    """Recorded examination and its inconsistencies; an error if there is no record."""
    _, sessions = recorded(log)
    return Looks(
        share=float(sessions.sum() / log.n_sessions),
        rates=examination_rates(log),
        curve=known(attempt(lambda: seen(log, seed=seed), NotIdentified)),
        alarms=attempt(lambda: false_alarms(log)),
        blind=blind_clicks(log),
        faults=tuple(faults_of_looks(log)),
    )


def blind_clicks(log: ClickLog) -> float:
    """Share of the clicks that certainly have no recorded examination, because a document has more clicks."""
    seen, sessions = recorded(log)
    if log.graded:
        return 0.0
    unrecorded = (log.sessions - sessions)[:, None]
    blind = np.maximum(log.clicks - unrecorded - seen, 0)[log.mask].sum()
    return float(blind / max(log.clicks[log.mask & (sessions > 0)[:, None]].sum(), 1))


def faults_of_looks(log: ClickLog) -> list[str]:
    """The faults of a record of examination, one sentence each; empty if it is consistent."""
    seen, sessions = recorded(log)
    every = float(np.broadcast_to(sessions[:, None], seen.shape)[log.mask].sum())
    share = float(seen[log.mask].sum()) / every
    if not CONSTANT < share < 1 - CONSTANT:
        return [f"the record is constant: {share:.1%} of the impressions are recorded as examined"]
    faults = []
    blind = blind_clicks(log)
    if blind > BLIND:
        faults.append(
            f"at least {blind:.0%} of the clicks have no recorded examination: the record has gaps, or measures "
            "something else"
        )
    halves = looks_by_half(log)
    if halves is not None and halves[1] >= halves[0]:
        faults.append(
            "recorded examination does not decrease with position: the same documents were examined in "
            f"{halves[0]:.0%} of the sessions in the upper half and in {halves[1]:.0%} in the lower half"
        )
    left = left_for_relevance(log)
    if left is not None and left < LEAST_LEFT:
        faults.append(
            "clicks per recorded examination hardly differ between documents "
            f"({left:.0%} of the variance of clicks remains): the record measures interest, as clicks do, or documents "
            "differ only in how often they are examined"
        )
    return faults


def looks_by_half(log: ClickLog) -> tuple[float, float] | None:
    """Recorded examination of documents shown in both halves of the list, in each half; None: there are none.

    Other documents are not informative: if examination depends on the document, the most examined may be shown low.
    """
    cells = cells_of(log)
    half = log.n_positions // 2
    shown, looks = np.zeros((2, len(log.features))), np.zeros((2, len(log.features)))
    for side, chosen in enumerate((cells.positions < half, cells.positions >= log.n_positions - half)):
        np.add.at(shown[side], cells.versions[chosen], cells.recorded[chosen])
        np.add.at(looks[side], cells.versions[chosen], cells.examined[chosen])
    moved = shown.min(axis=0) > 0
    if not moved.any():
        return None
    weights = 1 / (1 / shown[:, moved]).sum(axis=0)
    upper, lower = (looks[:, moved] / shown[:, moved]) @ weights / weights.sum()
    return float(upper), float(lower)


def left_for_relevance(log: ClickLog) -> float | None:
    """Share of the variance of click rates that the record does not explain; None: too few showings to tell."""
    cells = cells_of(log)
    enough = (cells.shown > 1) & (cells.recorded > 1)
    if log.graded or not enough.any():
        return None
    cells = cells.select(enough)
    place = np.unique(cells.positions, return_inverse=True)[1]
    weights = cells.recorded

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean by position, for each cell."""
        return (np.bincount(place, weights=weights * values) / np.bincount(place, weights=weights))[place]

    clicks, looks = cells.clicks / cells.shown, cells.examined / cells.recorded
    level = mean(looks)
    ratio = np.divide(mean(clicks), level, out=np.zeros_like(level), where=level > 0)
    chance_of_clicks = clicks * (1 - clicks) / (cells.shown - 1)
    chance_of_looks = looks * (1 - looks) / (cells.recorded - 1)
    # A session with a click usually also has recorded examination: noise in one is also in the other.
    together = np.maximum(np.minimum(clicks, looks) - clicks * looks, 0) / np.maximum(cells.shown - 1, 1)
    of_clicks = (clicks - mean(clicks)) ** 2 - chance_of_clicks
    rest = (clicks - ratio * looks) ** 2 - chance_of_clicks - ratio**2 * chance_of_looks + 2 * ratio * together
    spread = float((weights * of_clicks).sum())
    error = float(np.sqrt((weights**2 * of_clicks**2).sum()))
    return None if spread <= CERTAIN * error else float((weights * rest).sum()) / spread
