"""Event tables of every accepted shape, and all that can be wrong with them."""

import gzip
import json

import duckdb
import ibis
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.shards import join_logs
from unskew.data.clicks.storage import open_log, read_log
from unskew.ingestion.columns import Columns
from unskew.ingestion.run import ingest_tables
from unskew.ingestion.settings import Options, Tables

HEADER = ["session", "query", "document", "position", "click", "bm25"]
ROWS = [  # two showings of one list, one of them with a click on b, and one showing of another query
    ("s1", "shoes", "a", 1, 0, 0.5),
    ("s1", "shoes", "b", 2, 1, 1.5),
    ("s2", "shoes", "a", 1, 0, 0.5),
    ("s2", "shoes", "b", 2, 0, 1.5),
    ("s1", "hats", "a", 1, 1, 2.5),
]


def table(rows=ROWS, header=HEADER):
    return pa.Table.from_pylist([dict(zip(header, row, strict=True)) for row in rows])


def changed(**columns):
    """The rows with whole columns exchanged."""
    data = table()
    for name, values in columns.items():
        data = data.drop_columns([name]) if name in data.column_names else data
        data = data.append_column(name, pa.array(values))
    return data


def write(data, path):
    pq.write_table(data, path)
    return path


def run(place, folder, columns=None, **options):
    """The log of a table, and what was left out."""
    tables = place if isinstance(place, Tables) else Tables(place)
    done = ingest_tables(tables, folder / "log", columns, Options(threads=1, **options), overwrite=True)
    return read_log(folder / "log"), done


def run_table(data, folder, columns=None, **options):
    return run(write(data, folder / "events.parquet"), folder, columns, **options)


def check_is_the_log_of_rows(log):
    """Queries come in the order of their ids: hats, then shoes."""
    assert log.query_ids.tolist() == ["hats", "shoes"]
    assert log.document_ids.tolist() == ["a", "a", "b"]
    assert log.features[:, 0].tolist() == [2.5, 0.5, 1.5]
    assert log.feature_names == ("bm25",)
    assert log.sessions.tolist() == [1, 2]
    assert log.clicks.tolist() == [[1, 0], [0, 1]]
    assert log.positions.tolist() == [[0, 0], [0, 1]]


