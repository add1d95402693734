"""Features that change with every showing: no two sessions share a list, so nothing compacts.

10 million impressions with 20 features, ingested within 2 GB of DuckDB and trained on for one epoch, read shard by
shard. Each part runs in a process of its own, whose greatest memory is given.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from timing import Row
from unskew.data.clicks.storage import open_log
from unskew.ingestion.run import ingest_tables
from unskew.ingestion.settings import Options, Tables
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe

N_SESSIONS = 1_000_000
N_SHOWN = 10
N_FEATURES = 20
BATCH = 256
SESSIONS_AT_ONCE = 50_000


def run() -> list[Row]:
    """Time and greatest memory of each part."""
    with tempfile.TemporaryDirectory() as folder:
        parts = {"writing events": write_events, "ingestion": ingest_events, "one epoch": train_an_epoch}
        found = {name: measured(part, Path(folder), N_SESSIONS) for name, part in parts.items()}
    size = f"{N_SESSIONS * N_SHOWN / 1e6:g} million impressions"
    rows = []
    for name in ("ingestion", "one epoch"):
        seconds, memory = found[name]
        rows += [
            (f"{name} of {size}, seconds", f"{seconds:.0f}", ""),
            (f"{name}, GB of memory", f"{memory:.2f}", "<= 4"),
        ]
    return rows


def measured(part: Callable[[Path, int], None], folder: Path, n_sessions: int) -> tuple[float, float]:
    """Seconds and gigabytes of a part in a process of its own."""
    context = get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_measure, (part, folder, n_sessions))


def _measure(part: Callable[[Path, int], None], folder: Path, n_sessions: int) -> tuple[float, float]:
    started = time.perf_counter()
    part(folder, n_sessions)
    return time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def write_events(folder: Path, n_sessions: int) -> None:
    """An event table in which every impression has features of its own."""
    rng = np.random.default_rng(0)
    writer: pq.ParquetWriter | None = None
    for start in range(0, n_sessions, SESSIONS_AT_ONCE):
        sessions = np.arange(start, min(start + SESSIONS_AT_ONCE, n_sessions))
        n_rows = len(sessions) * N_SHOWN
        columns = {
            "session": np.repeat(sessions, N_SHOWN),
            "query": np.repeat(rng.integers(0, max(1, n_sessions // 100), len(sessions)), N_SHOWN),
            "document": np.tile(np.arange(N_SHOWN), len(sessions)),
            "position": np.tile(np.arange(1, N_SHOWN + 1), len(sessions)),
            "click": rng.random(n_rows) < 0.1,
        }
        values = rng.normal(size=(N_FEATURES, n_rows)).astype(np.float32)
        table = pa.table(columns | {f"f{number}": values[number] for number in range(N_FEATURES)})
        writer = pq.ParquetWriter(folder / "events.parquet", table.schema) if writer is None else writer
        writer.write_table(table)
    assert writer is not None
    writer.close()


def ingest_events(folder: Path, n_sessions: int) -> None:
    done = ingest_tables(Tables(folder / "events.parquet"), folder / "log", options=Options(memory="2GB", threads=2))
    assert done.versions == n_sessions * N_SHOWN


def train_an_epoch(folder: Path, n_sessions: int) -> None:
    recipe = Recipe.of("naive", steps=-(-n_sessions // BATCH), batch_size=BATCH, hidden=(32,))
    fit_recipe(recipe, open_log(folder / "log"))
