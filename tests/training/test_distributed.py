"""Several processes give the result of one: real processes, gloo, double precision."""

from __future__ import annotations

import gc
import os
import socket
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing as multiprocessing

from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.shard_batches import ShardBatches, lanes_of
from unskew.data.clicks.storage import open_log, write_log
from unskew.data.transformed import transform_for
from unskew.lists import join_lists
from unskew.methods import METHODS
from unskew.networks.registry import Network, Problem
from unskew.processes import LostProcess, Share, share, total
from unskew.testing.samples import N_DOCS, N_FEATURES, in_double, in_several_orders, small_judged, small_log
from unskew.training import distributed
from unskew.training.settings import Settings
from unskew.training.train import train

N_STEPS = 20
# Adagrad: AdamW divides by the size of a gradient, so where that is nothing but rounding, rounding is what it learns.
SETTINGS = Settings(steps=N_STEPS, batch_size=9, together=4, validate_every=4, optimizer="adagrad", learning_rate=0.05)
DEFAULTS = Settings(steps=N_STEPS, batch_size=9, together=4, validate_every=4)
NEEDED = {
    "ipw": {"propensities": [1.0, 0.8, 0.6, 0.5, 0.4]},
    "doubly_robust": {"propensities": [1.0, 0.8, 0.6, 0.5, 0.4], "regression_steps": 5},
    "lbd": {"penalty": 0.1, "cancel": 0.2},
    "regression_em": {"sample": True},
    "affine": {"estimation_steps": 10},
    "upe": {"policy_steps": 5},
    "hte": {"trees": 10},
    "vectorization": {"base": "pca", "warm_up_steps": 5},
    "affine_softmax": {"warm_up_steps": 5},
}
FAST = ("pair_debias", "lbd", "low_rank")


class DoubleBatches(ClickBatches):
    def rows(self, rows, keys=None):
        return in_double(super().rows(rows, keys))


def new_method(name):
    bias = {} if name == "lbd" else {"device": ("desk", "phone")}  # of two showings lbd would draw one in each process
    problem = Problem(N_FEATURES, N_DOCS, bias, Network(hidden=(6,)))
    torch.manual_seed(0)
    return METHODS[name](problem, **NEEDED.get(name, {})).double()


def trained(name, settings=SETTINGS, **options):
    """A method after 20 steps on lists in several orders, or on judged queries, and what validation said."""
    method = new_method(name)
    log = in_several_orders(6)
    judged = small_judged(n_queries=40)
    if name == "lbd":
        log = replace(log, bias={})
    logs = {"judgements": judged}
    if name != "labelled":
        log = method.prepare({"clicks": log, "interventions": log})["clicks"]  # hte's is another log
        logs["clicks"] = DoubleBatches(log, 9, detail=method.detail, together=4)
    else:
        object.__setattr__(judged, "lists", lambda rows, lists=judged.lists: in_double(lists(rows)))
    history = train(method, logs, settings, norm, **options)
    values = [row["validation"] for row in history.rows if "validation" in row]
    return {"validation": torch.tensor(values, dtype=torch.float64), **method.state_dict()}


def norm(method):
    """A validation that rises and falls."""
    length = sum(float(entry.detach().square().sum()) for entry in method.parameters()) ** 0.5
    return -abs(length - 3.0)


def in_process(number, n_processes, folder, function, *arguments):
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=number, world_size=n_processes
    )
    group = torch.distributed.group.WORLD
    function(Path(folder), number, *arguments)
    torch.distributed.destroy_process_group()
    gc.collect()
    assert sys.getrefcount(group) == 2  # ours and the call's: the threads of a group that lives on may abort the exit


def together(folder, function, *arguments, n_processes=2):
    """Run a function in several processes that know each other, each in a fresh interpreter."""
    folder.mkdir(exist_ok=True)
    multiprocessing.spawn(in_process, (n_processes, str(folder), function, *arguments), nprocs=n_processes)


def train_and_save(folder, number, names, settings=SETTINGS):
    for name in names:
        torch.save(trained(name, settings), folder / f"{name}.{number}")


def assert_equal_to_one_process(folder, names, within=1e-9, settings=SETTINGS):
    for name in names:
        alone = trained(name, settings)
        for number in range(2):
            shared = torch.load(folder / f"{name}.{number}")
            assert shared.keys() == alone.keys()
            for entry, value in alone.items():
                torch.testing.assert_close(shared[entry], value, rtol=within, atol=within, msg=f"{name}: {entry}")


def fast_part(folder, number):
    """All that is tried in one start of two processes, which takes longer than the rest."""
    train_and_save(folder, number, FAST)
    train_and_save(folder, number, ["dla"], DEFAULTS)
    log = open_log(folder.parent / "log")
    torch.save(transform_for("automatic", log).state_dict(), folder / f"transform.{number}")
    assert log._verified == set(range(number, 3, 2))  # each process has read only its own shards
    sums_pass_gradients(number)
    stopped_run(folder, number)
    lost_run(folder, number)


def messy_log():
    """A log with missing values, context and a category."""
    log = small_log(n_lists=48)
    features = log.features.copy()
    features[::5, 0] = np.nan
    features[:, 1] = np.exp(4 * features[:, 1])  # heavy-tailed
    features[:, 2] = np.arange(len(features)) % 3
    context = np.arange(log.n_lists, dtype=np.float32)[:, None]
    names = tuple(f"f{number}" for number in range(N_FEATURES))
    categories = {"f2": ("a", "b", "c")}
    return replace(
        log, features=features, feature_names=names, categories=categories, context=context, context_names=("hour",)
    )


