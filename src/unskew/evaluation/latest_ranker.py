"""Which ranker of a log is in production: the latest one, by a column that names rankers or by a change over time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.windows import DAY
from unskew.evaluation.held_out import NotMeasured
from unskew.evaluation.ranker_change import latest_change

NAMES_RANKERS = ("logger", "ranker", "policy")  # in the name of a bias column whose levels are rankers
ARM = "arm"  # or its whole name


@dataclass(frozen=True)
class LatestRanker:
    """The ranker that counts as production unless the user names one, and how it was found."""

    which: str | None  # a value of `--production`; None: all sessions
    line: str  # in few words


def latest_ranker(log: ClickLog) -> LatestRanker:
    """The latest ranker of a log."""
    column = _column_of_rankers(log)
    if column is not None:
        return _latest_level(log, column)
    try:
        change = latest_change(log)
    except NotMeasured as reason:
        return LatestRanker(None, f"unknown whether the ranker changed: {reason}")
    if change is None:
        return LatestRanker(None, "no change of ranker found")
    return LatestRanker(f"since={change.day}", change.line)


def _column_of_rankers(log: ClickLog) -> str | None:
    """The bias column that names the ranker of each list, if there are several rankers; otherwise None."""
    for name, column in log.bias.items():
        named = name.lower() == ARM or any(part in name.lower() for part in NAMES_RANKERS)
        if named and column.levels is not None and column.values.ndim == 1 and len(np.unique(column.values)) > 1:
            return name
    return None


def _latest_level(log: ClickLog, name: str) -> LatestRanker:
    """The ranker with the most sessions on the last day."""
    column = log.bias[name]
    assert column.levels is not None
    times = log.periods if log.periods is not None else log.first_shown
    if times is None:
        levels = ", ".join(column.levels[level] for level in np.unique(column.values))
        return LatestRanker(None, f"the rankers of {name} ({levels}) are pooled: without times the latest is not known")
    usual = np.ones(log.n_lists, dtype=bool) if log.interventions is None else log.interventions.values == 0
    last = int(times[usual].max() if usual.any() else times.max()) // DAY
    sessions = np.bincount(column.values, np.where((times // DAY == last) & usual, log.sessions, 0), len(column.levels))
    level = column.levels[int(sessions.argmax())]
    day = datetime.fromtimestamp(last * DAY / 1e6, UTC).date().isoformat()
    share = f"{sessions.max():,.0f} of {sessions.sum():,.0f} sessions"
    return LatestRanker(f"logger={name}:{level}", f"the {name} with the most sessions on the last day, {day}: {share}")
