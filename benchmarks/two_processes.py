"""Training in two processes of one thread each against one of one thread: the same global batch of the same log.

Both sides are measured in turn in one pair of processes: in one part the second waits while the first trains alone.
Every batch has 2,560 distinct documents. Communication is the time in which a process waits for the other or moves
numbers to it, so it holds what one is slower than the other, too. By processor time: as on cores of their own.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed, multiprocessing

from unskew import processes
from unskew.data.clicks.click_log import ClickLog
from unskew.methods.dla import DLA
from unskew.networks.registry import Network, Problem
from unskew.training.settings import Settings
from unskew.training.train import train

Row = tuple[str, str, str]
REFERENCE = Network(hidden=(512, 256, 128))
N_LISTS, N_SHOWN, N_FEATURES, BATCH = 2_048, 10, 136, 256
STEPS, REPEATS = 12, 5
TARGET = 1.6


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_measure, (folder,), nprocs=2)
        rows = [torch.load(Path(folder, f"{number}.pt")) for number in range(2)]
    one, two = ([each[side] for each in rows] for side in ("one", "two"))
    wall, busy = ([median(side[0][part]) for side in (one, two)] for part in ("wall", "busy"))
    slower = max(median(each["busy"]) for each in two)
    talk = statistics.mean(median(each["talk"]) / median(each["wall"]) for each in two)
    return [
        ("two processes, lists/s by one's", f"{wall[0] / wall[1]:.2f}", f">= {TARGET}"),
        ("the same by processor time", f"{busy[0] / slower:.2f}", ""),
        ("share of communication, waiting among it", f"{talk:.1%}", ""),
        ("lists/s of one process", f"{BATCH * STEPS / wall[0]:.0f}", ""),
    ]


def median(values: list[float]) -> float:
    return statistics.median(values)


def _measure(number: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=number, world_size=2)
    log, talk = _log(), _Talk()
    processes.talk = talk
    found: dict[str, Any] = {side: {"wall": [], "busy": [], "talk": []} for side in ("one", "two")}
    for repeat in range(REPEATS + 1):
        for side in ("one", "two"):
            distributed.barrier()
            if side == "two" or number == 0:
                seconds = _seconds(log, talk, alone=side == "one")
                if repeat:  # the first warms up
                    for name, value in seconds.items():
                        found[side][name].append(value)
    torch.save(found, Path(folder, f"{number}.pt"))
    distributed.destroy_process_group()


class _Talk:
    """Counts the seconds of all that waits for the other process."""

    def __init__(self) -> None:
        self.seconds, self.original = 0.0, processes.talk

    def __call__(self, function: Any) -> None:
        start = time.perf_counter()
        self.original(function)
        self.seconds += time.perf_counter() - start


def _seconds(log: ClickLog, talk: _Talk, *, alone: bool) -> dict[str, float]:
    torch.manual_seed(0)
    method = DLA(Problem(N_FEATURES, N_SHOWN, network=REFERENCE))
    settings = Settings(steps=STEPS, batch_size=BATCH, together=1, average=0.0)
    talk.seconds = 0.0
    wall, busy = time.perf_counter(), time.process_time()
    if alone:
        with processes.alone():
            train(method, {"clicks": log}, settings)
    else:
        train(method, {"clicks": log}, settings)
    return {"wall": time.perf_counter() - wall, "busy": time.process_time() - busy, "talk": talk.seconds}


def _log() -> ClickLog:
    rng = np.random.default_rng(0)
    return ClickLog(
        features=rng.standard_normal((N_LISTS * N_SHOWN, N_FEATURES), dtype=np.float32),
        versions=np.arange(N_LISTS * N_SHOWN, dtype=np.int32).reshape(N_LISTS, N_SHOWN),
        mask=np.ones((N_LISTS, N_SHOWN), dtype=bool),
        clicks=(rng.random((N_LISTS, N_SHOWN)) < 0.2).astype(np.float32),
        sessions=np.ones(N_LISTS, dtype=np.float32),
    )


if __name__ == "__main__":
    for row in run():
        print(*row, sep=" | ")
