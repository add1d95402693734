"""Ingestion end to end: 10 million impressions in parquet, 10 a session, 20 features, into a click log on disk.

Features stand in the event table, so they are de-duplicated and checked for conflicts. Two threads, 4 GB. The wall
time is that of a free machine only if the machine is free: the processor time of both threads is given beside it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from timing import Row
from unskew.ingestion.run import ingest_tables
from unskew.ingestion.settings import Options, Tables

N_SESSIONS = 1_000_000
N_SHOWN = 10
N_QUERIES = 10_000
DOCUMENTS_A_QUERY = 20
N_FEATURES = 20
THREADS = 2
SESSIONS_AT_ONCE = 100_000


def run() -> list[Row]:
    """Impressions a second, by the clock and by processor time."""
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder, "events.parquet")
        write_events(events, np.random.default_rng(0))
        wall, busy = time.perf_counter(), time.process_time()
        done = ingest_tables(Tables(events), Path(folder, "log"), options=Options(memory="4GB", threads=THREADS))
        wall, busy = time.perf_counter() - wall, time.process_time() - busy
    assert done.impressions == N_SESSIONS * N_SHOWN
    assert done.dropped == {}
    millions = done.impressions / 1e6
    return [
        ("ingestion, million impressions/s on 2 threads", f"{millions / wall:.2f}", ">= 0.7"),
        ("at most, by its processor time, on two free cores", f"{millions / busy * THREADS:.2f}", ""),
        ("sessions per list", f"{done.sessions / done.lists:.1f}", ""),
    ]


def write_events(path: Path, rng: np.random.Generator) -> None:
    """Sessions of a production ranker; in three of ten some documents changed places."""
    features = rng.normal(size=(N_QUERIES * DOCUMENTS_A_QUERY, N_FEATURES)).astype(np.float32)
    writer: pq.ParquetWriter | None = None
    for start in range(0, N_SESSIONS, SESSIONS_AT_ONCE):
        table = _events(start, features, rng)
        writer = pq.ParquetWriter(path, table.schema) if writer is None else writer
        writer.write_table(table)
    assert writer is not None
    writer.close()


def _events(start: int, features: np.ndarray, rng: np.random.Generator) -> pa.Table:
    n = SESSIONS_AT_ONCE
    queries = np.minimum((N_QUERIES * rng.random(n) ** 2).astype(np.int64), N_QUERIES - 1)  # some are frequent
    order = np.tile(np.arange(N_SHOWN), (n, 1))
    moved = rng.random(n) < 0.3
    noise = np.arange(DOCUMENTS_A_QUERY) + rng.normal(size=(int(moved.sum()), DOCUMENTS_A_QUERY))
    order[moved] = np.argsort(noise, axis=1)[:, :N_SHOWN]
    documents = (queries[:, None] * DOCUMENTS_A_QUERY + order).reshape(-1)
    clicks = rng.random((n, N_SHOWN)) < 0.4 / (1 + np.arange(N_SHOWN))
    columns = {
        "session_id": _named("s-", np.repeat(np.arange(start, start + n), N_SHOWN)),
        "query": _named("query ", np.repeat(queries, N_SHOWN)),
        "document": _named("doc-", documents),
        "position": pa.array(np.tile(np.arange(1, N_SHOWN + 1, dtype=np.int32), n)),
        "clicked": pa.array(clicks.reshape(-1)),
    }
    return pa.table(columns | {f"f{k}": pa.array(features[documents, k]) for k in range(N_FEATURES)})


def _named(prefix: str, numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")
