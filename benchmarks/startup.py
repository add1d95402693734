"""Start-up: CPU seconds of imports, of the help of every command, and of an `ingest` with wrong columns."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet

from unskew.cli import COMMANDS

REPEATS = 5
LIMIT, HELP_LIMIT, SCHEMA_LIMIT = 0.4, 1.0, 1.5  # CPU seconds
EVENTS = "sid,query,doc,pos,clicked\n1,q,a,1,0\n1,q,b,2,1\n"
UNSKEW = ["-m", "unskew"]
WAYS: dict[str, tuple[list[str], float | None]] = {
    "bare Python": (["-c", "pass"], None),
    "import torch": (["-c", "import torch"], None),
    "import unskew": (["-c", "import unskew"], LIMIT),
    "unskew --version": ([*UNSKEW, "--version"], LIMIT),
    "unskew --help": ([*UNSKEW, "--help"], LIMIT),
    **{f"unskew {name} --help": ([*UNSKEW, name, "--help"], HELP_LIMIT) for name in COMMANDS},
    "ingest of a CSV file, wrong columns": ([*UNSKEW, "ingest", "events.csv", "--out", "log"], SCHEMA_LIMIT),
    "ingest of a parquet file, wrong columns": ([*UNSKEW, "ingest", "events.parquet", "--out", "log"], SCHEMA_LIMIT),
}


def run() -> list[tuple[str, str, str]]:
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        _write_events(Path(folder))
        for _ in range(REPEATS):
            for name, (arguments, _limit) in WAYS.items():
                seconds[name].append(cpu_seconds([sys.executable, *arguments], folder, fails="wrong" in name))
    limits = {name: "" if limit is None else f"<= {limit}" for name, (_, limit) in WAYS.items()}
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return [(f"{name}, CPU seconds", f"{median:.2f}", limits[name]) for name, median in medians.items()]


def cpu_seconds(command: list[str], folder: str, *, fails: bool) -> float:
    """User and system time of a process that ends by itself."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != (2 if fails else 0):
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.decode()}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _write_events(folder: Path) -> None:

    (folder / "events.csv").write_text(EVENTS)
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(folder / "events.csv"), folder / "events.parquet")


if __name__ == "__main__":
    for row in run():
        print(*row, sep=" | ")
