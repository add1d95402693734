"""The training loop, on methods small enough to redo each step by hand."""

import json
import math
import time
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.shard_batches import ShardBatches
from unskew.data.clicks.storage import open_log, write_log
from unskew.methods import METHODS
from unskew.methods.method import Method, Stage
from unskew.networks.registry import Network, Problem
from unskew.training.history import Report
from unskew.training.plan import plan_of, plan_stages, settings_for
from unskew.training.run_state import MOST_SKIPPED
from unskew.training.settings import OPTIMIZERS, SCHEDULES, Settings, usual_batch
from unskew.training.train import train


def toy_log(clicks=((1, 0), (0, 1)), sessions=(2, 2)):
    """Lists of two documents, with one feature."""
    n = len(clicks)
    return ClickLog(
        features=np.arange(2 * n, dtype=np.float32)[:, None],
        versions=np.arange(2 * n, dtype=np.int32).reshape(n, 2),
        mask=np.ones((n, 2), dtype=bool),
        clicks=np.array(clicks, dtype=np.float32),
        sessions=np.array(sessions, dtype=np.float32),
    )


class Number(nn.Module):
    """A network of one weight."""

    def __init__(self, start=0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(start))


class Pulled(Method):
    """Two numbers, each pulled with its own force; a term is force times number, so the gradient is the force."""

    def __init__(self, first=1.0, second=1.0, factors=None):
        super().__init__()
        self.first, self.second = Number(), Number()
        self.forces = first, second
        self.factors = factors
        self.steps = 0

    def loss(self, lists):
        self.steps += 1
        n = lists.sessions.sum()
        return {"first": n * self.forces[0] * self.first.weight, "second": n * self.forces[1] * self.second.weight}

    def stages(self):
        if self.factors is None:
            return super().stages()
        return [Stage("train", self.loss, dict(zip((self.first, self.second), self.factors, strict=True)))]

    @property
    def numbers(self):
        return [float(part.weight.detach()) for part in (self.first, self.second)]


def sgd(**changes):
    return Settings(
        **{
            "optimizer": "sgd",
            "learning_rate": 0.1,
            "schedule": "constant",
            "warm_up": 0,
            "steps": 1,
            "max_gradient_norm": None,
            "weight_decay": 0.0,
            "average": 0,
            **changes,
        }
    )


# -- steps and stages


def stage(steps=None):
    return Stage("any", lambda lists: {}, {}, steps=steps)


@pytest.mark.parametrize(
    ("asked", "budget", "planned"),
    [
        ([None], 10, [10]),
        ([3, None], 10, [3, 7]),
        ([None, None], 10, [5, 5]),
        ([8, None], 10, [5, 5]),  # more than half: shrunk to half
        ([6, 4, None], 10, [3, 2, 5]),
        ([3, 4], 10, [3, 4]),
        ([15, 5], 10, [7, 2]),
    ],
)
def test_stages_get_what_they_ask_for_and_share_the_rest(asked, budget, planned):
    plan = plan_stages([stage(steps) for steps in asked], budget)
    assert [steps for _, steps in plan] == planned


@pytest.mark.parametrize(("batch_size", "steps"), [(2, 50), (1, 100)])
def test_fifty_passes_over_a_small_log_by_default(batch_size, steps):
    history = train(Pulled(), {"clicks": toy_log()}, sgd(steps=None, batch_size=batch_size))
    assert history.rows[-1]["step"] == steps


def test_terms_are_added_and_divided_by_sessions_once():
    method = Pulled(first=2.0, second=-3.0)
    history = train(method, {"clicks": toy_log(sessions=(5, 7))}, sgd())
    assert method.numbers == pytest.approx([-0.1 * 2.0, 0.1 * 3.0])
    assert history.rows[0]["first"] == 0.0  # the numbers stood at 0 when the terms were taken


def test_batches_go_through_every_list_before_one_comes_again():
    class Watching(Pulled):
        seen = ()

        def loss(self, lists):
            self.seen = (*self.seen, *lists.features[:, 0, 0].tolist())
            return super().loss(lists)

    method = Watching()
    log = toy_log(clicks=[(1, 0)] * 6, sessions=[1] * 6)
    train(method, {"clicks": log}, sgd(steps=4, batch_size=3))
    firsts = sorted(log.features[::2, 0].tolist())
    assert sorted(method.seen[:6]) == firsts
    assert sorted(method.seen[6:]) == firsts
    assert method.seen[:6] != method.seen[6:]


