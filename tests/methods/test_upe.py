"""UPE: dual learning where documents do not matter, rotations by hand, and who learns in which stage."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.bias.dla import DLA
from unskew.methods.bias.upe import UPE, adjusted_shares, policy_scores, scores_of_pairs
from unskew.networks.registry import Network, Problem

PROBLEM = Problem(3, 3, network=Network(hidden=(4,)))


def lists(**changes):
    generator = torch.Generator().manual_seed(0)
    given = ClickedLists(
        features=torch.randn(3, 3, 3, generator=generator, dtype=torch.float64),
        mask=torch.tensor([[True, True, True], [True, True, False], [True, True, True]]),
        positions=torch.tensor([[0, 1, 2], [0, 1, 0], [0, 1, 2]]),
        clicks=torch.tensor([[1.0, 2.0, 0.0], [0.0, 3.0, 0.0], [2.0, 1.0, 1.0]], dtype=torch.float64),
        sessions=torch.tensor([4.0, 5.0, 2.0], dtype=torch.float64),
    )
    return replace(given, **changes)


def new_method(**options):
    torch.manual_seed(0)
    method = UPE(PROBLEM, width=4, units=8, **options).double()
    nn.init.normal_(method.position.table)  # else all positions are alike
    return method


@pytest.mark.parametrize("max_weight", [None, 1.1])
def test_with_a_constant_document_vector_it_is_dla(max_weight):
    method = new_method(max_weight=max_weight)
    last = method.policy.documents[-1]
    with torch.no_grad():
        last.weight.zero_()
        vector = last.bias
        logits = method.position.score(vector + method.position.table).squeeze(-1)
    dla = DLA(PROBLEM, max_weight=max_weight).double()
    dla.relevance.load_state_dict(method.relevance.state_dict())
    with torch.no_grad():
        dla.observation.logits.copy_(logits)
    terms, expected = method.loss(lists()), dla.loss(lists())
    assert_close(terms["observation"], expected["observation"])
    assert_close(terms["relevance"], expected["relevance"])

    for _ in range(400):
        method.loss(lists())
    assert_close(method.examination(), dla.examination())


def test_every_document_stands_once_at_every_position():
    """A list of three and a list of two, turned by hand."""
    method, given = new_method(), lists()
    documents = method.policy.vectors(given.features, given.mask)
    positions = method.position.table
    with torch.no_grad():
        first, *last = method.position.score
        moved = positions @ first.weight.T
        pairs = scores_of_pairs(nn.Sequential(*last), first(documents), moved, given.positions)
        shares = adjusted_shares(pairs, given.mask)
        for row, turns in ((0, [(0, 1, 2), (1, 2, 0), (2, 0, 1)]), (1, [(0, 1), (1, 0)])):
            n_docs = len(turns[0])
            seen = [method.position.score(documents[row, list(turn)] + positions[:n_docs]) for turn in turns]
            turned = [logits.squeeze(-1).softmax(-1) for logits in seen]
            assert_close(shares[row, :n_docs], torch.stack(turned).mean(0))
        assert shares[1, 2] == 0  # padding is not seen


def test_the_curve_sums_shares_before_it_divides_them():
    """The third position is compared with the top of the lists that have one."""
    method = new_method()
    shares = torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.4, 0.0], [0.4, 0.4, 0.2]], dtype=torch.float64)
    curve = method.position.curve.relative(shares, lists(), keep=False)
    top = 4 * 0.5 + 5 * 0.6 + 2 * 0.4
    by_hand = [1.0, (4 * 0.3 + 5 * 0.4 + 2 * 0.4) / top, (4 * 0.2 + 2 * 0.2) / (4 * 0.5 + 2 * 0.4)]
    assert_close(curve, torch.tensor(by_hand, dtype=torch.float64))


def learners(method, term):
    method.zero_grad()
    term.backward()
    return {name for name, part in method.named_children() if any(p.grad is not None for p in part.parameters())}


def test_gradients_go_only_where_they_are_sent():
    method = new_method()
    policy, propensity, ranking = method.stages()
    assert [stage.name for stage in method.stages()] == ["policy", "propensity", "ranking"]
    assert learners(method, policy.loss(lists())["policy"]) == {"policy"}
    assert learners(method, ranking.loss(lists())["relevance"]) == {"relevance"}
    terms = propensity.loss(lists())
    assert learners(method, terms["relevance"]) == {"relevance"}
    assert learners(method, propensity.loss(lists())["observation"]) == {"position"}
    assert set(propensity.trains) == {method.position, method.relevance}
    assert set(ranking.trains) == {method.relevance}


def test_scores_of_the_policy_are_standardized_within_their_list():
    given = lists(policy_scores=torch.tensor([[30.0, 20.0, 10.0], [5.0, 1.0, 99.0], [7.0, 7.0, 7.0]]).double())
    root = math.sqrt(1.5)
    by_hand = torch.tensor([[root, 0.0, -root], [1.0, -1.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    assert_close(policy_scores(given), by_hand)


def test_without_scores_the_order_stands_for_them():
    shares = policy_scores(lists())[0].softmax(-1)
    assert_close(shares, torch.tensor([6.0, 3.0, 2.0], dtype=torch.float64) / 11)  # 1, 1/2, 1/3


def test_the_ranking_stage_weights_clicks_by_the_curve_as_it_is():
    method = new_method()
    with torch.no_grad():
        method.position.curve.mean.value.copy_(torch.tensor([1.0, 0.5, 0.25]))
        scores = method.relevance(lists().features, lists().mask)
    given = lists()
    weights = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    first = -(given.clicks[0] * weights * scores[0].log_softmax(-1)).sum()
    second = -(given.clicks[1] * weights * nn.functional.pad(scores[1, :2].log_softmax(-1), (0, 1))).sum()
    third = -(given.clicks[2] * weights * scores[2].log_softmax(-1)).sum()
    assert_close(method.ranking_loss(given)["relevance"].detach(), first + second + third)


def test_a_first_layer_in_two_parts_has_the_gradient_of_the_layer_of_the_sum():
    method, given = new_method(), lists(clicks=torch.eye(3, dtype=torch.float64))
    parameters = list(method.position.parameters())
    found = torch.autograd.grad(method.loss(given)["observation"], parameters)
    vectors = method.policy.vectors(given.features, given.mask).detach() + method.position.table[given.positions]
    weights = losses.inverse_share(method.relevance(given.features, given.mask), given.mask)
    whole = losses.softmax(method.position.score(vectors).squeeze(-1), given.clicks * weights, given.mask)
    assert_close(found, torch.autograd.grad(whole, parameters))
