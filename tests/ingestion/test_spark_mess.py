"""What a shop's table needs, on both engines, row for row: a table made for each part."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.data.clicks.storage import open_log, read_log
from unskew.ingestion.columns import Columns
from unskew.ingestion.preview import preview
from unskew.ingestion.run import ingest_tables
from unskew.ingestion.settings import Options, Tables
from unskew.simulation.shop_log import shop

pytestmark = [
    pytest.mark.usefixtures("spark"),
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore"),  # of Spark, about its own future
]
GRADES = {"click": 1.0, "cart": 3.0, "purchase": 5.0}


def both(tables, columns, folder, **options):
    """The log, written by both engines and compared file by file, and what was said of it."""
    done = {
        engine: ingest_tables(tables, folder / engine, columns, Options(engine=engine, threads=2, **options))
        for engine in ("duckdb", "spark")
    }
    told = [{**vars(entry), "examples": set(entry.examples)} for entry in done.values()]  # Spark knows no row numbers
    assert told[0] == told[1]
    one, other = (open_log(folder / engine) for engine in done)
    assert one.about == other.about  # with the SHA-256 of every file
    return read_log(one.path), done["duckdb"]


def write(folder, name, rows):
    pq.write_table(pa.Table.from_pylist(rows), folder / name)
    return folder / name


def shown(n_sessions=12, **changes):
    """Sessions of one query with three documents; the price of b changes halfway."""
    return [
        {
            "session": f"s{session}",
            "query": "q",
            "document": "abc"[place],
            "position": place + 1,
            "clicked": int((session + place) % 3 == 0),
            "time": 1_700_000_000 + 20_000 * session,
            "price": 5.0 + (place == 1 and session >= n_sessions // 2),
            **{name: value(session, place) for name, value in changes.items()},
        }
        for session in range(n_sessions)
        for place in range(3)
    ]


class TestImpressions:
    def test_versions_grades_context_and_periods(self, tmp_path):
        rows = shown(
            cart=lambda session, place: int((session + place) % 6 == 0),
            purchase=lambda session, place: int((session + place) % 9 == 0),
            device=lambda session, _: ["phone", "desktop"][session % 2],
            hour=lambda session, _: session % 3,
            brand=lambda session, place: ["Alto", None, "Cira"][(place + session) % 3],
        )
        columns = Columns(grades=GRADES, context=["device", "hour"], features=["price", "brand"])
        log, done = both(Tables(write(tmp_path, "events.parquet", rows)), columns, tmp_path, period="day")
        assert log.features_change
        assert log.grades == GRADES
        assert (log.events["cart"].sum(), log.events["purchase"].sum()) == (6, 4)
        assert log.context_names == ("device", "hour")
        assert log.categories == {"brand": ("Alto", "Cira"), "device": ("desktop", "phone")}
        assert len(set(log.periods.tolist())) == 4  # twelve sessions, 20,000 seconds apart, from the evening on
        assert done.missing == {"brand": 3}

    def test_pages_a_condition_and_a_bias_column(self, tmp_path):
        rows = shown(page=lambda session, _: 1 + session % 2, sold=lambda session, place: place == 0 and session > 9)
        for row in rows:
            row["session"] = f"s{int(row['session'][1:]) // 2}"
            row["document"] += str(row["page"])
        columns = Columns(page="page", page_size=3, where="not sold and price > 0", bias=["page"])
        log, done = both(Tables(write(tmp_path, "events.parquet", rows)), columns, tmp_path, joint=True)
        assert done.dropped == {"where": 2}
        assert log.positions.max() == 5

    def test_display_probabilities_looks_a_grid_and_an_intervention_by_its_own_name(self, tmp_path):
        rows = shown(
            display_probability=lambda session, place: [0.5, None, 0.25, 0.0][session % 4] if place < 2 else 0.75,
            looked=lambda session, place: None if session % 2 else float(place == 0),
            shelf=lambda _, place: 1 + place // 2,
            trial=lambda session, _: ["none", "explore"][session % 2],
        )
        for row in rows:
            row["position"] = 1 + (row["position"] - 1) % 2
        columns = Columns(row="shelf", row_size=2, seen="looked", intervention="trial", shuffled=["explore=2"])
        log, done = both(Tables(write(tmp_path, "events.parquet", rows)), columns, tmp_path)
        assert done.dropped == {"bad_probability": 6}  # two places of every fourth session
        assert done.without_probability == 6
        assert log.shuffled == {"explore": 2}
        assert log.positions.max() == 2
        assert np.nanmin(log.display_probabilities[log.mask]) > 0.25  # harmonic means of .5 and .25
        assert (log.seen_sessions.sum(), log.seen.sum()) == (6, 6)

    def test_outcomes_are_left_out_by_name(self, tmp_path):
        rows = shown(60, dwell=lambda session, place: 7.5 if (session + place) % 3 == 0 else None)
        for number, row in enumerate(rows):
            row["document"] += str(number)
        log, done = both(Tables(write(tmp_path, "events.parquet", rows)), Columns(), tmp_path)
        assert log.feature_names == ("price",)
        assert any("Outcomes, not features: dwell" in remark for remark in done.remarks)

    def test_a_dry_run_says_what_the_run_says(self, tmp_path):
        dwell = {"dwell": lambda session, place: 7.5 if (session + place) % 3 == 0 else None}
        rows = shown(60, **dwell, points=lambda _, place: 4.0 - place, age=lambda session, _: session % 5)
        rows[4]["position"] = None
        for number, row in enumerate(rows):
            row["document"] += str(number)
        place = write(tmp_path, "events.parquet", rows)
        _, done = both(Tables(place), Columns(), tmp_path)
        found = [preview(Tables(place), Columns(), Options(engine=name, threads=2)) for name in ("duckdb", "spark")]
        assert any("orders the lists as shown: points" in remark for remark in done.remarks)
        assert done.dropped == {"bad_position": 1}
        for each in found:
            assert (each.dropped, each.remarks, each.counts["lists"]) == (done.dropped, done.remarks, done.lists)
        listed = [[(one.column, one.role, one.missing) for one in each.columns] for each in found]
        assert listed[0] == listed[1]
        assert ("dwell", "outcome", pytest.approx(2 / 3)) in listed[1]
        assert [each.head_columns for each in found] == [found[0].head_columns] * 2

    def test_positions_that_start_anew_on_each_page_are_recognized(self, tmp_path):
        rows = [{**row, "page": 1 + int(row["session"][1:]) % 2} for row in shown()]
        for row in rows:
            row["session"] = f"s{int(row['session'][1:]) // 2}"
        tables = Tables(write(tmp_path, "events.parquet", rows))
        for engine in ("duckdb", "spark"):
            with pytest.raises(ValueError, match=r"each page of column 'page': pass --page page --page-size 3"):
                ingest_tables(tables, tmp_path / engine, Columns(), Options(engine=engine, threads=2))

    def test_clicks_in_a_table_of_their_own(self, tmp_path):
        rows = shown()
        clicks = [{name: row[name] for name in ("session", "document", "time")} for row in rows if row["clicked"]]
        (tmp_path / "clicks.jsonl").write_text("\n".join(json.dumps(row) for row in clicks))
        for row in rows:
            del row["clicked"]
        tables = Tables(write(tmp_path, "events.parquet", rows), clicks=tmp_path / "clicks.jsonl")
        log, _ = both(tables, Columns(), tmp_path)
        assert log.n_clicks == len(clicks)

    def test_features_as_of_the_showing(self, tmp_path):
        rows = [{name: value for name, value in row.items() if name != "price"} for row in shown()]
        times = [0, 1_700_000_000 + 100_000, 1_800_000_000]
        history = [{"document": d, "valid_from": t, "price": float(n)} for d in "abc" for n, t in enumerate(times)]
        tables = Tables(write(tmp_path, "events.parquet", rows), features=write(tmp_path, "features.parquet", history))
        log, _ = both(tables, Columns(), tmp_path)
        assert sorted(set(log.features[:, 0].tolist())) == [0.0, 1.0]  # the last holds from after all showings on


class TestEvents:
    def test_kinds_windows_and_repeated_events(self, tmp_path):
        events = []
        for row in shown():
            keys = {name: row[name] for name in ("session", "query", "document", "price")}
            events.append(keys | {"event": "impression", "position": row["position"], "time": row["time"]})
            if row["clicked"]:
                later = [("click", 5), ("click", 6), ("cart", 7), ("purchase", 90_000), ("share", 8)]
                events += [keys | {"event": k, "position": None, "time": row["time"] + s} for k, s in later]
        tables = Tables(write(tmp_path, "events.parquet", events))
        log, done = both(tables, Columns(grades=GRADES), tmp_path, window=3_600)
        assert log.n_clicks == log.events["cart"].sum() == 12
        assert log.events["purchase"].sum() == 0
        assert done.dropped == {"late_event": 12}
        assert done.other_kinds == {"share": 12}
        assert any("12 events repeat another" in remark for remark in done.remarks)

    def test_user_behavior_insights_in_bulk_with_grades_and_context(self, tmp_path):
        lines = []
        for row in shown():
            if row["position"] == 1:
                about = {"device": ["phone", "desktop"][int(row["session"][1:]) % 2]}
                lines += [{"index": {"_index": "ubi_queries"}}]
                lines += [{"query_id": row["session"], "user_query": row["query"], "query_attributes": about}]
            place = {"object": {"object_id": row["document"]}, "position": {"ordinal": row["position"]}}
            kinds = ["impression", *["click", "cart"] * row["clicked"]]
            for kind in kinds:
                lines += [{"index": {"_index": "ubi_events"}}]
                lines += [{"query_id": row["session"], "action_name": kind, "event_attributes": place}]
        (tmp_path / "ubi.ndjson").write_text("\n".join(json.dumps(line) for line in lines))
        columns = Columns(grades={"click": 1.0, "cart": 3.0}, context=["query_attributes.device"])
        log, _ = both(Tables(tmp_path / "ubi.ndjson"), columns, tmp_path)
        assert log.n_clicks == log.events["cart"].sum() == 12
        assert log.categories["query_attributes.device"] == ("desktop", "phone")

    def test_user_behavior_insights_with_looks_a_bias_column_and_features_by_their_own_name(self, tmp_path):
        events, queries = [], []
        for row in shown():
            if row["position"] == 1:
                about = {"device": ["phone", "desktop"][int(row["session"][1:]) % 2]}
                queries.append({"query_id": row["session"], "user_query": row["query"], "query_attributes": about})
            place = {"object": {"object_id": row["document"]}, "position": {"ordinal": row["position"]}}
            for kind in ("impression", *["view"] * (row["position"] < 3), *["click"] * row["clicked"]):
                events.append({"query_id": row["session"], "action_name": kind, "event_attributes": place})
        for name, entries in (("events", events), ("queries", queries)):
            (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps(entry) for entry in entries))
        features = write(tmp_path, "features.parquet", [{"sku": d, "price": float(ord(d))} for d in "abc"])
        tables = Tables(tmp_path / "events.jsonl", features, tmp_path / "queries.jsonl")
        columns = Columns(bias=["query_attributes.device"], seen_events=["view"], features_document="sku")
        log, _ = both(tables, columns, tmp_path)
        assert log.bias["query_attributes.device"].levels == ("desktop", "phone")
        assert log.feature_names == ("price",)
        assert log.features[:, 0].tolist() == [97, 98, 99]
        assert log.seen.sum() == 24  # the first two places of twelve pages


def test_the_table_of_the_shop(tmp_path):
    pq.write_table(shop(sessions=120).events, tmp_path / "events.parquet")
    columns = Columns(
        page="page",
        page_size=10,
        where="not is_sponsored",
        user="user_id",
        sessions_a_user=3,
        intervention="experiment",
        policy_score="score",
        bias=["device"],
        context=["member"],
        grades={"click": 1.0, "add_to_cart": 3.0, "purchase": 5.0},
    )
    for engine in ("duckdb", "spark"):
        (tmp_path / f"{engine}.salt").write_text("the same")
    log, done = both(Tables(tmp_path / "events.parquet"), columns, tmp_path, keep_users=True, period="week")
    assert {"where", "capped"} <= set(done.dropped)
    assert log.features_change