class TwoStages(Pulled):
    def stages(self):
        return [
            Stage("one", self.loss, {self.first: 1.0}, steps=2),
            Stage("two", self.loss, {self.second: 1.0}),
        ]


def test_a_stage_moves_only_what_it_trains():
    method, after = TwoStages(), {}
    train(
        method,
        {"clicks": toy_log()},
        sgd(steps=5, validate_every=100),
        progress=lambda report: after.update({report.stage: method.numbers}),
    )
    assert after["one"] == pytest.approx([-0.1 * 2, 0.0])
    assert after["two"] == pytest.approx([-0.1 * 2, -0.1 * 3])


def test_no_gradient_reaches_what_a_stage_does_not_train():
    class Watching(TwoStages):
        trainable = ()

        def loss(self, lists):
            flags = (self.first.weight.requires_grad, self.second.weight.requires_grad)
            self.trainable = (*self.trainable, flags)
            return super().loss(lists)

    method = Watching()
    train(method, {"clicks": toy_log()}, sgd(steps=4))
    assert method.trainable == ((True, False),) * 2 + ((False, True),) * 2


def test_what_was_frozen_before_training_is_trainable_or_not_as_before():
    method = TwoStages()
    method.second.weight.requires_grad_(False)
    train(method, {"clicks": toy_log()}, sgd(steps=4))
    assert method.first.weight.requires_grad
    assert not method.second.weight.requires_grad
    assert not method.training


# -- gradients and optimizers


@pytest.mark.parametrize("factors", [None, (1.0, 1.0)])  # the method is one entry of its stage, or each network is
def test_a_network_with_a_huge_gradient_does_not_starve_the_other(factors):
    method = Pulled(first=1e6, second=0.5, factors=factors)
    train(method, {"clicks": toy_log()}, sgd(max_gradient_norm=2.0))
    assert method.numbers == pytest.approx([-0.1 * 2.0, -0.1 * 0.5])


def test_learning_rate_factors_multiply_the_learning_rate():
    method = Pulled(factors=(1.0, 0.25))
    train(method, {"clicks": toy_log()}, sgd())
    assert method.numbers == pytest.approx([-0.1, -0.025])


def test_adagrad_starts_its_accumulator_at_a_tenth():
    method = Pulled(first=2.0, second=0.3)
    train(method, {"clicks": toy_log()}, sgd(optimizer="adagrad"))
    assert method.numbers == pytest.approx([-0.1 * g / math.sqrt(0.1 + g * g) for g in (2.0, 0.3)])


def test_an_optimizer_keeps_its_state_from_step_to_step():
    method = Pulled(first=2.0)
    train(method, {"clicks": toy_log()}, sgd(optimizer="adagrad", steps=2))
    by_hand = -0.1 * 2 / math.sqrt(0.1 + 4) - 0.1 * 2 / math.sqrt(0.1 + 4 + 4)
    assert method.numbers[0] == pytest.approx(by_hand)


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_the_first_step_of_adam_is_the_learning_rate(optimizer):
    method = Pulled(first=2.0, second=-0.3)
    train(method, {"clicks": toy_log()}, sgd(optimizer=optimizer))
    assert method.numbers == pytest.approx([-0.1, 0.1], rel=1e-4)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_decays_matrices_but_no_offsets_or_tables(optimizer):
    method = Pulled(first=0.0, second=0.0)
    method.first.weight = nn.Parameter(torch.ones(1, 1))
    method.second.weight = nn.Parameter(torch.ones(1))
    method.loss = lambda lists: {"nothing": 0.0 * (method.first.weight.sum() + method.second.weight.sum())}
    train(method, {"clicks": toy_log()}, sgd(optimizer=optimizer, weight_decay=0.5))
    assert method.first.weight.item() < 1.0
    assert method.second.weight.item() == 1.0


def moved(**changes):
    """How far one step moves the weight of a linear ranker, from 0."""
    method = METHODS["naive"](Problem(1, 2, network=Network(kind="linear")))
    weight = method.relevance.layers[0].weight
    nn.init.zeros_(weight)
    train(method, {"clicks": toy_log(clicks=((0, 1), (0, 1)))}, sgd(**changes))
    return weight.item()


