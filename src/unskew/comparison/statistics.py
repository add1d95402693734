"""Statistics of an experiment: means and paired differences over repetitions, with intervals and marks.

The unit is what a reader wants to generalize over: folds or worlds if there are several (seeds within one are
averaged first), otherwise seeds. Queries that share a trained ranker are not independent repetitions of its method.
Folds share training data, so their variance is that of the corrected resampled t-test. P-values are two-sided and
Holm-corrected over the methods of a setting. A mark comes from the test over units: "+" is better than the baseline
with p < .05, "++" with p < .005; "-" and "--" are worse. With only one unit, it comes from queries and refers to the
trained rankers, not to their methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.comparison.run import Result
from unskew.data.judged.metrics import metric
from unskew.evaluation.differences import Paired, corrected, mark, mean_interval

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """One method in one setting by one metric."""

    setting: str
    label: str
    metric: str
    mean: float
    low: float | None  # 95% interval over units; None: only one unit
    high: float | None
    deviation: float | None  # standard deviation over units
    seed_deviation: float | None  # between seeds of the same fold; None: one seed per fold, or seeds are the units
    n_units: int
    n_repetitions: int
    difference: float | None = None  # from the baseline; None: it is the baseline, or there is none
    difference_low: float | None = None  # 95% interval over units
    difference_high: float | None = None
    p: float | None = None  # paired over units, Holm-corrected; None: fewer than two
    p_queries: float | None = None  # paired over queries of these trained rankers, Holm-corrected
    mark: str = ""


@dataclass(frozen=True, eq=False)
class Pair:
    """Differences of two methods on their common repetitions."""

    units: Paired  # one per unit
    queries: Paired  # one per query, averaged over the seeds of its fold


class Table:
    """Results by setting and label."""

    def __init__(self, results: Iterable[Result]):
        self.results: dict[tuple[str, str], dict[tuple[str, int], Result]] = {}
        for result in results:
            run = result.run
            cell = self.results.setdefault((run.setting, run.label), {})
            cell[run.repetition.data, run.repetition.seed] = result

    @property
    def settings(self) -> list[str]:
        return list(dict.fromkeys(setting for setting, _ in self.results))

    def labels(self, setting: str | None = None) -> list[str]:
        return list(dict.fromkeys(label for name, label in self.results if setting in (None, name)))

    def of(self, setting: str, label: str) -> list[Result]:
        return list(self.results.get((setting, label), {}).values())

    def overlap(self, setting: str, label: str) -> float:
        """The overlap of the training data of folds."""
        found = self.of(setting, label)
        return found[0].run.repetition.overlap if found else 0.0

    def means(self, setting: str, label: str, name: str) -> Vector:
        """Means over queries, one per unit."""
        return np.array([values.mean() for values in self.by_unit(setting, label, name).values()])

    def by_unit(self, setting: str, label: str, name: str) -> dict[str, Vector]:
        """Means over queries, one per seed, of each unit."""
        units: dict[str, list[float]] = {}
        for result in self.of(setting, label):
            units.setdefault(result.run.unit, []).append(_mean(result, name))
        return {unit: np.array(values) for unit, values in units.items()}

    def paired(self, setting: str, a: str, b: str, name: str) -> Pair | None:
        """Differences a - b; None if no repetition has both."""
        first, second = self.results.get((setting, a), {}), self.results.get((setting, b), {})
        units: dict[str, list[float]] = {}
        queries: dict[str, list[Vector]] = {}
        for key in first:
            if key in second:
                run = first[key].run
                units.setdefault(run.unit, []).append(_mean(first[key], name) - _mean(second[key], name))
                difference = first[key].outcome.per_query[name] - second[key].outcome.per_query[name]
                queries.setdefault(run.repetition.data, []).append(difference)
        if not units:
            return None
        means = np.array([np.mean(values) for values in units.values()])
        over_queries = np.concatenate([np.mean(values, axis=0) for values in queries.values()])
        return Pair(Paired(means, self.overlap(setting, a)), Paired(over_queries[~np.isnan(over_queries)]))


def pick_baseline(table: Table, setting: str, among: Sequence[str], metric_name: str) -> str | None:
    """The baseline; of several, the one that is best on validation."""
    known = [label for label in among if (setting, label) in table.results]
    if len(known) < 2:
        return known[0] if known else None
    sign = 1 if metric(metric_name).higher_is_better else -1
    scores = {
        label: np.mean([result.outcome.about["validation"] for result in table.of(setting, label)]) for label in known
    }
    return max(known, key=lambda label: sign * scores[label])


def summarize(table: Table, setting: str, name: str, baseline: str | None) -> list[Cell]:
    """One cell per method, each compared with the baseline."""
    others = [label for label in table.labels(setting) if label != baseline and baseline is not None]
    pairs = {label: pair for label in others if (pair := table.paired(setting, label, str(baseline), name)) is not None}
    p = corrected({label: pair.units.p() for label, pair in pairs.items()})
    p_queries = corrected({label: pair.queries.p() for label, pair in pairs.items()})
    better = metric(name).higher_is_better
    cells = []
    for label in table.labels(setting):
        by_unit = table.by_unit(setting, label, name)
        means = np.array([values.mean() for values in by_unit.values()])
        mean, low, high = mean_interval(means, overlap=table.overlap(setting, label))
        several = len(means) > 1
        pair = pairs.get(label)
        least, most = (None, None) if pair is None or len(pair.units.values) < 2 else pair.units.interval()
        decisive = p.get(label) if several else p_queries.get(label)
        cells.append(
            Cell(
                setting=setting,
                label=label,
                metric=name,
                mean=mean,
                low=low if several else None,
                high=high if several else None,
                deviation=float(means.std(ddof=1)) if several else None,
                seed_deviation=_within(list(by_unit.values())),
                n_units=len(means),
                n_repetitions=sum(map(len, by_unit.values())),
                difference=None if pair is None else pair.units.mean,
                difference_low=least,
                difference_high=most,
                p=p.get(label),
                p_queries=p_queries.get(label),
                mark=mark(None if pair is None else pair.units.mean, decisive, better),
            )
        )
    return cells


def _mean(result: Result, name: str) -> float:
    return float(np.nanmean(result.outcome.per_query[name]))


def _within(seeds: Sequence[Vector]) -> float | None:
    """The pooled deviation between seeds of one unit."""
    several = [values for values in seeds if len(values) > 1]
    if not several:
        return None
    squares = sum(float(((values - values.mean()) ** 2).sum()) for values in several)
    return float(np.sqrt(squares / sum(len(values) - 1 for values in several)))
