"""Pairwise debiasing: one update of the ratios by hand, and batches that say nothing of the top."""

import math

import pytest
import torch

from unskew.lists import ClickedLists
from unskew.methods.bias.pair_debias import PairDebias
from unskew.networks.registry import Network, Problem


def method_of_one_feature(n_positions=3, **hyper):
    """The score is the one feature."""
    method = PairDebias(Problem(1, n_positions, network=Network(kind="linear")), **hyper).train()
    torch.nn.init.ones_(method.relevance.layers[0].weight)
    torch.nn.init.zeros_(method.relevance.layers[0].bias)
    return method


def lists_of(scores, sessions):
    """One list with these scores, and single sessions with these clicks."""
    clicks = torch.tensor(sessions, dtype=torch.float32)
    pairs = sum(row.unsqueeze(1) * (1 - row).unsqueeze(0) for row in clicks)
    return ClickedLists(
        features=torch.tensor(scores).reshape(1, -1, 1),
        mask=torch.ones(1, len(scores), dtype=torch.bool),
        positions=torch.arange(len(scores)).unsqueeze(0),
        clicks=clicks.sum(0, keepdim=True),
        sessions=torch.tensor([float(len(clicks))]),
        pairs=pairs.unsqueeze(0),
    )


def cost(score_clicked, score_unclicked):
    return math.log(1 + math.exp(score_unclicked - score_clicked))


SCORES = [1.0, 0.0, 2.0]
SESSIONS = [[1, 0, 0], [0, 1, 0], [0, 1, 1]]  # pairs (0,1) (0,2); (1,0) (1,2); (1,0) (2,0)


def test_loss_and_ratios_after_one_update_by_hand():
    method = method_of_one_feature(regulation=1.0, step_size=0.1)
    term = method.loss(lists_of(SCORES, SESSIONS))["pairs"]
    pair = {(i, j): cost(SCORES[i], SCORES[j]) for i in range(3) for j in range(3)}
    clicked = [pair[0, 1] + pair[0, 2], 2 * pair[1, 0] + pair[1, 2], pair[2, 0]]  # A, all ratios still 1
    unclicked = [2 * pair[1, 0] + pair[2, 0], pair[0, 1], pair[0, 2] + pair[1, 2]]  # B
    assert float(term.detach()) == pytest.approx(sum(clicked))
    assert sum(clicked) == pytest.approx(sum(unclicked))
    by_hand = [0.9 + 0.1 * math.sqrt(a / clicked[0]) for a in clicked]
    assert method.clicked.value.tolist() == pytest.approx(by_hand)
    assert method.unclicked.value.tolist() == pytest.approx(
        [0.9 + 0.1 * math.sqrt(b / unclicked[0]) for b in unclicked]
    )


def test_sums_are_weighted_by_the_ratios_of_the_other_side():
    method = method_of_one_feature(regulation=0.0, step_size=1.0)
    clicked, unclicked = [1.0, 0.5, 0.25], [1.0, 2.0, 4.0]
    method.clicked.value.copy_(torch.tensor(clicked))
    method.unclicked.value.copy_(torch.tensor(unclicked))
    term = method.loss(lists_of(SCORES, SESSIONS))["pairs"]
    pairs = [(0, 1), (0, 2), (1, 0), (1, 2), (1, 0), (2, 0)]
    cost_of = {(i, j): cost(SCORES[i], SCORES[j]) for i, j in pairs}
    a = [sum(cost_of[i, j] / unclicked[j] for i, j in pairs if i == k) for k in range(3)]
    b = [sum(cost_of[i, j] / clicked[i] for i, j in pairs if j == k) for k in range(3)]
    assert float(term.detach()) == pytest.approx(sum(cost_of[i, j] / clicked[i] / unclicked[j] for i, j in pairs))
    assert method.clicked.value.tolist() == pytest.approx([value / a[0] for value in a])
    assert method.unclicked.value.tolist() == pytest.approx([value / b[0] for value in b])


def test_the_gradient_goes_through_pairs_and_not_through_ratios():
    method = method_of_one_feature(regulation=0.0, step_size=1.0)
    lists = lists_of([1.0, 0.0], [[1, 0]])
    (slope,) = torch.autograd.grad(method.loss(lists)["pairs"], method.relevance.layers[0].weight)
    assert float(slope) == pytest.approx(-1 / (1 + math.e))  # of log(1 + e^(-w)) at w = 1


@pytest.mark.parametrize(
    "sessions",
    [
        [[0, 1, 0], [0, 0, 1], [0, 1, 1]],  # the top is never clicked: A_1 = 0
        [[1, 0, 0], [1, 1, 0]],  # the top is always clicked: B_1 = 0
        [[0, 0, 0]],
        [[1, 1, 1]],
    ],
)
def test_without_a_pair_at_the_top_ratios_stay_as_they_are(sessions):
    method = method_of_one_feature(step_size=0.5)
    method.clicked.value.copy_(torch.tensor([1.0, 0.6, 0.3]))
    method.unclicked.value.copy_(torch.tensor([1.0, 1.2, 1.5]))
    before = {name: value.clone() for name, value in method.state_dict().items()}
    lists = lists_of(SCORES, sessions)
    top_clicked = bool(lists.pairs[0, 0].sum() > 0)
    top_unclicked = bool(lists.pairs[0, :, 0].sum() > 0)
    assert not (top_clicked and top_unclicked)
    method.loss(lists)
    if not top_clicked:
        assert torch.equal(method.clicked.value, before["clicked.value"])
    if not top_unclicked:
        assert torch.equal(method.unclicked.value, before["unclicked.value"])
    assert bool(torch.cat([method.clicked.value, method.unclicked.value]).isfinite().all())


def test_a_position_shown_without_a_click_counts_as_none_and_one_not_shown_stays():
    method = method_of_one_feature(n_positions=4, regulation=0.0, step_size=0.5)
    method.loss(lists_of(SCORES, [[1, 0, 0], [0, 1, 0]]))  # three of four positions; the third is never clicked
    assert method.clicked.value[0] == 1.0
    assert float(method.clicked.value[2]) == pytest.approx(0.5, abs=0.001)
    assert method.clicked.value[3] == 1.0
