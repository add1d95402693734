"""ArrayCache: numpy arrays on disk under a key, memory-mapped on load, and verified.

An entry is a folder with one `.npy` file per array and a manifest with the size, checksum and stamp of each. The
stamp is the file system's record of a file (size, times, inode). Any write changes it, so files with the recorded stamp
are mapped without being read; all others are read in full and compared with their checksum. An entry that fails is not
used, and the caller builds it again.

Entries are written to a temporary folder, flushed to disk and renamed, so that a reader sees a complete entry or none,
however many processes write at once. The cache is optional: if it cannot be written, a warning is logged.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import platformdirs
from numpy.typing import NDArray

logger = logging.getLogger(__name__)

FORMAT = 1
MANIFEST = "manifest.json"
# File systems record time in steps of up to 10 ms: a file written again within one step keeps its stamp. Stamps taken
# sooner than this after the last write are therefore not trusted.
SETTLING_NS = 20_000_000
ABANDONED_SECONDS = 24 * 3600.0

Stamp = list[int]


class CorruptEntryError(Exception):
    """An entry whose files do not match its manifest."""


def default_cache_folder() -> Path:
    """The cache folder: `UNSKEW_CACHE`, otherwise the user's cache directory."""
    return Path(os.environ.get("UNSKEW_CACHE") or platformdirs.user_cache_dir("unskew"))


class ArrayCache:
    """Arrays by key, in one folder."""

    def __init__(self, folder: Path | None = None):
        self.folder = default_cache_folder() if folder is None else Path(folder)

    def digest(self, path: Path) -> str:
        """The checksum of a file's content, without reading it again while its stamp stays the same."""
        path = path.resolve()
        note = self.folder / "sources" / f"{hashlib.blake2b(os.fsencode(path), digest_size=16).hexdigest()}.json"
        stamp = _stamp(path)
        known = _read_sealed(note)
        if known is not None and known["path"] == str(path) and _unchanged(stamp, known["stamp"], known["stamped_ns"]):
            return str(known["digest"])
        digest = _file_digest(path)
        known = {"path": str(path), "stamp": stamp, "stamped_ns": time.time_ns(), "digest": digest}
        if _stamp(path) != stamp:
            raise OSError(f"{path} changed while it was being read: try again when no program writes to it")
        try:
            _write_sealed(note, known)
        except OSError as error:
            logger.warning("cannot write the cache in %s (%s): set UNSKEW_CACHE to another folder", self.folder, error)
        return digest

    def load(self, key: str) -> dict[str, NDArray] | None:
        """The arrays stored under this key, mapped copy-on-write; `None` if absent or damaged."""
        entry = self.folder / "arrays" / key
        try:
            return _load_entry(entry)
        except FileNotFoundError:
            if entry.exists():
                logger.warning("cache entry %s is incomplete: building it again", entry)
        except (CorruptEntryError, OSError, ValueError) as error:
            logger.warning("cache entry %s is not used (%s): building it again", entry, error)
        return None

    def store(self, key: str, arrays: Mapping[str, NDArray]) -> None:
        """Store arrays under this key, replacing an existing entry."""
        parent = self.folder / "arrays"
        try:
            parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(parent)
            draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=parent))
            try:
                _write_entry(draft, arrays)
                _move_into_place(draft, parent / key)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
        except OSError as error:
            logger.warning("cannot write the cache in %s (%s): set UNSKEW_CACHE to another folder", self.folder, error)


def _write_entry(folder: Path, arrays: Mapping[str, NDArray]) -> None:
    files = {}
    for name, array in arrays.items():
        with (folder / f"{name}.npy").open("wb") as file:
            writer = _DigestingWriter(file)
            np.save(writer, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())  # otherwise a power failure could leave a valid stamp on wrong content
        files[name] = {"digest": writer.digest.hexdigest()}
    time.sleep(2 * SETTLING_NS / 1e9)
    _write_manifest(folder, files)


def _write_manifest(folder: Path, files: dict[str, dict[str, Any]]) -> None:
    """Record the checksums of an entry's files, and their current stamps."""
    files = {name: {"digest": file["digest"], "stamp": _stamp(folder / f"{name}.npy")} for name, file in files.items()}
    _write_sealed(folder / MANIFEST, {"format": FORMAT, "stamped_ns": time.time_ns(), "files": files})


def _load_entry(folder: Path) -> dict[str, NDArray]:
    if not (folder / MANIFEST).exists():
        raise FileNotFoundError(folder / MANIFEST)
    manifest = _read_sealed(folder / MANIFEST)
    if manifest is None or manifest["format"] != FORMAT:
        raise CorruptEntryError(f"{MANIFEST} cannot be read")
    stale = False
    arrays = {}
    for name, file in manifest["files"].items():
        path = folder / f"{name}.npy"
        if not _unchanged(_stamp(path), file["stamp"], manifest["stamped_ns"]):
            stale = True
            if _file_digest(path) != file["digest"]:
                raise CorruptEntryError(f"{path.name} is damaged")
        arrays[name] = _map_array(path)
    if stale:
        # Only the stamps were out of date. If they cannot be renewed, the next load is slower, nothing else.
        try:
            _write_manifest(folder, manifest["files"])
        except OSError as error:
            logger.debug("cannot renew %s: %s", folder / MANIFEST, error)
    return arrays


def _map_array(path: Path) -> NDArray:
    # Copy-on-write: callers may change their arrays (torch warns about read-only ones), but the file never changes.
    array = np.load(path, mmap_mode="c", allow_pickle=False)
    return np.asarray(array)


def _move_into_place(draft: Path, place: Path) -> None:
    """Rename a complete draft; if another process was faster, keep its equal entry."""
    if place.exists():
        discarded = Path(tempfile.mkdtemp(prefix=".discarded-", dir=place.parent))
        try:
            place.rename(discarded / place.name)
        except FileNotFoundError:
            pass  # another process moved it away
        finally:
            shutil.rmtree(discarded, ignore_errors=True)
    try:
        draft.rename(place)
    except OSError:
        if not place.exists():
            raise


def _remove_abandoned(parent: Path) -> None:
    """Remove old drafts of killed processes."""
    for folder in [*parent.glob(".draft-*"), *parent.glob(".discarded-*")]:
        try:
            if time.time() - folder.stat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:
            continue


class _DigestingWriter:
    """A file that computes the checksum of what is written to it."""

    def __init__(self, file: IO[bytes]):
        self.file = file
        self.digest = hashlib.blake2b(digest_size=16)

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self.file.write(data)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _stamp(path: Path) -> Stamp:
    # It includes the change time because a program cannot reset that, unlike the modification time.
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _unchanged(stamp: Stamp, recorded: Stamp, recorded_ns: int) -> bool:
    _, modified_ns, changed_ns, _ = stamp
    return stamp == recorded and recorded_ns - max(modified_ns, changed_ns) > SETTLING_NS


def _write_sealed(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with its own checksum, so that it need not be flushed to disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sealed = {"content": content, "seal": _seal(content)}
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False) as file:
        try:
            json.dump(sealed, file)
            file.close()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _read_sealed(path: Path) -> dict[str, Any] | None:
    """The content that `_write_sealed` wrote, or `None` if it is absent or was changed."""
    try:
        sealed = json.loads(path.read_bytes())
        content: dict[str, Any] = sealed["content"]
        return content if sealed["seal"] == _seal(content) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _seal(content: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