def test_feature_rate_is_the_share_of_the_learning_rate_of_layers_that_see_features():
    assert moved() > 0
    assert moved(feature_rate=0.25) == pytest.approx(moved() / 4)


def test_a_validation_that_is_no_number_is_not_the_best():
    values = iter([float("nan"), 0.5, 0.4])
    with pytest.warns(RuntimeWarning, match="validation is not a number at step 1"):
        history = train(Pulled(), {"clicks": toy_log()}, sgd(steps=3, validate_every=1), lambda _: next(values))
    assert (history.best_step, history.best_value) == (2, 0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": "lion"}, "unknown optimizer 'lion': choose from adagrad, adam"),
        ({"steps": 0}, "steps must be a whole number from 1, or none, got 0"),
        ({"batch_size": 2.5}, "batch_size must be a whole number from 1, or none, got 2.5"),
        ({"validate_every": "often"}, "validate_every must be a whole number from 1, or none, got 'often'"),
        ({"learning_rate": 0.0}, "learning_rate must be a number above 0, or none, got 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a number above 0, or none, got nan"),
        ({"schedule": "linear"}, "unknown schedule 'linear': choose from constant, cosine, relaxing"),
        ({"warm_up": -1}, "warm_up must be a whole number from 0, got -1"),
        ({"weight_decay": -0.1}, "weight_decay must be a number from 0, or none, got -0.1"),
        ({"patience": "two"}, "patience must be a whole number from 1, or none, got 'two'"),
        ({"max_gradient_norm": 0}, "max_gradient_norm must be a number above 0, or none, got 0"),
        ({"seed": "abc"}, "seed must be a whole number, got 'abc'"),
    ],
)
def test_settings_that_cannot_train_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Settings(**changes)


def test_settings_take_the_numbers_of_numpy():
    settings = Settings(steps=np.int64(3), learning_rate=np.float32(0.5))
    assert json.loads(json.dumps(settings.to_json())) == Settings(steps=3, learning_rate=0.5).to_json()


# -- validation


def scripted(values):
    """A validation that gives these values, one after the other."""
    left = list(values)
    return lambda method: left.pop(0)


def test_the_best_validated_state_is_kept():
    method = Pulled()
    history = train(method, {"clicks": toy_log()}, sgd(steps=5, validate_every=1), scripted([1, 3, 2, 3, 0]))
    assert method.numbers[0] == pytest.approx(-0.1 * 2)
    assert (history.best_step, history.best_value) == (2, 3)
    assert history.column("validation") == [(1, 1), (2, 3), (3, 2), (4, 3), (5, 0)]


def test_training_stops_early_when_validation_does_not_improve():
    method = Pulled()
    settings = sgd(steps=50, validate_every=1, patience=3)
    history = train(method, {"clicks": toy_log()}, settings, scripted([1, 2, 0, 0, 0, 9]))
    assert method.steps == 5
    assert history.best_step == 2
    assert method.numbers[0] == pytest.approx(-0.1 * 2)


def test_without_validation_the_last_state_is_kept():
    method = Pulled()
    history = train(method, {"clicks": toy_log()}, sgd(steps=5, validate_every=2))
    assert method.numbers[0] == pytest.approx(-0.1 * 5)
    assert [row["step"] for row in history.rows] == [2, 4, 5]
    assert history.best_step is None


def test_a_stage_ends_with_its_best_state_and_the_next_begins_there():
    method = TwoStages()
    train(method, {"clicks": toy_log()}, sgd(steps=4, validate_every=1), scripted([5, 4, 1, 2]))
    assert method.numbers == pytest.approx([-0.1 * 1, -0.1 * 2])


def test_a_stage_that_does_not_select_is_not_validated():
    class Unselected(Pulled):
        def stages(self):
            first = Stage("one", self.loss, {self.first: 1.0}, steps=2, selects=False)
            return [first, Stage("two", self.loss, {self.second: 1.0})]

    method = Unselected()
    history = train(method, {"clicks": toy_log()}, sgd(steps=4, validate_every=1), scripted([2, 1]))
    assert [step for step, _ in history.column("validation")] == [3, 4]
    assert method.numbers == pytest.approx([-0.1 * 2, -0.1 * 1])


# -- warnings


