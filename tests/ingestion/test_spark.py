"""The same log from DuckDB and from Spark, row for row."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from unskew.data.clicks.storage import open_log
from unskew.ingestion.columns import Columns
from unskew.ingestion.run import ingest_tables
from unskew.ingestion.settings import Options, Tables

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore"),  # of Spark, about its own future
]

UBI_FILES = ("events.jsonl", "features.parquet", "queries.jsonl")


def impressions(rng, n_sessions=120):
    """Shown lists with everything a log may have, and some rows that must be left out."""
    rows = []
    for session in range(n_sessions):
        query = f"query {rng.integers(6)}"
        order = rng.permutation(7)[:5] if rng.random() < 0.3 else np.arange(5)
        for place, document in enumerate(order):
            rows.append(
                {
                    "session": f"s{session}",
                    "query": query,
                    "document": f"d{document}",
                    "position": place + 1,
                    "clicked": int(rng.random() < 0.5 / (place + 1)),
                    "timestamp": 1_700_000_000 + 60 * session,
                    "device": ["phone", "desktop", None][session % 3],
                    "kind": ["ad", "text"][document % 2],
                    "weather": float(session % 2) / 4,
                    "policy_score": 1 / (1 + document) + 0.01 * (session % 2),
                    "bm25": float(document) + len(query),
                    "age": document * 3,
                }
            )
    bad = [dict(rows[0]), dict(rows[7], session=None), dict(rows[12], position=0), dict(rows[20], document="d99")]
    twice = [dict(rows[30], position=9), dict(rows[40], document="d6", position=rows[41]["position"])]
    changed = [dict(rows[50], session="later", position=1, bm25=1e6)]
    return rows + bad + twice + changed


def test_both_engines_write_the_same_files(spark, tmp_path):
    table = pa.Table.from_pylist(impressions(np.random.default_rng(0)))
    pq.write_table(table, tmp_path / "events.parquet")
    columns = Columns(bias=["device", "kind", "weather"])
    done = both(Tables(tmp_path / "events.parquet"), columns, tmp_path)
    assert set(done.dropped) == {
        "no_session",
        "bad_position",
        "duplicate",
        "shown_again",
        "shared_position",
    }
    assert done.versions > done.documents  # the last row changed a price


def test_features_of_a_second_table_and_single_events_give_the_same_files_too(spark, tmp_path):
    rows = impressions(np.random.default_rng(1), n_sessions=100)
    events = []
    for row in rows:
        keys = {name: row[name] for name in ("session", "query", "document", "timestamp")}
        events.append(keys | {"event": "impression", "position": row["position"]})
        if row["clicked"]:
            events.append(keys | {"event": "click", "position": None})
    events += [dict(events[0], session="nobody", event="click"), dict(events[0], event="purchase")]
    pq.write_table(pa.Table.from_pylist(events), tmp_path / "events.parquet")
    known = {(row["query"], row["document"]): row["bm25"] for row in rows if row["document"] != "d99"}
    features = [{"query": key[0], "document": key[1], "bm25": value} for key, value in sorted(known.items())]
    pq.write_table(pa.Table.from_pylist(features), tmp_path / "features.parquet")
    tables = Tables(tmp_path / "events.parquet", features=tmp_path / "features.parquet")
    done = both(tables, Columns(), tmp_path)
    assert {"no_session", "lone_click", "no_features", "duplicate"} <= set(done.dropped)
    assert done.other_events == 1


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_text_gives_the_same_files_too(spark, tmp_path, ending):
    rows = impressions(np.random.default_rng(2), n_sessions=60)
    place = tmp_path / f"events.{ending}"
    if ending == "csv":
        pyarrow.csv.write_csv(pa.Table.from_pylist(rows), place)
    else:
        place.write_text("\n".join(json.dumps(row, default=int) for row in rows))
    done = both(Tables(place), Columns(bias=["device", "kind", "weather"]), tmp_path)
    assert "no_session" in done.dropped


@pytest.mark.parametrize("shown", ["by events", "by queries"])
def test_user_behavior_insights_give_the_same_files_too(spark, tmp_path, shown):
    rows = impressions(np.random.default_rng(3), n_sessions=40)[: 40 * 5]
    events, queries = [], {}
    for row in rows:
        moment = f"2024-01-01T00:{int(row['session'][1:]):02d}:00Z"
        place = {"object": {"object_id": row["document"]}, "position": {"ordinal": row["position"]}}
        event = {"query_id": row["session"], "timestamp": moment, "event_attributes": place}
        told = {"query_id": row["session"], "user_query": row["query"], "timestamp": moment}
        queries.setdefault(row["session"], told | {"query_response_hit_ids": []})
        queries[row["session"]]["query_response_hit_ids"].append(row["document"])
        if shown == "by events":
            events.append(event | {"action_name": "impression"})
        if row["clicked"]:
            events.append(event | {"action_name": "click"})
    for name, entries in (("events", events), ("queries", list(queries.values()))):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps(entry) for entry in entries))
    pq.write_table(pa.table({"document": [f"d{n}" for n in range(7)], "age": range(7)}), tmp_path / "features.parquet")
    done = both(Tables(*(tmp_path / name for name in UBI_FILES)), Columns(), tmp_path)
    assert (done.sessions, done.clicks, done.dropped) == (40, sum(row["clicked"] for row in rows), {})


def test_executors_write_several_shards_which_are_the_same_files_too(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("unskew.ingestion.counted.SHARD_CELLS", 300)
    pq.write_table(pa.Table.from_pylist(impressions(np.random.default_rng(5))), tmp_path / "events.parquet")
    done = both(Tables(tmp_path / "events.parquet"), Columns(bias=["device", "kind", "weather"]), tmp_path)
    assert done.shards > 2
    assert {path.suffix for path in (tmp_path / "spark").iterdir()} == {".parquet", ".json"}


def test_lists_collected_in_parts_are_the_same_files_too(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("unskew.ingestion.engines.SparkEngine.rows_at_once", 100)
    pq.write_table(pa.Table.from_pylist(impressions(np.random.default_rng(4))), tmp_path / "events.parquet")
    both(Tables(tmp_path / "events.parquet"), Columns(bias=["device"]), tmp_path)


def both(tables, columns, folder):
    """Ingest with both engines and compare all that is written."""
    results = {
        engine: ingest_tables(
            tables, folder / engine, columns, Options(engine=engine, joint=True, threads=2, n_positions=20)
        )
        for engine in ("duckdb", "spark")
    }
    assert results["duckdb"].dropped == results["spark"].dropped
    assert results["duckdb"].sessions == results["spark"].sessions
    one, other = (open_log(folder / engine) for engine in ("duckdb", "spark"))
    assert {**one.about, "notes": None} == {**other.about, "notes": None}
    files = sorted(path.name for path in one.path.glob("*.parquet"))
    assert len(files) == 3 * one.n_shards
    for name in files:
        assert pq.read_table(one.path / name).equals(pq.read_table(other.path / name)), name
    return results["duckdb"]
