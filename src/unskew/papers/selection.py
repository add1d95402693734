"""How well a criterion chooses: its choice in every case, compared with the truly best method.

A case is a setting and a seed. In each, every method was trained once and measured by all criteria on held-out clicks
and by judgements on test queries. A criterion chooses the best method among those it can measure; its regret is the
loss of that method compared with the best of all, as a share of the best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from unskew.comparison.run import Result, Results
from unskew.comparison.settings import Experiment
from unskew.display import Best, Screen
from unskew.evaluation.criteria import CRITERIA
from unskew.evaluation.differences import mean_interval
from unskew.reporting.sheets import NOTHING, shown_number

NEAR = 0.01  # within one percent of the best
AIM = 0.8  # share of the cases


@dataclass(frozen=True)
class Case:
    """One world: the truth about each method, and the estimates of the criteria."""

    setting: str
    truth: Mapping[str, float]  # method -> nDCG on test queries
    said: Mapping[str, Mapping[str, float]]  # criterion -> method -> estimate, higher is better
    production_truth: float | None = None
    production_said: Mapping[str, float] | None = None  # criterion -> estimate

    @property
    def best(self) -> str:
        return max(self.truth, key=lambda method: self.truth[method])

    def regret(self, method: str) -> float:
        return 1 - self.truth[method] / self.truth[self.best]

    def choice(self, criterion: str) -> str | None:
        """The choice of a criterion; None unless it can measure at least two methods."""
        said = self.said.get(criterion, {})
        return max(said, key=lambda method: said[method]) if len(said) > 1 else None

    def rank_correlation(self, criterion: str) -> float | None:
        """Spearman's rank correlation over the methods that the criterion can measure; None for fewer than three."""
        said = self.said.get(criterion, {})
        if len(said) < 3:
            return None
        found = stats.spearmanr(list(said.values()), [self.truth[method] for method in said]).statistic
        return None if np.isnan(found) else float(found)

    def right_about_production(self, criterion: str) -> list[bool]:
        """For each method, whether the criterion puts it on the right side of production."""
        if self.production_truth is None or criterion not in (self.production_said or {}):
            return []
        bar = (self.production_said or {})[criterion]
        return [
            (value > bar) == (self.truth[method] > self.production_truth)
            for method, value in self.said.get(criterion, {}).items()
        ]


@dataclass(frozen=True)
class Record:
    """A way of choosing over all cases."""

    name: str
    n_cases: int  # cases in which it could choose
    near: float  # share of the cases within 1% of the best
    regret: float  # mean
    worst: float
    correlation: float | None = None  # mean of rank correlations
    production: float | None = None  # share of methods put on the right side of production
    regrets: tuple[float, ...] = ()


def cases_of(experiment: Experiment, results: Sequence[Result]) -> list[Case]:
    """Cases from finished runs with at least two methods."""
    groups: dict[tuple[str, int], list[Result]] = {}
    for result in results:
        groups.setdefault((result.run.setting, result.run.repetition.seed), []).append(result)
    return [_case(setting, group, experiment.metric) for (setting, _), group in groups.items() if len(group) > 1]


def _case(setting: str, results: Sequence[Result], metric_name: str) -> Case:
    truth = {result.run.label: float(np.nanmean(result.outcome.per_query[metric_name])) for result in results}
    said: dict[str, dict[str, float]] = {}
    for result in results:
        for name, (value, _) in result.outcome.about["criteria"].items():
            said.setdefault(name, {})[result.run.label] = _turned(name, value)
    about = results[0].outcome.about
    production = {name: _turned(name, value) for name, (value, _) in about.get("production_criteria", {}).items()}
    return Case(setting, truth, said, about.get("production_truth"), production)


def _turned(criterion: str, value: float) -> float:
    return value if CRITERIA[criterion].higher_is_better else -value


def record(name: str, cases: Sequence[Case], choose: Callable[[Case], str | None]) -> Record | None:
    """The result of a way of choosing; None if it could never choose."""
    regrets = [case.regret(choice) for case in cases if (choice := choose(case)) is not None]
    if not regrets:
        return None
    correlations = [value for case in cases if (value := case.rank_correlation(name)) is not None]
    sides = [side for case in cases for side in case.right_about_production(name)]
    return Record(
        name=name,
        n_cases=len(regrets),
        near=float(np.mean([regret <= NEAR for regret in regrets])),
        regret=float(np.mean(regrets)),
        worst=float(max(regrets)),
        correlation=float(np.mean(correlations)) if correlations else None,
        production=float(np.mean(sides)) if sides else None,
        regrets=tuple(regrets),
    )


