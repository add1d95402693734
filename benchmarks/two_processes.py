"""Training in two processes of one thread each against one of one thread: the same global batch of the same log.

Both sides are measured in turn in one pair of processes: in one part the second waits while the first trains alone.
Batches have 2,560 or 10,240 distinct documents. A step is timed from its beginning to the beginning of the next, so the
set-up of a run does not count; figures are medians over the steps of all repeats. Communication is the time in which a
process waits for the other or moves numbers to it, so it includes the time by which one is slower than the other. By
processor time: as on cores of their own. A process waits for the slower of the two, so time that the host of a virtual
machine takes from one core is lost on both: the last row is the share it took (steal).
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed, multiprocessing

from distinct_documents import log_in_orders
from timing import Row
from unskew import processes
from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.lists import ClickedLists
from unskew.methods.bias.dla import DLA
from unskew.networks.registry import Network, Problem
from unskew.processes import WHOLE, Share
from unskew.training.settings import Settings
from unskew.training.train import train

REFERENCE = Network(hidden=(512, 256, 128))
N_LISTS = 4_096
BATCHES = (256, 1_024)
STEPS, WARM_UP, REPEATS = 12, 4, 8
TARGET = 1.6
IDLE, STEAL = 3, 7  # columns of /proc/stat


def run() -> list[Row]:
    return [row for batch in BATCHES for row in _compared(batch)]


def _compared(batch: int) -> list[Row]:
    before = _cpu_times()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_measure, (folder, batch, N_LISTS, REPEATS), nprocs=2)
        found = [torch.load(Path(folder, f"{number}.pt")) for number in range(2)]
    passed = _cpu_times() - before
    one, two = (found[0]["one"], [each["two"] for each in found])
    wall = statistics.mean(each["wall"] for each in two)
    return [
        (f"{batch} lists: two processes, lists/s by one's", f"{one['wall'] / wall:.2f}", f">= {TARGET}"),
        ("the same by processor time", f"{one['busy'] / max(each['busy'] for each in two):.2f}", ""),
        ("share of communication, waiting among it", f"{statistics.mean(each['talk'] for each in two) / wall:.1%}", ""),
        ("lists/s of one process", f"{batch / one['wall']:.0f}", ""),
        ("time that the host took (steal), of time in use", f"{passed[STEAL] / (passed.sum() - passed[IDLE]):.0%}", ""),
    ]


def _cpu_times() -> np.ndarray:
    """Seconds of all cores by state, as Linux counts them."""
    with Path("/proc/stat").open() as file:
        return np.array(file.readline().split()[1:9], dtype=float)


def _measure(number: int, folder: str, batch: int, n_lists: int, repeats: int) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=number, world_size=2)
    log, talk = log_in_orders(n_lists, 1), _Talk()
    processes.talk = talk
    steps: dict[str, list[list[float]]] = {"one": [], "two": []}
    for _ in range(repeats):
        for side, found in steps.items():
            distributed.barrier()
            if side == "two" or number == 0:
                found += _steps(log, talk, batch, alone=side == "one")
    medians = {side: np.median(found, axis=0).tolist() for side, found in steps.items() if found}
    named = {side: dict(zip(("wall", "busy", "talk"), found, strict=True)) for side, found in medians.items()}
    torch.save(named, Path(folder, f"{number}.pt"))
    distributed.destroy_process_group()


class _Talk:
    """Counts the seconds of all that waits for the other process."""

    def __init__(self) -> None:
        self.seconds, self.original = 0.0, processes.talk

    def __call__(self, function: Any) -> None:
        start = time.perf_counter()
        self.original(function)
        self.seconds += time.perf_counter() - start


class _Timed(ClickBatches):
    """Batches that note when they were asked for."""

    def __init__(self, log: ClickLog, talk: _Talk, batch: int):
        super().__init__(log, batch, together=1)
        self.talk = talk
        self.asked: list[tuple[float, float, float]] = []

    def __call__(self, step: int, share: Share = WHOLE) -> ClickedLists:
        self.asked.append((time.perf_counter(), time.process_time(), self.talk.seconds))
        return super().__call__(step, share)


def _steps(log: ClickLog, talk: _Talk, batch: int, *, alone: bool) -> list[list[float]]:
    """Wall time, processor time and communication of each step."""
    torch.manual_seed(0)
    method = DLA(Problem(log.n_features, log.n_positions, network=REFERENCE))
    batches = _Timed(log, talk, batch)
    with processes.alone() if alone else nullcontext():
        train(method, {"clicks": batches}, Settings(steps=STEPS, batch_size=batch, average=0.0))
    return np.diff(batches.asked, axis=0)[WARM_UP:].tolist()