class Faulty(Pulled):
    """A term is not a number at some steps."""

    def __init__(self, bad_steps):
        super().__init__()
        self.bad_steps = bad_steps

    def loss(self, lists):
        step = self.steps
        terms = super().loss(lists)
        return {**terms, "second": terms["second"] * float("nan")} if step in self.bad_steps else terms


def test_a_term_that_is_no_number_is_named_and_its_batch_skipped():
    method = Faulty({2})
    with pytest.warns(RuntimeWarning, match=r"step 2 of stage 'train': loss term 'second' is nan"):
        history = train(method, {"clicks": toy_log()}, sgd(steps=5))
    assert method.numbers == pytest.approx([-0.1 * 4, -0.1 * 4])
    assert len(history.warnings) == 1


def test_terms_whose_sum_overflows_are_skipped_too():
    method = Pulled()
    nn.init.constant_(method.first.weight, 3e38)
    nn.init.constant_(method.second.weight, 3.1e38)
    with pytest.warns(RuntimeWarning, match="loss term 'second'"):
        train(method, {"clicks": toy_log(sessions=(1, 1), clicks=((1, 0), (0, 1)))}, sgd(batch_size=1))


def test_training_gives_up_when_no_batch_is_finite():
    method = Faulty(range(1000))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(FloatingPointError, match="lower the learning rate"):
            train(method, {"clicks": toy_log()}, sgd(steps=1000))
    assert method.steps == MOST_SKIPPED


class Growing(Pulled):
    """The first loss is 10, and each is ten times that before; 100 times the first, and 100, is passed by the fifth."""

    def loss(self, lists):
        terms = super().loss(lists)
        return {"first": terms["first"] * 0 + lists.sessions.sum() * (10.0**self.steps + self.first.weight)}


def test_a_loss_that_explodes_before_any_validation_is_an_error():
    method = Growing()
    with pytest.raises(
        FloatingPointError,
        match=r"training diverges: the loss is 1e\+04 at step 3, up from 10; lower the learning rate",
    ):
        train(method, {"clicks": toy_log()}, sgd(steps=8))
    assert method.steps == 4


def test_a_loss_that_explodes_later_ends_training_with_the_best_state():
    method = Growing()
    with pytest.warns(RuntimeWarning, match="training diverged after 4 steps: lower the learning rate.*step 1 is kept"):
        history = train(
            method, {"clicks": toy_log()}, sgd(steps=8, validate_every=1), lambda trained: trained.numbers[0]
        )
    assert method.steps == 4
    assert method.numbers[0] == pytest.approx(-0.1)
    assert (history.ending.reason, history.ending.best_step) == ("diverged", 1)
    assert history.warnings == [str(history.ending)]


def test_a_stage_on_another_scale_is_no_divergence():
    class Rescaled(TwoStages):
        def loss(self, lists):
            scale = 1.0 if self.steps < 2 else 1e6
            return {name: scale * (term + lists.sessions.sum()) for name, term in super().loss(lists).items()}

    train(Rescaled(), {"clicks": toy_log()}, sgd(steps=4, learning_rate=1e-9))  # a warning would be an error


def test_a_log_without_clicks_is_warned_of():
    with pytest.warns(RuntimeWarning, match="the log has no clicks"):
        train(Pulled(), {"clicks": toy_log(clicks=((0, 0), (0, 0)))}, sgd())


def test_a_missing_source_is_asked_for():
    method = METHODS["labelled"](Problem(1, 2))
    with pytest.raises(ValueError, match=r"learns from judgements: pass logs\['judgements'\]"):
        train(method, {"clicks": toy_log()}, sgd())


# -- randomness, progress and history


def test_the_callers_random_state_is_untouched():
    method = METHODS["naive"](Problem(1, 2, network=Network(hidden=(4,), dropout=0.5)))
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    train(method, {"clicks": toy_log()}, sgd(steps=3))
    assert torch.equal(torch.rand(2), expected)


def test_progress_tells_stage_step_terms_and_time_left():
    reports = []
    train(TwoStages(), {"clicks": toy_log()}, sgd(steps=6, validate_every=2), scripted([1] * 9), reports.append)
    assert [(report.stage, report.step, report.steps) for report in reports] == [
        ("one", 2, 6),
        ("two", 4, 6),
        ("two", 6, 6),
    ]
    assert reports[0].terms == pytest.approx({"first": (0.0 - 0.1) / 2, "second": 0.0})  # the mean of two steps
    assert reports[-1].validation == 1
    assert reports[-1].seconds_left == 0


