"""What is done on Spark executors: they write files themselves, and tell the driver of them.

Executors write into a folder, or a scratch folder beside it, so they must see it: it is on a file system that all of
them share, or on object storage. They import unskew, which is installed there too. The driver writes the file that
marks the folder as whole last.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from unskew.data.files import new_folder
from unskew.data.object_storage import filled_folder, remote

ATTEMPT = ".attempt-"  # begins names of folders in which executors write; a killed one may leave its own


def spark_session(master: str | None) -> Any:
    """The running session of Spark, or a new one."""
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Spark is not installed: pip install 'unskew[spark]', with Java 17 or newer"
        ) from error
    builder = SparkSession.builder.appName("unskew").config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.execution.arrow.pyspark.enabled", "true")
    builder = builder.master(master) if master else builder
    return builder.getOrCreate()


def found_by_executors(frame: Any) -> list[dict[str, Any]]:
    """What executors told, each in JSON under `found`, in the order of `number`; the first error is raised."""
    rows = sorted(frame.collect(), key=lambda row: row["number"])
    found: list[dict[str, Any]] = [json.loads(row["found"]) for row in rows]
    for entry in found:
        if "error" in entry:
            raise ValueError(entry["error"])
    return found


@contextmanager
def shared_folder(target: Path, marker: str, *, overwrite: bool) -> Iterator[tuple[Path, str]]:
    """Where the driver writes the marker, and where executors write all else; it counts when the block has ended."""
    there = remote(target)
    if there is not None:
        with filled_folder(there, marker, overwrite=overwrite) as here:
            yield here, there.uri
        return
    with new_folder(target, marker, overwrite=overwrite) as here:
        yield here, str(here.absolute())
        for abandoned in here.glob(f"{ATTEMPT}*"):
            shutil.rmtree(abandoned, ignore_errors=True)


@contextmanager
def executor_files(place: str) -> Iterator[Path]:
    """A folder in an executor whose files are moved, or sent, to the place when the block ends."""
    there = remote(place)
    if there is None and not Path(place).is_dir():
        raise ValueError(
            f"a Spark executor does not see {place}: write to a folder that all machines share, or to object storage "
            "(s3://…)"
        )
    with TemporaryDirectory(prefix=ATTEMPT, dir=place if there is None else None) as scratch:
        yield Path(scratch)
        for file in sorted(Path(scratch).iterdir()):
            if there is None:
                file.replace(Path(place) / file.name)
            else:
                there.send(file, file.name)
