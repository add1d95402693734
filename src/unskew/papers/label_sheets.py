"""The value of few labels: tables and a figure of the task `few_labels`.

A draw of judged queries is random, and a seed is a log. So a cell shows the mean over seeds of the mean over draws, and
the range of nine of ten draws; tests compare uses seed by seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from unskew.comparison.run import Result, Results
from unskew.comparison.settings import Experiment
from unskew.display import Best, Screen
from unskew.evaluation.differences import corrected, paired
from unskew.papers.few_labels import CHOSEN, TUNED, UNLABELLED, USES
from unskew.reporting.drawing import line_figure
from unskew.reporting.sheets import NOTHING, interval_text, p_value, signed

RANGE = (5, 95)  # percent of the draws
OURS = (CHOSEN, TUNED)

Draws = Mapping[tuple[str, str], list[list[float]]]  # use, number of judged queries -> seeds -> draws


def label_sheets(experiment: Experiment, results: Results, data: str) -> list[Screen | None]:
    """For each setting, the result of every use, and whether low rank makes the best use of the labels."""
    sheets: list[Screen | None] = []
    tests: list[tuple[str, ...]] = []
    for setting, found in _by_setting(results.results).items():
        sheets.append(_use_sheet(experiment, setting, found, data))
        tests += _tests(setting, found)
    columns = ("setting, judged queries", "use", "best other use", "use − it", "95% interval", "p (Holm)")
    note = (
        "The best use without low rank, by its mean over all seeds and draws; differences, on the draws that both "
        "have, and paired t-tests over seeds."
    )
    return [*sheets, Screen(f"Against the best other use, {experiment.metric}", columns, tests, [note], name="tests")]


def label_lines(experiment: Experiment, results: Results, options: dict[str, Any]) -> Figure | None:
    """The main metric over the number of judged queries, one line per use; rankers without labels are horizontal."""
    found = _by_setting(results.results).get(options["setting"])
    if found is None:
        return None
    numbers, draws = _numbers(found), _draws(found)
    x = [float(n) for n in numbers]
    lines = {use: (x, [_mean(draws[use, n]) for n in numbers]) for use in USES}
    bands = {CHOSEN: tuple(np.array([_range(draws[CHOSEN, n]) for n in numbers]).T.tolist())}
    level = {name: (x, [_mean_level(found, name)] * len(x)) for name in UNLABELLED}
    figure = line_figure(lines, x_label="judged queries", y_label=experiment.metric, bands=bands, reference=level)
    axes = figure.axes[0]
    axes.set_xscale("log")
    axes.set_xticks(x, numbers)
    axes.minorticks_off()
    return figure


def _by_setting(results: Sequence[Result]) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result.run.setting, []).append(result)
    return found


def _use_sheet(experiment: Experiment, setting: str, found: Sequence[Result], data: str) -> Screen:
    numbers, draws = _numbers(found), _draws(found)
    best = {n: max(USES, key=lambda use, n=n: _mean(draws[use, n])) for n in numbers}  # type: ignore[misc]
    rows: list[tuple[str, ...]] = []
    for use in USES:
        cells = []
        for n in numbers:
            mean, (low, high) = _mean(draws[use, n]), _range(draws[use, n])
            cells.append((Best if use == best[n] else str)(f"{mean:.4f} ({low:.3f}–{high:.3f})"))
        rows.append((use, *cells))
    rows += [(name, *[f"{_mean_level(found, name):.4f}"] * len(numbers)) for name in UNLABELLED]
    note = (
        f"{experiment.metric} on test queries: mean over {len(found)} seeds and their draws of judged queries, in "
        "brackets the range of nine in ten draws. Bold: the best use."
    )
    columns = ("use of the labels", *(f"{n} judged queries" for n in numbers))
    return Screen(f"{setting}, on {data}", columns, rows, [note], name=f"uses-{_slug(setting)}")


def _tests(setting: str, found: Sequence[Result]) -> list[tuple[str, ...]]:
    numbers, draws = _numbers(found), _draws(found)
    others = [use for use in USES if use not in OURS]
    rows = []
    for use, n in product(OURS, numbers):
        rival = max(others, key=lambda other, n=n: _mean(draws[other, n]))  # type: ignore[misc]
        both = zip(draws[use, n], draws[rival, n], strict=True)
        ours, theirs = map(_by_seed, zip(*(_on_same(own, other) for own, other in both), strict=True))
        rows.append((n, use, rival, paired(ours, theirs)))
    p_values = corrected({str(number): pairs.p() for number, (*_, pairs) in enumerate(rows)})
    intervals = [interval_text(*pairs.interval()) if len(found) > 1 else NOTHING for *_, pairs in rows]
    return [
        (f"{setting}, {n}", use, rival, signed(pairs.mean), interval, p_value(p_values.get(str(number))))
        for number, ((n, use, rival, pairs), interval) in enumerate(zip(rows, intervals, strict=True))
    ]


def _on_same(one: list[float], other: list[float]) -> tuple[list[float], list[float]]:
    """Draws that both have: uses that train have fewer."""
    n = min(len(one), len(other))
    return one[:n], other[:n]


def _numbers(found: Sequence[Result]) -> list[str]:
    return list(found[0].outcome.about["uses"][CHOSEN])


def _draws(found: Sequence[Result]) -> Draws:
    abouts = [result.outcome.about["uses"] for result in found]
    return {(use, n): [about[use][n] for about in abouts] for use in USES for n in _numbers(found)}


def _by_seed(draws: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    return np.array([np.mean(entry) for entry in draws])


def _mean(draws: Sequence[Sequence[float]]) -> float:
    return float(_by_seed(draws).mean())


def _range(draws: Sequence[Sequence[float]]) -> tuple[float, float]:
    low, high = np.percentile(np.concatenate([np.asarray(entry) for entry in draws]), RANGE)
    return float(low), float(high)


def _mean_level(found: Sequence[Result], name: str) -> float:
    return float(np.mean([result.outcome.about["no_labels"][name] for result in found]))


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in name).strip("-") or "all"