class TestAcceptedShapes:
    def test_sessions_with_equal_lists_are_counted_together(self, tmp_path):
        log, done = run_table(table(), tmp_path)
        check_is_the_log_of_rows(log)
        assert (done.rows, done.impressions, done.sessions, done.clicks, done.lists) == (5, 5, 3, 2, 2)
        assert done.dropped == {}
        assert not log.joint

    def test_the_order_of_rows_does_not_matter(self, tmp_path):
        log, _ = run_table(table(ROWS[::-1]), tmp_path)
        check_is_the_log_of_rows(log)

    def test_a_folder_and_a_glob_are_read_as_one_table(self, tmp_path):
        (tmp_path / "parts" / "day=1").mkdir(parents=True)
        (tmp_path / "parts" / "_SUCCESS").touch()
        write(table(ROWS[:2]), tmp_path / "parts" / "day=1" / "one.parquet")
        write(table(ROWS[2:]), tmp_path / "parts" / "two.parquet")
        bm25_only = Columns(features=["bm25"])
        for place in (tmp_path / "parts", f"{tmp_path}/parts/**/*.parquet"):
            log, _ = run(place, tmp_path, bm25_only)
            check_is_the_log_of_rows(log)

    def test_csv_keeps_ids_as_they_are_written(self, tmp_path):
        lines = ["session,query,document,position,click,bm25", "1,shoes,007,1,0,0.5", "1,shoes,7,2,1,1.5"]
        (tmp_path / "events.csv").write_text("\n".join(lines))
        log, done = run(tmp_path / "events.csv", tmp_path)
        assert log.document_ids.tolist() == ["007", "7"]
        assert log.clicks.tolist() == [[0, 1]]
        assert done.dropped == {}

    def test_json_lines_are_read_compressed_too(self, tmp_path):
        lines = "\n".join(json.dumps(dict(zip(HEADER, row, strict=True))) for row in ROWS)
        with gzip.open(tmp_path / "events.jsonl.gz", "wt") as file:
            file.write(lines)
        log, _ = run(tmp_path / "events.jsonl.gz", tmp_path)
        check_is_the_log_of_rows(log)

    def test_a_duckdb_database_is_attached_and_its_table_named(self, tmp_path):
        events = table()
        with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
            connection.register("incoming", events)
            connection.sql("CREATE TABLE events AS SELECT * FROM incoming")
            connection.sql("CREATE TABLE other AS SELECT 1 AS one")
        log, _ = run(Tables(tmp_path / "shop.duckdb", events_table="events"), tmp_path)
        check_is_the_log_of_rows(log)
        with pytest.raises(ValueError, match=r"shop\.duckdb: choose a table with --table. Found: events, other"):
            run(Tables(tmp_path / "shop.duckdb"), tmp_path)

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ibis, towards DuckDB
    def test_any_ibis_table_is_read(self, tmp_path):
        log, _ = run(Tables(ibis.memtable(table())), tmp_path)
        check_is_the_log_of_rows(log)

    def test_features_may_stand_in_a_second_table(self, tmp_path):
        features = (
            table().select(["query", "document", "bm25"]).group_by(["query", "document"]).aggregate([("bm25", "max")])
        )
        never_shown = pa.table({"query": ["shoes", "socks"], "document": ["c", "d"], "bm25_max": [9.5, 0.0]})
        features = pa.concat_tables([features.select(["query", "document", "bm25_max"]), never_shown])
        write(features, tmp_path / "features.parquet")
        events = write(table().drop_columns(["bm25"]), tmp_path / "events.parquet")
        log, _ = run(Tables(events, features=tmp_path / "features.parquet"), tmp_path)
        assert log.document_ids.tolist() == ["a", "a", "b", "c"]  # c was never shown, but for a query that was
        assert log.features[:, 0].tolist() == [2.5, 0.5, 1.5, 9.5]
        assert log.feature_names == ("bm25_max",)
        assert log.clicks.tolist() == [[1, 0], [0, 1]]

    def test_features_that_do_not_depend_on_the_query_serve_all(self, tmp_path):
        write(pa.table({"document": ["a", "b"], "age": [3, 4]}), tmp_path / "features.parquet")
        events = write(table().drop_columns(["bm25"]), tmp_path / "events.parquet")
        log, _ = run(Tables(events, features=tmp_path / "features.parquet"), tmp_path)
        assert log.features[:, 0].tolist() == [3, 3, 4]

    def test_ids_that_are_text_in_one_table_and_numbers_in_the_other_meet(self, tmp_path):
        events = changed(document=[1, 2, 1, 2, 1], query=["q"] * 5, session=["s", "s", "t", "t", "u"])
        write(events.drop_columns(["bm25"]), tmp_path / "events.parquet")
        write(pa.table({"query": ["q", "q"], "document": ["1", "2"], "age": [3, 4]}), tmp_path / "features.parquet")
        log, _ = run(Tables(tmp_path / "events.parquet", features=tmp_path / "features.parquet"), tmp_path)
        assert log.features[:, 0].tolist() == [3, 4]

    def test_bias_columns_scores_interventions_and_times_are_kept(self, tmp_path):
        events = changed(
            device=["phone", "phone", None, None, "desk"],
            kind=["ad", "text", "ad", "text", "ad"],
            policy_score=[2.0, 1.0, 4.0, 1.0, 0.5],
            intervention=["none", "none", None, None, "swap"],
            timestamp=[1_700_000_100, 1_700_000_100, 1_700_000_000, 1_700_000_000, 1_700_000_200],
        )
        log, _ = run_table(events, tmp_path, Columns(bias=["device", "kind"]))
        assert log.bias["device"].levels == ("desk", "missing", "phone")
        assert log.bias["device"].values.tolist() == [0, 1, 2]  # the two showings of shoes differ: not one list
        assert log.bias["kind"].values.tolist() == [[0, 0], [0, 1], [0, 1]]
        assert log.interventions.levels == ("none", "swap")
        assert log.interventions.values.tolist() == [1, 0, 0]
        assert log.policy_scores.tolist() == [[0.5, 0], [4, 1], [2, 1]]
        assert log.first_shown.tolist() == [
            seconds * 10**6 for seconds in (1_700_000_200, 1_700_000_000, 1_700_000_100)
        ]

    def test_scores_are_averaged_and_the_earliest_time_is_kept(self, tmp_path):
        times = [
            "2024-01-02T00:00:00Z",
            "2024-01-02T00:00:00Z",
            "2024-01-01T02:00:00+02:00",
            "2024-01-01",
            "2024-01-03",
        ]
        log, _ = run_table(changed(policy_score=[2.0, 1.0, 4.0, 2.0, 0.5], time=times), tmp_path)
        assert log.policy_scores.tolist() == [[0.5, 0], [3, 1.5]]
        midnight = 1_704_067_200 * 10**6  # 2024-01-01, UTC
        assert log.first_shown.tolist() == [midnight + 2 * 86_400 * 10**6, midnight]

    def test_joint_logs_keep_what_was_clicked_together(self, tmp_path):
        log, _ = run_table(table(), tmp_path, joint=True)
        assert log.patterns.lists.tolist() == [0, 1, 1]
        assert sorted(map(tuple, log.patterns.clicks[1:].tolist())) == [(0, 0), (0, 1)]
        assert log.patterns.sessions.tolist() == [1, 1, 1]

    def test_clicks_may_be_words_truths_or_counts(self, tmp_path):
        for clicks in (["no", "Yes", "no", "n", "TRUE"], [False, True, False, False, True], [0, 3, 0, 0, 1]):
            log, done = run_table(changed(click=clicks), tmp_path)
            assert log.clicks.tolist() == [[1, 0], [0, 1]]
            assert done.dropped == {}

    def test_positions_may_be_text_and_count_from_0(self, tmp_path):
        log, _ = run_table(changed(position=["0", "1", "0", "1.0", "0"]), tmp_path)
        assert log.positions.tolist() == [[0, 0], [0, 1]]


