"""Checkpoints: a run that was stopped ends where one never stopped would have, or says why it cannot go on."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from unskew.data.clicks.click_log import ClickLog
from unskew.methods import METHODS
from unskew.networks.registry import Network, Problem
from unskew.training.settings import OPTIMIZERS, Settings
from unskew.training.train import train


def small_log(seed=0, n_lists=12, n_docs=4, n_features=3):
    rng = np.random.default_rng(seed)
    sessions = rng.integers(2, 6, n_lists).astype(np.float32)
    return ClickLog(
        features=rng.normal(size=(n_lists * n_docs, n_features)).astype(np.float32),
        versions=np.arange(n_lists * n_docs, dtype=np.int32).reshape(n_lists, n_docs),
        mask=np.ones((n_lists, n_docs), dtype=bool),
        clicks=np.minimum(rng.integers(0, 4, (n_lists, n_docs)), sessions[:, None]).astype(np.float32),
        sessions=sessions,
    )


def new_method(name="dla", seed=0, **hyper):
    """A method with dropout: its random numbers must go on where they were."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return METHODS[name](Problem(3, 4, network=Network(kind="mlp", hidden=(5,), dropout=0.3)), **hyper)


class Stopped(Exception):
    pass


def stop_at(step):
    def progress(report):
        if report.step == step:
            raise Stopped

    return progress


SETTINGS = Settings(steps=12, batch_size=5, validate_every=2)


def train_with_stops(path, stops, settings=SETTINGS, name="dla", validate=lambda method: None, **hyper):
    """Training that is interrupted at these steps, each time begun again from the file alone."""
    method = None
    for number, step in enumerate([*stops, None]):
        method = new_method(name, seed=number, **hyper)  # the file must bring everything, the start included
        criterion = validate(method)
        if step is None:
            history = train(method, {"clicks": small_log()}, settings, criterion, checkpoint=path)
        else:
            with pytest.raises(Stopped):
                train(method, {"clicks": small_log()}, settings, criterion, stop_at(step), checkpoint=path)
    return method, history


def assert_same_state(one, other):
    for (name, value), again in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(value, again), name


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_interrupted_run_ends_with_the_same_weights(tmp_path, optimizer):
    settings = Settings(steps=12, batch_size=5, validate_every=2, optimizer=optimizer)
    whole = new_method()
    train(whole, {"clicks": small_log()}, settings)
    resumed, history = train_with_stops(tmp_path / "run", [4, 10], settings)
    assert_same_state(whole, resumed)
    assert [row["step"] for row in history.rows] == [2, 4, 6, 8, 10, 12]


@pytest.mark.parametrize("stops", [[4], [6], [10], [4, 8, 10]])
def test_a_run_can_stop_in_any_stage(tmp_path, stops):
    hyper = {"estimation_steps": 6}
    whole = new_method("affine", **hyper)
    train(whole, {"clicks": small_log()}, SETTINGS)
    resumed, history = train_with_stops(tmp_path / "run", stops, name="affine", **hyper)
    assert_same_state(whole, resumed)
    assert [row["stage"] for row in history.rows] == ["estimation"] * 3 + ["correction"] * 3


def norm(method):
    """A validation that rises and falls: how far a weight is from a place on its way."""
    return lambda _: -abs(float(method.observation.logits.detach().norm()) - 0.4)


def test_best_state_and_patience_survive_an_interruption(tmp_path):
    settings = Settings(steps=40, batch_size=5, validate_every=2, patience=4, learning_rate=0.05)
    whole = new_method()
    history = train(whole, {"clicks": small_log()}, settings, norm(whole))
    assert 2 < history.best_step < history.rows[-1]["step"] < 40  # there is a best in the middle, and an early end
    resumed, again = train_with_stops(tmp_path / "run", [history.best_step + 2], settings, validate=norm)
    assert_same_state(whole, resumed)
    assert (again.best_step, again.best_value) == (history.best_step, history.best_value)
    assert again.column("validation") == history.column("validation")


def test_a_finished_run_is_not_run_again(tmp_path):
    first, history = train_with_stops(tmp_path / "run", [])
    again = new_method(seed=9)
    steps = []
    repeated = train(again, {"clicks": small_log()}, SETTINGS, progress=steps.append, checkpoint=tmp_path / "run")
    assert steps == []
    assert repeated.rows == history.rows
    assert_same_state(first, again)


def test_seconds_add_up_over_interruptions(tmp_path):
    _, history = train_with_stops(tmp_path / "run", [4, 8])
    seconds = [row["seconds"] for row in history.rows]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"settings": Settings(steps=12, batch_size=5, validate_every=2, learning_rate=0.02)}, "settings was"),
        ({"method": "naive"}, "method was DLA, now it is Naive"),
        ({"method": "two_tower"}, "method was DLA"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, change, what):
    path = tmp_path / "run"
    with pytest.raises(Stopped):
        train(new_method(), {"clicks": small_log()}, SETTINGS, progress=stop_at(6), checkpoint=path)
    before = path.read_bytes()
    method = new_method(change.get("method", "dla"))
    with pytest.raises(ValueError, match=f"belongs to another run: {what}.*delete it to start over"):
        train(method, {"clicks": change.get("log", small_log())}, change.get("settings", SETTINGS), checkpoint=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        lambda log: {"clicks": log.clicks[:, ::-1].copy()},  # the same totals
        lambda log: {"features": log.features[:, ::-1].copy()},  # columns change places
        lambda log: {"features": log.features[::-1].copy()},
    ],
)
def test_a_changed_log_is_refused_though_its_totals_are_the_same(tmp_path, change):
    log, path = small_log(), tmp_path / "run"
    with pytest.raises(Stopped):
        train(new_method(), {"clicks": log}, SETTINGS, progress=stop_at(6), checkpoint=path)
    with pytest.raises(ValueError, match=r"belongs to other data: the log.*Delete the checkpoint to start over"):
        train(new_method(), {"clicks": replace(log, **change(log))}, SETTINGS, checkpoint=path)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:100])


def emptied(path):
    path.write_bytes(b"")


def turned_to_text(path):
    path.write_text("not a checkpoint")


def of_another_program(path):
    save_file({"weight": torch.zeros(2)}, path)


@pytest.mark.parametrize("spoil", [cut_short, emptied, turned_to_text, of_another_program])
def test_a_file_that_is_no_checkpoint_is_refused_with_what_to_do(tmp_path, spoil):
    path = tmp_path / "run"
    train(new_method(), {"clicks": small_log()}, SETTINGS, checkpoint=path)
    spoil(path)
    with pytest.raises(ValueError, match=r"run cannot be read \(.*\): delete it to start over"):
        train(new_method(), {"clicks": small_log()}, SETTINGS, checkpoint=path)


def test_a_run_killed_while_writing_finds_the_checkpoint_before(tmp_path, monkeypatch):
    path = tmp_path / "run"
    with pytest.raises(Stopped):
        train(new_method(), {"clicks": small_log()}, SETTINGS, progress=stop_at(6), checkpoint=path)
    before = path.read_bytes()

    def die(_):
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", die)
        with pytest.raises(Stopped):
            train(new_method(), {"clicks": small_log()}, SETTINGS, checkpoint=path)
    assert path.read_bytes() == before
    whole = new_method()
    train(whole, {"clicks": small_log()}, SETTINGS)
    resumed, _ = train_with_stops(path, [])
    assert_same_state(whole, resumed)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]