def test_a_record_holds_the_mean_loss_since_the_one_before():
    history = train(Pulled(first=1.0), {"clicks": toy_log()}, sgd(steps=5, validate_every=2))
    # The number falls by 0.1 a step, and the term is the number itself: 0, -0.1 | -0.2, -0.3 | -0.4.
    assert [value for _, value in history.column("first")] == pytest.approx([-0.05, -0.25, -0.4])


@pytest.mark.parametrize(
    ("schedule", "warm_up", "rates"),
    [
        ("constant", 0, [1, 1, 1, 1]),
        ("cosine", 0, [1, (1 + 0.5**0.5) / 2, 1 / 2, (1 - 0.5**0.5) / 2]),
        ("cosine", 1, [1 / 2, 1, 3 / 4, 1 / 4]),
        ("relaxing", 0, [1, 1, 1, 1]),
        ("relaxing", 3, [1 / 2, 1, 1, 1]),  # warm-up takes at most a quarter of the steps
        ("constant", 3, [1 / 4, 2 / 4, 3 / 4, *[1] * 9]),
    ],
)
def test_learning_rates_rise_in_warm_up_and_then_follow_the_schedule(schedule, warm_up, rates):
    path = []
    method = Pulled(first=1.0)
    settings = sgd(steps=len(rates), validate_every=1, schedule=schedule, warm_up=warm_up)
    train(method, {"clicks": toy_log()}, settings, lambda trained: path.append(trained.numbers[0]) or 0.0)
    assert -np.diff([0.0, *path]) == pytest.approx([0.1 * rate for rate in rates])


def test_a_cosine_needs_to_know_where_it_ends():
    with pytest.raises(ValueError, match="schedule=cosine falls to 0 at the last step: say how many there are"):
        train(Pulled(), {"clicks": toy_log()}, sgd(steps=None, schedule="cosine"), lambda _: 0.0)


@pytest.mark.parametrize(
    ("step", "rate", "decay"),
    [(0, 1, 1), (400, 1, 1), (800, 1 / 2**0.5, 1 / 2), (1_600, 1 / 2, 1 / 4), (40_000, 0.1, 0.01)],
)
def test_a_relaxing_rate_falls_as_one_over_the_root_and_decay_as_one_over_the_step(step, rate, decay):
    assert SCHEDULES["relaxing"](step, None) == pytest.approx((rate, decay))


def test_weight_decay_of_adamw_relaxes_with_the_steps_and_spares_offsets():
    settings = Settings(warm_up=0, weight_decay=3)
    kept = nn.Parameter(torch.ones(1))
    optimizer = settings.new_optimizer(
        [{"params": [nn.Parameter(torch.ones(1, 1))]}, {"params": [kept], "weight_decay": 0}]
    )
    for step, rate, decay in ((0, 0.005, 3.0), (1_600, 0.0025, 0.75)):
        settings.set_rates(optimizer, step, None)
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([rate, rate])
        assert [group["weight_decay"] for group in optimizer.param_groups] == pytest.approx([decay, 0])


def test_decay_of_adamw_is_a_share_of_the_weight_whatever_the_gradient():
    method = Pulled(first=0.0, second=0.0)
    method.first.weight = nn.Parameter(torch.full((1, 1), 8.0))
    method.loss = lambda lists: {"nothing": 0.0 * method.first.weight.sum()}
    train(method, {"clicks": toy_log()}, Settings(steps=2, warm_up=0, average=0, weight_decay=3))
    assert method.first.weight.item() == pytest.approx(8 * (1 - 0.005 * 3) ** 2)


@pytest.mark.parametrize(("queries", "decay"), [(1, 40), (400, 20), (4_000, 2), (100_000, 0.1)])
def test_the_fewer_queries_the_stronger_the_decay(queries, decay):
    log = ClickLog.from_arrays(np.ones((queries, 1)), clicks=np.ones(queries), group=np.ones(queries, int))
    assert settings_for({"clicks": log}, Settings()).weight_decay == decay
    assert settings_for({"clicks": log}, Settings(weight_decay=0.5)).weight_decay == 0.5
    assert settings_for({"clicks": log}, Settings(optimizer="adagrad")).weight_decay == 0.001


