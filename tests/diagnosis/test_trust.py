"""Trust bias: the sign is right, and nothing is seen where there is nothing."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from unskew.data.judged.judged_set import JudgedSet
from unskew.diagnosis.click_kinds import click_matrix_without_grades
from unskew.diagnosis.click_matrix import ClickMatrix
from unskew.diagnosis.click_rank import NONE, REVERSED, TRUST, trust_bias
from unskew.simulation.policies import Random
from unskew.simulation.simulate import simulate


def exact(rates, error=0.01):
    rates = np.asarray(rates, dtype=float)
    n = rates.shape[1]
    covariance = error**2 * (np.eye(n) - 1 / n)
    return ClickMatrix(
        ("low", "high"), np.arange(n), rates, np.full(rates.shape, 1e9), covariances=np.stack([covariance] * 2)
    )


def test_the_slope_is_that_of_the_log_ratio():
    """Two positions: the ratio of the kinds is 2 on top and 6 below, so log ratio rises by log 3 over log 2."""
    found = trust_bias(exact([[0.2, 0.05], [0.4, 0.3]]))
    assert_allclose(found.slope, np.log(3) / np.log(2), rtol=1e-6)
    assert found.sign == TRUST
    assert found.low < found.slope < found.high


def test_kinds_in_a_fixed_ratio_show_nothing_and_a_falling_one_the_reverse():
    assert trust_bias(exact([[0.2, 0.1, 0.05], [0.4, 0.2, 0.1]])).sign == NONE
    assert trust_bias(exact([[0.05, 0.2], [0.3, 0.4]])).sign == REVERSED


@pytest.fixture(scope="module")
def judged():
    rng = np.random.default_rng(0)
    grades = rng.choice(5, p=[0.4, 0.25, 0.15, 0.1, 0.1], size=3000)
    return JudgedSet.from_arrays(rng.normal(size=(3000, 2)), grades, group=[10] * 300)


@pytest.mark.parametrize(("user", "sign"), [("trust", TRUST), ("position_based", NONE)])
def test_simulated_users_show_their_sign(judged, user, sign):
    log = simulate(judged, Random(orders_per_query=8), user, sessions=200, seed=1).log
    assert trust_bias(click_matrix_without_grades(log)).sign == sign


def test_a_matrix_without_covariances_is_refused():
    with pytest.raises(ValueError, match="covariances"):
        trust_bias(ClickMatrix(("a", "b"), np.arange(2), np.full((2, 2), 0.5), np.full((2, 2), 10.0)))
