"""Output files and folders: checked before any work is done, and written atomically.

Output is written next to its target under a hidden name, `.NAME.HOST-PROCESS-RANDOM.part`, flushed, and then moved into
place with the permissions of the user's umask. Only a folder with the file that marks its kind (`log.json`,
`model.json`), or an empty folder, is ever replaced, so a mistyped path cannot destroy anything else.

One process writes to a target at a time: a second process gets an error that names the first. The next process that
writes there removes what killed processes left behind, and says so. If a process is killed between the two renames that
replace a folder, the old folder remains under another name: `restore` moves it back. Locks are file system locks
(`flock`): local and POSIX-like shared file systems honor them, others may not.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import socket
import tempfile
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.object_storage import check_remote, remote, sent_folder
from unskew.texts import redacted

try:
    import fcntl
except ImportError:  # Windows: no locks
    fcntl = None  # type: ignore[assignment]

HOST = re.sub(r"[^A-Za-z0-9_]", "_", socket.gethostname()) or "host"
SCRATCH = re.compile(r"\.(?P<host>\w+)-(?P<process>\d+)-[0-9a-f]{8}\.part$")
_HELD: set[Path] = set()  # locks of this process, which may write to the same target again
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_SPACE_WORDS = ("No space left on device", "Disk quota exceeded", "File too large")


def check_place(target: Path, *, overwrite: bool) -> None:
    """Refuse a target that exists or cannot be written."""
    if (place := remote(target)) is not None:
        check_remote(place, None, overwrite=overwrite)
        return
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists: choose another path, or pass overwrite=True (--overwrite)")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target.parent} is not a folder: create it first, or choose another path")
    try:
        tempfile.TemporaryFile(dir=target.parent).close()
    except OSError as error:
        raise PermissionError(f"{target.parent} cannot be written ({error}): choose another path") from error


def check_folder(target: Path, marker: str, *, overwrite: bool) -> None:
    """Refuse a target folder; a folder without a file of the marker's name is never replaced."""
    if (place := remote(target)) is not None:
        check_remote(place, marker, overwrite=overwrite)
        return
    restore(target)
    check_place(target, overwrite=overwrite)
    is_ours = (target / marker).is_file() or (target.is_dir() and not any(target.iterdir()))
    if target.exists() and not is_ours:
        raise FileExistsError(f"{target} contains no {marker}, so it is not overwritten: choose another path")


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_digest(data: Mapping[str, Any]) -> str:
    """SHA-256 of JSON, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def array_digest(arrays: Iterable[NDArray], names: Sequence[str] = ()) -> str:
    """SHA-256 of the types, shapes and values of arrays, and of their names."""
    found = hashlib.sha256(repr(list(names)).encode())
    for array in arrays:
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


@contextmanager
def new_file(target: str | Path, *, private: bool = False) -> Iterator[Path]:
    """A path to write to, which replaces the target when the block ends, and is deleted if anything fails.

    Args:
        private: only you may read it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with new_file(Path(folder) / "notes.txt") as scratch:
        ...         _ = scratch.write_text("all of it")
        ...     (Path(folder) / "notes.txt").read_text()
        'all of it'
    """
    if (place := remote(target)) is not None:
        with tempfile.TemporaryDirectory(prefix="unskew-") as folder:
            here = Path(folder) / Path(target).name
            yield here
            place.send(here)
        return
    target = Path(target)
    with sole_writer(target), _explained(target):
        scratch = _scratch_name(target)
        descriptor = os.open(
            scratch, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if private else 0o666
        )  # never follows a link
        mode = os.fstat(descriptor).st_mode
        os.fchmod(descriptor, 0o600)  # private until it is complete
        os.close(descriptor)
        try:
            yield scratch
            scratch.chmod(mode & 0o777)
            _flush(scratch)
            scratch.replace(target)
        finally:
            scratch.unlink(missing_ok=True)


def write_file(target: str | Path, content: bytes) -> None:
    """Write a file atomically."""
    with new_file(target) as scratch:
        scratch.write_bytes(content)


def write_text(target: str | Path, text: str, *, private: bool = False) -> None:
    """Write a text file atomically, without secrets."""
    with new_file(target, private=private) as scratch:
        scratch.write_text(redacted(text), encoding="utf-8")


@contextmanager
def new_folder(target: Path, marker: str, *, overwrite: bool) -> Iterator[Path]:
    """A folder to write to, which replaces the target when the block ends, and is deleted if anything fails.

    The old folder is moved aside before the new one takes its place, and moved back if that fails.
    """
    if (place := remote(target)) is not None:
        with sent_folder(place, marker, overwrite=overwrite) as folder:
            folder.mkdir()
            yield folder
        return
    check_folder(target, marker, overwrite=overwrite)
    with scratch_folder(target) as scratch, _explained(target):
        new, old = scratch / "new", scratch / "old"
        new.mkdir()
        mode = new.stat().st_mode & 0o666
        yield new
        for file in new.rglob("*"):
            if file.is_file():
                file.chmod(mode)
                _flush(file)
        if target.exists():
            target.replace(old)
        try:
            new.replace(target)
        except BaseException:
            if old.exists():
                old.replace(target)
            raise
        if old.exists():
            old.replace(scratch / "replaced")  # only a complete folder is called old: restore relies on it


@contextmanager
def scratch_folder(target: Path | None) -> Iterator[Path]:
    """A hidden folder next to the target for intermediate files; no other process may write to the target.

    Without a target here it is a temporary folder.
    """
    if target is None or remote(target) is not None:
        with tempfile.TemporaryDirectory(prefix="unskew-", ignore_cleanup_errors=True) as here:
            yield Path(here)
        return
    with sole_writer(target):
        scratch = _scratch_name(target)
        scratch.mkdir(0o700)
        try:
            yield scratch
        finally:
            if target.exists() or not (scratch / "old").exists():
                shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def sole_writer(target: Path) -> Iterator[None]:
    """Lock a target: a second process gets an error that says who holds it, and since when."""
    lock = target.with_name(f".{target.name}.lock")
    place = lock.absolute()
    if fcntl is None or not target.parent.is_dir() or place in _HELD:
        yield
        return
    descriptor = _lock(lock, target)
    if descriptor is None:  # this file system has no locks
        yield
        return
    try:
        about = {"host": HOST, "process": os.getpid(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(about).encode())
        _HELD.add(place)
        _remove_abandoned(target)
        yield
    finally:
        _HELD.discard(place)
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def restore(target: Path) -> None:
    """Move back an old folder that a kill between two renames left aside, and warn about it."""
    if target.exists() or not target.parent.is_dir():
        return
    for scratch in _scratches(target):
        if (scratch / "old").is_dir() and not _alive(scratch):
            (scratch / "old").replace(target)
            shutil.rmtree(scratch, ignore_errors=True)
            warnings.warn(
                f"{target}: a run was killed while it replaced this folder; the old folder was restored",
                RuntimeWarning,
                stacklevel=3,
            )
            return


def is_out_of_space(error: BaseException) -> bool:
    """Whether an error, of any library, means that the disk is full."""
    return getattr(error, "errno", None) in NO_SPACE or any(words in str(error) for words in NO_SPACE_WORDS)


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # libraries have their own classes for a full disk
        if is_out_of_space(error):
            raise OSError(
                f"the disk is full: {target} was not written, and what was there before is unchanged ({error}); "
                "make room, then repeat the command"
            ) from error
        if isinstance(error, OSError):
            error.add_note(f"{target} was not written: what was there before is unchanged")
        raise


def _lock(lock: Path, target: Path) -> int | None:
    while True:
        descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            said = os.read(descriptor, 4096)
            os.close(descriptor)
            raise FileExistsError(
                f"{target} is being written by {_writer(said)}: wait, or choose another path"
            ) from error
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                return None
            raise
        try:
            if lock.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)  # the previous holder has just released and removed the file: open a new one


def _writer(said: bytes) -> str:
    try:
        about = json.loads(said)
        return f"process {about['process']} on {about['host']} since {about['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"


def _scratch_name(target: Path) -> Path:
    return target.with_name(f".{target.name}.{HOST}-{os.getpid()}-{uuid.uuid4().hex[:8]}.part")


def _scratches(target: Path) -> Iterator[Path]:
    prefix = f".{target.name}."
    for entry in target.parent.iterdir():
        if entry.name.startswith(prefix) and SCRATCH.fullmatch(entry.name[len(prefix) - 1 :]):
            yield entry


def _alive(scratch: Path) -> bool:
    """Whether the process that made a scratch file may still run; on other machines it may."""
    found = SCRATCH.search(scratch.name)
    if found is None or found["host"] != HOST:
        return True
    try:
        os.kill(int(found["process"]), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _remove_abandoned(target: Path) -> None:
    for scratch in list(_scratches(target)):
        if _alive(scratch) or ((scratch / "old").exists() and not target.exists()):
            continue
        shutil.rmtree(scratch, ignore_errors=True) if scratch.is_dir() else scratch.unlink(missing_ok=True)
        warnings.warn(f"removed {scratch.name}, which a killed run left next to {target}", RuntimeWarning, stacklevel=5)


def _flush(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
