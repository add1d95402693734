"""Readout: the result of an online test of a new ranker, with intervals over queries.

In an A/B test each session is shown the list of one arm, and the outcomes of the arms are compared. In a team-draft
interleaving (Radlinski et al., CIKM 2008) each list mixes two rankers, and each document belongs to the team that
contributed it; the feedback on the teams in the same session is compared. A corrected outcome divides feedback at
position k by its examination, so that it measures relevance; the curve is treated as known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import LogFolder
from unskew.data.inputs import LogOrPlace, as_log_or_folder
from unskew.display import Displayed, Screen, draw_intervals, rows_table
from unskew.monitoring.estimates import Compared, of_difference, of_ratio, totals
from unskew.propensities.curve import NotIdentified
from unskew.propensities.estimate import estimate_propensities

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


@dataclass(frozen=True, repr=False)
class Readout(Displayed):
    """All outcomes of a test."""

    kind: str  # "A/B test" or "interleaving"
    outcomes: list[Outcome]
    sessions: dict[str, float]  # by arm; for an interleaving, all sessions
    not_corrected: str | None  # why there is no corrected outcome

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "outcomes": [asdict(each) for each in self.outcomes]}

    def to_table(self) -> pa.Table:
        """One row per outcome and ranker."""
        return rows_table(self.outcomes, Outcome)

    def screen(self) -> Screen:
        rows = [
            (
                _title(each),
                *(f"{value:.4f}" for value in (each.before, each.after)),
                f"{each.difference:+.4f}",
                f"{each.low:.4f} to {each.high:.4f}",
                f"{each.p:.2g}",
            )
            for each in self.outcomes
        ]
        columns = ("outcome", "before", "after", "difference", "95% interval", "p")
        notes = ["Sessions: " + ", ".join(f"{name} {count:,.0f}" for name, count in self.sessions.items())]
        notes += [] if self.not_corrected is None else [f"Not corrected for position: {self.not_corrected}"]
        return Screen(self.kind, columns, rows, notes)

    def plot(self, ax: Any = None) -> Any:
        """Plot differences with their intervals, each as a share of the baseline."""
        known = [each for each in self.outcomes if each.before]
        shares = [
            (_title(each), each.difference / each.before, each.low / each.before, each.high / each.before)
            for each in known
        ]
        return draw_intervals(shares, "difference, as a share of the baseline", ax)


def _title(each: Outcome) -> str:
    return f"{each.name}: {each.ranker} against {each.baseline}"


@dataclass(frozen=True)
class Test:
    """The column that distinguishes the rankers, and which of them were shown."""

    column: str
    levels: tuple[str, ...]
    baseline: int
    others: list[int]
    sessions: dict[str, float]


def readout(
    log: LogOrPlace,
    *,
    arm: str | None = None,
    team: str | None = None,
    baseline: str | None = None,
    curve: ArrayLike | None = None,
    grades: Mapping[str, float] | None = None,
) -> Readout:
    """Evaluate an A/B test or a team-draft interleaving with intervals over queries.

    Use `compare` before a test.

    Args:
        log: in memory, a path, or from `open_log`: then it is read shard by shard; a curve is estimated from its lists
            alone.
        arm: bias column of lists that names the arm; default: "arm", if there is one.
        team: bias column that names the team that contributed each document; default: "team", if there is one.
        baseline: the arm or team that the others are compared with; default: the first level.
        curve: examination by position; default: estimated from the log.
        grades: weights of event types (`ClickLog.with_grades`), for graded outcomes.

    >>> import pyarrow as pa
    >>> import unskew
    >>> shown = {"session": [1, 2, 3, 4], "query": ["a", "a", "b", "b"], "document": ["x", "x", "y", "y"]}
    >>> told = {"position": [0] * 4, "price": [1.0] * 4, "click": [0, 1, 0, 1], "arm": ["old", "new"] * 2}
    >>> rows = pa.table(shown | told)
    >>> test = unskew.readout(unskew.ClickLog.from_table(rows, bias=["arm"]), baseline="old", curve=[1.0])
    >>> test.outcomes[0].name, test.outcomes[0].difference
    ('clicks per session', 1.0)
    """
    clicks = as_log_or_folder(log)
    if not clicks.n_clicks:
        raise ValueError("the log has no clicks: there is nothing to evaluate")
    names = clicks.levels
    by_arm, name = _which(list(names), arm, team)
    if names[name] is None:
        raise ValueError(f"bias column '{name}' holds numbers, but arms and teams must have names: write text")
    test = _test(clicks, name, names[name] or (), baseline, by_arm=by_arm)
    examination, reason = _curve(clicks, curve)
    found: dict[tuple[int, str], Compared] = {}
    for part in clicks.shards():
        for other in test.others:
            for key, earned in (_arms if by_arm else _teams)(part, test, other, examination, grades):
                known = found.get((other, key))
                found[other, key] = earned if known is None else known + earned
    outcomes = [_outcome(key, test, other, found[other, key]) for other, key in found]
    return Readout("A/B test" if by_arm else "interleaving", outcomes, test.sessions, reason)


def _which(columns: Sequence[str], arm: str | None, team: str | None) -> tuple[bool, str]:
    """Whether it is an A/B test, and the name of its column."""
    if arm is not None and team is not None:
        raise ValueError("a log is either an A/B test (arm) or an interleaving (team): pass only one of them")
    for by_arm, name in ((True, arm), (False, team)):
        if name is not None:
            if name not in columns:
                raise ValueError(f"the log has no bias column '{name}'. Found: {', '.join(columns) or 'none'}")
            return by_arm, name
    names = [name for name in ("arm", "team") if name in columns]
    if len(names) != 1:
        raise ValueError(
            "pass the column with the arm of each list (--arm) or the team of each document (--team). Bias columns of "
            f"the log: {', '.join(columns) or 'none: ingest the column with --bias'}"
        )
    return names[0] == "arm", names[0]


def _test(log: ClickLog | LogFolder, name: str, levels: tuple[str, ...], baseline: str | None, *, by_arm: bool) -> Test:
    """The levels that occur, the baseline first, and their sessions."""
    if baseline is not None and baseline not in levels:
        raise ValueError(f"there is no '{baseline}' in '{name}': choose from {', '.join(levels)}")
    shown, sessions = np.zeros(len(levels)), 0.0
    for part in log.shards():
        column = part.bias[name]
        if by_arm and column.values.ndim > 1:
            raise ValueError(f"'{name}' differs within lists, but an arm belongs to a whole list: pass it as --team")
        values = column.values if by_arm else column.per_document(part.n_docs)[part.mask]
        weights = part.sessions if by_arm else part.sessions[np.nonzero(part.mask)[0]]
        shown += totals(values, weights, len(levels))
        sessions += part.n_sessions
    found = np.flatnonzero(shown).tolist()
    first = (found[0] if found else 0) if baseline is None else levels.index(baseline)
    if len(found) < 2 or (not by_arm and len(found) != 2) or first not in found:
        seen = ", ".join(levels[level] for level in found)
        raise ValueError(f"'{name}' has the levels {seen}: {'at least' if by_arm else 'exactly'} two must be shown")
    counted = dict(zip(levels, shown.tolist(), strict=True)) if by_arm else {name: sessions}
    return Test(name, levels, first, [level for level in found if level != first], counted)


def _curve(log: ClickLog | LogFolder, curve: ArrayLike | None) -> tuple[Vector | None, str | None]:
    if curve is not None:
        given = np.asarray(curve, dtype=np.float64)
        if given.ndim != 1 or len(given) < log.n_positions or not (np.isfinite(given) & (given > 0)).all():
            raise ValueError(f"the curve must have {log.n_positions} numbers above 0, one per position")
        return given, None
    if log.graded:
        return None, "no curve can be estimated from graded feedback; pass that of a model"
    try:
        return estimate_propensities(log.without_features(), n_bootstrap=0).propensities(log.n_positions), None
    except NotIdentified as error:
        return None, f"{error}; pass a curve, such as that of a model"


def _feedback(log: ClickLog, grades: Mapping[str, float] | None) -> Iterator[tuple[str, NDArray]]:
    """Names and counts `[lists, docs]` of all kinds of feedback."""
    yield "graded feedback" if log.graded else "clicks", log.clicks
    yield from log.events.items()
    if grades:
        yield "graded feedback", log.with_grades(grades).clicks


def _arms(
    log: ClickLog, test: Test, other: int, examination: Vector | None, grades: Mapping[str, float] | None
) -> Iterator[tuple[str, Compared]]:
    n_queries = len(log.query_ids)
    chosen = [log.bias[test.column].values == level for level in (test.baseline, other)]
    sessions = [totals(log.queries[each], log.sessions[each], n_queries) for each in chosen]

    def earned(per_list: NDArray) -> Compared:
        sums = [totals(log.queries[each], per_list[each], n_queries) for each in chosen]
        return Compared("arms", "", of_difference(sums[0], sessions[0], sums[1], sessions[1]))

    for name, counts in _feedback(log, grades):
        yield f"{name} per session", earned(counts.sum(axis=1))
        if examination is not None:
            gains = 1 / (examination * np.log2(np.arange(len(examination)) + 2))
            yield f"{name}, corrected DCG", earned((counts * gains[log.positions]).sum(axis=1))
    if log.patterns is not None:
        clicked = (log.patterns.clicks > 0).any(axis=1) * log.patterns.sessions
        yield "sessions with a click", earned(totals(log.patterns.lists, clicked, log.n_lists))


def _teams(
    log: ClickLog, test: Test, other: int, examination: Vector | None, grades: Mapping[str, float] | None
) -> Iterator[tuple[str, Compared]]:
    n_queries = len(log.query_ids)
    teams = log.bias[test.column].per_document(log.n_docs)
    sides = [log.mask & (teams == level) for level in (test.baseline, other)]
    sessions = totals(log.queries, log.sessions, n_queries)

    def earned(lost: NDArray, won: NDArray) -> Compared:
        moments = of_ratio(totals(log.queries, won - lost, n_queries), sessions)
        return Compared("teams", "", moments, *((float(each.sum()), float(sessions.sum())) for each in (lost, won)))

    for name, counts in _feedback(log, grades):
        yield f"{name} per session", earned(*((counts * side).sum(axis=1) for side in sides))
        if examination is not None:
            weighed = counts / examination[log.positions]
            yield f"{name}, corrected", earned(*((weighed * side).sum(axis=1) for side in sides))
    if log.patterns is not None:
        patterns = log.patterns
        lost, won = ((patterns.clicks * side[patterns.lists]).sum(axis=1) for side in sides)
        wins = (totals(patterns.lists, won_by * patterns.sessions, log.n_lists) for won_by in (lost > won, won > lost))
        yield "sessions won", earned(*wins)


def _outcome(name: str, test: Test, other: int, earned: Compared) -> Outcome:
    found = earned.estimate()
    before, after = earned.means()
    assert before is not None
    assert after is not None
    numbers = (before, after, found.value, found.low, found.high, found.p, found.n_queries)
    return Outcome(name, test.levels[other], test.levels[test.baseline], *numbers)
