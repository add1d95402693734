"""Claims: several processes that work on one folder share its runs; claims of dead processes expire.

OUT/runs/KEY.claim    who is doing a run: host, process, since when; renewed while the process lives

A claim is a file that only one process can create. It has expired if its process no longer exists on this host, or if
it was not renewed for two minutes. This works on local file systems and on shared ones that create files exclusively
(POSIX, NFS from version 3 on). Elsewhere, and if two processes find the same expired claim at the same moment, a run
may be done twice; its row is the same and is written atomically in either case.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

RENEWED = 15.0  # seconds between renewals
EXPIRED = 120.0  # seconds without a renewal


class Claims:
    """Runs of a folder that this process is doing; use it in a `with` block, which releases them at its end."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.held: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        for key in list(self.held):
            self.release(key)

    def take(self, key: str) -> bool:
        """Claim a run; False if another living process has it."""
        path = claim_path(self.folder, key)
        if key not in self.held and not self._create(path):
            if not self._has_expired(path):
                return False
            path.unlink(missing_ok=True)
            if not self._create(path):
                return False
        self.held.add(key)
        return True

    def release(self, key: str) -> None:
        self.held.discard(key)
        claim_path(self.folder, key).unlink(missing_ok=True)

    def _create(self, path: Path) -> bool:
        about = {"host": socket.gethostname(), "process": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        try:
            with path.open("x", encoding="utf-8") as file:
                json.dump(about, file)
        except FileExistsError:
            return False
        return True

    def _has_expired(self, path: Path) -> bool:
        try:
            written, about = path.stat().st_mtime, _read(path)
        except FileNotFoundError:
            return True
        if about.get("host") == socket.gethostname() and not _is_alive(about.get("process")):
            return True
        return self.now() - written > EXPIRED

    def now(self) -> float:
        """The time by the clock of the file system, which claims of other hosts use too."""
        clock = self.folder / f".clock.{socket.gethostname()}.{os.getpid()}"
        clock.touch()
        now = clock.stat().st_mtime
        clock.unlink(missing_ok=True)
        return now

    def _renew(self) -> None:
        while not self._ended.wait(RENEWED):
            for key in list(self.held):
                with suppress(OSError):
                    os.utime(claim_path(self.folder, key))


def claim_path(folder: Path, key: str) -> Path:
    return folder / f"{key}.claim"


def _read(path: Path) -> dict[str, Any]:
    """The owner of a claim; unknown while the file is being written."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_alive(process: Any) -> bool:
    if not isinstance(process, int):
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