def sums_pass_gradients(number):
    """Loss of each process: its own factor times the square of the sum of both values."""
    value = torch.tensor(2.0 + number, requires_grad=True)
    loss = (1.0 + number) * total(value).square()  # 25 and 50
    loss.backward()
    assert value.grad.item() == (1 + 2) * 2 * (2 + 3)
    assert share() == Share(number, 2)


def stopped_run(folder, number):
    """The second process alone is asked to stop, in its ninth step; both do."""
    method = new_method("pair_debias")
    batches = DoubleBatches(in_several_orders(6), 9, detail="pairs", together=4)
    first, count = batches.rows, []

    def rows(*arguments):
        count.append(None)
        if number == 1 and len(count) == 9:
            os.kill(os.getpid(), 15)
        return first(*arguments)

    batches.rows = rows
    with pytest.raises(Exception, match="stopped at step 9"):
        train(method, {"clicks": batches}, SETTINGS, norm, checkpoint=folder / "stopped")


def lost_run(folder, number):
    """The second process ends without a word; the first says so, and leaves a checkpoint."""
    method = new_method("lbd")
    batches = DoubleBatches(replace(in_several_orders(6), bias={}), 9, together=4)
    first, count = batches.rows, []

    def rows(*arguments):
        count.append(None)
        if number == 1 and len(count) == 7:
            os._exit(0)
        return first(*arguments)

    batches.rows = rows
    with pytest.raises(LostProcess, match="another process of this run has stopped") as caught:
        train(method, {"clicks": batches}, SETTINGS, norm, checkpoint=folder / "lost")
    assert "resume from the last checkpoint" in str(caught.value)
    (folder / "lost.seen").touch()


@pytest.mark.timeout(600)
def test_two_processes_train_like_one_and_their_run_goes_on_in_one(tmp_path):
    write_log(messy_log(), tmp_path / "log", n_shards=3)
    together(tmp_path / "both", fast_part)
    assert_equal_to_one_process(tmp_path / "both", FAST)
    assert_equal_to_one_process(tmp_path / "both", ["dla"], 1e-6, DEFAULTS)
    for number in range(2):
        shared = torch.load(tmp_path / "both" / f"transform.{number}")
        for entry, value in transform_for("automatic", open_log(tmp_path / "log")).state_dict().items():
            assert torch.equal(shared[entry], value), entry
    assert (tmp_path / "both" / "lost.seen").exists()
    for name, checkpoint in (("pair_debias", "stopped"), ("lbd", "lost")):
        place = tmp_path / "both" / checkpoint
        written = place.stat().st_mtime_ns
        resumed, whole = trained(name, checkpoint=place), trained(name)
        assert place.stat().st_mtime_ns > written
        for entry, value in whole.items():
            torch.testing.assert_close(resumed[entry], value, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_two_processes_train_every_method_like_one(tmp_path):
    together(tmp_path / "both", train_and_save, list(METHODS))
    assert_equal_to_one_process(tmp_path / "both", METHODS)


def names_of(lists):
    """What each row shows: the features of its documents."""
    return sorted(str(row[mask].tolist()) for row, mask in zip(lists.features, lists.mask, strict=True))


@pytest.mark.parametrize("lanes", [1, 2, 3, 7])
def test_processes_share_the_lanes_of_a_streamed_log(tmp_path, lanes):
    folder = open_log(write_log(small_log(n_lists=48), tmp_path / "log", n_shards=7))
    one = ShardBatches(folder, 12, lanes=lanes)
    for n_processes in (1, 2, 3):
        processes = [ShardBatches(folder, 12, lanes=lanes) for _ in range(n_processes)]
        for step in (0, 1, 5, 30):
            parts = [batches(step, Share(number, n_processes)) for number, batches in enumerate(processes)]
            keys = torch.cat([part.row_keys for part in parts])
            assert sorted(keys.tolist()) == sorted(one(step).row_keys.tolist())
            assert names_of(join_lists(parts)) == names_of(one(step))


def test_every_lane_is_read_by_one_process_and_with_more_processes_by_some():
    assert [lanes_of(Share(number, 2), 3) for number in range(2)] == [[(0, (0, 1)), (2, (0, 1))], [(1, (0, 1))]]
    assert [lanes_of(Share(number, 3), 2) for number in range(3)] == [[(0, (0, 2))], [(1, (0, 1))], [(0, (1, 2))]]


def test_an_epoch_of_lanes_holds_every_list_once(tmp_path):
    folder = open_log(write_log(small_log(n_lists=48), tmp_path / "log", n_shards=6))
    batches = ShardBatches(folder, 12, lanes=3)
    epoch = [name for step in range(batches.per_epoch) for name in names_of(batches(step))]
    assert sorted(epoch) == sorted(name for lists in batches.all() for name in names_of(lists))


def test_a_batch_smaller_than_the_processes_is_refused():
    with pytest.raises(ValueError, match="a batch of 2 lists cannot be shared by 3 processes: use a larger"):
        ClickBatches(small_log(), 2)(0, Share(0, 3))


def test_a_process_that_waits_for_others_in_vain_says_so(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(distributed, "MEETING", timedelta(seconds=1))
    with pytest.raises(LostProcess, match="not all processes of the run have come within 1 s"), distributed.joined():
        pass
