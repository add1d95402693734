"""Regression EM: posteriors by enumeration, one update by hand, the truth as a fixed point, sampling on average."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.lists import ClickedLists
from unskew.methods.bias.regression_em import RegressionEM
from unskew.networks.registry import Network, Problem

LINEAR = Network(kind="linear")


def method_of_one_feature(n_positions, **hyper):
    """Relevance is the sigmoid of the one feature."""
    method = RegressionEM(Problem(1, n_positions, network=LINEAR), **hyper)
    torch.nn.init.ones_(method.relevance.layers[0].weight)
    torch.nn.init.zeros_(method.relevance.layers[0].bias)
    return method


def one_list(gamma, clicks, sessions):
    gamma = torch.tensor([gamma], dtype=torch.float32)
    return ClickedLists(
        features=gamma.logit().unsqueeze(-1),
        mask=torch.ones(gamma.shape, dtype=torch.bool),
        positions=torch.arange(gamma.shape[1]).unsqueeze(0),
        clicks=torch.tensor([clicks], dtype=torch.float32),
        sessions=torch.tensor([sessions], dtype=torch.float32),
    )


def enumerated(theta, gamma, click):
    """P(seen | click) and P(relevant | click) over the four states (E, R), of which one makes a click."""
    states = {
        (seen, relevant): (theta if seen else 1 - theta) * (gamma if relevant else 1 - gamma)
        for seen in (0, 1)
        for relevant in (0, 1)
    }
    possible = {state: p for state, p in states.items() if (state == (1, 1)) == bool(click)}
    total = sum(possible.values())
    return (
        sum(p for (seen, _), p in possible.items() if seen) / total,
        sum(p for (_, relevant), p in possible.items() if relevant) / total,
    )


@pytest.mark.parametrize("theta", [0.1, 0.5, 0.95])
@pytest.mark.parametrize("gamma", [0.05, 0.5, 0.99])
@pytest.mark.parametrize("click", [0, 1])
def test_posteriors_are_those_of_enumeration(theta, gamma, click):
    method = method_of_one_feature(1, start=theta)
    lists = one_list([gamma], [click], 1)
    seen, relevant = method.posteriors(lists.features.squeeze(-1), lists)
    assert (float(seen), float(relevant)) == pytest.approx(enumerated(theta, gamma, click), rel=1e-4)


def test_one_update_by_hand():
    method = method_of_one_feature(2, start=0.5, step_size=0.1).train()
    term = method.loss(one_list([0.5, 0.8], [3, 1], 5))["relevance"]
    # Of 2 and 4 showings without a click the first was seen in .5 * .5 / .75 = 1/3, the second in .5 * .2 / .6 = 1/6.
    means = [(3 + 2 / 3) / 5, (1 + 4 / 6) / 5]
    assert method.seen.value.tolist() == pytest.approx([0.9 * 0.5 + 0.1 * mean for mean in means])
    # And relevant in .5 * .5 / .75 = 1/3 and .5 * .8 / .6 = 2/3 of them.
    targets = np.array([3 + 2 / 3, 1 + 4 * 2 / 3])
    gamma = np.array([0.5, 0.8])
    by_hand = -(targets * np.log(gamma) + (5 - targets) * np.log(1 - gamma)).sum()
    assert float(term.detach()) == pytest.approx(by_hand, rel=1e-5)


def test_a_position_that_no_list_reaches_keeps_its_value():
    method = method_of_one_feature(3, start=0.5, step_size=0.1).train()
    method.loss(one_list([0.5, 0.8], [3, 1], 5))
    assert float(method.seen.value[2]) == 0.5


def test_the_truth_is_a_fixed_point():
    theta = np.array([0.9, 0.4, 0.2])
    gamma = np.array([[0.2, 0.5, 0.9], [0.7, 0.3, 0.6]])
    log = ClickLog(
        features=np.log(gamma / (1 - gamma)).reshape(-1, 1).astype(np.float32),
        versions=np.arange(6, dtype=np.int32).reshape(2, 3),
        mask=np.ones((2, 3), dtype=bool),
        clicks=1000 * theta * gamma,
        sessions=np.full(2, 1000.0),
    )
    method = method_of_one_feature(3, step_size=1.0).train()
    method.seen.value.copy_(torch.from_numpy(theta))
    loss = method.loss(ClickBatches(log).rows(np.arange(2)))["relevance"]
    assert_close(method.seen.value, torch.from_numpy(theta).float(), rtol=1e-4, atol=1e-5)
    (slope,) = torch.autograd.grad(loss / 2000, method.relevance.layers[0].weight)
    assert_close(slope, torch.zeros(1, 1), rtol=0, atol=1e-4)
    assert_close(method.examination(), torch.from_numpy(theta / theta[0]).float(), rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("sessions", [4.0, 2.5, 0.3])
def test_sampled_labels_average_to_the_posterior(sessions):
    clicks = [min(1.0, sessions), 0.0]
    lists = one_list([0.6, 0.3], clicks, sessions)
    terms = {}
    for sample in (False, True):
        method = method_of_one_feature(2, start=0.5, sample=sample).eval()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            terms[sample] = [float(method.loss(lists)["relevance"].detach()) for _ in range(2000 if sample else 1)]
    error = np.std(terms[True]) / np.sqrt(2000)
    assert abs(np.mean(terms[True]) - terms[False][0]) < 4 * error
    assert error > 0


def test_predicted_clicks_are_seen_times_relevant():
    method = method_of_one_feature(2, start=0.5)
    method.seen.value[1] = 0.25
    logits = method.click_logits(one_list([0.4, 0.8], [0, 0], 1))
    assert_close(logits.sigmoid(), torch.tensor([[0.2, 0.2]]))
