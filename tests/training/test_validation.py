"""Validation: metrics on judged lists, turned so that higher is better, and likelihood of held-out clicks."""

import math

import numpy as np
import pytest
import torch

from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.evaluate import evaluate_scorer
from unskew.methods import METHODS
from unskew.networks.registry import Network, Problem
from unskew.training.validation import click_likelihood, on_clicks, on_judgements, on_order

LINEAR = Network(kind="linear")


def method_that_scores_the_feature(name, n_positions=3, **hyper):
    """A method whose relevance is the one feature."""
    method = METHODS[name](Problem(1, n_positions, network=LINEAR), **hyper)
    torch.nn.init.ones_(method.relevance.layers[0].weight)
    torch.nn.init.zeros_(method.relevance.layers[0].bias)
    return method


def log_of(features, clicks, sessions, mask=None):
    features = np.asarray(features, dtype=np.float32)
    n_lists, n_docs = features.shape
    return ClickLog(
        features=features.reshape(-1, 1),
        versions=np.arange(features.size, dtype=np.int32).reshape(n_lists, n_docs),
        mask=np.ones((n_lists, n_docs), dtype=bool) if mask is None else np.asarray(mask, dtype=bool),
        clicks=np.asarray(clicks, dtype=np.float32),
        sessions=np.asarray(sessions, dtype=np.float32),
    )


JUDGED = JudgedSet.from_arrays(
    np.array([[0.0], [1.0], [2.0], [0.0], [1.0]], dtype=np.float32), np.array([0, 2, 1, 1, 0]), group=[3, 2]
)


def test_judged_validation_is_the_mean_of_the_metric():
    method = method_that_scores_the_feature("naive")
    value = on_judgements(JUDGED, "ndcg@10")(method)
    first = (1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3))  # the middle document was best, it is second
    second = 1 / math.log2(3)
    assert value == pytest.approx((first + second) / 2)


def test_a_metric_that_is_better_when_lower_is_turned_round():
    method = method_that_scores_the_feature("naive")
    assert on_judgements(JUDGED, "arp")(method) == -evaluate_scorer(method.ranker(), JUDGED, ("arp",)).mean("arp")


def test_validation_runs_without_dropout_and_leaves_training_on():
    method = METHODS["naive"](Problem(1, 3, network=Network(hidden=(16,), dropout=0.5, norm=False)))
    method.train()
    validate = on_judgements(JUDGED, "dcg@10")
    likelihood = on_clicks(log_of([[1, 2]], [[1, 1]], [2]))
    assert validate(method) == validate(method)
    assert likelihood(method) == likelihood(method)
    assert method.training
    assert method.relevance.training


def test_a_softmax_method_is_judged_by_where_each_click_fell():
    log = log_of(
        np.log([[0.5, 0.3, 0.2], [0.4, 0.6, 1.0]]), [[2, 1, 0], [0, 1, 0]], [3, 5], mask=[[1, 1, 1], [1, 1, 0]]
    )
    log_likelihood = (2 * math.log(0.5) + math.log(0.3) + math.log(0.6)) / 4
    value = click_likelihood(method_that_scores_the_feature("naive"), ClickBatches(log))
    assert value == pytest.approx(log_likelihood, rel=1e-5)


def test_propensities_belong_to_the_click_model_of_ipw():
    log = log_of(np.log([[0.5, 0.25]]), [[1, 1]], [2])
    method = method_that_scores_the_feature("ipw", n_positions=2, propensities=[1.0, 0.5])
    shares = np.array([0.5, 0.125]) / 0.625
    assert on_clicks(log)(method) == pytest.approx(np.log(shares).mean(), rel=1e-5)


def test_a_bernoulli_method_is_judged_by_clicks_and_their_absence():
    gamma, theta = np.array([[0.8, 0.5]]), 0.5
    log = log_of(np.log(gamma / (1 - gamma)), [[1, 2]], [4])
    method = method_that_scores_the_feature("regression_em", n_positions=2, start=theta)
    p = gamma[0] * theta
    by_hand = (1 * np.log(p[0]) + 3 * np.log(1 - p[0]) + 2 * np.log(p[1]) + 2 * np.log(1 - p[1])) / 8
    assert on_clicks(log)(method) == pytest.approx(by_hand, rel=1e-5)


def test_padding_does_not_enter_the_likelihood():
    short = log_of([[0.5, -1.0]], [[1, 0]], [2])
    long = log_of([[0.5, -1.0, 9.0]], [[1, 0, 0]], [2], mask=[[True, True, False]])
    for name in ("naive", "regression_em"):
        method = method_that_scores_the_feature(name)
        assert on_clicks(long)(method) == pytest.approx(on_clicks(short)(method), rel=1e-6)


