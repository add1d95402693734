"""Work on Spark executors: they write files themselves, and report them to the driver.

Executors write to the output folder, or to a scratch folder next to it, so it must be on a shared file system or on
object storage. unskew must be installed on them. The driver writes the file that marks the folder as complete last.
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

ATTEMPT = ".attempt-"  # prefix of the folders in which executors write; a killed executor may leave one behind


def spark_session(master: str | None) -> Any:
    """The running Spark session, or a new one."""
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Spark is not installed: pip install 'unskew[spark]'; it also needs Java 17 or newer"
        ) from error
    builder = SparkSession.builder.appName("unskew").config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.execution.arrow.pyspark.enabled", "true")
    builder = builder.master(master) if master else builder
    return builder.getOrCreate()


def found_by_executors(frame: Any) -> list[dict[str, Any]]:
    """The reports of executors, as JSON in column `found`, in the order of `number`; the first error is raised."""
    rows = sorted(frame.collect(), key=lambda row: row["number"])
    reports: list[dict[str, Any]] = [json.loads(row["found"]) for row in rows]
    for entry in reports:
        if "error" in entry:
            raise ValueError(entry["error"])
    return reports


@contextmanager
def shared_folder(target: Path, marker: str, *, overwrite: bool) -> Iterator[tuple[Path, str]]:
    """The folder for the driver's marker, and the folder for the executors' files; complete when the block ends."""
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
    """A folder of an executor whose files are moved, or uploaded, to `place` when the block ends."""
    there = remote(place)
    if there is None and not Path(place).is_dir():
        raise ValueError(
            f"a Spark executor cannot see {place}: write to a folder that all machines share, or to object storage "
            "(s3://…)"
        )
    with TemporaryDirectory(prefix=ATTEMPT, dir=place if there is None else None) as scratch:
        yield Path(scratch)
        for file in sorted(Path(scratch).iterdir()):
            if there is None:
                file.replace(Path(place) / file.name)
            else:
                there.send(file, file.name)
