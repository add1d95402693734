"""Fresh clicks: a step is a function of seed and step, and in the limit they are a large fixed log."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import unskew
from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.shard_batches import SourceBatches
from unskew.networks.registry import Problem
from unskew.simulation.fresh import FreshClicks
from unskew.simulation.simulate import simulate

WORLD = unskew.load("world:tiny")
SMALL = WORLD.train.select(range(12))


def test_a_step_gives_the_same_lists_again_and_another_step_others():
    source, same = (FreshClicks(SMALL, "svm", "position_based", seed=3) for _ in range(2))
    first, again, other = source.lists(5, 64), same.lists(5, 64), source.lists(6, 64)
    assert source.digest == same.digest != FreshClicks(SMALL, "svm", "position_based", seed=4).digest
    assert first.digest == again.digest != other.digest
    assert first.n_sessions == 64


def test_in_the_limit_they_are_a_large_fixed_log():
    """Mean clicks per session, position by position, against exact probabilities, within five standard errors."""
    truth = simulate(SMALL, "svm", "position_based", sessions=1, seed=0).truth.click_probability
    source = FreshClicks(SMALL, "svm", "position_based", seed=1)
    clicks, sessions = np.zeros(10), 0.0
    for step in range(200):
        log = source.lists(step, 256)
        clicks += log.clicks.sum(axis=0)
        sessions += log.n_sessions
    expected = truth.mean(axis=0)  # queries are drawn alike
    assert (np.abs(clicks / sessions - expected) < 5 * np.sqrt(expected * (1 - expected) / sessions) + 1e-9).all()


def test_the_mean_gradient_is_that_of_the_expected_log():
    simulation = simulate(SMALL, "svm", "position_based", sessions=1, seed=0)
    exact = replace(simulation.log, clicks=simulation.truth.click_probability.astype(np.float32), graded=True)
    method = unskew.METHODS["naive"](Problem(SMALL.n_features, 10))

    def gradient(batches, n_steps):
        total = torch.zeros(())
        for step in range(n_steps):
            lists = batches(step)
            total = total + sum(method.loss(lists).values()) / lists.sessions.sum() / n_steps
        return torch.cat([part.flatten() for part in torch.autograd.grad(total, list(method.parameters()))])

    fixed = gradient(ClickBatches(exact, 1000), 1)
    fresh = gradient(SourceBatches(FreshClicks(SMALL, "svm", "position_based", seed=1), 2048), 60)
    assert torch.nn.functional.cosine_similarity(fixed, fresh, dim=0) > 0.99


def test_clickless_sessions_are_rejected_and_replaced_by_others():
    source = FreshClicks(SMALL, "svm", "position_based", drop_clickless=True, seed=1)
    logs = [source.lists(step, 256) for step in range(20)]
    assert all((log.patterns.clicks.sum(axis=1) > 0).all() for log in logs)
    assert np.mean([log.n_sessions for log in logs]) == pytest.approx(256, rel=0.1)


def test_training_goes_on_where_it_was_cut_off(tmp_path):
    source = FreshClicks(WORLD.train, "svm", "position_based", seed=1)

    def trained(steps, checkpoint=None):
        recipe = unskew.Recipe.of("dla", steps=steps, hidden=[8], batch_size=32, validate_every=5, average=0.0)
        return unskew.fit(recipe, source, checkpoint=checkpoint, progress=False).method.state_dict()

    class Cut(Exception):
        pass

    def cut(report):
        if report.step >= 10:
            raise Cut

    recipe = unskew.Recipe.of("dla", steps=20, hidden=[8], batch_size=32, validate_every=5, average=0.0)
    with pytest.raises(Cut):
        unskew.fit(recipe, source, checkpoint=tmp_path / "c", progress=cut)
    resumed, whole = trained(20, tmp_path / "c"), trained(20)
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


@pytest.mark.parametrize(("method", "message"), [("hte", "needs a whole log"), ("ipw", "propensities are estimated")])
def test_methods_that_need_a_whole_log_are_refused(method, message):
    with pytest.raises(ValueError, match=message):
        unskew.fit(method, FreshClicks(SMALL, "svm", "position_based"), progress=False)


def test_an_experiment_may_ask_for_fresh_clicks(tmp_path):
    text = """
title = "t"
paper = "our own"
question = "q"
metrics = ["ndcg@10"]
data = ["world:tiny", "world:tiny:7"]
[simulation]
clicks = "fresh"
drop_clickless = true
[training]
steps = 4
hidden = [4]
[[methods]]
label = "Clicks"
method = "naive"
"""
    (tmp_path / "mine.toml").write_text(text)
    place = str(tmp_path / "mine.toml")
    done = unskew.reproduce(place, out=tmp_path / "out", seeds=2, jobs=1, progress=False)
    assert not done.results.failed
    table = done.to_table().to_pylist()
    assert [(row["data"], row["repetitions"]) for row in table] == [("world:tiny", 2), ("world:tiny:7", 2)]
    assert done.shown.sheets[0].columns == ("method", "world:tiny", "world:tiny:7")
