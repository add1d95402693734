"""Doubly robust training: unbiased by enumeration, its regression's gradient, and the case that is ipw."""

from itertools import product

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from sample_logs import log_of
from unskew.lists import ClickedLists
from unskew.methods import METHODS
from unskew.methods.bias.doubly_robust import EXPECTED
from unskew.networks.documents import Ranker
from unskew.networks.registry import Network, Problem

THETA = (1.0, 0.4)
PROBLEM = Problem(1, 2, network=Network(kind="linear"))


class Constant(Ranker):
    pointwise = True

    def __init__(self, score):
        super().__init__()
        self.score = score

    def forward(self, features, mask):
        return torch.full(mask.shape, self.score, dtype=torch.float64)


def new(name="doubly_robust", **options):
    torch.manual_seed(0)
    return METHODS[name](PROBLEM, propensities=THETA, **options).double()


def lists_of(clicks, positions, expected, sessions=None, features=None):
    clicks = torch.tensor(clicks, dtype=torch.float64)
    n, docs = clicks.shape
    return ClickedLists(
        features=torch.ones(n, docs, 1, dtype=torch.float64) if features is None else features,
        mask=torch.ones(n, docs, dtype=torch.bool),
        positions=torch.tensor(positions),
        clicks=clicks,
        sessions=torch.ones(n, dtype=torch.float64) if sessions is None else sessions,
        bias={} if expected is None else {EXPECTED: torch.tensor(expected, dtype=torch.float64)},
    )


@pytest.mark.parametrize("least", [1e-9, 0.9])
@pytest.mark.parametrize("believed", [0.3, 0.6])
def test_targets_are_unbiased_if_examination_is_right_or_the_regression_is(believed, least):
    """A document of relevance .6, shown once at the top and once below: expected examination (1 + .4) / 2 = .7."""
    method, relevance = new(least=least), 0.6
    bias = float(np.log(believed / (1 - believed)))
    method.regression = Constant(bias)
    total = 0.0
    for clicked in product([0, 1], repeat=2):
        chance = np.prod([p if c else 1 - p for c, p in zip(clicked, relevance * np.array(THETA), strict=True)])
        lists = lists_of([[c] for c in clicked], [[0], [1]], [[0.7], [0.7]])
        total += chance * float(method.targets(lists).sum())
    # Two sessions: 1.2. Bounded at .9: 2 r + (.6 * 1.4 - 1.4 r) / .9, which is 1.2 for r = .6 and 1.0667 for .3.
    expected = 1.2 if least < 0.5 or believed == relevance else 0.6 + 0.42 / 0.9
    assert total == pytest.approx(expected)


def test_the_regression_is_unbiased_for_the_cross_entropy_of_relevance():
    method, relevance, score = new(least=1e-9), 0.6, 0.4
    method.regression = Constant(score)
    total = 0.0
    for clicked in product([0, 1], repeat=2):
        chance = np.prod([p if c else 1 - p for c, p in zip(clicked, relevance * np.array(THETA), strict=True)])
        lists = lists_of([[c] for c in clicked], [[0], [1]], [[0.7], [0.7]])
        total += chance * float(method.regression_loss(lists)["regression"])
    known = 1 / (1 + np.exp(-score))
    assert total == pytest.approx(-2 * (0.6 * np.log(known) + 0.4 * np.log(1 - known)))


@pytest.mark.parametrize("loss", ["regression_loss", "loss"])
def test_gradients_are_those_of_finite_differences(loss):
    method = new()
    features = torch.tensor([[[0.5], [-1.0]]], dtype=torch.float64)
    lists = lists_of([[3.0, 1.0]], [[0, 1]], [[0.8, 0.5]], torch.tensor([4.0], dtype=torch.float64), features)
    network = method.regression if loss == "regression_loss" else method.relevance
    weight = next(iter(network.parameters()))

    def cost():
        return sum(getattr(method, loss)(lists).values())

    cost().backward()
    found, step = weight.grad.flatten()[0].item(), 1e-6
    with torch.no_grad():
        weight.flatten()[0] += step
        above = cost().item()
        weight.flatten()[0] -= 2 * step
        below = cost().item()
    assert found == pytest.approx((above - below) / (2 * step), rel=1e-5)


def test_documents_that_never_move_have_the_targets_of_ipw_whatever_the_regression():
    method, ipw = new(least=1e-9), new("ipw")
    features = torch.tensor([[[0.5], [-1.0]]], dtype=torch.float64)
    lists = lists_of([[3.0, 1.0]], [[0, 1]], None, torch.tensor([4.0], dtype=torch.float64), features)
    assert_close(method.targets(lists), torch.tensor([[3.0, 2.5]], dtype=torch.float64))
    ipw.relevance.load_state_dict(method.relevance.state_dict())
    assert_close(method.loss(lists)["clicks"], ipw.loss(lists)["clicks"])


def test_expected_examination_is_the_mean_propensity_over_the_showings_of_a_document():
    log = log_of([[0, 1], [1, 0]], [[1, 0], [0, 1]], [3, 1])
    found = METHODS["doubly_robust"](PROBLEM, propensities=THETA).prepare({"clicks": log})["clicks"]
    # The first document: three times at the top, once below, (3 + .4) / 4; the second the other way round.
    np.testing.assert_allclose(found.bias[EXPECTED].values, [[0.85, 0.55], [0.55, 0.85]], rtol=1e-6)
