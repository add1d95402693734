"""ArrayCache: numpy arrays on disk under a key, memory-mapped on load, and verified.

An entry is a folder with one `.npy` file per array and a manifest with the checksum of each; it is written atomically.
Checksums are noted with a stamp, the file system's record of a file (size, times, inode). Any write changes it, so a
file with the noted stamp is not read again; any other is read in full. An entry with another checksum than its manifest
says is not used, and the caller builds it again. The cache is optional: if it cannot be written, a warning is logged.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import platformdirs
from numpy.typing import NDArray

from unskew.data.files import new_folder, write_text

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
# File systems record time in steps of up to 10 ms: a file written again within one step keeps its stamp. Stamps taken
# sooner than this after the last write are therefore not trusted.
SETTLING_NS = 20_000_000
CANNOT_WRITE = "cannot write the cache in %s (%s): set UNSKEW_CACHE to another folder"


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
        note = self.folder / "stamps" / f"{hashlib.blake2b(os.fsencode(path), digest_size=16).hexdigest()}.json"
        stamp = _stamp(path)
        try:
            stamped, at, digest = json.loads(note.read_bytes())
            if stamped == stamp and at - max(stamp[1:3]) > SETTLING_NS:
                return str(digest)
        except (OSError, ValueError, TypeError):
            pass
        digest = _checksum(path)
        at = time.time_ns()
        if _stamp(path) != stamp:
            raise OSError(f"{path} changed while it was being read: try again when no program writes to it")
        try:
            note.parent.mkdir(parents=True, exist_ok=True)
            write_text(note, json.dumps([stamp, at, digest]))
        except FileExistsError:
            pass  # another process is writing the same
        except OSError as error:
            logger.warning(CANNOT_WRITE, self.folder, error)
        return digest

    def load(self, key: str) -> dict[str, NDArray] | None:
        """The arrays stored under this key, mapped copy-on-write; `None` if absent or damaged."""
        entry = self.folder / "arrays" / key
        try:
            manifest = json.loads((entry / MANIFEST).read_bytes())
            for name, digest in manifest.items():
                if self.digest(entry / f"{name}.npy") != digest:
                    raise ValueError(f"{name}.npy is damaged")
            # Copy-on-write: callers may change their arrays (torch warns about read-only ones), the file never changes.
            return {name: np.asarray(np.load(entry / f"{name}.npy", mmap_mode="c")) for name in manifest}
        except (OSError, ValueError, AttributeError) as error:
            if entry.exists():
                logger.warning("cache entry %s is not used (%s): building it again", entry, error)
        return None

    def store(self, key: str, arrays: Mapping[str, NDArray]) -> None:
        """Store arrays under this key, replacing an existing entry."""
        entry = self.folder / "arrays" / key
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            if entry.exists() and not (entry / MANIFEST).is_file():
                shutil.rmtree(entry, ignore_errors=True)
            with new_folder(entry, MANIFEST, overwrite=True) as draft:
                for name, array in arrays.items():
                    np.save(draft / f"{name}.npy", array, allow_pickle=False)
                manifest = {name: _checksum(draft / f"{name}.npy") for name in arrays}
                (draft / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
        except OSError as error:
            if "is being written" not in str(error):  # by another process, which stores the same
                logger.warning(CANNOT_WRITE, self.folder, error)


def _stamp(path: Path) -> list[int]:
    # It includes the change time because a program cannot reset that, unlike the modification time.
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