def test_the_true_model_is_more_likely_than_another():
    curve, relevance = np.array([1.0, 0.5, 0.25]), np.array([[0.2, 0.6, 0.9]])
    log = log_of(np.log(relevance), 1000 * curve * relevance, [1000])
    true = method_that_scores_the_feature("ipw", propensities=curve)
    other = method_that_scores_the_feature("ipw", propensities=[1.0, 0.9, 0.8])
    assert on_clicks(log)(true) > on_clicks(log)(other)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.click_model is None])
def test_a_method_that_predicts_no_clicks_says_how_else_to_validate(name):
    method = METHODS[name](Problem(1, 3, network=LINEAR))
    with pytest.raises(ValueError, match=r"predicts no clicks: compare its order with them \(on_order\)"):
        on_clicks(log_of([[1, 2]], [[1, 1]], [2]))(method)


@pytest.mark.parametrize("validation", [on_clicks, on_order])
def test_no_clicks_at_all_give_no_nan(validation):
    assert validation(log_of([[1, 2]], [[0, 0]], [2]))(method_that_scores_the_feature("naive")) == 0.0


# -- the order of a method that predicts no clicks


SHARES = np.array([0.5, 0.3, 0.2])
ROTATIONS = [np.roll(np.arange(3), shift) for shift in range(3)]  # every document once in every position


def clicks_of(effects):
    """Lists of three documents in three orders: per list, clicks in proportion to share times effect of the place."""
    shares = SHARES[np.array(ROTATIONS)]
    clicks = shares * np.asarray(effects)
    return np.log(shares), 900 * clicks / clicks.sum(axis=1, keepdims=True)


def entropy(clicks):
    """What the clicks' own shares give: no prediction is more likely."""
    shares = clicks / clicks.sum(axis=1, keepdims=True)
    return (clicks * np.log(shares)).sum() / clicks.sum()


def test_scores_that_explain_where_clicks_fall_reach_the_highest_likelihood():
    features, clicks = clicks_of([1.0, 1.0, 1.0])
    value = on_order(log_of(features, clicks, [900] * 3))(method_that_scores_the_feature("naive"))
    assert value == pytest.approx((SHARES * np.log(SHARES)).sum(), abs=1e-5)


def test_scores_that_are_all_the_same_explain_no_more_than_chance():
    _, clicks = clicks_of([1.0, 1.0, 1.0])
    value = on_order(log_of(np.zeros((3, 3)), clicks, [900] * 3))(method_that_scores_the_feature("naive"))
    assert value == pytest.approx(math.log(1 / 3), abs=1e-5)  # each position has a third of all clicks


def test_the_order_is_judged_besides_what_positions_explain():
    features, clicks = clicks_of([1.0, 0.5, 0.25])
    value = on_order(log_of(features, clicks, [900] * 3))(method_that_scores_the_feature("naive"))
    assert value == pytest.approx(entropy(clicks), abs=1e-5)


def test_an_effect_of_positions_added_to_the_scores_changes_nothing():
    features, clicks = clicks_of([1.0, 0.5, 0.25])
    clicks += np.array([[30.0, 0.0, 9.0], [0.0, 60.0, 0.0], [5.0, 0.0, 0.0]])  # no model explains these
    method = method_that_scores_the_feature("naive")
    plain, raised = (
        on_order(log_of(features + effect, clicks, [900] * 3))(method) for effect in (0.0, [2.0, -1.0, 0.5])
    )
    assert raised == pytest.approx(plain, abs=1e-5)


@pytest.mark.parametrize("scale", [0.1, 10.0])
def test_the_scale_of_scores_does_not_matter_but_their_direction_does(scale):
    features, clicks = clicks_of([1.0, 0.5, 0.25])
    method = method_that_scores_the_feature("naive")
    value = on_order(log_of(scale * features, clicks, [900] * 3))(method)
    assert value == pytest.approx(entropy(clicks), abs=1e-4)
    assert on_order(log_of(-scale * features, clicks, [900] * 3))(method) < entropy(clicks) - 0.01


def test_judging_the_order_leaves_the_method_as_it_was():
    method = method_that_scores_the_feature("pair_debias").train()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    validate = on_order(log_of([[1, 2, 3]], [[1, 0, 2]], [3]))
    assert validate(method) == validate(method)
    assert method.training
    assert all(torch.equal(before[name], value) for name, value in method.state_dict().items())
    assert all(entry.grad is None for entry in method.parameters())
