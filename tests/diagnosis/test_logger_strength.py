"""The logger: relevance by position, clicks against shuffled lists, and how much features know of the order."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from unskew.data.judged.judged_set import JudgedSet
from unskew.diagnosis.click_rates import click_rates
from unskew.diagnosis.logging_policy import logger_strength, order_from_features, shuffled_clicks
from unskew.propensities.curve import Curve, NotIdentified
from unskew.propensities.estimate import estimate_propensities
from unskew.simulation.policies import NoisyOracle, Random, RankingSVM
from unskew.simulation.simulate import simulate


@pytest.fixture(scope="module")
def judged():
    rng = np.random.default_rng(0)
    grades = rng.choice(5, p=[0.4, 0.25, 0.15, 0.1, 0.1], size=2000)
    return JudgedSet.from_arrays(
        np.column_stack([grades + rng.normal(size=2000), rng.normal(size=2000)]), grades, group=[10] * 200
    )


def strength_of(judged, policy):
    log = simulate(judged, policy, "position_based", sessions=200, interventions={"shuffle": 0.5}, seed=1).log
    plain = log.select(log.interventions.values == 0)
    return log, logger_strength(click_rates(plain), estimate_propensities(log))


def test_relevance_is_click_rate_over_examination():
    curve = Curve("known", np.arange(2), np.array([1.0, 0.5]), np.array([1.0, 0.4]), np.array([1.0, 0.8]), np.ones(2))
    log = simulate(
        JudgedSet.from_arrays(np.ones((20, 1)), [0, 1] * 10, group=[2] * 10),
        "random",
        "position_based",
        sessions=50,
        n_shown=2,
    ).log
    rates = click_rates(log)
    found = logger_strength(rates, curve)
    expected = (rates.rates[1] / 0.5) / rates.rates[0]
    assert_allclose(found.relevance, [1.0, expected])
    assert_allclose([found.low[1], found.high[1]], [expected * 0.5 / 0.8, expected * 0.5 / 0.4])
    discount = np.array([1.0, 1 / np.log2(3)])
    assert_allclose(found.gain, discount @ [1, expected] / (discount.sum() * (1 + expected) / 2) - 1)


def test_a_strong_logger_is_called_strong_and_a_random_one_weak(judged):
    log, strong = strength_of(judged, NoisyOracle(strength=0.95))
    assert strong.word == "strong"
    assert strong.relevance[-1] < 0.4
    assert shuffled_clicks(log).low > 0.1
    log, weak = strength_of(judged, NoisyOracle(strength=0.0))
    assert weak.word == "weak"
    mixed = shuffled_clicks(log)
    assert mixed.low < 0 < mixed.high


def test_features_know_the_order_of_a_linear_ranker_and_not_a_random_one(judged):
    ranked = simulate(judged, RankingSVM(fraction=1.0), "position_based", sessions=4, seed=1).log
    assert order_from_features(ranked) > 0.95
    random = simulate(judged, Random(orders_per_query=1), "position_based", sessions=4, seed=1).log
    assert 0.45 < order_from_features(random) < 0.55


def test_without_shuffled_sessions_nothing_is_compared(judged):
    log = simulate(judged, "random", "position_based", sessions=4, seed=1).log
    with pytest.raises(NotIdentified, match="shuffle"):
        shuffled_clicks(log)
