"""When training ends: held-out clicks are predicted no better, the steps are done, or time is up."""

import os
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import unskew
from sample_logs import log_of
from unskew import ClickLog, Recipe, fit, open_log, write_log
from unskew.methods.method import Method, Stage
from unskew.training.checkpoint import Stopped
from unskew.training.ending import MOST, MOST_HELD_OUT, VALIDATIONS, Ending, last_step, part_held_out
from unskew.training.history import History
from unskew.training.settings import Settings
from unskew.training.train import train

LOG = log_of([[0, 1]], [[1, 0]], [1])
FALLING = Settings(optimizer="sgd", learning_rate=1.0, weight_decay=0.0, warm_up=0, average=0)


class Falling(Method):
    """A number that falls by one per step."""

    def __init__(self, killed_at=None):
        super().__init__()
        self.number = nn.Parameter(torch.tensor(0.0))
        self.killed_at = killed_at

    @property
    def steps(self):
        return round(-float(self.number.detach()))

    def loss(self, lists):
        if self.steps == self.killed_at:
            os.kill(os.getpid(), 15)
        return {"number": lists.sessions.sum() * self.number}


def best_at(step):
    """A validation that rises until this step, and falls from there."""
    return lambda method: -abs(method.steps - step)


def fallen(settings=FALLING, validate=None, method=None, **options):
    method = Falling() if method is None else method
    return method, train(method, {"clicks": LOG}, settings, validate, **options)


# -- when it validates


def test_validations_are_10_steps_apart_and_later_15_percent_of_the_steps():
    assert VALIDATIONS[:9] == [10, 20, 30, 40, 50, 60, 70, 81, 94]  # 70 * 1.15 = 80.5, 81 * 1.15 = 93.15
    assert VALIDATIONS[-1] == MOST
    for before, after in pairwise(VALIDATIONS[:-1]):
        assert max(before + 10, 1.15 * before) <= after < max(before + 10, 1.15 * before) + 1


@pytest.mark.parametrize(("best", "last"), [(0, 400), (50, 400), (266, 400), (300, 450), (403, 605), (29_000, MOST)])
def test_training_runs_half_as_long_again_as_the_best_state_and_at_least_400_steps(best, last):
    assert last_step(best) == last


# -- until nothing more is learned


def test_training_ends_at_the_first_validation_after_one_and_a_half_times_the_best():
    method, history = fallen(validate=best_at(295))
    # Validations are at …, 256, 295, 340, 391, 450, …: the first from 1.5 * 295 = 442.5 on is 450.
    assert [step for step, _ in history.column("validation")] == VALIDATIONS[: VALIDATIONS.index(450) + 1]
    assert history.ending == Ending(450, 295, "learned")
    assert method.steps == 295
    assert history.settings["steps"] == 450
    assert history.ended == (
        "ended after 450 steps: held-out clicks were predicted no better; the state of step 295 is kept; "
        "every list was seen about 450 times"
    )


def test_training_goes_on_while_something_is_learned():
    _, history = fallen(validate=best_at(50))
    assert history.ending == Ending(450, 50, "learned")  # the first validation from 400 on
    _, history = fallen(validate=best_at(1_000))
    best = min(VALIDATIONS, key=lambda step: abs(step - 1_000))
    assert history.ending == Ending(next(step for step in VALIDATIONS if step >= 1.5 * best), best, "learned")


def test_a_number_of_steps_is_taken_whatever_is_learned():
    method, history = fallen(replace(FALLING, steps=400), best_at(50))
    assert history.ending == Ending(400, 50, "steps")
    assert method.steps == 50
    assert history.ended.startswith("ended after 400 steps, as asked; the state of step 50 is kept")


def test_patience_may_end_training_sooner():
    _, history = fallen(replace(FALLING, patience=2), best_at(50))
    assert history.ending == Ending(70, 50, "patience")  # 60 and 70 are no better


def test_a_stage_that_held_out_clicks_cannot_judge_takes_500_steps_and_one_of_fixed_length_its_own():
    class Staged(Falling):
        def stages(self):
            return [
                Stage("fixed", self.loss, {self: 1.0}, steps=7, selects=False),
                Stage("blind", self.loss, {self: 1.0}, selects=False),
                Stage("judged", self.loss, {self: 1.0}),
            ]

    method, history = fallen(validate=best_at(507 + 94), method=Staged())
    assert {row["stage"]: row["step"] for row in history.rows} == {"fixed": 7, "blind": 507, "judged": 507 + 450}
    assert method.steps == 507 + 94
    assert history.ending == Ending(450, 94, "learned")


def test_a_killed_run_goes_on_to_the_same_end(tmp_path):
    whole, history = fallen(validate=best_at(295))
    for killed_at in (5, 420):  # before the first validation, and after the best
        with pytest.raises(Stopped):
            fallen(validate=best_at(295), method=Falling(killed_at), checkpoint=tmp_path / "run")
    resumed, again = fallen(validate=best_at(295), checkpoint=tmp_path / "run")
    assert resumed.steps == whole.steps == 295
    assert again.ending == history.ending == Ending(450, 295, "learned")
    assert again.column("validation") == history.column("validation")


# -- time


