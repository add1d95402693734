"""The rank of click matrices: simulated users have the rank that their formula says."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from unskew.data.judged.judged_set import JudgedSet
from unskew.diagnosis.click_kinds import click_matrix_without_grades
from unskew.diagnosis.click_matrix import ClickMatrix, click_matrix
from unskew.diagnosis.click_rank import click_rank
from unskew.simulation.independent import REAL_CLICKS
from unskew.simulation.policies import Random
from unskew.simulation.simulate import simulate

PRINTED = (1.399, 0.151, 0.069, 0.057, 0.033)  # singular values of the real click matrix, as the paper prints them


@pytest.fixture(scope="module")
def judged():
    rng = np.random.default_rng(0)
    grades = rng.choice(5, p=[0.4, 0.25, 0.15, 0.1, 0.1], size=3000)
    return JudgedSet.from_arrays(rng.normal(size=(3000, 2)), grades, group=[10] * 300)


def log_of(judged, user, sessions=400, seed=0):
    """Every query is shown in eight orders, so that documents move."""
    return simulate(judged, Random(orders_per_query=8), user, sessions=sessions, seed=seed).log


def matrix_of(judged, user, **more):
    return click_matrix(log_of(judged, user, **more), judged)


def exact(rates, impressions=1e6):
    rates = np.asarray(rates)
    kinds = tuple(f"grade {grade}" for grade in range(len(rates)))
    return ClickMatrix(kinds, np.arange(rates.shape[1]), rates, np.full(rates.shape, impressions))


def test_position_based_clicks_have_rank_one_in_rates_and_two_in_logs(judged):
    found = click_rank(matrix_of(judged, "position_based"), n_bootstrap=200)
    assert (found.rates.rank, found.log_rates.rank) == (1, 2)
    assert found.scalar_is_enough
    assert found.dimensions == 2


def test_trust_bias_has_rank_two(judged):
    found = click_rank(matrix_of(judged, "trust"), n_bootstrap=200)
    assert found.rates.rank == 2
    assert not found.scalar_is_enough
    assert found.to_table()["rate_singular_value"].to_pylist() == found.rates.values.tolist()


def test_the_singular_values_of_the_real_click_matrix_are_recovered(judged):
    assert_allclose(np.linalg.svd(REAL_CLICKS, compute_uv=False), PRINTED, atol=6e-4)
    found = click_rank(matrix_of(judged, "real_click"), n_bootstrap=200, level=0.99).rates
    assert ((found.low <= PRINTED) & (found.high >= PRINTED)).all()
    assert_allclose(found.high - found.low, 0, atol=0.06)  # and the intervals say something
    assert found.rank == 5


def test_without_grades_moved_documents_tell_the_rank(judged):
    for user, rank in (("position_based", 1), ("trust", 2)):
        matrix = click_matrix_without_grades(log_of(judged, user, seed=1), n_kinds=3)
        assert click_rank(matrix, n_bootstrap=200).rates.rank == rank


def test_a_true_rank_one_is_rejected_as_often_as_the_level_says():
    rng = np.random.default_rng(0)
    rates = np.outer([0.2, 0.5, 0.9], [0.6, 0.3, 0.1, 0.05])
    p_values = [
        click_rank(exact(rng.binomial(5000, rates) / 5000, 5000), n_bootstrap=99, seed=seed).rates.p_values[0]
        for seed in range(100)
    ]
    assert np.mean(np.array(p_values) < 0.1) < 0.2  # expected 0.1, standard error 0.03
    assert 0.35 < np.mean(p_values) < 0.65


def test_shares_are_of_the_sum_of_squares():
    found = click_rank(exact(np.diag([0.8, 0.4, 0.2]) + 1e-3), n_bootstrap=20)
    values = np.linalg.svd(np.diag([0.8, 0.4, 0.2]) + 1e-3, compute_uv=False)
    assert_allclose(found.rates.values, values)
    assert_allclose(found.rates.shares, values**2 / (values**2).sum())
    assert_allclose(found.log_rates.shares.sum(), 1)


def test_noise_lifts_small_singular_values_and_the_interval_takes_it_off():
    rng = np.random.default_rng(1)
    rates = np.outer([0.2, 0.5, 0.9], [0.6, 0.3, 0.1, 0.05])
    noisy = exact(rng.binomial(300, rates) / 300, 300)
    found = click_rank(noisy, n_bootstrap=300).rates
    assert found.values[1] > 0.02  # the truth is 0
    assert found.low[1] < 0.5 * found.values[1]
    assert found.high[1] < found.values[1] + 0.02


def test_cells_without_a_click_keep_log_rates_finite():
    rates = np.array([[0.5, 0.2, 0.0], [0.3, 0.1, 0.01]])
    found = click_rank(exact(rates, 1000), n_bootstrap=50)
    assert np.isfinite(found.log_rates.values).all()
    assert np.isfinite(found.log_rates.low).all()


def test_the_same_seed_gives_the_same_answer(judged):
    matrix = matrix_of(judged, "trust", sessions=20)
    once, again, other = (click_rank(matrix, n_bootstrap=50, seed=seed) for seed in (3, 3, 4))
    assert repr(once) == repr(again)
    assert repr(once) != repr(other)
