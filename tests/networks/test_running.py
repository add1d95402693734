"""Running estimates: an exponential average that skips what a batch does not know."""

import pytest
import torch
from torch.testing import assert_close

from unskew.networks.observation import RunningEstimate, sum_per_position


def test_the_value_moves_by_its_rate_towards_what_was_observed():
    estimate = RunningEstimate(torch.tensor([1.0, 0.5]), 0.1)
    estimate.update(torch.tensor([0.0, 1.5]))
    assert_close(estimate.value, torch.tensor([0.9, 0.6]))


def test_the_value_stays_where_nothing_is_known_or_finite():
    estimate = RunningEstimate(torch.tensor([1.0, 2.0, 3.0]), 0.5)
    estimate.update(torch.tensor([float("nan"), 4.0, 5.0]), torch.tensor([True, False, True]))
    assert_close(estimate.value, torch.tensor([1.0, 2.0, 4.0]))


def test_the_value_is_saved_with_the_module_and_has_no_gradient():
    estimate = RunningEstimate(torch.tensor([1.0]), 0.5)
    estimate.update(torch.tensor([2.0], requires_grad=True))
    assert estimate.state_dict()["value"].tolist() == [1.5]
    assert not estimate.value.requires_grad


def test_what_it_started_from_is_left_alone():
    start = torch.ones(1)
    RunningEstimate(start, 1.0).update(torch.zeros(1))
    assert start.tolist() == [1.0]


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1])
def test_a_rate_outside_its_range_is_refused(rate):
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        RunningEstimate(torch.ones(1), rate)


def test_sums_are_by_position_leave_out_padding_and_end_at_the_last_place():
    values = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])
    positions = torch.tensor([[0, 1, 5], [0, 1, 0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    assert_close(sum_per_position(values, positions, mask, 3), torch.tensor([9.0, 18.0, 4.0]))
