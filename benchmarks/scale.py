"""What ingestion, training, ranking and whole-log commands take at a number of impressions; figures of docs/scale.md.

    python benchmarks/scale.py FOLDER 1000000 [STEP ...]

Every 1,000 impressions are 100 sessions of a query of their own with 20 documents of 20 features: 10 shown in one
order, in three sessions of ten in one of 20 others. So all grows with the impressions, the number of queries too.
A step with a limit, such as diagnose@1.5GB, is run with `--memory`. Each step is a process of its own; its processor
time and its peak memory are those that the system counts for it. FOLDER/scale.jsonl gets a line of JSON for each.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb

DOCUMENTS, FEATURES, SHOWN, PER_QUERY = 20, 20, 10, 1000
FEW, MANY = 50, 250  # steps of training: their difference has no fixed costs
UNSKEW = [sys.executable, "-m", "unskew"]
TRAIN = "train log --method dla --stream --overwrite --quiet --out"
STEPS = {
    "ingest": "ingest events.parquet --features features.parquet --out log --threads 1",
    "train few": f"{TRAIN} few --set steps={FEW}",
    "train many": f"{TRAIN} many --set steps={MANY}",
    "rank": "rank many features.parquet --out ranking.parquet --quiet",
    "diagnose": "diagnose log --quiet",
    "compare": "compare log --methods naive,dla --seeds 1 --jobs 1 --out compared --set steps=20 --quiet",
    "auto": "auto log --out chosen --force --set steps=20 --overwrite --quiet",
    "weights": "weights log --out rows.parquet --set steps=20 --overwrite --quiet",
}


def main(folder: Path, n_impressions: int, steps: list[str]) -> int:
    """Run the steps; gives the exit code of the first that failed, or 0."""
    failures = []
    place = folder / f"{n_impressions:.0e}"
    if not place.exists():
        place.mkdir(parents=True)
        generate(place, n_impressions)
    for step in steps or STEPS:
        name, _, memory = step.partition("@")
        command = [*UNSKEW, *STEPS[name].split(), *(["--memory", memory] if memory else [])]
        row = {"impressions": n_impressions, "step": step, **measured(command, place)}
        row["log_bytes"] = sum(file.stat().st_size for file in (place / "log").glob("*"))
        print(json.dumps(row), flush=True)
        with (folder / "scale.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        failures += [row["exit"]] if row["exit"] else []
    return failures[0] if failures else 0


def generate(place: Path, n_impressions: int) -> None:
    """Write events and features."""
    n_queries, n_sessions = n_impressions // PER_QUERY, n_impressions // SHOWN
    with duckdb.connect(config={"memory_limit": "2GB", "temp_directory": str(place / "spill")}) as database:
        database.execute("SET preserve_insertion_order = false")
        sessions = f"""SELECT range AS session, hash(range) % 10 < 3 AS moved, hash(range + 1) % {DOCUMENTS} AS shift
            FROM range({n_sessions})"""
        database.execute(
            f"""COPY (SELECT session, session % {n_queries} AS query, position,
                query * {DOCUMENTS} + CASE WHEN moved THEN (7 * position + shift) % {DOCUMENTS}
                ELSE position - 1 END AS document, (random() < 0.4 / position)::TINYINT AS clicked
              FROM ({sessions}), (SELECT range AS position FROM range(1, {SHOWN + 1})))
              TO '{place}/events.parquet' (FORMAT parquet)"""
        )
        columns = ", ".join(f"(random() * 2 - 1)::FLOAT AS f{number}" for number in range(FEATURES))
        database.execute(
            f"""COPY (SELECT range // {DOCUMENTS} AS query, range AS document, {columns}
              FROM range({n_queries * DOCUMENTS}) ORDER BY document) TO '{place}/features.parquet' (FORMAT parquet)"""
        )
    shutil.rmtree(place / "spill", ignore_errors=True)


def measured(command: list[str], place: Path) -> dict[str, Any]:
    """Processor time and peak memory of a command."""
    process = subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = round(used.ru_utime + used.ru_stime, 1)
    return {"exit": process.returncode, "cpu_seconds": seconds, "peak_mb": used.ru_maxrss // 1024}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
