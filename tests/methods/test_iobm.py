"""IOBM: what a place is told of the others, and what it is never told."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from sample_lists import Fixed
from unskew.lists import ClickedLists
from unskew.methods.bias.iobm import IOBM
from unskew.networks.registry import Network, Problem

PROBLEM = Problem(3, 4, network=Network(hidden=(4,)))


def lists(n_lists=6, lengths=(4, 4, 4, 3, 2, 1), seed=0):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(4) < torch.tensor(lengths)[:n_lists, None]
    clicked = (torch.rand(n_lists, 4, generator=generator) < 0.5) & mask
    sessions = torch.arange(1, n_lists + 1).double()
    return ClickedLists(
        features=torch.randn(n_lists, 4, 3, generator=generator, dtype=torch.float64),
        mask=mask,
        positions=torch.where(mask, torch.arange(4), 0),
        clicks=clicked * sessions.unsqueeze(-1),
        sessions=sessions,
    )


def listening(**options):
    """A method whose propensities do listen to the other clicks."""
    torch.manual_seed(0)
    method = IOBM(PROBLEM, **options).double()
    nn.init.normal_(method.context.score.weight)
    return method


def test_a_click_never_explains_itself_but_the_others():
    method, given = listening(), lists(n_lists=1, lengths=(4,))
    with torch.no_grad():
        before = method.observation(given)
        for place in range(4):
            clicks = given.clicks.clone()
            clicks[0, place] = given.sessions[0] - clicks[0, place]
            changed = (method.observation(replace(given, clicks=clicks)) - before)[0] != 0
            assert changed.tolist() == [other != place for other in range(4)]


def test_without_clicks_and_context_lists_of_one_length_differ_by_position_only():
    method = listening(use_clicks=False, use_context=False)
    given = lists(lengths=(4, 4, 4, 4, 4, 4))
    with torch.no_grad():
        logits = method.observation(given)
    assert_close(logits, logits[:1].expand_as(logits))
    assert len(set(logits[0].tolist())) == 4


@pytest.mark.parametrize("left", ["use_clicks", "use_context"])
def test_with_either_they_differ_from_list_to_list(left):
    method = listening(**{"use_clicks": False, "use_context": False, left: True})
    with torch.no_grad():
        logits = method.observation(lists(lengths=(4, 4, 4, 4, 4, 4)))
    assert float(logits.std(0).max()) > 1e-3


def test_one_direction_reads_what_is_above_and_the_other_what_is_below():
    context = listening().context
    generator = torch.Generator().manual_seed(2)
    places = torch.randn(1, 4, 8, generator=generator, dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False]])
    with torch.no_grad():
        read = context.read(places, mask)[0]
        above, below = read.chunk(2, -1)
        upper_two, _ = context.reader(places[:, :2])
        lowest, _ = context.reader(places[:, 2:3])
        lower_two, _ = context.reader(places[:, 1:3])
    units = above.shape[-1]
    assert_close(above[0], torch.zeros(units, dtype=torch.float64))  # nothing stands above the top
    assert_close(above[2], upper_two[0, -1, :units])
    assert_close(below[2], torch.zeros(units, dtype=torch.float64))  # nor below the last
    assert_close(below[1], lowest[0, 0, units:])
    assert_close(below[0], lower_two[0, 0, units:])


def one_list():
    return ClickedLists(
        features=torch.zeros(1, 3, 3),
        mask=torch.tensor([[True, True, True]]),
        positions=torch.tensor([[0, 1, 2]]),
        clicks=torch.tensor([[0.0, 5.0, 5.0]]),
        sessions=torch.tensor([5.0]),
    )


def test_targets_are_bounded_by_one():
    """The third document is 1000 times less relevant than the top: its click counts 4, the bound, not 1000."""
    torch.manual_seed(0)
    method = IOBM(PROBLEM, max_weight=4.0).eval()
    method.relevance = Fixed(torch.tensor([[math.log(1000.0), math.log(500.0), 0.0]]))
    with torch.no_grad():
        method.position.logits.copy_(torch.tensor([0.25, 0.2, 0.1, 0.1]).logit())
        loss = float(method.loss(one_list())["observation"])
    by_hand = -5 * math.log(0.75)  # the top: no click
    by_hand -= 5 * (2 / 4 * math.log(0.2) + 2 / 4 * math.log(0.8))  # half the top's relevance: weight 2 of 4
    by_hand -= 5 * math.log(0.1)
    assert loss == pytest.approx(4 * by_hand, rel=1e-5)


def test_clicks_are_weighted_by_the_average_top_over_their_propensity():
    torch.manual_seed(0)
    method = IOBM(PROBLEM, max_weight=4.0).eval()
    with torch.no_grad():
        method.context.curve.seen.value.copy_(torch.tensor([1.2, 0.9, 0.5, 0.5]))  # in bounds: 1.2 / 4 = 0.3
        weights = method.weights(torch.tensor([[0.3, 0.2, 0.05]]).logit())
    assert_close(weights, torch.tensor([[1.0, 1.5, 4.0]]))  # the last one would be 6


def test_each_term_teaches_its_own():
    method = listening()
    method.loss(lists())["relevance"].backward()
    assert all(entry.grad is None for part in (method.position, method.context) for entry in part.parameters())
    method.zero_grad()
    method.loss(lists())["observation"].backward()
    assert all(entry.grad is None for entry in method.relevance.parameters())
