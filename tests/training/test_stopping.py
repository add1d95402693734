"""A run that is asked to end: the step is finished, the checkpoint written, and the result is the same."""

import os
import signal

import pytest
import torch

from unskew import Recipe, fit
from unskew.training.checkpoint import Stopped, stop_requests

RECIPE = Recipe.of("two_tower", steps=12, hidden=(4,), validate_every=5)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_run_goes_on_to_the_same_weights(log, tmp_path, monkeypatch, number, code):
    whole = fit(RECIPE, log)
    steps = iter(range(100))
    from unskew.methods.bias.two_tower import TwoTower

    loss = TwoTower.loss

    def stop_at_the_seventh(self, lists):
        if next(steps) == 6:
            os.kill(os.getpid(), number)
        return loss(self, lists)

    checkpoint = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(TwoTower, "loss", stop_at_the_seventh)
        with pytest.raises(Stopped, match="stopped at step 7; the checkpoint is saved") as stopped:
            fit(RECIPE, log, checkpoint=checkpoint)
    assert stopped.value.exit_code == code
    resumed = fit(RECIPE, log, checkpoint=checkpoint)
    for name, tensor in whole.method.state_dict().items():
        assert torch.equal(tensor, resumed.method.state_dict()[name]), name
    assert [row["step"] for row in resumed.history.rows] == [5, 10, 12]
    assert resumed.history.column("clicks") == whole.history.column("clicks")  # means over steps before and after


def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with stop_requests() as requested:
        assert requested() is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert requested() == signal.SIGTERM
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
