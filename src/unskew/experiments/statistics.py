"""Statistics of an experiment: means over repetitions, paired tests, marks, and what became of the paper's claims.

The interval of a mean is over repetitions (seeds or folds). Tests are paired over queries, of values averaged over the
seeds of each data set, and once more over repetitions; both are Holm-corrected over the methods of a setting. A mark
comes from the t-test over queries: "+" is better than the baseline with p < .05, "++" with p < .005; "-", "--" worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.evaluation.compare import MARKS, holm, mean_interval, paired_t, randomization_test
from unskew.experiments.run import Result
from unskew.experiments.settings import Claim
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


@dataclass(frozen=True)
class Verdict:
    """What became of a claim."""

    text: str
    verdict: str  # one of VERDICTS
    detail: str
    held: int = 0  # comparisons in which it held
    of: int = 0

    @property
    def words(self) -> str:
        """The verdict, with how often it held where that is neither always nor never."""
        return f"{self.verdict} ({self.held} of {self.of})" if 0 < self.held < self.of else self.verdict


VERDICTS = ("holds", "holds in part", "does not hold here", "cannot be tested here")


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
        """Means over queries, one a repetition."""
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


def judge(claim: Claim, table: Table, main_metric: str) -> Verdict:
    """What results say about a claim."""
    if claim.relation == "untestable":
        return Verdict(claim.text, VERDICTS[3], claim.reason)
    name = claim.metric or main_metric
    settings = [setting for setting in (claim.settings or table.settings) if setting in table.settings]
    found = _JUDGES[claim.relation](claim, table, settings, name)
    if not found:
        return Verdict(claim.text, VERDICTS[3], "the runs it is about are missing")
    good = sum(held for held, _ in found)
    verdict = VERDICTS[0] if good == len(found) else VERDICTS[1] if good else VERDICTS[2]
    return Verdict(claim.text, verdict, "; ".join(text for _, text in found), good, len(found))


Judge = Callable[[Claim, Table, Sequence[str], str], list[tuple[bool, str]]]  # whether it held, and the numbers


def _pairs(claim: Claim, table: Table, settings: Sequence[str], name: str) -> list[tuple[str, float, float]]:
    """Differences with Holm-corrected p, as (where, difference, p)."""
    found = []
    for setting in settings:
        for other in claim.than:
            own, base, _, _ = table.paired(setting, claim.label, other, name)
            if len(own) > 1:
                where = f"{setting + ': ' if setting else ''}{claim.label} − {other}"
                found.append((where, float(np.nanmean(own) - np.nanmean(base)), paired_t(own, base)))
    p_values = holm([p for *_, p in found]).tolist()
    return [(where, difference, p) for (where, difference, _), p in zip(found, p_values, strict=True)]


def _judge_better(claim: Claim, table: Table, settings: Sequence[str], name: str) -> list[tuple[bool, str]]:
    sign = 1 if metric(name).higher_is_better else -1
    return [
        (sign * difference > 0 and p < ALPHA, _difference_text(where, name, difference, p))
        for where, difference, p in _pairs(claim, table, settings, name)
    ]


def _judge_similar(claim: Claim, table: Table, settings: Sequence[str], name: str) -> list[tuple[bool, str]]:
    return [
        (p >= ALPHA, _difference_text(where, name, difference, p))
        for where, difference, p in _pairs(claim, table, settings, name)
    ]


def signed(difference: float) -> str:
    return f"{difference:+.4f}".replace("-", "−")


def _difference_text(where: str, name: str, difference: float, p: float) -> str:
    return f"{where} {signed(difference)} {name} (p {'< .001' if p < 0.001 else f'= {p:.3f}'})"


def _judge_trend(sign: int) -> Judge:
    def judge_trend(claim: Claim, table: Table, settings: Sequence[str], name: str) -> list[tuple[bool, str]]:
        known = [setting for setting in settings if table.of(setting, claim.label)]
        if len(known) < 2:
            return []
        values = [float(table.means(setting, claim.label, name).mean()) for setting in known]
        slope = np.polyfit(range(len(values)), values, 1)[0]
        held = bool(sign * slope > 0 and sign * (values[-1] - values[0]) > 0)
        return [(held, f"{claim.label}: {values[0]:.4f} at {known[0]}, {values[-1]:.4f} at {known[-1]} ({name})")]

    return judge_trend


_JUDGES: dict[str, Judge] = {
    "better": _judge_better,
    "similar": _judge_similar,
    "falls": _judge_trend(-1),
    "rises": _judge_trend(1),
}