class TestLargerThanMemory:
    def test_lists_collected_in_parts_and_written_in_shards_are_the_same_log(self, tmp_path, monkeypatch):
        rows = [
            (f"s{session}", f"q{session % 7}", f"d{(place + session) % 4}", place + 1, int(session % 3 == place), 1.0)
            for session in range(60)
            for place in range(3)
        ]
        whole, _ = run_table(table(rows), tmp_path)
        monkeypatch.setattr("unskew.ingestion.counted.SHARD_CELLS", 100)
        monkeypatch.setattr("unskew.ingestion.engines.BYTES_AN_IMPRESSION", 2_000_000)  # 40 impressions in 200 MB
        progress = []
        tables = Tables(tmp_path / "events.parquet")
        options = Options(threads=1, memory="200MB")
        done = ingest_tables(
            tables, tmp_path / "parts", options=options, progress=lambda done, of: progress.append((done, of))
        )
        assert done.shards > 1
        assert open_log(tmp_path / "parts").n_shards == done.shards
        assert progress == sorted(progress)
        assert len(progress) > 5
        parts = read_log(tmp_path / "parts")
        in_order = join_logs([parts.of_queries([number]) for number in np.argsort(parts.query_ids)])
        assert in_order.digest == whole.digest  # a hash of the query decides the shard

    def test_the_shard_of_a_query_does_not_depend_on_other_queries(self, tmp_path, monkeypatch):
        monkeypatch.setattr("unskew.ingestion.counted.SHARD_CELLS", 1)  # a shard for each bucket
        for number, count in enumerate((3, 9)):
            rows = [("s", f"q{query}", "d", 1, 1, 1.0) for query in range(count)]
            pq.write_table(table(rows), tmp_path / "events.parquet")
            ingest_tables(Tables(tmp_path / "events.parquet"), tmp_path / f"log {number}", options=Options(threads=1))
        few, many = (read_log(tmp_path / f"log {number}").query_ids.tolist() for number in (0, 1))
        assert few == [query for query in many if query in few] != sorted(few)

    def test_nothing_but_the_log_is_left_behind(self, tmp_path):
        run_table(table(), tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["events.parquet", "log"]

    @pytest.mark.parametrize("memory", ["2", "lots", "5MB", "2 XB"])
    def test_memory_is_a_size(self, tmp_path, memory):
        with pytest.raises(ValueError, match="write at least 100MB"):
            run_table(table(), tmp_path, memory=memory)


class TestFeaturesAsShown:
    def test_a_document_has_a_version_for_each_row_of_features(self, tmp_path):
        log, done = run_table(changed(bm25=[0.5, 1.5, 0.5, 1.25, 2.5]), tmp_path)  # b changed for session s2
        assert log.features[:, 0].tolist() == [2.5, 0.5, 1.25, 1.5]
        assert log.version_documents.tolist() == [0, 1, 2, 2]
        assert log.document_ids.tolist() == ["a", "a", "b"]
        shown = {tuple(row): clicks for row, clicks in zip(log.versions.tolist(), log.clicks.tolist(), strict=True)}
        assert shown == {(0, 0): [1, 0], (1, 2): [0, 0], (1, 3): [0, 1]}
        assert (done.documents, done.versions, done.dropped) == (3, 4, {})
        assert "3 documents were shown in 4 versions" in " ".join(done.remarks)

    def test_missing_values_stay_missing_and_are_told(self, tmp_path):
        log, done = run_table(changed(bm25=[0.5, None, 0.5, float("nan"), 2.5]), tmp_path)
        np.testing.assert_array_equal(log.features[:, 0], [2.5, 0.5, np.nan])
        assert not log.features_change
        assert done.missing == {"bm25": 1}
        assert "bm25 in 1 documents" in " ".join(done.remarks)

    def test_it_is_the_log_of_from_table(self, tmp_path):
        rng = np.random.default_rng(0)
        n = 400
        data = pa.table(
            {
                "session": np.arange(n) // 4,
                "query": np.repeat(rng.integers(0, 9, n // 4), 4),
                "document": np.tile(np.arange(4), n // 4),
                "position": np.tile(np.arange(4), n // 4),
                "click": rng.integers(0, 2, n),
                "price": rng.choice([1.0, 2.0, np.nan], n).astype(np.float32),
                "hour": np.repeat(rng.integers(0, 3, n // 4), 4),
                "device": np.repeat(rng.choice(["phone", "desk"], n // 4), 4),
                "look": pa.array(np.repeat(rng.choice([0, 1, 2], n // 4), 4), mask=np.arange(n) // 4 % 3 == 0),
                "time": np.repeat(np.datetime64("2024-05-01", "us") + rng.integers(0, 99, n // 4) * 3_600_000_000, 4),
            }
        )
        columns = Columns(context=["hour", "device"], seen="look", features=["price"])
        log, _ = run_table(data, tmp_path, columns, period="day")
        names = {"context": ["hour", "device"], "seen": "look", "features": ["price"], "time": "time", "period": "day"}
        other = ClickLog.from_table(data, joint=False, **names)
        assert log.features_change
        assert log.categories == other.categories == {"device": ("desk", "phone")}
        assert rows_of(log) == rows_of(other)

    def test_context_that_differs_within_a_showing_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="column 'hour' differs within a result page"):
            run_table(changed(hour=[1, 2, 3, 3, 4]), tmp_path, Columns(context=["hour"]))

    def test_periods_need_times(self, tmp_path):
        with pytest.raises(ValueError, match="lists cannot be counted per day without times"):
            run_table(table(), tmp_path, period="day")


def rows_of(log):
    """Every shown document with all that the log says of it, in an order of its own."""
    rows = log.to_table(features=True).drop_columns(["list"]).to_pylist()
    return sorted(str(sorted((key, str(value)) for key, value in row.items())) for row in rows)


class TestEvents:
    HEADER = ["session", "query", "document", "position", "event", "time"]
    ROWS = [
        ("s1", "shoes", "a", 1, "impression", 10),
        ("s1", "shoes", "b", 2, "impression", 10),
        ("s1", "shoes", "b", None, "click", 12),
        ("s1", "shoes", "b", None, "click", 13),
        ("s1", "shoes", "b", None, "purchase", 20),
    ]

    def test_impressions_and_clicks_are_brought_together(self, tmp_path):
        log, done = run_table(table(self.ROWS, self.HEADER), tmp_path)
        assert log.clicks.tolist() == [[0, 1]]
        assert log.first_shown.tolist() == [10 * 10**6]
        assert done.other_events == 1
        assert done.dropped == {}

    def test_names_of_events_can_be_given(self, tmp_path):
        rows = [(*row[:4], {"impression": "Seen", "click": "tap"}.get(row[4], row[4]), row[5]) for row in self.ROWS]
        with pytest.raises(ValueError, match=r"no value of column 'event' is one of impression, .*--impression-event"):
            run_table(table(rows, self.HEADER), tmp_path)
        log, _ = run_table(
            table(rows, self.HEADER), tmp_path, Columns(impression_events=["seen"], click_events=["tap"])
        )
        assert log.clicks.tolist() == [[0, 1]]

    def test_clicks_without_impression_are_counted(self, tmp_path):
        rows = [*self.ROWS, ("s9", "shoes", "a", None, "click", 15)]
        log, done = run_table(table(rows, self.HEADER), tmp_path)
        assert done.dropped == {"lone_click": 1}
        assert done.examples == {"lone_click": "session s9, query shoes, document a"}
        assert log.n_clicks == 1
        with pytest.raises(ValueError, match=r"1 clicks without an impression \(session s9.*--strict"):
            run_table(table(rows, self.HEADER), tmp_path, strict=True)

    def test_views_are_looks_and_a_session_without_any_is_not_recorded(self, tmp_path):
        again = [("s2", *row[1:]) for row in self.ROWS[:3]]
        views = [("s1", "shoes", "b", None, "view", 11), ("s1", "hats", "z", None, "view", 11)]
        columns = Columns(seen_events=["view"])
        log, done = run_table(table([*self.ROWS, *again, *views], self.HEADER), tmp_path, columns)
        assert (log.seen.tolist(), log.seen_sessions.tolist(), log.sessions.tolist()) == ([[0, 1]], [1], [2])
        assert done.dropped == {"lone_look": 1}
        assert done.examples == {"lone_look": "session s1, query hats, document z"}
        assert "Examination is recorded in 1 sessions (50%); unskew diagnose checks it." in done.remarks

    def test_clicks_before_their_impression_are_counted(self, tmp_path):
        rows = [*self.ROWS, ("s1", "shoes", "a", None, "click", 9)]
        log, done = run_table(table(rows, self.HEADER), tmp_path)
        assert done.dropped == {"early_click": 1}
        assert log.clicks.tolist() == [[0, 1]]
        log, done = run_table(table(rows, self.HEADER), tmp_path, Columns(time="none"))
        assert done.dropped == {}
        assert log.clicks.tolist() == [[1, 1]]

    def test_clocks_that_disagree_on_most_clicks_are_refused(self, tmp_path):
        rows = [(*row[:5], 5 if row[4] == "click" else 10) for row in self.ROWS]
        with pytest.raises(ValueError, match=r"clicks that come before their impression.*more than half of 2 clicks"):
            run_table(table(rows, self.HEADER), tmp_path)

    @pytest.mark.parametrize(("place", "reason"), [(0, "without a session"), (1, "without a query")])
    def test_clicks_that_are_all_lost_are_refused_though_most_rows_are_good(self, tmp_path, place, reason):
        rows = [("s2", "shoes", f"d{number}", number, "impression", 10) for number in range(1, 20)]
        lost = [(*row[:place], None, *row[place + 1 :]) if row[4] == "click" else row for row in self.ROWS]
        with pytest.raises(ValueError, match=rf"2 rows {reason} .*more than half of 2 clicks would be left out"):
            run_table(table([*rows, *lost], self.HEADER), tmp_path)

    def test_times_may_be_numbers_as_text(self, tmp_path):
        rows = [(*row[:5], str(1_700_000_000 + row[5])) for row in self.ROWS]
        log, done = run_table(table([*rows, (*rows[0][:5], "never")], self.HEADER), tmp_path)
        assert log.first_shown.tolist() == [1_700_000_010 * 10**6]
        assert done.dropped == {"bad_time": 1}

    def test_impressions_logged_twice_are_counted(self, tmp_path):
        log, done = run_table(table([*self.ROWS, self.ROWS[0]], self.HEADER), tmp_path)
        assert done.dropped == {"duplicate": 1}
        assert log.sessions.tolist() == [1]

    def test_features_of_impressions_belong_to_the_showing(self, tmp_path):
        later = [("s2", *row[1:]) for row in self.ROWS[:2]]
        rows = [(*row, 7.0 if row[0] == "s1" else 8.0) for row in [*self.ROWS, *later]]
        log, done = run_table(table(rows, [*self.HEADER, "price"]), tmp_path)
        assert log.features.tolist() == [[7], [8], [7], [8]]
        assert sorted(log.versions.tolist()) == [[0, 2], [1, 3]]
        assert done.dropped == {}

    def test_features_may_stand_in_the_rows_of_impressions(self, tmp_path):
        rows = [(*row, 7.0 if row[4] == "impression" else None) for row in self.ROWS]
        log, done = run_table(table(rows, [*self.HEADER, "age"]), tmp_path)
        assert log.features.tolist() == [[7], [7]]
        assert done.dropped == {}


class TestUserBehaviorInsights:
    @staticmethod
    def event(action, query, document, ordinal=None, second=0):
        attributes = {"object": {"object_id": document}, "position": {"ordinal": ordinal}}
        return {
            "action_name": action,
            "query_id": query,
            "client_id": "c",
            "timestamp": f"2024-01-01T00:00:{second:02d}Z",
            "event_attributes": attributes,
        }

    def write(self, folder, events, queries):
        for name, rows in (("events", events), ("queries", queries)):
            (folder / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
        features = pa.table({"document": ["a", "b", "c"], "age": [1.0, 2.0, 3.0]})
        write(features, folder / "features.parquet")
        return Tables(folder / "events.jsonl", folder / "features.parquet", folder / "queries.jsonl")

    def test_logged_impressions_are_used_where_there_are_any(self, tmp_path):
        events = [
            self.event("impression", "u1", "a", 1),
            self.event("impression", "u1", "b", 2),
            self.event("click", "u1", "b", 2, second=9),
            self.event("add_to_cart", "u1", "b", 2, second=19),
        ]
        queries = [{"query_id": "u1", "user_query": "shoes", "query_response_hit_ids": ["a", "b", "c"]}]
        log, done = run(self.write(tmp_path, events, queries), tmp_path)
        assert log.query_ids.tolist() == ["shoes"]
        assert log.document_ids[log.documents[0]].tolist() == ["a", "b"]
        assert log.clicks.tolist() == [[0, 1]]
        assert done.other_events == 1

    def test_otherwise_what_the_query_returned_was_shown(self, tmp_path):
        events = [self.event("click", "u1", "c", second=9), self.event("click", "u2", "b", second=9)]
        shown = ["c", "a"]
        queries = [
            {
                "query_id": f"u{n}",
                "user_query": "shoes",
                "timestamp": "2024-01-01T00:00:00Z",
                "query_response_hit_ids": ids,
            }
            for n, ids in ((1, shown), (2, [*shown, "b"]), (3, shown))
        ]
        log, done = run(self.write(tmp_path, events, queries), tmp_path)
        lists = {
            tuple(log.document_ids[log.documents[row][log.mask[row]]]): (log.sessions[row], log.clicks[row].tolist())
            for row in range(log.n_lists)
        }
        assert lists == {("c", "a"): (2, [1, 0, 0]), ("c", "a", "b"): (1, [0, 0, 1])}
        assert done.dropped == {}

    def test_views_of_what_the_query_returned_are_looks(self, tmp_path):
        events = [self.event("view", "u1", "a", second=5), self.event("click", "u1", "a", second=9)]
        told = {"user_query": "shoes", "timestamp": "2024-01-01T00:00:00Z", "query_response_hit_ids": ["c", "a"]}
        tables = self.write(tmp_path, events, [{"query_id": "u1", **told}])
        log, _ = run(tables, tmp_path, Columns(seen_events=["view"]))
        assert (log.seen.tolist(), log.seen_sessions.tolist(), log.clicks.tolist()) == ([[0, 1]], [1], [[0, 1]])

    def test_queries_that_say_nothing_of_what_was_shown_are_refused(self, tmp_path):
        queries = [{"query_id": "u1", "user_query": "shoes"}]
        tables = self.write(tmp_path, [self.event("click", "u1", "c")], queries)
        with pytest.raises(ValueError, match=r"queries\.jsonl: there are no impression events, and no column"):
            run(tables, tmp_path)
