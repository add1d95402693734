"""Theorems 1 to 4 of the LBD paper: promises that are kept, boundaries, and what the paper misprints."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from unskew.diagnosis.bounds import greatest_beta, greatest_cancel, least_beta, least_cancel, pair_bounds

CURVE = np.array([0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06])


def constant(level):
    return lambda points: np.full(len(points), level)


def line(start, slope):
    return lambda points: start + slope * points[:, 0]


# -- Theorem 1


def test_the_greatest_slope_is_plain_arithmetic():
    # At x = 0 the factor is .5 / .3; the integral of 1 / .5 over a distance of 1 is 2; the gap is .51.
    beta = greatest_beta(1.0, 0.0, (0.453, 0.3), constant(0.5), line(0.3, 0.3), alpha=0.0)
    assert_allclose(beta, 0.51 * 0.3 / 0.5 / 2)
    # o = 1 / (1 + x), estimate .5, from 0 to 2: the integral of 1 / o is 4, of .5 / o^2 is .5 (27 - 1) / 3; factor 2.
    changing = greatest_beta(2.0, 0.0, (0.9, 0.03), lambda points: 1 / (1 + points[:, 0]), constant(0.5), alpha=1.0)
    assert_allclose(changing, (29 / 2 - 13 / 3) / 4)


def test_the_printed_theorem_is_false():
    high, low = 1.0, 0.0
    seen, model = constant(0.5), line(0.3, 0.3)
    printed_factor = 0.5 / 0.6  # at the more relevant document
    gap, bound = 0.453 / 0.3 - 1, printed_factor * 0.3 / 0.5 * 1.0
    assert gap >= bound  # its condition holds
    learnt = [
        relevance * seen(point)[0] / model(point)[0]
        for relevance, point in ((0.453, np.array([[high]])), (0.3, np.array([[low]])))
    ]
    assert_allclose(learnt, [0.3775, 0.5])  # its promise does not: the less relevant document comes first


def test_distance_is_euclidean_and_the_best_position_counts():
    def observation(points):
        return np.column_stack([np.full(len(points), 0.5), np.full(len(points), 0.1)])

    beta = greatest_beta([3.0, 4.0], [0.0, 0.0], (0.9, 0.3), observation, observation, alpha=0.0)
    assert_allclose(beta, 2 * 0.5 / 5)  # the second position allows only 2 * 0.1 / 5


def test_at_the_boundary_the_learnt_order_is_a_tie():
    # A straight estimate from .3 to .3 + beta under o = .5 has the steepest slope there can be: the theorem is tight.
    beta = greatest_beta(1.0, 0.0, (0.6, 0.3), constant(0.5), line(0.3, 0.3), alpha=0.0)
    assert_allclose(beta, 1.0 / (0.5 / 0.3) * 0.5)
    learnt_high, learnt_low = 0.6 * 0.5 / (0.3 + beta), 0.3 * 0.5 / 0.3
    assert_allclose(learnt_high, learnt_low)


rates = st.floats(0.05, 1.0)


@settings(max_examples=100, deadline=None)
@given(rates, rates, rates, rates, st.floats(0.1, 3.0), rates, rates)
def test_where_the_condition_holds_the_order_is_right(o_low, o_high, m_low, m_high, distance, one, other):
    low, high = sorted((one, other))
    seen, model = line(o_low, (o_high - o_low) / distance), line(m_low, (m_high - m_low) / distance)
    alpha, beta = abs(o_high - o_low) / distance, abs(m_high - m_low) / distance
    if beta <= greatest_beta(distance, 0.0, (high, low), seen, model, alpha=alpha):
        assert high * o_high / m_high >= low * o_low / m_low * (1 - 1e-9)


def test_no_beta_is_small_enough_where_the_true_observation_changes_too_fast():
    steep = greatest_beta(1.0, 0.0, (0.31, 0.3), line(0.2, 0.6), line(0.2, 0.6), alpha=0.6)
    assert steep < 0


# -- Theorem 2


def test_the_least_slope_of_two_positions_by_hand():
    # m (.4, .2) - n (.2, .4): with m = n = 1 the larger difference is .2, and scaling either up makes it larger.
    assert_allclose(least_beta([0.0], [4.0], [0.4, 0.2], [0.2, 0.4]), 0.2 / 4)
    # (.4, .2) - n (.1, .1): |.4 - .1 n| and |.2 - .1 n| meet at n = 3, where both are .1.
    assert_allclose(least_beta([0.0], [1.0], [0.4, 0.2], [0.1, 0.1]), 0.1)


def brute_force(first, second):
    factors = np.concatenate([[1.0], np.geomspace(1, 40, 4001)])
    one_free = np.abs(first - factors[:, None] * second).max(axis=1).min()
    return min(one_free, np.abs(factors[:, None] * first - second).max(axis=1).min())


@settings(max_examples=100, deadline=None)
@given(st.lists(rates, min_size=3, max_size=3), st.lists(rates, min_size=3, max_size=3))
def test_the_least_slope_is_that_of_a_fine_grid(first, second):
    exact = least_beta([0.0], [1.0], first, second)
    grid = brute_force(np.array(first), np.array(second))
    assert exact <= grid + 1e-12
    assert_allclose(exact, grid, atol=2e-3)


@settings(max_examples=100, deadline=None)
@given(st.lists(rates, min_size=3, max_size=3), st.lists(rates, min_size=3, max_size=3), rates, rates, rates, rates)
def test_no_model_that_fits_is_flatter(o_one, o_other, r_one, r_other, m_one, m_other):
    """Any learned relevance up to 1 that leaves observation a probability."""
    clicks = r_one * np.array(o_one), r_other * np.array(o_other)
    models = [rate / max(learnt, rate.max()) for rate, learnt in zip(clicks, (m_one, m_other), strict=True)]
    slope = np.abs(models[0] - models[1]).max() / 2.0
    assert slope >= least_beta([0.0], [2.0], *clicks) - 1e-12


def test_documents_with_the_same_features_must_have_the_same_curve():
    assert least_beta([1.0], [1.0], [0.4, 0.2], [0.2, 0.1]) == 0.0
    assert least_beta([1.0], [1.0], [0.4, 0.2], [0.2, 0.2]) == np.inf


# -- Theorems 3 and 4


def test_the_least_cancelling_by_hand():
    # .2 / .8 (1 + .05 * 4 / .5) = .35
    assert_allclose(least_cancel([4.0], [0.0], (0.8, 0.2), [0.5, 0.25], alpha=0.05), 0.35)
    assert_allclose(least_cancel([4.0], [0.0], (0.8, 0.2), [0.5, 0.25], alpha=0.0), 0.25)


def test_the_greatest_cancelling_by_hand():
    assert_allclose(greatest_cancel([0.8, 0.2, 0.4]), 0.25)
    assert_allclose(greatest_cancel([[0.8, 0.2], [0.8, 0.1]]), 0.125)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(rates, min_size=2, max_size=4), st.lists(st.floats(0, 1), min_size=2, max_size=4), rates, rates, st.data()
)
def test_with_enough_cancelling_every_model_that_fits_orders_the_two_rightly(curve, shifts, one, other, data):
    """Fitted relevance lies between r sup o and r inf o / t (Eq. 5): the worst case of both documents is tried."""
    size = min(len(curve), len(shifts))
    o_high = np.array(curve[:size])
    alpha, distance = data.draw(st.floats(0, 0.2)), 1.0
    o_low = np.clip(o_high + alpha * (2 * np.array(shifts[:size]) - 1), 0.01, 1.0)
    low, high = sorted((one, other))
    t = least_cancel([distance], [0.0], (high, low), o_high, alpha=alpha)
    if t <= min(greatest_cancel(o_high), greatest_cancel(o_low), 1.0):  # else no model fits both
        highest_of_low = low * o_low.min() / t
        lowest_of_high = high * o_high.max()
        assert lowest_of_high >= highest_of_low * (1 - 1e-9)


def test_the_paper_s_own_setting_never_satisfies_theorems_3_and_4_together():
    attraction = 0.1 + 0.9 * (2.0 ** np.arange(5) - 1) / 15
    least = min(
        least_cancel([0.0], [0.0], (high, low), CURVE, alpha=0.0)
        for low in attraction
        for high in attraction
        if high >= low
    )
    assert_allclose(least, 0.1)
    assert_allclose(greatest_cancel(CURVE), 0.06 / 0.68)
    assert greatest_cancel(CURVE) < least


# -- a pair


def test_all_bounds_of_a_pair_by_hand():
    def observation(points):
        return np.tile([0.5, 0.25], (len(points), 1))

    bounds = pair_bounds([3.0, 4.0], [0.0, 0.0], (0.8, 0.2), observation, alpha=0.0)
    assert_allclose(bounds.least_beta, 0.0, atol=1e-12)
    assert_allclose(bounds.greatest_beta, 3 * 0.5 / 5)  # gap 3, factor 1, the integral of 1 / .5 over 5
    assert_allclose([bounds.least_cancel, bounds.greatest_cancel], [0.25, 0.5])
    assert bounds.lipschitz_possible
    assert bounds.bernoulli_possible
    known = pair_bounds([1.0], [0.0], (0.3, 0.2), constant(0.5), line(0.3, 0.3), alpha=0.0)
    assert_allclose(known.greatest_beta, 0.5 / (0.5 / 0.3) * 0.5)  # gap .5, factor .5 / .3, integral 1 / .5
    assert_allclose([known.least_cancel, known.greatest_cancel], [2 / 3, 1.0])


def test_rates_that_are_not_absolute_are_refused():
    with pytest.raises(ValueError, match="normalize relative rates first"):
        greatest_cancel([1.0, 1.4])
    with pytest.raises(ValueError, match="probabilities above 0"):
        greatest_cancel([1.0, 0.0])
    with pytest.raises(ValueError, match="the larger one first"):
        least_cancel([1.0], [0.0], (0.2, 0.8), [0.5], alpha=0.0)