def test_a_time_limit_keeps_the_best_state_and_says_so():
    late = [False]

    def validate(method):
        late[0] = method.steps >= 150
        return best_at(94)(method)

    class Clock:
        """A limit that is passed when the run has validated three times."""

        def __lt__(self, seconds):
            return late[0]

    method, history = fallen(validate=validate, time_limit=Clock())
    assert history.ending == Ending(168, 94, "time")  # validations at 145, 167
    assert method.steps == 94
    assert history.ended.startswith("cut off after 168 steps by the time limit: it may not have learned all")
    assert "the state of step 94 is kept" in history.ended


def test_a_time_limit_without_validation_keeps_the_last_state():
    method, history = fallen(time_limit=0.0)
    assert history.ending == Ending(1, None, "time")
    assert method.steps == 1


def test_an_ending_survives_json_and_models_of_0_2_have_none():
    rows = [{"step": 1, "stage": "train", "seconds": 2.5, "clicks": 0.5}]
    history = History(rows, ["careful"], 1, 0.5, ending=Ending(464, 300, "learned"), passes=2.5)
    assert History.from_json(history.to_json()) == history
    assert History.from_json({"rows": [], "warnings": [], "best_step": None, "best_value": None}).ended == ""


# -- what is held out


QUICK = {"hidden": (4,), "learning_rate": 0.05}  # random clicks are soon learned by heart


def click_log(n_queries, seed=0):
    """Clicks at random on lists of three documents."""
    rng = np.random.default_rng(seed)
    X, clicks = rng.normal(size=(3 * n_queries, 2)), rng.random(3 * n_queries) < 0.4
    return ClickLog.from_arrays(X, clicks, [3] * n_queries)


def test_a_tenth_of_the_queries_is_held_out_from_twenty_on():
    log = click_log(100)
    learning, held_out = part_held_out(log, seed=0)
    assert (learning.n_lists, held_out.n_lists) == (90, 10)
    assert part_held_out(click_log(19), seed=0)[1] is None


def test_a_shard_of_a_log_on_disk_is_held_out_from_ten_on(tmp_path):
    folder = open_log(write_log(click_log(100), tmp_path / "ten", n_shards=10))
    learning, held_out = part_held_out(folder, seed=0)
    assert learning.n_shards == 9
    assert learning.n_lists + held_out.n_lists == 100
    assert held_out.n_lists in folder.counts("lists")
    assert MOST_HELD_OUT == 5_000


@pytest.mark.parametrize("n_shards", [1, 4])
def test_a_log_on_disk_of_fewer_shards_lends_a_tenth_of_its_queries_from_one_of_them(tmp_path, n_shards):
    log = click_log(200)
    folder = open_log(write_log(log, tmp_path / "few", n_shards=n_shards))
    learning, held_out = part_held_out(folder, seed=0)
    assert held_out.n_lists == 20
    assert (learning.n_shards, learning.n_lists) == (n_shards, 180)
    assert [shard.n_lists for shard in learning.shards()] == learning.counts("lists")
    ids = [set(part.query_ids[np.unique(part.queries)].tolist()) for part in (learning.whole(), held_out)]
    assert not ids[0] & ids[1]
    assert len(ids[0] | ids[1]) == 200
    assert learning.n_clicks + held_out.n_clicks == log.n_clicks
    assert "held-out clicks were predicted no better" in fit(Recipe.of("naive"), folder).history.ended
    small = open_log(write_log(click_log(19), tmp_path / "small", n_shards=n_shards))
    assert part_held_out(small, seed=0) == (small, None)


def test_nothing_is_held_out_where_one_part_would_have_no_click():
    log = click_log(100)
    one = replace(log, clicks=np.where(np.arange(300).reshape(100, 3) == 7, np.float32(1), np.float32(0)))
    assert part_held_out(one, seed=0) == (one, None)


@pytest.mark.parametrize(
    ("passes", "text"),
    [
        (0.25, "25% of the lists were seen"),
        (1.2, "seen about once"),
        (1.5, "about 2 times"),
        (1234, "about 1,234 times"),
    ],
)
def test_an_ending_says_how_much_of_the_log_was_seen(passes, text):
    assert History(ending=Ending(8), passes=passes).ended.endswith(text)


def test_steps_hold_nothing_out():
    model = fit(Recipe.of("naive", steps=3, hidden=(4,)), click_log(120))
    assert model.trained_on["validation"] is None
    assert model.history.ending == Ending(3, None, "steps")
    assert model.history.passes == 3  # 120 lists are one batch


def test_without_steps_held_out_clicks_say_when_to_end():
    model = fit(Recipe.of("naive", **QUICK), click_log(120))
    assert model.trained_on["validation"] == "click likelihood"
    assert model.history.ending.reason == "learned"
    assert model.history.ending.best_step == model.history.best_step
    assert model.history.settings["batch_size"] == 1_024  # one session per list
    assert model.history.passes == model.history.ending.steps  # 108 lists are one batch
    again = fit(Recipe.of("naive", **QUICK), click_log(120))
    for name, value in model.method.state_dict().items():
        assert torch.equal(again.method.state_dict()[name], value)


def test_few_queries_take_fifty_passes():
    model = fit(Recipe.of("naive", hidden=(4,)), click_log(19))
    assert model.trained_on["validation"] is None
    assert model.history.ending == Ending(50, None, "usual")  # one batch per pass
    assert "the usual number where no clicks can be held out" in model.history.ended


@pytest.mark.parametrize("time", ["soon", "5 days", "-1s"])
def test_a_time_that_cannot_be_read_is_refused(time):
    with pytest.raises(ValueError, match="time must be a number of seconds, minutes or hours"):
        unskew.fit("naive", click_log(3), steps=1, time=time, progress=False)
