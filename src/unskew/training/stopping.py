"""Stopping on request: a run that receives a signal finishes its step, writes its checkpoint, and stops."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):
    """A run ended on request; the same call with the same checkpoint resumes it."""

    def __init__(self, number: int, step: int):
        super().__init__(f"stopped at step {step}; the checkpoint is saved: repeat the command to resume")
        self.exit_code = 128 + number  # as in a shell: 143 for SIGTERM, 130 for Ctrl-C


@contextmanager
def stop_requests() -> Iterator[Callable[[], int | None]]:
    """Record SIGTERM and Ctrl-C instead of ending the process; a second signal ends it immediately.

    Outside the main thread signals cannot be caught, and none is recorded.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    noted: list[int] = []
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def note(number: int, _: FrameType | None) -> None:
        noted.append(number)
        for other, handler in before.items():
            signal.signal(other, handler)

    for number in SIGNALS:
        signal.signal(number, note)
    try:
        yield lambda: noted[0] if noted else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
