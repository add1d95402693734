"""Statistics on rows made by hand: arithmetic that a reader can redo."""

import numpy as np
import pytest
from scipy import stats

from unskew.comparison.plan import Repetition, Run
from unskew.comparison.rows import Outcome
from unskew.comparison.run import Result
from unskew.comparison.statistics import Table, mark, pick_baseline, summarize

RNG = np.random.default_rng(0)
QUERIES = RNG.random(40)


def result(label, values, seed=0, data="d", setting="s", validation=0.5, metric="ndcg@10", **point):
    run = Run(setting, label, point, Repetition(seed, data, seed), {})
    return Result(run, Outcome({metric: np.asarray(values, dtype=float)}, None, {"validation": validation}))


def seeds(label, shift, **more):
    """Three seeds of a method that is better than the queries' own values by `shift`, give or take .001 a seed."""
    return [result(label, QUERIES + shift + 0.001 * (seed - 1), seed, **more) for seed in range(3)]


def test_the_mean_is_over_queries_then_seeds_and_its_interval_over_seeds():
    table = Table([result("a", [0.1, 0.3], 0), result("a", [0.3, 0.5], 1), result("a", [0.5, 0.7], 2)])
    (cell,) = summarize(table, "s", "ndcg@10", None)
    assert cell.mean == pytest.approx(0.4)  # of 0.2, 0.4, 0.6
    assert cell.deviation == pytest.approx(0.2)
    half = stats.t.isf(0.025, 2) * 0.2 / np.sqrt(3)
    assert (cell.low, cell.high) == (pytest.approx(0.4 - half), pytest.approx(0.4 + half))


def test_one_repetition_has_no_interval():
    (cell,) = summarize(Table([result("a", [0.1, 0.3])]), "s", "ndcg@10", None)
    assert (cell.low, cell.high, cell.deviation, cell.n_repetitions) == (None, None, None, 1)


def test_queries_that_are_left_out_do_not_count():
    (cell,) = summarize(Table([result("a", [0.1, np.nan, 0.3])]), "s", "ndcg@10", None)
    assert cell.mean == pytest.approx(0.2)


def test_tests_are_paired_over_queries_of_values_averaged_over_seeds():
    noise = [RNG.normal(0.02, 0.05, 40) for _ in range(2)]
    base = [result("base", QUERIES, seed) for seed in range(2)]
    own = [result("own", QUERIES + noise[seed], seed) for seed in range(2)]
    _, cell = summarize(Table([*base, *own]), "s", "ndcg@10", "base")
    expected = stats.ttest_rel((QUERIES + noise[0] + QUERIES + noise[1]) / 2, QUERIES).pvalue
    assert cell.p == pytest.approx(expected)
    assert cell.difference == pytest.approx(np.mean(noise))
    means = [QUERIES.mean() + values.mean() for values in noise]
    assert cell.p_repetitions == pytest.approx(stats.ttest_rel(means, [QUERIES.mean()] * 2).pvalue)
    assert 0 < cell.p_randomization < 0.2


def test_p_values_are_corrected_for_the_number_of_methods():
    noise = {label: RNG.normal(0.01, 0.05, 40) for label in "abc"}
    table = Table([result("base", QUERIES), *(result(label, QUERIES + noise[label]) for label in "abc")])
    raw = sorted(stats.ttest_rel(QUERIES + noise[label], QUERIES).pvalue for label in "abc")
    found = sorted(cell.p for cell in summarize(table, "s", "ndcg@10", "base")[1:])
    assert found == pytest.approx(np.minimum(np.maximum.accumulate([3 * raw[0], 2 * raw[1], raw[2]]), 1))


def test_folds_are_joined_query_by_query():
    left, right = RNG.random(20), RNG.random(30)
    gain = np.concatenate([RNG.normal(0.02, 0.03, 20), RNG.normal(0.02, 0.03, 30)])
    table = Table(
        [
            result("base", left, 0, "f/1"),
            result("base", right, 1, "f/2"),
            result("own", left + gain[:20], 0, "f/1"),
            result("own", right + gain[20:], 1, "f/2"),
        ]
    )
    _, cell = summarize(table, "s", "ndcg@10", "base")
    assert cell.p == pytest.approx(stats.ttest_1samp(gain, 0).pvalue)


def test_only_repetitions_that_both_have_are_compared():
    table = Table([*seeds("base", 0.0), result("own", QUERIES + 0.1, 1)])
    own = next(cell for cell in summarize(table, "s", "ndcg@10", "base") if cell.label == "own")
    assert own.n_repetitions == 1
    assert own.difference == pytest.approx(0.1)  # with seed 1 of the baseline, which is shifted by 0
    assert own.p_repetitions is None


@pytest.mark.parametrize(
    ("difference", "p", "higher_is_better", "expected"),
    [
        (0.1, 0.2, True, ""),
        (0.1, 0.04, True, "+"),
        (0.1, 0.001, True, "++"),
        (-0.1, 0.04, True, "-"),
        (-0.1, 0.001, True, "--"),
        (-0.1, 0.001, False, "++"),
        (None, None, True, ""),
    ],
)
def test_marks_say_better_or_worse_and_how_surely(difference, p, higher_is_better, expected):
    assert mark(difference, p, higher_is_better) == expected


def test_of_several_baselines_the_best_on_validation_is_taken_whatever_test_says():
    table = Table([result("a", [0.9, 0.9], validation=0.4), result("b", [0.1, 0.1], validation=0.6)])
    assert pick_baseline(table, "s", ["a", "b"], "ndcg@10") == "b"
    assert pick_baseline(table, "s", ["a", "b"], "arp") == "a"
    assert pick_baseline(table, "s", ["a", "missing"], "ndcg@10") == "a"
    assert pick_baseline(table, "s", [], "ndcg@10") is None
