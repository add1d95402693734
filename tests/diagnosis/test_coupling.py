"""Coupling: found where observation depends on documents, and not where it does not."""

import numpy as np
import pytest

from unskew.data.judged.judged_set import JudgedSet
from unskew.diagnosis.click_rates import single_documents
from unskew.diagnosis.coupling import coupling
from unskew.propensities.curve import NotIdentified
from unskew.simulation.coupled import Coupled
from unskew.simulation.policies import Random
from unskew.simulation.simulate import simulate


@pytest.fixture(scope="module")
def judged():
    rng = np.random.default_rng(0)
    grades = rng.choice(5, p=[0.4, 0.25, 0.15, 0.1, 0.1], size=2000)
    features = rng.normal(size=(2000, 8))
    features[:, 0] += grades  # knows relevance
    return JudgedSet.from_arrays(features, grades, group=[10] * 200)


def log_of(judged, strength, sessions=200, seed=0):
    """Observation depends on two features that say nothing of relevance; u has a standard deviation of `strength`."""
    user = Coupled(coupling=strength, crux=(3, 5), crux_scale="standard", direction="random", direction_seed=3)
    return simulate(judged, Random(orders_per_query=8), user, sessions=sessions, seed=seed)


def test_coupling_is_found_with_its_strength_and_features(judged):
    simulation = log_of(judged, 0.3)
    user = Coupled(coupling=0.3, crux=(3, 5), crux_scale="standard", direction="random", direction_seed=3)
    true = float(np.std(user.fit(judged).document_traits(judged)))
    found = coupling(simulation.log)
    assert found.found
    assert found.p_value < 1e-6
    assert 0.6 * true < found.strength < 1.3 * true  # one step from nothing: about right, no more
    assert set(found.features[:2]) == {"feature 3", "feature 5"}


def test_position_based_clicks_raise_an_alarm_as_rarely_as_the_test_says(judged):
    p_values = np.array([coupling(log_of(judged, 0.0, sessions=64, seed=seed).log).p_value for seed in range(40)])
    assert (p_values < 0.01).sum() <= 2  # expected 0.4; more than two have a chance of 0.8%
    assert 0.3 < p_values.mean() < 0.7


def test_a_log_of_single_documents_says_the_same(judged):
    log = log_of(judged, 0.3, sessions=32).log
    assert coupling(single_documents(log)).p_value == pytest.approx(coupling(log).p_value)


def test_relevance_that_features_know_is_no_coupling(judged):
    """Feature 0 follows relevance, and a position-based user clicks by relevance: that must not alarm."""
    assert not coupling(log_of(judged, 0.0, sessions=400, seed=7).log).found


def test_a_log_of_one_order_is_refused(judged):
    log = simulate(judged, Random(orders_per_query=1), "position_based", sessions=20, seed=0).log
    with pytest.raises(NotIdentified, match="shown at several positions"):
        coupling(log)


def test_few_queries_are_refused(judged):
    log = log_of(judged, 0.0, sessions=20).log.of_queries(np.arange(10))
    with pytest.raises(NotIdentified, match="queries"):
        coupling(log)
