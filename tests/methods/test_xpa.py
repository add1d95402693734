"""XPA: two towers where nobody attends, and nobody attends to itself."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from unskew.lists import ClickedLists
from unskew.methods.bias.two_tower import TwoTower
from unskew.methods.bias.xpa import DISPLAYED, XPA, hidden_from
from unskew.networks.registry import Network, Problem

BIAS = {"type": ("text", "image"), "height": None}
PROBLEM = Problem(3, 3, BIAS, Network(hidden=(4,)))


def lists():
    generator = torch.Generator().manual_seed(0)
    return ClickedLists(
        features=torch.randn(2, 3, 3, generator=generator, dtype=torch.float64),
        mask=torch.tensor([[True, True, True], [True, True, False]]),
        positions=torch.tensor([[0, 1, 2], [0, 1, 0]]),
        clicks=torch.tensor([[1.0, 2.0, 0.0], [0.0, 3.0, 0.0]], dtype=torch.float64),
        sessions=torch.tensor([4.0, 5.0], dtype=torch.float64),
        bias={"type": torch.tensor([[0, 1, 0], [1, 1, 0]]), "height": torch.tensor([[1.0, 2.0, 3.0], [9.0, 5.0, 0.0]])},
    )


def new_method(**options):
    torch.manual_seed(0)
    return XPA(PROBLEM, **options).double()


def attentive(**options):
    """A method whose observation does listen to its neighbors."""
    method = new_method(width=4, attention_heads=2, **options)
    torch.nn.init.normal_(method.context.score.weight)
    return method


def two_tower_like(method):
    other = TwoTower(PROBLEM).double()
    other.relevance.load_state_dict(method.relevance.state_dict())
    other.observation.load_state_dict(method.position.state_dict())
    return other


@pytest.mark.parametrize("options", [{"attention": False}, {}])
def test_without_attention_and_at_its_start_it_is_two_tower(options):
    method = new_method(**options)
    with torch.no_grad():
        method.position.logits.copy_(torch.tensor([0.0, -0.5, -2.0]))
    other = two_tower_like(method)
    loss, expected = method.loss(lists())["clicks"], other.loss(lists())["clicks"]
    assert_close(loss, expected)
    loss.backward()
    expected.backward()
    assert_close(method.relevance.layers[1].weight.grad, other.relevance.layers[1].weight.grad)
    assert_close(method.position.logits.grad, other.observation.logits.grad)


def test_without_attention_the_curve_is_that_of_the_positions():
    method = new_method(attention=False)
    with torch.no_grad():
        method.position.logits.copy_(torch.tensor([0.5, 0.25, 0.125]).log())
    assert_close(method.examination(), torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64))


def test_who_is_hidden_from_whom_by_hand():
    mask = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    hidden, alone = hidden_from(mask)
    yes, no = True, False
    assert hidden[0].tolist() == [[yes, no, no], [no, yes, no], [no, no, yes]]
    assert hidden[1].tolist() == [[yes, no, yes], [no, yes, yes], [no, no, yes]]
    assert hidden[2].tolist() == [[no, no, no], [no, yes, yes], [no, yes, yes]]  # the first has nobody to look at
    assert alone.tolist() == [[no, no, no], [no, no, no], [yes, no, no]]


def test_without_a_question_attention_is_the_mean_of_the_others():
    """Queries of 0 weigh all that may be seen alike, so the logit is the mean of the others' values."""
    method = attentive(displayed="features")
    context = method.context
    with torch.no_grad():
        context.asking.weight.zero_()
        context.attention.in_proj_weight.copy_(torch.eye(4, dtype=torch.float64).repeat(3, 1))
        context.attention.in_proj_bias.zero_()
        context.attention.out_proj.weight.copy_(torch.eye(4, dtype=torch.float64))
        context.attention.out_proj.bias.zero_()
        given = lists()
        values = context.score(context.asked(given.positions) + context.display(given.features)).squeeze(-1)
        logits = context(given)
    first, second = values
    by_hand = [(first[1] + first[2]) / 2, (first[0] + first[2]) / 2, (first[0] + first[1]) / 2]
    assert_close(logits[0], torch.stack(by_hand))
    assert_close(logits[1, :2], torch.stack([second[1], second[0]]))


def test_a_document_does_not_explain_how_well_it_is_seen_itself():
    method, given = attentive(), lists()
    given.features.requires_grad_()
    method.observation(given)[0, 1].backward()
    itself, neighbours, another_list = given.features.grad[0, 1], given.features.grad[0, [0, 2]], given.features.grad[1]
    assert bool((itself == 0).all())
    assert bool((neighbours != 0).all())
    assert bool((another_list == 0).all())


def test_a_document_alone_has_no_context():
    given = lists()
    alone = replace(given, mask=torch.tensor([[True, False, False]] * 2))
    assert attentive().context(alone)[:, 0].tolist() == [0.0, 0.0]


def test_only_what_is_displayed_counts():
    given = lists()
    other_features = replace(given, features=given.features + 1.0)
    other_type = replace(given, bias={**given.bias, "type": 1 - given.bias["type"]})
    changes = {"features": (True, False), "bias": (False, True), "nothing": (False, False)}
    assert changes.keys() == DISPLAYED.keys()
    for displayed, expected in changes.items():
        context = attentive(displayed=displayed).context
        with torch.no_grad():
            same = [torch.allclose(context(given), context(changed)) for changed in (other_features, other_type)]
        assert tuple(not value for value in same) == expected


def test_the_curve_is_the_mean_over_sessions():
    method = new_method().train()
    with torch.no_grad():
        method.position.logits.copy_(torch.tensor([0.5, 0.25, 0.125]).log())
    for _ in range(400):
        method.loss(lists())
    assert_close(method.examination(), torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64), rtol=1e-6, atol=1e-6)
