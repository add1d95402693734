"""Timing: seconds of several sides measured in turn, so that what slows the machine down slows all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


def in_turn(sides: Mapping[str, Callable[[], object]], repeats: int, warm_up: int = 0) -> dict[str, list[float]]:
    """Seconds of each repeat of each side, after some that do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(warm_up + repeats):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            seconds[name].append(time.perf_counter() - start)
    return {name: times[warm_up:] for name, times in seconds.items()}
