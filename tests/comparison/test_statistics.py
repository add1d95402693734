"""Statistics on rows made by hand: arithmetic that a reader can redo."""

import numpy as np
import pytest
from scipy import stats

from unskew.comparison.plan import Repetition, Run
from unskew.comparison.rows import Outcome
from unskew.comparison.run import Result
from unskew.comparison.statistics import Table, pick_baseline, summarize
from unskew.evaluation.differences import mark

RNG = np.random.default_rng(0)
QUERIES = RNG.random(40)


def result(label, values, seed=0, data="d", setting="s", validation=0.5, metric="ndcg@10", **point):
    data_set, overlap = (data.partition("/")[0], 1 / 3) if "/" in data else (data, 0.0)
    run = Run(setting, label, point, Repetition(seed, data, seed, data_set, overlap), {})
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


def test_differences_are_paired_over_seeds_not_over_the_queries_that_share_a_ranker():
    gains = np.array([0.024, 0.016, 0.02])
    base = [result("base", QUERIES, seed) for seed in range(3)]
    own = [result("own", QUERIES + gains[seed], seed) for seed in range(3)]
    _, cell = summarize(Table([*base, *own]), "s", "ndcg@10", "base")
    assert cell.difference == pytest.approx(0.02)
    assert cell.p == pytest.approx(stats.ttest_1samp(gains, 0).pvalue)
    half = stats.t.isf(0.025, 2) * 0.004 / np.sqrt(3)
    assert (cell.difference_low, cell.difference_high) == (pytest.approx(0.02 - half), pytest.approx(0.02 + half))
    assert cell.p_queries < 1e-9 < cell.p  # forty queries agree, three trainings say less
    assert cell.mark == "+"


def test_seeds_of_a_fold_are_averaged_before_folds_are_compared():
    gains = {("f/1", 0): 0.01, ("f/1", 1): 0.03, ("f/2", 0): 0.05, ("f/2", 1): 0.07}
    rows = [result("base", QUERIES, seed, data) for data, seed in gains]
    rows += [result("own", QUERIES + gain, seed, data) for (data, seed), gain in gains.items()]
    _, cell = summarize(Table(rows), "s", "ndcg@10", "base")
    assert (cell.n_units, cell.n_repetitions) == (2, 4)
    error = np.std([0.02, 0.06], ddof=1) * np.sqrt(1 / 2 + 1 / 3)  # corrected: folds share training data
    assert cell.p == pytest.approx(2 * stats.t.sf(0.04 / error, df=1))
    assert cell.seed_deviation == pytest.approx(np.std([0.01, 0.03], ddof=1))


def test_with_one_repetition_the_mark_is_of_the_trained_rankers():
    noise = RNG.normal(0.05, 0.02, 40)
    _, cell = summarize(Table([result("base", QUERIES), result("own", QUERIES + noise)]), "s", "ndcg@10", "base")
    assert cell.p is None
    assert cell.p_queries == pytest.approx(stats.ttest_1samp(noise, 0).pvalue)
    assert cell.mark == "++"


def test_p_values_are_corrected_for_the_number_of_methods():
    noise = {label: RNG.normal(0.01, 0.05, 5) for label in "abc"}
    rows = [result("base", QUERIES, seed) for seed in range(5)]
    rows += [result(label, QUERIES + noise[label][seed], seed) for label in "abc" for seed in range(5)]
    raw = sorted(stats.ttest_1samp(noise[label], 0).pvalue for label in "abc")
    found = sorted(cell.p for cell in summarize(Table(rows), "s", "ndcg@10", "base")[1:])
    assert found == pytest.approx(np.minimum(np.maximum.accumulate([3 * raw[0], 2 * raw[1], raw[2]]), 1))


def test_only_repetitions_that_both_have_are_compared():
    table = Table([*seeds("base", 0.0), result("own", QUERIES + 0.1, 1)])
    own = next(cell for cell in summarize(table, "s", "ndcg@10", "base") if cell.label == "own")
    assert own.n_repetitions == 1
    assert own.difference == pytest.approx(0.1)  # with seed 1 of the baseline, which is shifted by 0
    assert own.p is None


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