def test_a_stage_of_no_steps_is_left_out():
    stages = [Stage("none", print, {}, steps=0), Stage("all", print, {})]
    assert plan_stages(stages, 7) == [(stages[1], 7)]
    assert plan_of(stages, None, {}, validated=True) == [(stages[1], None)]


# -- defaults


@pytest.mark.parametrize(
    ("optimizer", "usual"),
    [
        ("adamw", (0.005, None, "relaxing")),
        ("adagrad", (0.1, 0.001, "constant")),
        ("adam", (0.003, 0.001, "constant")),
        ("sgd", (0.1, 0.001, "constant")),
    ],
)
def test_rate_decay_and_schedule_are_those_of_the_optimizer_unless_given(optimizer, usual):
    settings = Settings(optimizer=optimizer)
    assert (settings.learning_rate, settings.weight_decay, settings.schedule) == usual
    assert Settings() == Settings(optimizer="adamw", warm_up=20)
    own = Settings(optimizer=optimizer, learning_rate=0.7, weight_decay=0, schedule="cosine")
    assert (own.learning_rate, own.weight_decay, own.schedule) == (0.7, 0, "cosine")


@pytest.mark.parametrize(
    ("lists", "sessions", "batch"),
    [
        (1_000, 8_000, 128),  # 8 sessions per list: 128 lists have 1,024
        (1_000, 900_000, 128),  # never fewer
        (1_000, 4_000, 256),
        (1_000, 3_000, 342),  # 1,024 / 3, rounded up
        (1_000, 1_000, 1_024),
        (1_000, 500, 1_024),  # never more
        (0, 0, 128),
    ],
)
def test_a_batch_has_128_lists_or_as_many_as_have_1024_sessions(lists, sessions, batch):
    assert usual_batch(lists, sessions, n_queries=lists) == batch


@pytest.mark.parametrize(
    ("lists_of_a_query", "together", "batch"),
    [(1, 16, 128), (8, 16, 1_024), (30, 16, 2_048), (8, 1, 128), (2.5, 16, 320)],  # 128 queries; at most 16 together
)
def test_a_batch_has_the_lists_of_128_queries(lists_of_a_query, together, batch):
    n_lists = round(100 * lists_of_a_query)
    assert usual_batch(n_lists, 1_000 * n_lists, 100, together) == batch


def test_training_takes_the_usual_batch_and_says_so():
    log = toy_log(clicks=[(1, 0)] * 400, sessions=[4] * 400)
    assert len(np.unique(log.queries)) == 400
    history = train(Pulled(), {"clicks": log}, sgd(steps=3))
    assert history.settings["batch_size"] == 256
    assert history.passes == 3 / 2  # 400 lists are two batches of at most 256


def test_batches_of_a_log_on_disk_are_told_as_large_as_they_are(tmp_path):
    folder = open_log(write_log(toy_log(clicks=[(1, 0)] * 20, sessions=[1] * 20), tmp_path / "log", n_shards=2))
    history = train(Pulled(), {"clicks": ShardBatches(folder, 5)}, sgd())
    assert history.settings["batch_size"] == 5
    assert history.passes == 1 / 4


def test_time_left_follows_from_the_rate_of_this_run_alone():
    report = Report("train", 60, 100, {}, None, started=time.monotonic() - 2.0, first_step=40)
    assert report.rate == pytest.approx(10.0, rel=0.05)
    assert report.seconds_left == pytest.approx(4.0, rel=0.05)


def test_a_history_can_be_read_and_plotted():
    history = train(Pulled(), {"clicks": toy_log()}, sgd(steps=4, validate_every=1), scripted([1, 2, 3, 4]))
    axes = history.plot()
    assert [line.get_label() for line in axes.lines] == ["first", "second"]
    assert axes.figure.axes[1].lines[0].get_ydata() == pytest.approx([1, 2, 3, 4])
    assert history.to_table()["validation"].to_pylist() == [1, 2, 3, 4]
    assert repr(history).startswith("Training of 4 steps")


@pytest.mark.parametrize("device", ["tpu", "cuda:99"])
def test_a_device_that_is_not_here_is_refused(device):
    with pytest.raises(ValueError, match=f"device '{device}' is not available: use device=auto"):
        Settings(device=device).torch_device()
