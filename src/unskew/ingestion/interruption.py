"""SIGTERM and Ctrl-C end a DuckDB query at once.

With several threads, DuckDB may finish a query, however long, before Python sees a signal. A thread that waits for the
signal interrupts the query instead.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import duckdb

STOPS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Interrupt the query of a connection as soon as a signal arrives that Python handles; main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    noticed, told = socket.socketpair()
    told.setblocking(False)
    before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    waiting = threading.Thread(target=_interrupt_on_signal, args=(connection, noticed, before), daemon=True)
    waiting.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        told.close()
        waiting.join()
        noticed.close()


def _interrupt_on_signal(connection: duckdb.DuckDBPyConnection, noticed: socket.socket, others: int) -> None:
    """Wait for signals, interrupt the query, and pass them on to an event loop that waits for them (-1: none)."""
    while number := noticed.recv(1):  # nothing when the other end is closed
        if number[0] in STOPS:
            with suppress(duckdb.Error):  # closed by now
                connection.interrupt()
        if others != -1:
            with suppress(OSError):
                os.write(others, number)
