"""Readout: what an online test says of the new ranker, with intervals over queries.

In an A/B test each session is shown the list of one arm; outcomes of the arms are compared. In a team-draft
interleaving (Radlinski et al., CIKM 2008) each list mixes two rankers, and each document belongs to the team that drew
it; what the teams earn in the same session is compared. A corrected outcome divides feedback at position k by its
examination, so that it speaks of relevance; the curve is taken as known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.daily.estimates import Estimate, of_difference, of_ratio, totals
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.impressions import BiasColumn
from unskew.diagnosis.estimators.curve import NotIdentified
from unskew.diagnosis.estimators.propensities import estimate_propensities

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """One outcome of one ranker against the baseline, per session."""

    name: str
    ranker: str
    baseline: str
    before: float  # of the baseline
    after: float
    difference: float
    low: float
    high: float
    p: float
    n_queries: int


@dataclass(frozen=True)
class Readout:
    """All outcomes of a test."""

    kind: str  # "A/B test" or "interleaving"
    outcomes: list[Outcome]
    sessions: dict[str, float]  # of each arm; of an interleaving, of all
    not_corrected: str | None  # why there is no corrected outcome

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "outcomes": [asdict(each) for each in self.outcomes]}


def readout(
    log: ClickLog,
    *,
    arm: str | None = None,
    team: str | None = None,
    baseline: str | None = None,
    curve: ArrayLike | None = None,
    grades: Mapping[str, float] | None = None,
) -> Readout:
    """What an A/B test or an interleaving says, from a column of the log.

    Use `compare` for rankers that were not shown to anybody.

    Args:
        arm: bias column of lists that names the arm; default: "arm" where there is one.
        team: bias column of documents that names the team that drew it; default: "team" where there is one.
        baseline: the arm or team that the others are compared with; default: the first level.
        curve: examination by position; default: estimated from the log.
        grades: weights of kinds of events (`ClickLog.with_grades`), for graded outcomes.
    """
    if not log.n_clicks:
        raise ValueError("the log has no click: there is nothing to read")
    by_arm, name = _which(log, arm, team)
    column = log.bias[name]
    levels = _levels(log, column, name, baseline, by_arm=by_arm)
    examination, reason = _curve(log, curve)
    read = _arms if by_arm else _teams
    outcomes = [each for other in levels[1:] for each in read(log, column, levels[0], other, examination, grades)]
    values = column.values if by_arm else np.zeros(log.n_lists, dtype=np.int64)
    names = list(column.levels or ()) if by_arm else [name]
    counted = totals(values, log.sessions, len(names))
    sessions = dict(zip(names, counted.tolist(), strict=True))
    return Readout("A/B test" if by_arm else "interleaving", outcomes, sessions, reason)


def _which(log: ClickLog, arm: str | None, team: str | None) -> tuple[bool, str]:
    """Whether it is an A/B test, and the name of its column."""
    if arm is not None and team is not None:
        raise ValueError("a log is read as an A/B test (arm) or as an interleaving (team): name one of them")
    for by_arm, name in ((True, arm), (False, team)):
        if name is not None:
            if name not in log.bias:
                raise ValueError(f"the log has no bias column '{name}'; there are: {', '.join(log.bias) or 'none'}")
            return by_arm, name
    found = [name for name in ("arm", "team") if name in log.bias]
    if len(found) != 1:
        raise ValueError(
            f"which column names the arm of a list, or the team of a document? Pass --arm or --team; bias columns of "
            f"the log: {', '.join(log.bias) or 'none: ingest the column with --bias'}"
        )
    return found[0] == "arm", found[0]


def _levels(log: ClickLog, column: BiasColumn, name: str, baseline: str | None, *, by_arm: bool) -> list[int]:
    """Levels that occur, the baseline first."""
    if column.levels is None:
        raise ValueError(f"bias column '{name}' holds numbers: a test has named arms")
    if by_arm and column.values.ndim > 1:
        raise ValueError(f"'{name}' differs within lists: an arm belongs to a list; pass it as --team")
    values = column.values if by_arm else column.per_document(log.n_docs)[log.mask]
    found = np.unique(values).tolist()
    if baseline is not None and baseline not in column.levels:
        raise ValueError(f"there is no '{baseline}' in '{name}': choose from {', '.join(column.levels)}")
    first = found[0] if baseline is None else column.levels.index(baseline)
    if len(found) < 2 or (not by_arm and len(found) != 2) or first not in found:
        shown = ", ".join(column.levels[level] for level in found)
        raise ValueError(f"'{name}' has the levels {shown}: {'at least' if by_arm else 'exactly'} two must be shown")
    return [first, *(level for level in found if level != first)]


def _curve(log: ClickLog, curve: ArrayLike | None) -> tuple[Vector | None, str | None]:
    if curve is not None:
        given = np.asarray(curve, dtype=np.float64)
        if given.ndim != 1 or len(given) < log.n_positions or not (np.isfinite(given) & (given > 0)).all():
            raise ValueError(f"the curve must be {log.n_positions} numbers above 0, one per position")
        return given, None
    if log.graded:
        return None, "no curve is estimated from graded feedback: pass one"
    try:
        return estimate_propensities(log, n_bootstrap=0).propensities(log.n_positions), None
    except NotIdentified as error:
        return None, f"{error}; pass a curve, such as that of a model"


def _feedback(log: ClickLog, grades: Mapping[str, float] | None) -> Iterator[tuple[str, NDArray]]:
    """Names and counts `[lists, docs]` of all kinds of feedback."""
    yield "graded feedback" if log.graded else "clicks", log.clicks
    yield from log.events.items()
    if grades:
        yield "graded feedback", log.with_grades(grades).clicks


def _arms(
    log: ClickLog,
    column: BiasColumn,
    first: int,
    other: int,
    examination: Vector | None,
    grades: Mapping[str, float] | None,
) -> Iterator[Outcome]:
    n_queries = len(log.query_ids)
    chosen = [column.values == level for level in (first, other)]
    sessions = [totals(log.queries[each], log.sessions[each], n_queries) for each in chosen]

    def outcome(name: str, per_list: NDArray) -> Outcome:
        sums = [totals(log.queries[each], per_list[each], n_queries) for each in chosen]
        found = of_difference(sums[0], sessions[0], sums[1], sessions[1]).ratio_difference()
        before, after = (float(total.sum() / count.sum()) for total, count in zip(sums, sessions, strict=True))
        return _outcome(name, column, first, other, before, after, found)

    for name, counts in _feedback(log, grades):
        yield outcome(f"{name} per session", counts.sum(axis=1))
        if examination is not None:
            gains = 1 / (examination * np.log2(np.arange(len(examination)) + 2))
            yield outcome(f"{name}, corrected DCG", (counts * gains[log.positions]).sum(axis=1))
    if log.patterns is not None:
        clicked = (log.patterns.clicks > 0).any(axis=1) * log.patterns.sessions
        yield outcome("sessions with a click", totals(log.patterns.lists, clicked, log.n_lists))


def _teams(
    log: ClickLog,
    column: BiasColumn,
    first: int,
    other: int,
    examination: Vector | None,
    grades: Mapping[str, float] | None,
) -> Iterator[Outcome]:
    n_queries = len(log.query_ids)
    teams = column.per_document(log.n_docs)
    sides = [log.mask & (teams == level) for level in (first, other)]
    sessions = totals(log.queries, log.sessions, n_queries)

    def outcome(name: str, lost: NDArray, won: NDArray) -> Outcome:
        found = of_ratio(totals(log.queries, won - lost, n_queries), sessions).ratio()
        before, after = (float(each.sum() / log.n_sessions) for each in (lost, won))
        return _outcome(name, column, first, other, before, after, found)

    for name, counts in _feedback(log, grades):
        yield outcome(f"{name} per session", *((counts * side).sum(axis=1) for side in sides))
        if examination is not None:
            weighed = counts / examination[log.positions]
            yield outcome(f"{name}, corrected", *((weighed * side).sum(axis=1) for side in sides))
    if log.patterns is not None:
        patterns = log.patterns
        lost, won = ((patterns.clicks * side[patterns.lists]).sum(axis=1) for side in sides)
        wins = (totals(patterns.lists, won_by * patterns.sessions, log.n_lists) for won_by in (lost > won, won > lost))
        yield outcome("sessions won", *wins)


def _outcome(
    name: str, column: BiasColumn, first: int, other: int, before: float, after: float, found: Estimate
) -> Outcome:
    levels = column.levels or ()
    return Outcome(
        name, levels[other], levels[first], before, after, found.value, found.low, found.high, found.p, found.n_queries
    )
