"""Affine correction: the special case of ipw, and the EM by enumeration of what may have happened."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.lists import ClickedLists
from unskew.methods.bias.affine import Affine, TrustEstimate
from unskew.methods.bias.ipw import IPW
from unskew.networks.registry import Network, Problem
from unskew.training.settings import Settings
from unskew.training.train import train

PROBLEM = Problem(4, 3, network=Network(hidden=(5,)))
THETA, TRUSTED = torch.tensor([0.9, 0.5, 0.2]), torch.tensor([0.95, 0.9, 0.8])


def some_lists(seed=0, n_lists=6):
    rng = torch.Generator().manual_seed(seed)
    sessions = torch.randint(3, 9, (n_lists,), generator=rng).double()
    clicks = (torch.rand(n_lists, 3, generator=rng, dtype=torch.float64) * sessions.unsqueeze(1)).floor()
    return ClickedLists(
        features=torch.randn(n_lists, 3, 4, generator=rng, dtype=torch.float64),
        mask=torch.ones(n_lists, 3, dtype=torch.bool),
        positions=torch.arange(3).expand(n_lists, 3),
        clicks=clicks,
        sessions=sessions,
    )


def gradient(method, lists):
    sum(method.loss(lists).values()).backward()
    return torch.cat([entry.grad.reshape(-1) for entry in method.relevance.parameters()])


@pytest.mark.parametrize("loss", ["softmax", "squared"])
def test_without_clicks_on_irrelevant_documents_it_is_ipw_up_to_a_factor(loss):
    torch.manual_seed(0)
    curve = THETA * TRUSTED
    affine = Affine(PROBLEM, alpha=curve.tolist(), beta=[0.0, 0.0, 0.0], loss=loss).double()
    ipw = IPW(PROBLEM, propensities=curve.tolist(), loss=loss).double()
    ipw.relevance.load_state_dict(affine.relevance.state_dict())
    lists = some_lists()
    if loss == "squared":  # n s² - 2 y s: the part with the target is what the correction changes
        none = ClickedLists(**{**vars(lists), "clicks": torch.zeros_like(lists.clicks)})
        of_nothing = [gradient(method, none) for method in (affine, ipw)]
        for method in (affine, ipw):
            method.zero_grad()
    else:
        of_nothing = [0.0, 0.0]
    gradients = [gradient(method, lists) - base for method, base in zip((affine, ipw), of_nothing, strict=True)]
    largest = float(gradients[1].abs().max())
    assert_close(gradients[0] * float(curve[0]), gradients[1], rtol=0, atol=1e-5 * largest)  # curves are in float32


def test_the_corrected_click_is_relevance_on_average():
    alpha, beta, gamma = torch.tensor([0.7, 0.4, 0.2]), torch.tensor([0.2, 0.1, 0.05]), torch.tensor([0.3, 0.9, 0.5])
    method = Affine(PROBLEM, alpha=alpha.tolist(), beta=beta.tolist())
    received = {}

    def keep(scores, targets, sessions, mask):
        received["targets"] = targets
        return scores.sum()

    method.corrected_loss = keep
    n = 1000.0
    method.loss(
        ClickedLists(
            features=torch.zeros(1, 3, 4),
            mask=torch.ones(1, 3, dtype=torch.bool),
            positions=torch.arange(3).unsqueeze(0),
            clicks=n * (alpha * gamma + beta).unsqueeze(0),
            sessions=torch.tensor([n]),
        )
    )
    assert_close(received["targets"], n * gamma.unsqueeze(0), rtol=1e-5, atol=1e-2)


def enumerate_joint(theta, trusted, mistaken, gamma):
    """P(E, R, C) of every hidden state and click."""
    joint = {}
    for seen in (0, 1):
        for relevant in (0, 1):
            p = (theta if seen else 1 - theta) * (gamma if relevant else 1 - gamma)
            click = seen * (trusted if relevant else mistaken)
            joint[seen, relevant, 1], joint[seen, relevant, 0] = p * click, p * (1 - click)
    return joint


@pytest.mark.parametrize(
    ("theta", "trusted", "mistaken", "gamma"), [(0.9, 0.95, 0.6, 0.3), (0.3, 0.8, 0.1, 0.7), (1.0, 0.5, 0.5, 0.2)]
)
def test_posteriors_are_those_of_enumeration(theta, trusted, mistaken, gamma):
    joint = enumerate_joint(theta, trusted, mistaken, gamma)
    assert sum(joint.values()) == pytest.approx(1.0)
    estimate = TrustEstimate(Problem(4, 1, network=Network(kind="linear")), step_size=0.5)
    estimate.relevant_clicks.value.fill_(theta * trusted)
    estimate.relevant.value.fill_(1.0)
    estimate.irrelevant_clicks.value.fill_(theta * mistaken)
    estimate.irrelevant.value.fill_(1.0)
    after_click, after_none = estimate.posteriors(torch.tensor([[gamma]]), torch.tensor([[0]]))
    for computed, click in ((after_click, 1), (after_none, 0)):
        relevant = joint[0, 1, click] + joint[1, 1, click]
        assert float(computed) == pytest.approx(relevant / (relevant + joint[0, 0, click] + joint[1, 0, click]))


def test_one_update_of_the_estimate_by_hand():
    estimate = TrustEstimate(Problem(1, 1, network=Network(kind="linear")), step_size=0.5)
    torch.nn.init.zeros_(estimate.relevance.layers[0].weight)
    torch.nn.init.zeros_(estimate.relevance.layers[0].bias)  # gamma is a half
    for entry, value in (("relevant", 1.0), ("relevant_clicks", 0.8), ("irrelevant", 1.0), ("irrelevant_clicks", 0.2)):
        getattr(estimate, entry).value.fill_(value)
    lists = ClickedLists(
        features=torch.zeros(1, 1, 1),
        mask=torch.ones(1, 1, dtype=torch.bool),
        positions=torch.zeros(1, 1, dtype=torch.int64),
        clicks=torch.tensor([[4.0]]),
        sessions=torch.tensor([10.0]),
    )
    estimate.train().loss(lists)
    # After a click .8 / (.8 + .2) = .8 are relevant, after none .2 / (.2 + .8) = .2: of 10 showings 3.2 + 1.2 = 4.4.
    assert float(estimate.relevant.value) == pytest.approx((1 + 0.44) / 2)
    assert float(estimate.relevant_clicks.value) == pytest.approx((0.8 + 0.32) / 2)
    assert float(estimate.irrelevant.value) == pytest.approx((1 + 0.56) / 2)
    assert float(estimate.irrelevant_clicks.value) == pytest.approx((0.2 + 0.08) / 2)
    relevant, irrelevant = estimate.click_rates()
    assert float(relevant) == pytest.approx(0.56 / 0.72)
    assert float(irrelevant) == pytest.approx(0.14 / 0.78)


def test_estimates_at_the_truth_stay_there():
    """The truth is a fixed point: expected clicks under (a, b, gamma) give a and b back."""
    a, b = np.array([0.85, 0.4]), np.array([0.4, 0.05])
    gamma = np.array([[0.9, 0.2], [0.3, 0.8], [0.5, 0.5]])
    sessions = 1000.0
    log = ClickLog(
        features=np.log(gamma / (1 - gamma)).reshape(-1, 1).astype(np.float32),
        versions=np.arange(6, dtype=np.int32).reshape(3, 2),
        mask=np.ones((3, 2), dtype=bool),
        clicks=sessions * (a * gamma + b * (1 - gamma)),
        sessions=np.full(3, sessions),
    )
    estimate = TrustEstimate(Problem(1, 2, network=Network(kind="linear")), step_size=1.0)
    torch.nn.init.ones_(estimate.relevance.layers[0].weight)
    torch.nn.init.zeros_(estimate.relevance.layers[0].bias)
    estimate.relevant.value.fill_(1.0)
    estimate.irrelevant.value.fill_(1.0)
    estimate.relevant_clicks.value.copy_(torch.from_numpy(a))
    estimate.irrelevant_clicks.value.copy_(torch.from_numpy(b))
    scores = estimate.relevance.layers[0].weight
    loss = estimate.train().loss(ClickBatches(log).rows(np.arange(3)))["estimation"]
    relevant, irrelevant = estimate.click_rates()
    assert_close(relevant, torch.from_numpy(a).float(), rtol=1e-4, atol=1e-4)
    assert_close(irrelevant, torch.from_numpy(b).float(), rtol=1e-4, atol=1e-4)
    (slope,) = torch.autograd.grad(loss / sessions, scores)
    assert_close(slope, torch.zeros(1, 1), rtol=0, atol=1e-4)


def test_estimation_comes_first_and_correction_leaves_it_alone():
    method = Affine(PROBLEM, estimation_steps=3)
    assert [stage.name for stage in method.stages()] == ["estimation", "correction"]
    assert [stage.name for stage in Affine(PROBLEM, alpha=[1, 1, 1], beta=[0, 0, 0]).stages()] == ["correction"]


def test_the_curve_is_alpha_relative_to_the_top():
    method = Affine(PROBLEM, alpha=[0.8, 0.4, 0.2], beta=[0.1, 0.1, 0.1])
    assert_close(method.examination(), torch.tensor([1.0, 0.5, 0.25]))


def test_corrected_clicks_are_learnt_as_relevance():
    alpha, beta, gamma = np.array([0.7, 0.3]), np.array([0.2, 0.05]), np.array([[0.2, 0.6], [0.6, 0.2]])
    log = ClickLog(
        features=np.array([[1, 0], [0, 1]], dtype=np.float32),
        versions=np.array([[0, 1], [1, 0]], dtype=np.int32),
        mask=np.ones((2, 2), dtype=bool),
        clicks=100 * (alpha * gamma + beta),
        sessions=np.full(2, 100.0),
    )
    method = Affine(Problem(2, 2, network=Network(kind="linear")), alpha=alpha, beta=beta)
    train(method, {"clicks": log}, Settings(steps=300, optimizer="adagrad", learning_rate=0.2, weight_decay=0.0))
    scores = method.ranker()(torch.eye(2).unsqueeze(0), torch.ones(1, 2, dtype=torch.bool))
    assert_close(scores, torch.tensor([[0.2, 0.6]]), rtol=0, atol=0.01)