def records(cases: Sequence[Case]) -> list[Record]:
    """All criteria, best first by mean regret; then, for comparison, always choosing one method, and chance."""
    methods = list(dict.fromkeys(method for case in cases for method in case.truth))
    parts: list[list[Record | None]] = [
        [record(name, cases, _chosen_by(name)) for name in CRITERIA],
        [record(f"always {method}", cases, _always(method)) for method in methods],
        [_by_chance(cases)] if cases else [],
    ]
    found = [[entry for entry in part if entry is not None] for part in parts]
    return [entry for part in found for entry in sorted(part, key=lambda entry: entry.regret)]


def _chosen_by(criterion: str) -> Callable[[Case], str | None]:
    return lambda case: case.choice(criterion)


def _always(method: str) -> Callable[[Case], str | None]:
    return lambda case: method if method in case.truth else None


def _by_chance(cases: Sequence[Case]) -> Record:
    """A method drawn at random, in expectation."""
    regrets = [[case.regret(method) for method in case.truth] for case in cases]
    return Record(
        name="a random method",
        n_cases=len(cases),
        near=float(np.mean([np.mean([regret <= NEAR for regret in entry]) for entry in regrets])),
        regret=float(np.mean([np.mean(entry) for entry in regrets])),
        worst=max(max(entry) for entry in regrets),
    )


def selection_sheets(experiment: Experiment, results: Results, data: str) -> list[Screen]:
    """How well criteria chose, and the truth and the choices case by case."""
    cases = cases_of(experiment, results.results)
    return [_record_sheet(records(cases), len(cases), data), _truth_sheet(experiment, cases), _choice_sheet(cases)]


def _record_sheet(ways: Sequence[Record], n_cases: int, data: str) -> Screen:
    columns: tuple[str, ...] = (
        "chosen by",
        "cases",
        f"within {NEAR:.0%} of the best",
        "mean regret",
        "its interval",
        "largest regret",
    )
    columns += ("rank correlation", "right side of production")
    rows = []
    for entry in ways:
        title = CRITERIA[entry.name].title if entry.name in CRITERIA else entry.name
        _, low, high = mean_interval(entry.regrets) if len(entry.regrets) > 1 else (0, np.nan, np.nan)
        interval = NOTHING if np.isnan(low) else f"{max(low, 0.0):.2%} to {high:.2%}"
        near = (Best if entry.name in CRITERIA and entry.near >= AIM else str)(f"{entry.near:.0%}")
        regrets = (f"{entry.regret:.2%}", interval, f"{entry.worst:.1%}")
        more = (shown_number(entry.correlation, ".2f"), shown_number(entry.production, ".0%"))
        rows.append((title, str(entry.n_cases), near, *regrets, *more))
    note = (
        f"Over {n_cases} cases (worlds and seeds). Regret: what the chosen method lacks to the best by true nDCG@10 on "
        "test queries, as a share of it. Rank correlation: Spearman's, over methods, mean of the cases. Bold: the aim."
    )
    return Screen(f"Choosing without labels, on {data}", columns, rows, [note], name="selection")


def _truth_sheet(experiment: Experiment, cases: Sequence[Case]) -> Screen:
    """True nDCG of methods, one row per setting, averaged over seeds."""
    methods = list(dict.fromkeys(method for case in cases for method in case.truth))
    rows = []
    for setting in dict.fromkeys(case.setting for case in cases):
        own = [case for case in cases if case.setting == setting]
        means = {
            method: float(np.mean([case.truth[method] for case in own if method in case.truth]))
            for method in methods
            if any(method in case.truth for case in own)
        }
        best = max(means, key=lambda method, means=means: means[method])  # type: ignore[misc]
        production = [case.production_truth for case in own if case.production_truth is not None]
        shown = {name: (Best if name == best else str)(f"{mean:.4f}") for name, mean in means.items()}
        known = shown_number(float(np.mean(production))) if production else NOTHING
        rows.append((setting, known, *(shown.get(method, NOTHING) for method in methods)))
    return Screen(f"True {experiment.metric}", ("world", "production", *methods), rows, name="truth")


def _choice_sheet(cases: Sequence[Case]) -> Screen:
    """The choice of each criterion in each case, with its regret."""
    names = [name for name in CRITERIA if any(case.choice(name) for case in cases)]
    rows = []
    for case in cases:
        choices = [case.choice(name) for name in names]
        shown = [NOTHING if choice is None else f"{choice} ({case.regret(choice):.1%})" for choice in choices]
        rows.append((case.setting, case.best, *shown))
    columns = ("world", "best", *(CRITERIA[name].title for name in names))
    return Screen("What was chosen, with its regret", columns, rows, name="choices")
