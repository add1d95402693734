"""A raw table of 44 columns, proposed and ingested by `unskew ingest TABLE --yes --memory 2GB`: time and peak memory.

Pages of 12 on phones and 24 on desktops; features of documents, some of which change every day; an experiment, carts,
purchases, sponsored slots and robots. `python benchmarks/raw_table.py FOLDER ROWS …` measures each size.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import duckdb

COLUMNS = """
    's' || session AS search_id, CASE WHEN hash(session) % 50 = 0 THEN 'robot' || session % 20 ELSE
    'u' || hash(session, 1) % greatest({sessions} // 4, 1) END AS visitor_id, 'words ' || query AS search_term,
    'p' || document AS sku, place // size + 1 AS page, place % size + 1 AS slot, device AS device,
    TIMESTAMP '2026-01-01' + to_seconds(session * 2592000 // {sessions}) AS shown_at,
    CASE WHEN hash(session, 2) % 25 = 0 THEN 'shuffled' ELSE 'control' END AS experiment,
    'v' || (1 + day // 15) AS ranker,
    hash(session, 3) % 3 = 0 AS member, place % size = 0 AND hash(session, 4) % 4 = 0 AS is_sponsored,
    round(10 - place * .3 + (hash(session, document) % 100) / 400, 3) AS score,
    (hash(session, document, 5) % 1000 < 400 / (place + 1)) AS clicked,
    (hash(session, document, 5) % 1000 < 100 / (place + 1)) AS add_to_cart,
    (hash(session, document, 5) % 1000 < 40 / (place + 1)) AS purchased,
    CASE WHEN hash(session, document, 5) % 1000 < 400 / (place + 1) THEN hash(session, 6) % 90000 END AS dwell_ms,
    'brand ' || document % 97 AS brand, document % 40 AS category_id, 70000000 + document % 1009 AS seller_id
"""
N_COLUMNS = 44
CHANGING = 2  # features that change every day


def write(place: Path, n_rows: int) -> None:
    """A table of about this many rows."""
    sessions = n_rows // 18
    n_features = N_COLUMNS - COLUMNS.count(" AS ")
    features = [f"round((hash(document, {k}) % 10000) / 100.0, 2) AS f_{k}" for k in range(n_features - CHANGING)]
    features += [f"((hash(document, day, {k}) % 1000) / 10.0)::FLOAT AS g_{k}" for k in range(CHANGING)]
    query = f"""
        WITH searches AS (
            SELECT range AS session, CASE WHEN range % 2 = 0 THEN 'phone' ELSE 'desktop' END AS device,
                range * 30 // {sessions} AS day, least(hash(range, 7) % 20000, hash(range, 8) % 20000) AS query,
                CASE WHEN range % 2 = 0 THEN 12 ELSE 24 END AS size FROM range({sessions})),
        rows AS (SELECT *, unnest(range(size)) AS place FROM searches),
        shown AS (SELECT *, query * 40 + (place + hash(session, 9) % 5) % 40 AS document FROM rows)
        SELECT {COLUMNS.format(sessions=sessions)}, {", ".join(features)} FROM shown"""
    with duckdb.connect(config={"memory_limit": "2GB", "threads": 1, "preserve_insertion_order": False}) as connection:
        connection.execute(f"COPY ({query}) TO '{place}' (FORMAT parquet, ROW_GROUP_SIZE 100000)")


def measured(place: Path, out: Path) -> dict[str, float]:
    """Seconds, processor seconds and peak gigabytes of one ingestion with its proposal."""
    command = [sys.executable, "-m", "unskew", "ingest", str(place), "--yes", "--out", str(out), "--overwrite"]
    started = time.monotonic()
    subprocess.run([*command, "--memory", "2GB", "--threads", "1", "--json"], check=True, stdout=subprocess.DEVNULL)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": round(time.monotonic() - started, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "gigabytes": round(used.ru_maxrss / 2**20, 2),  # of the largest child so far: measure small tables first
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for size in map(int, sys.argv[2:]):
        table = folder / f"raw_{size}.parquet"
        if not table.exists():
            write(table, size)
        found = {"rows": size, "columns": N_COLUMNS, **measured(table, folder / "log")}
        with (folder / "raw_table.jsonl").open("a") as results:
            results.write(json.dumps(found) + "\n")
        print(found)
