"""Affine softmax: two towers whose relevance is stretched at each position."""

import torch
from torch.testing import assert_close

from unskew.lists import ClickedLists
from unskew.methods.bias.affine_softmax import AffineSoftmax
from unskew.methods.bias.two_tower import TwoTower
from unskew.networks.registry import Network, Problem

PROBLEM = Problem(n_features=3, n_positions=4, bias={"device": ("desk", "phone")}, network=Network(hidden=(5,)))


def lists():
    rng = torch.Generator().manual_seed(0)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    return ClickedLists(
        features=torch.randn(2, 4, 3, generator=rng) * mask.unsqueeze(-1),
        mask=mask,
        positions=torch.arange(4).expand(2, 4) * mask,
        clicks=torch.tensor([[3.0, 1, 0, 1], [2, 0, 0, 0]]),
        sessions=torch.tensor([5.0, 2.0]),
        bias={"device": torch.tensor([[0, 0, 0, 0], [1, 1, 0, 0]])},
    )


def test_without_stretch_it_is_two_tower():
    torch.manual_seed(0)
    method, towers = AffineSoftmax(PROBLEM), TwoTower(PROBLEM)
    towers.relevance.load_state_dict(method.relevance.state_dict())
    for ours, theirs in zip(method.shift.parameters(), towers.observation.parameters(), strict=True):
        torch.nn.init.normal_(theirs)
        ours.data.copy_(theirs)
    batch = lists()
    ours, theirs = method.loss(batch)["clicks"], towers.loss(batch)["clicks"]
    assert_close(ours, theirs)
    ours.backward(), theirs.backward()
    for one, other in ((method.relevance, towers.relevance), (method.shift, towers.observation)):
        assert_close([p.grad for p in one.parameters()], [p.grad for p in other.parameters()])


def test_relevance_is_stretched_and_shifted_by_position():
    method, batch = AffineSoftmax(PROBLEM), lists()
    with torch.no_grad():
        method.stretch.logits.copy_(torch.tensor([0.0, 1.0, -0.5, -2.0]))
        method.shift.logits.copy_(torch.tensor([0.0, 3.0, 2.0, 1.0]))
    relevance = method.relevance(batch.features, batch.mask)[0]
    expected = relevance * torch.tensor([1.0, 2.0, 0.5, -1.0]) + torch.tensor([0.0, 3.0, 2.0, 1.0])
    assert_close(method.click_logits(batch)[0], expected)


def test_documents_are_ranked_by_relevance_alone():
    method, batch = AffineSoftmax(PROBLEM), lists()
    torch.nn.init.normal_(method.stretch.logits)
    assert_close(method.ranker()(batch.features, batch.mask), method.relevance(batch.features, batch.mask))


def test_relevance_settles_before_positions_move():
    method = AffineSoftmax(PROBLEM, warm_up_steps=7)
    warm_up, joint = method.stages()
    assert set(warm_up.trains) == {method.relevance}
    assert warm_up.steps == 7
    assert set(joint.trains) == {method.relevance, method.stretch, method.shift}
