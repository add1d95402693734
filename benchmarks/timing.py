"""Shared by the benchmarks: seconds of sides measured in turn, their ratios, and where finished parts stay."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

Row = tuple[str, str, str]  # what was measured, ratio or rate, target
Seconds = Mapping[str, Sequence[float]]


def in_turn(
    sides: Mapping[str, Callable[[], object]],
    repeats: int,
    warm_up: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each repeat of each side, after some that do not count: what slows the machine down slows all sides.

    Args:
        clock: `time.process_time` for seconds of the processor, which other programs disturb little.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(warm_up + repeats):
        for name, side in sides.items():
            start = clock()
            side()
            seconds[name].append(clock() - start)
    return {name: times[warm_up:] for name, times in seconds.items()}


def ratios(seconds: Seconds, one: str, other: str) -> list[float]:
    """The ratio of two sides in each turn."""
    return [first / second for first, second in zip(seconds[one], seconds[other], strict=True)]


def median_ratio(seconds: Seconds, one: str, other: str) -> float:
    """The median of the ratios of each turn."""
    return statistics.median(ratios(seconds, one, other))


@contextmanager
def kept_folder() -> Iterator[Path]:
    """The folder UNSKEW_BENCH, in which finished parts of a long benchmark stay; by default one that is thrown away."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(os.environ.get("UNSKEW_BENCH") or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
