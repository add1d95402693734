"""Places for output: checked before any work is done; folders appear whole or not at all.

A folder is written beside its place under a hidden name and then moved there. Only a folder with the file that marks
its kind (`log.json`, `model.json`), or an empty one, is ever replaced: nothing else can be lost by a wrong name.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_place(target: Path, *, overwrite: bool) -> None:
    """Refuse a place for a file or folder that is taken or cannot be written."""
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists: choose another place, or pass overwrite=True (--overwrite)")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target.parent} is no folder: create it first, {target.name} is written into it")
    try:
        tempfile.TemporaryFile(dir=target.parent).close()
    except OSError as error:
        raise PermissionError(f"{target.parent} cannot be written ({error}): choose another place") from error


def check_folder(target: Path, marker: str, *, overwrite: bool) -> None:
    """Refuse a place for a folder; what has no file of the marker's name in it is never replaced."""
    check_place(target, overwrite=overwrite)
    is_ours = (target / marker).is_file() or (target.is_dir() and not any(target.iterdir()))
    if target.exists() and not is_ours:
        raise FileExistsError(f"{target} holds no {marker}, and so is not overwritten: choose another place")


@contextmanager
def new_folder(target: Path, marker: str, *, overwrite: bool) -> Iterator[Path]:
    """A folder to write into that takes the target's place when all is written, and vanishes if anything fails.

    The old folder is moved aside before the new one takes its place, and moved back should that fail.
    """
    check_folder(target, marker, overwrite=overwrite)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    new, old = scratch / "new", scratch / "old"
    try:
        new.mkdir()  # not mkdtemp's folder itself, which nobody else may read
        yield new
        if target.exists():
            target.replace(old)
        try:
            new.replace(target)
        except BaseException:
            if old.exists():
                old.replace(target)
            raise
    except OSError as error:
        error.add_note(f"{target} was not written: what was there before is unchanged")
        raise
    finally:
        if target.exists() or not old.exists():
            shutil.rmtree(scratch, ignore_errors=True)
