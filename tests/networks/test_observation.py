"""Observation by position: a table of logits that bias columns bend."""

import pytest
import torch
from torch.testing import assert_close

from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Problem

POSITIONS = torch.tensor([[0, 1, 2], [0, 1, 7]])


def test_everything_is_seen_alike_at_the_start():
    observation = PositionObservation(Problem(1, 3))
    assert observation(POSITIONS, {}).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert observation.curve().tolist() == [1, 1, 1]


def test_below_the_last_known_place_it_is_as_dark_as_there():
    observation = PositionObservation(Problem(1, 3))
    observation.logits.data = torch.tensor([0.0, -1.0, -2.0])
    assert observation(POSITIONS, {}).tolist() == [[0, -1, -2], [0, -1, -2]]


def test_a_level_adds_its_own_table_and_a_number_its_slope():
    observation = PositionObservation(Problem(1, 3, {"device": ("desk", "phone"), "age": None}))
    observation.logits.data = torch.tensor([0.0, -1.0, -2.0])
    observation.levels[0].data = torch.tensor([[0.0, 0.0, 0.0], [0.0, -0.5, -1.0]])
    observation.slopes[0].data = torch.tensor([0.0, 0.1, 0.2])
    bias = {"device": torch.tensor([[0, 0, 0], [1, 1, 1]]), "age": torch.tensor([[10.0] * 3, [0.0] * 3])}
    by_hand = torch.tensor([[0.0, -1.0 + 1.0, -2.0 + 2.0], [0.0, -1.0 - 0.5, -2.0 - 1.0]])
    assert_close(observation(POSITIONS, bias), by_hand)


def test_the_curve_is_relative_to_the_top_at_the_average_of_the_levels():
    observation = PositionObservation(Problem(1, 2, {"device": ("desk", "phone")}))
    observation.logits.data = torch.tensor([3.0, 2.0])
    observation.levels[0].data = torch.tensor([[0.0, 0.0], [0.0, -1.0]])
    assert_close(observation.curve(), torch.tensor([0.0, (2 - 0.5) - 3]).exp())


@pytest.mark.parametrize("name", ["type", "values", "result.type", "two words"])
def test_a_bias_column_may_have_any_name(name):
    observation = PositionObservation(Problem(1, 3, {name: ("a", "b")}))
    assert observation(POSITIONS, {name: torch.zeros(2, 3, dtype=torch.int64)}).shape == (2, 3)
    assert observation.state_dict().keys() == {"logits", "levels.0"}
