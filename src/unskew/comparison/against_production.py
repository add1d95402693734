"""Does anything beat production? Differences from the production ranking, with intervals over queries.

Values are averaged over the trainings of a method, then paired by query with those of production. The intervals of the
differences hold for all methods simultaneously (each at level 1 - .05 / methods), because the best of several is
picked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.comparison.run import Results
from unskew.comparison.settings import Experiment
from unskew.comparison.statistics import Table
from unskew.data.judged.metrics import metric
from unskew.display import Screen
from unskew.evaluation.criteria import CRITERIA, DEFAULT_CRITERION, leading_criterion
from unskew.evaluation.differences import mean_interval, paired
from unskew.reporting.sheets import NOTHING, directed, interval_text, signed

PRODUCTION = "production"
ALPHA = 0.05
NO_DIFFERENCE = "no clear difference"
TO_RANK_PRODUCTION = (
    "Randomly shuffled or swapped sessions, sessions of a second ranker, or judged queries (--validate, --test) would "
    "make a verdict possible"
)


@dataclass(frozen=True)
class Standing:
    """A method, or production, by one measure."""

    label: str
    mean: float
    low: float  # 95% interval over queries
    high: float
    difference: float | None = None  # from production; None: it is production
    least: float | None = None  # interval of the difference, for all methods simultaneously
    most: float | None = None
    beats: bool = False

    @property
    def shown(self) -> str:
        """The difference with its sign."""
        return NOTHING if self.difference is None else signed(self.difference)

    @property
    def verdict(self) -> str:
        if self.difference is None:
            return NOTHING
        spans_zero = self.least is not None and self.most is not None and self.least <= 0 <= self.most
        return "better" if self.beats else NO_DIFFERENCE if spans_zero else "worse"


@dataclass(frozen=True)
class Outlook:
    """All methods against production, by the measure that decides."""

    measure: str  # its title for readers
    higher_is_better: bool
    standings: tuple[Standing, ...]
    source: str = ""  # where the production ranking comes from
    explanation: str = ""  # what the measure can and cannot show

    @property
    def rivals(self) -> list[Standing]:
        """What is compared with production."""
        return [entry for entry in self.standings if entry.difference is not None]

    @property
    def intervals(self) -> list[tuple[str, float, float | None, float | None]]:
        """Label, difference from production, and its interval."""
        return [(one.label, one.difference or 0.0, one.least, one.most) for one in self.rivals]

    @property
    def line(self) -> str:
        """The verdict in one sentence."""
        rivals = self.rivals
        if not any(entry.label == PRODUCTION for entry in self.standings) or not rivals:
            return f"no verdict on production: {self.measure} cannot rank it. {TO_RANK_PRODUCTION}"
        sign = 1 if self.higher_is_better else -1
        best = max(rivals, key=lambda entry: sign * (entry.difference or 0.0))
        others = [entry.label for entry in rivals if entry.beats and entry.label != best.label]
        numbers = f"{signed(best.difference or 0.0)} {self.measure} ({interval_text(best.least, best.most)})"
        if best.beats:
            also = f"; so {'does' if len(others) == 1 else 'do'} {', '.join(others)}" if others else ""
            return f"{best.label} beats production by {numbers}{also}"
        if best.verdict == NO_DIFFERENCE:
            return f"no clear difference from production: the best, {best.label}, differs by {numbers}"
        return f"production beats every method: the best, {best.label}, differs by {numbers}"

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.line,
            "measure": self.measure,
            "higher_is_better": self.higher_is_better,
            "production": self.source,
            "explanation": self.explanation,
            "standings": [{**asdict(entry), "verdict": entry.verdict} for entry in self.standings],
        }


def outlook(experiment: Experiment, results: Results, criterion: str | None = None) -> Outlook | None:
    """How methods compare with production; None if production was not run."""
    table = Table(results.results)
    if PRODUCTION not in table.labels():
        return None
    if experiment.task == "choose":
        name = _deciding(table, criterion)
        title, better = CRITERIA[name].title, CRITERIA[name].higher_is_better
        explanation = _explained(name, criterion)
    else:
        name = title = experiment.metric
        better = metric(name).higher_is_better
        explanation = ""
    values = {
        label: np.mean([result.outcome.per_query[name] for result in table.of("", label)], axis=0)
        for label in table.labels()
        if all(name in result.outcome.per_query for result in table.of("", label))
    }
    source = str(table.of("", PRODUCTION)[0].outcome.about.get("production", ""))
    return Outlook(title, better, tuple(standings(values, better)), source, explanation)


def _deciding(table: Table, asked: str | None) -> str:
    """The criterion that ranks methods; one that can also rank production, if there is any."""
    measured = {label: list(table.of("", label)[0].outcome.per_query) for label in table.labels()}
    name = leading_criterion(measured, asked)
    if asked is not None or all(name in names for names in measured.values()):
        return name
    return leading_criterion({label: names for label, names in measured.items() if label != PRODUCTION})


def standings(values: Mapping[str, NDArray[np.float64]], higher_is_better: bool = True) -> list[Standing]:
    """One per method, in the order given, production first.

    Args:
        values: label -> one value per query, NaN if it is left out.
    """
    labels = sorted(values, key=lambda label: label != PRODUCTION)
    rivals = [label for label in labels if label != PRODUCTION]
    found = []
    for label in labels:
        mean, low, high = mean_interval(values[label])
        if label == PRODUCTION or PRODUCTION not in values:
            found.append(Standing(label, mean, low, high))
            continue
        pairs = paired(values[label], values[PRODUCTION])
        least, most = pairs.interval(1 - ALPHA / len(rivals))
        beats = least > 0 if higher_is_better else most < 0
        found.append(Standing(label, mean, low, high, pairs.mean, least, most, beats))
    return found


def standing_sheet(found: Outlook, n_seeds: int) -> Screen:
    """Methods against production, as a table."""
    columns = ("", directed(found.measure, found.higher_is_better), "95% interval")
    against = ("difference from production", "interval of the difference", "verdict")
    rows = [
        (
            each.label,
            f"{each.mean:.4f}",
            f"{each.low:.4f} to {each.high:.4f}",
            each.shown,
            interval_text(each.least, each.most),
            each.verdict,
        )
        for each in found.standings
    ]
    trainings = "one training" if n_seeds == 1 else f"{n_seeds} trainings"
    note = (
        f"Production: {found.source}. Intervals are over queries, of values averaged over {trainings}. Differences are "
        "paired by query, and their intervals hold for all methods simultaneously."
    )
    return Screen("Against production", (*columns, *against), rows, [note], name="production")


def criteria_sheets(results: Results) -> list[Screen]:
    """All criteria of all methods, and what they can and cannot show."""
    table = Table(results.results)
    if not table.labels():
        return []
    measured = [name for name in CRITERIA if any(name in _values(table, label) for label in table.labels())]
    labels = sorted(table.labels(), key=lambda label: label != PRODUCTION)
    titles = {name: directed(CRITERIA[name].title, CRITERIA[name].higher_is_better) for name in measured}
    rows = [(titles[name], *(_cell(table, label, name) for label in labels)) for name in measured]
    unmeasured = {name: _reasons(table, labels[0]).get(name, "") for name in CRITERIA if name not in measured}
    note = "Estimate ± half of its 95% interval over held-out queries, averaged over trainings."
    if unmeasured:
        missing = "; ".join(f"{CRITERIA[name].title}: {reason}" for name, reason in unmeasured.items())
        note += f" Not measured: {missing}."
    used = [CRITERIA[name] for name in measured]
    meaning = [(entry.title, entry.measures, entry.can_tell, entry.cannot_tell) for entry in used]
    columns = ("criterion", "measures", "shows", "does not show, and limits")
    return [
        Screen("Criteria on held-out clicks", ("", *labels), rows, [note], name="criteria"),
        Screen("What the criteria mean", columns, meaning, name="meaning"),
    ]


def click_prediction_sheet(results: Results) -> Screen | None:
    """What `evaluate` measures on held-out clicks, of methods that predict every click; None: there are none."""
    table = Table(results.results)
    about = {label: [result.outcome.about for result in table.of("", label)] for label in table.labels()}
    found = {label: [each.get("click_prediction", {}) for each in rows] for label, rows in about.items()}
    known = {label: rows for label, rows in found.items() if all(rows)}
    if not known:
        return None
    names = list(dict.fromkeys(name for rows in known.values() for row in rows for name in row))
    rows = [
        (label, *(_estimate([row[name] for row in rows if name in row]) for name in names))
        for label, rows in known.items()
    ]
    note = (
        "As `unskew evaluate` measures them on the held-out clicks, averaged over trainings, with 95% intervals over "
        "sessions (of nDCG: over queries). The queries are held out, so a model of ids knows their documents by URL at "
        "most. Predicted / observed clicks: 1 is perfect."
    )
    return Screen("Predicted clicks", ("", *names), rows, [note], name="click_prediction")


def _estimate(estimates: Sequence[Sequence[float]]) -> str:
    return "{:.4f} ({:.4f} to {:.4f})".format(*np.mean(estimates, axis=0)) if estimates else NOTHING


def _explained(name: str, asked: str | None) -> str:
    entry = CRITERIA[name]
    instead = (
        f" (not {DEFAULT_CRITERION}, which cannot be measured for all)"
        if asked is None and name != DEFAULT_CRITERION
        else ""
    )
    return f"Decided by {entry.title}{instead}: {entry.measures}."


def _values(table: Table, label: str) -> Sequence[str]:
    return [name for result in table.of("", label) for name in result.outcome.per_query]


def _reasons(table: Table, label: str) -> dict[str, str]:
    return table.of("", label)[0].outcome.about.get("reasons", {})


def _cell(table: Table, label: str, name: str) -> str:
    results = table.of("", label)
    if not all(name in result.outcome.per_query for result in results):
        return _reasons(table, label).get(name, NOTHING)
    mean, low, high = mean_interval(np.mean([result.outcome.per_query[name] for result in results], axis=0))
    return f"{mean:.4f} ± {(high - low) / 2:.4f}"
