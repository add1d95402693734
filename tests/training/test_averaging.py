"""Averages of parameters, on a number that moves one down a step."""

import numpy as np
import pytest
import torch
from torch import nn

from sample_logs import log_of
from unskew.methods.method import Method, Stage
from unskew.training.optimizing import AveragedMethod
from unskew.training.settings import Settings
from unskew.training.train import train

LOG = log_of([[0, 1]], [[1, 0]], [1])


class Falling(Method):
    """A number that falls by the learning rate, beside a buffer that counts the steps."""

    def __init__(self, selects=True):
        super().__init__()
        self.number = nn.Parameter(torch.tensor(0.0))
        self.register_buffer("steps", torch.tensor(0))
        self.selects = selects

    def loss(self, lists):
        self.steps += 1
        return {"number": lists.sessions.sum() * self.number}

    def stages(self):
        return [Stage("fall", self.loss, {self: 1.0}, selects=self.selects)]


def settings(**changes):
    return Settings(
        **{
            "optimizer": "sgd",
            "learning_rate": 1.0,
            "warm_up": 0,
            "steps": 10,
            "weight_decay": 0.0,
            "validate_every": 1,
            **changes,
        }
    )


def fallen(validate=None, selects=True, **changes):
    method = Falling(selects)
    history = train(method, {"clicks": LOG}, settings(**changes), validate)
    return method, history


def averages(share, values):
    """The average after each of these values of the number."""
    method = Falling()
    averaged = AveragedMethod(method, share)
    found = []
    for value in values:
        with torch.no_grad():
            method.number.fill_(value)
        averaged.update()
        found.append(float(averaged.method.number.detach()))
    return found


def test_the_average_moves_by_one_part_in_the_share_of_the_steps_so_far():
    # A half of 1, 2 and 3 steps is at most 1.5, of 4 steps 2: all the way to 4 and 8, by 1/1.5 to 2, and half to 12.
    assert averages(0.5, [4.0, 8.0, 2.0, 12.0]) == pytest.approx([4.0, 8.0, 4.0, 8.0])


def test_the_average_of_all_steps_is_their_mean():
    assert averages(1.0, [4.0, 8.0, 3.0]) == pytest.approx([4.0, (4 + 8) / 2, (4 + 8 + 3) / 3])


def test_the_average_forgets_the_beginning_however_long_training_is():
    far = [1_000.0] * 10
    # A step from n - 1 to n leaves 1 - 1 / (0.2 n) of the beginning, from step 11 on.
    left = [np.prod([1 - 5 / n for n in range(11, n_steps + 1)]) for n_steps in (20, 100)]
    assert averages(0.2, far + [0.0] * 90)[19] == pytest.approx(1_000 * left[0], rel=1e-4)
    assert averages(0.2, far + [0.0] * 90)[99] == pytest.approx(1_000 * left[1], abs=1e-2)
    assert left[1] < 1e-5


def fifth(n):
    """The average of the usual share of -1, -2, …, -n: with m(n) = -5/6 (n + 1), n m(n) = (n - 5) m(n - 1) - 5 n."""
    return -n if n <= 5 else -5 / 6 * (n + 1)


def test_by_default_a_fifth_of_the_steps_so_far_is_averaged():
    method, _ = fallen()
    assert float(method.number.detach()) == pytest.approx(fifth(10))


def test_an_average_of_nothing_keeps_the_last_state():
    method, _ = fallen(average=0)
    assert float(method.number.detach()) == -10


def test_validation_sees_the_average_by_default():
    seen = []
    fallen(lambda method: seen.append(float(method.number.detach())) or 0.0)
    assert seen == pytest.approx([fifth(n) for n in range(1, 11)])


def test_validation_sees_and_keeps_the_average_that_was_asked_for():
    method, history = fallen(lambda method: -abs(float(method.number.detach()) + 2), average=1.0)
    assert float(method.number.detach()) == pytest.approx(-2.0)  # the mean of -1, -2, -3
    assert history.best_step == 3


def test_buffers_are_those_of_the_last_step():
    method, _ = fallen(average=1.0)
    assert int(method.steps) == 10


def test_a_stage_that_selects_nothing_is_not_averaged():
    method, _ = fallen(selects=False)
    assert float(method.number.detach()) == -10


@pytest.mark.parametrize("average", [-0.1, 1.1, "half", float("nan")])
def test_an_average_that_is_no_share_is_refused(average):
    with pytest.raises(ValueError, match="average must be a share of the steps from 0 to 1"):
        Settings(average=average)


def test_settings_that_leave_the_average_open_read_as_before_there_was_one():
    assert "average" not in Settings().to_json()
    assert Settings(**Settings(average=0.5).to_json()).average == 0.5
