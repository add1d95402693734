from functools import partial
from itertools import product

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays
from scipy import stats

from unskew.evaluation.differences import (
    holm,
    mean_interval,
    paired_differences,
    paired_t,
    randomization_test,
)

RNG = np.random.default_rng(7)
A = RNG.normal(0.60, 0.2, size=200)
B = A - RNG.normal(0.03, 0.1, size=200)
samples = arrays(np.float64, st.integers(3, 30), elements=st.floats(-10, 10).map(lambda value: round(value, 3)))


@settings(max_examples=50, deadline=None)
@given(samples.filter(lambda values: values.std() > 1e-3), st.integers(0, 2**32 - 1))
def test_the_paired_t_test_is_that_of_scipy(values, seed):
    other = values + np.random.default_rng(seed).normal(size=len(values))
    assert paired_t(values, other) == pytest.approx(stats.ttest_rel(values, other).pvalue)


def test_rankers_without_any_difference_have_p_one_and_with_a_constant_one_zero():
    assert paired_t([0.5, 0.25, 0.75], [0.5, 0.25, 0.75]) == 1.0
    assert paired_t([1.5, 1.25, 1.75], [0.5, 0.25, 0.75]) == 0.0


def test_queries_left_out_on_both_sides_do_not_count():
    a, b = np.append(A, np.nan), np.append(B, np.nan)
    assert paired_t(a, b) == paired_t(A, B)
    assert mean_interval(a) == mean_interval(A)


def test_the_randomization_test_counts_swaps_with_as_large_a_difference():
    differences = np.array([1.0, 2.0, 3.0, -1.0, 4.0])  # sum 9
    sums = [abs(np.dot(signs, differences)) for signs in product([-1, 1], repeat=5)]
    exact = np.mean([total >= 9 for total in sums])
    p = randomization_test(differences, np.zeros(5), np.random.default_rng(1), n=40_000)
    assert p == pytest.approx(exact, abs=5 * np.sqrt(exact / 40_000))


def test_resampling_in_small_chunks_gives_the_same(monkeypatch):
    whole = randomization_test(A[:20], B[:20], np.random.default_rng(1), n=1_000)
    monkeypatch.setattr("unskew.evaluation.differences.CHUNK", 320)  # 16 rows at once
    assert randomization_test(A[:20], B[:20], np.random.default_rng(1), n=1_000) == pytest.approx(whole, abs=0.05)


def test_holm_multiplies_the_smallest_most():
    # Sorted .01, .02, .03, .04 times 4, 3, 2, 1 is .04, .06, .06, .04; a corrected p never falls below an earlier one.
    assert holm([0.03, 0.01, 0.04, 0.02]).tolist() == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]).tolist() == [1.0, 1.0]
    assert holm([]).tolist() == []


@settings(max_examples=50, deadline=None)
@given(samples.filter(lambda values: values.std() > 1e-3), st.sampled_from([0.5, 0.9, 0.95]))
def test_the_interval_of_a_mean_is_that_of_scipy(values, level):
    theirs = stats.ttest_1samp(values, 0).confidence_interval(level)
    assert mean_interval(values, level) == pytest.approx((values.mean(), theirs.low, theirs.high))


def test_one_value_says_nothing_about_spread():
    assert mean_interval([0.5]) == (0.5, -np.inf, np.inf)


# compare


def three_rankers():
    """Two seeds each: "naive", one that is better on every query, one that only differs by noise."""
    rng = np.random.default_rng(11)
    naive = rng.normal(0.5, 0.1, size=(2, 100))
    return {
        "naive": naive,
        "better": naive + 0.1 + rng.normal(0, 0.05, size=(2, 100)),
        "noise": naive + rng.normal(0, 0.05, size=(2, 100)),
    }


def test_a_row_has_the_mean_over_seeds_and_the_paired_difference():
    runs = three_rankers()
    naive, better, noise = paired_differences(runs, "naive")
    assert [row.name for row in (naive, better, noise)] == ["naive", "better", "noise"]
    assert better.mean == pytest.approx(runs["better"].mean())
    assert better.interval == pytest.approx(mean_interval(runs["better"].mean(axis=0))[1:])
    assert better.seed_interval == pytest.approx(mean_interval(runs["better"].mean(axis=1))[1:])
    assert better.difference == pytest.approx(runs["better"].mean() - runs["naive"].mean())
    assert better.difference_interval[0] < better.difference < better.difference_interval[1]
    assert (naive.difference, naive.p, naive.p_holm, naive.p_seeds, naive.mark) == (0.0, None, None, None, "")


def test_p_is_paired_over_queries_and_over_seeds_and_corrected():
    runs = three_rankers()
    _, better, noise = paired_differences(runs, "naive")
    over_queries = [stats.ttest_rel(runs[name].mean(0), runs["naive"].mean(0)).pvalue for name in ("better", "noise")]
    over_seeds = [stats.ttest_rel(runs[name].mean(1), runs["naive"].mean(1)).pvalue for name in ("better", "noise")]
    assert (better.p, noise.p) == pytest.approx(tuple(over_queries))
    assert (better.p_seeds, noise.p_seeds) == pytest.approx(tuple(over_seeds))
    assert better.p_holm == pytest.approx(2 * better.p)
    assert (better.p_seeds_holm, noise.p_seeds_holm) == pytest.approx(tuple(holm(over_seeds)))


def test_marks_follow_the_corrected_p_and_the_direction():
    runs = three_rankers()
    assert [row.mark for row in paired_differences(runs, "naive")] == ["", "++", ""]
    assert [row.mark for row in paired_differences(runs, "naive", higher_is_better=False)] == ["", "--", ""]
    assert [row.mark for row in paired_differences(runs, "better")] == ["--", "", "--"]
    assert [row.mark for row in paired_differences(runs, "naive", marks={0.5: 1})] == ["", "+", ""]


def test_a_single_seed_has_no_interval_over_seeds():
    naive, better = paired_differences({"naive": A, "better": A + B}, "naive")
    assert (better.n_seeds, better.seed_interval, better.p_seeds) == (1, None, None)
    assert naive.mean == pytest.approx(A.mean())


def test_queries_left_out_for_all_are_dropped_and_for_one_refused():
    runs = three_rankers()
    gap = {name: np.insert(values, 3, np.nan, axis=1) for name, values in runs.items()}
    assert paired_differences(gap, "naive") == paired_differences(runs, "naive")
    gap["better"][:, 3] = 0.0
    with pytest.raises(ValueError, match="'better' leaves out other queries than 'naive'"):
        paired_differences(gap, "naive")


def test_any_paired_test_can_be_used():
    rows = paired_differences(
        three_rankers(), "naive", test=partial(randomization_test, rng=np.random.default_rng(1), n=99)
    )
    assert rows[1].p == 1 / 100


def test_wrong_input_says_what_is_wrong():
    with pytest.raises(ValueError, match="no baseline 'dla': choose from naive, better, noise"):
        paired_differences(three_rankers(), "dla")
    with pytest.raises(ValueError, match="of the same queries"):
        paired_differences({"naive": A, "better": A[:-1]}, "naive")
    with pytest.raises(ValueError, match="two rows of equal length"):
        paired_t(A, B[:-1])
    with pytest.raises(ValueError, match="at least 2 pairs"):
        paired_t([1.0], [2.0])
    with pytest.raises(ValueError, match=r"left out .* on only one side"):
        paired_t([0.1, np.nan], [0.1, 0.2])
    with pytest.raises(ValueError, match="all 2 values are left out"):
        mean_interval([np.nan, np.nan])
