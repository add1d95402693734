"""Statistics of an experiment: means over repetitions, paired tests, marks, and what became of the paper's claims.

The interval of a mean is over repetitions (seeds or folds). Tests are paired over queries, of values averaged over the
seeds of each data set, and once more over repetitions; both are Holm-corrected over the methods of a setting. A mark
comes from the t-test over queries: "+" is better than the baseline with p < .05, "++" with p < .005; "-", "--" worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.comparison.run import Result
from unskew.evaluation.differences import MARKS, holm, mean_interval, paired_t, randomization_test
from unskew.metrics import metric

ALPHA = 0.05
RANDOMIZATION_SEED = 1


@dataclass(frozen=True)
class Cell:
    """One method in one setting by one metric."""

    setting: str
    label: str
    metric: str
    mean: float
    low: float | None  # 95% interval over repetitions; None: there is only one
    high: float | None
    deviation: float | None  # standard deviation over repetitions
    n_repetitions: int
    difference: float | None = None  # from the baseline; None: it is the baseline, or there is none
    p: float | None = None  # paired t-test over queries, Holm-corrected
    p_randomization: float | None = None  # the same by randomization
    p_repetitions: float | None = None  # paired t-test over repetitions, Holm-corrected; None: fewer than two
    mark: str = ""


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

    def means(self, setting: str, label: str, name: str) -> NDArray[np.float64]:
        """Means over queries, one per repetition."""
        return np.array([np.nanmean(result.outcome.per_query[name]) for result in self.of(setting, label)])

    def paired(self, setting: str, a: str, b: str, name: str) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """Values of two methods in the repetitions that both have: over queries, and means over repetitions."""
        first, second = self.results.get((setting, a), {}), self.results.get((setting, b), {})
        common = [key for key in first if key in second]
        sides = []
        for side in (first, second):
            by_data: dict[str, list[NDArray]] = {}
            for key in common:
                by_data.setdefault(key[0], []).append(side[key].outcome.per_query[name])
            over_queries = [np.mean(values, axis=0) for values in by_data.values()]
            sides.append(np.concatenate(over_queries) if over_queries else np.empty(0))
            sides.append(np.array([np.nanmean(side[key].outcome.per_query[name]) for key in common]))
        return sides[0], sides[2], sides[1], sides[3]


def pick_baseline(table: Table, setting: str, among: Sequence[str], metric_name: str) -> str | None:
    """The baseline; of several the one that is best on validation."""
    known = [label for label in among if (setting, label) in table.results]
    if len(known) < 2:
        return known[0] if known else None
    sign = 1 if metric(metric_name).higher_is_better else -1
    scores = {
        label: np.mean([result.outcome.about["validation"] for result in table.of(setting, label)]) for label in known
    }
    return max(known, key=lambda label: sign * scores[label])


def summarize(table: Table, setting: str, name: str, baseline: str | None) -> list[Cell]:
    """One cell a method, each compared with the baseline."""
    others = [label for label in table.labels(setting) if label != baseline and baseline is not None]
    tests = {label: _tests(table, setting, label, baseline, name) for label in others if baseline is not None}
    corrected = _corrected(tests)
    better = metric(name).higher_is_better
    cells = []
    for label in table.labels(setting):
        means = table.means(setting, label, name)
        mean, low, high = mean_interval(means)
        several = len(means) > 1
        difference, p, p_randomization, p_repetitions = corrected.get(label, (None, None, None, None))
        cells.append(
            Cell(
                setting=setting,
                label=label,
                metric=name,
                mean=mean,
                low=low if several else None,
                high=high if several else None,
                deviation=float(means.std(ddof=1)) if several else None,
                n_repetitions=len(means),
                difference=difference,
                p=p,
                p_randomization=p_randomization,
                p_repetitions=p_repetitions,
                mark=mark(difference, p, better),
            )
        )
    return cells


def mark(difference: float | None, p: float | None, higher_is_better: bool) -> str:
    """Signs of a difference that chance does not explain."""
    if difference is None or p is None:
        return ""
    signs = max((n for threshold, n in MARKS.items() if p < threshold), default=0)
    return ("+" if (difference > 0) == higher_is_better else "-") * signs


Tests = tuple[float | None, float | None, float | None, float | None]


def _tests(table: Table, setting: str, label: str, baseline: str, name: str) -> Tests:
    own, base, own_means, base_means = table.paired(setting, label, baseline, name)
    if len(own) < 2:
        return None, None, None, None
    rng = np.random.default_rng(RANDOMIZATION_SEED)
    over_repetitions = paired_t(own_means, base_means) if len(own_means) > 1 else None
    return (
        float(np.nanmean(own) - np.nanmean(base)),
        paired_t(own, base),
        randomization_test(own, base, rng),
        over_repetitions,
    )


def _corrected(tests: dict[str, Tests]) -> dict[str, Tests]:
    """The three p-values of every label after Holm's correction over labels."""
    columns = [dict.fromkeys(tests), dict.fromkeys(tests), dict.fromkeys(tests)]
    for column, found in enumerate(columns, start=1):
        known = {label: float(p) for label, values in tests.items() if (p := values[column]) is not None}
        found.update(dict(zip(known, holm(list(known.values())).tolist(), strict=True)))
    return {label: (values[0], *(found[label] for found in columns)) for label, values in tests.items()}  # type: ignore[misc]
