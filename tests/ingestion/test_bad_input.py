"""Bad input is the rule: each kind is counted, or refused with the place and what to do."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.data.clicks.storage import open_log, read_log
from unskew.ingestion.columns import Columns
from unskew.ingestion.run import ingest_tables
from unskew.ingestion.settings import Options, Tables
from unskew.ingestion.sources import find_source

HEADER = ["session", "query", "document", "position", "click", "bm25"]
ROWS = [
    (f"s{session}", "shoes", document, place, 0, float(place))
    for session in range(4)
    for place, document in ((1, "a"), (2, "b"))
]


def events(folder, extra=(), header=HEADER, rows=ROWS):
    data = pa.Table.from_pylist([dict(zip(header, row, strict=True)) for row in [*rows, *extra]])
    pq.write_table(data, folder / "events.parquet")
    return folder / "events.parquet"


def run(place, folder, columns=None, **options):
    tables = place if isinstance(place, Tables) else Tables(place)
    return ingest_tables(tables, folder / "log", columns, Options(threads=1, **options), overwrite=True)


def refused(message, place, folder, columns=None, **options):
    with pytest.raises((ValueError, OSError), match=message):
        run(place, folder, columns, **options)
    assert not (folder / "log").exists()


class TestFirstPosition:
    @pytest.mark.parametrize(("ones", "first", "dropped"), [(101, 1, {"bad_position": 1}), (100, 0, {})])
    def test_less_than_one_0_in_a_hundred_1s_is_a_mistake_in_a_log_counted_from_1(self, tmp_path, ones, first, dropped):
        rows = [(f"s{session}", "shoes", "a", 1, 0, 1.0) for session in range(ones)]
        done = run(events(tmp_path, [("stray", "shoes", "b", 0, 0, 1.0)], rows=rows), tmp_path)
        assert done.dropped == dropped
        log = read_log(tmp_path / "log")
        assert log.sessions[log.positions[:, 0] == 1 - first].sum() == ones  # the 1s; positions of a log count from 0


class TestRows:
    @pytest.mark.parametrize(
        ("row", "reason"),
        [
            ((None, "shoes", "a", 1, 1, 1.0), "no_session"),
            (("", "shoes", "a", 1, 1, 1.0), "no_session"),
            (("s9", None, "a", 1, 1, 1.0), "no_query"),
            (("s9", "shoes", None, 1, 1, 1.0), "no_document"),
            (("s9", "shoes", "a", None, 1, 1.0), "bad_position"),
            (("s9", "shoes", "a", -3, 1, 1.0), "bad_position"),
            (("s9", "shoes", "a", 0, 1, 1.0), "bad_position"),
            (("s9", "shoes", "a", 99_999, 1, 1.0), "beyond"),
            (("s9", "shoes", "a", 1, None, 1.0), "bad_click"),
            (("s9", "shoes", "a", 1, -1, 1.0), "bad_click"),
        ],
    )
    def test_a_row_that_cannot_be_used_is_counted_and_its_place_named(self, tmp_path, row, reason):
        place = events(tmp_path, [row])
        done = run(place, tmp_path, Columns(first_position=1))
        assert done.dropped == {reason: 1}
        assert done.examples == {reason: f"{place}: the first is row 8, from 0"}
        assert (done.sessions, done.clicks) == (4, 0)

    @pytest.mark.parametrize(("rest", "bad"), [(0.5, -2.0), ("0.5", "-2"), ("0.5", "long")])
    def test_a_look_that_is_no_number_of_seconds_is_counted_and_its_place_named(self, tmp_path, rest, bad):
        looks = [(*row, rest) for row in ROWS]
        place = events(tmp_path, [("s9", "shoes", "a", 1, 0, 1.0, bad)], [*HEADER, "look"], looks)
        done = run(place, tmp_path, Columns(first_position=1, seen="look"))
        assert done.dropped == {"bad_look": 1}
        assert done.examples == {"bad_look": f"{place}: the first is row 8, from 0"}
        assert read_log(tmp_path / "log").seen.tolist() == [[4, 4]]

    def test_strict_refuses_it_and_says_what_to_do(self, tmp_path):
        place = events(tmp_path, [(None, "shoes", "a", 1, 1, 1.0)])
        message = (
            r"1 rows without a session \(.*row 8, from 0\); --strict leaves nothing out: fill the column, or choose"
        )
        refused(message, place, tmp_path, strict=True)

    def test_what_is_left_out_is_noted_in_the_log(self, tmp_path):
        place = events(tmp_path, [(None, "shoes", "a", 1, 1, 1.0)])
        run(place, tmp_path)
        assert open_log(tmp_path / "log").about["notes"] == {
            "source": str(place),
            "rows": 9,
            "dropped": {"no_session": 1},
        }

    def test_positions_beyond_the_last_one_asked_for_are_counted(self, tmp_path):
        done = run(events(tmp_path), tmp_path, n_positions=1)
        assert done.dropped == {"beyond": 4}
        assert read_log(tmp_path / "log").n_positions == 1

    def test_a_log_without_a_top_is_refused(self, tmp_path):
        rows = [(*row[:3], row[3] + 4, *row[4:]) for row in ROWS]
        refused("no position is 0 or 1, the lowest is 5", events(tmp_path, rows=rows), tmp_path)

    def test_a_column_that_is_wrong_for_most_rows_is_refused(self, tmp_path):
        rows = [(*row[:4], None, row[5]) for row in ROWS[:6]] + ROWS[6:]
        message = "6 rows whose click is neither yes nor no .*more than half of 8 rows would be left out.*--click"
        refused(message, events(tmp_path, rows=rows), tmp_path)

    def test_an_empty_table_is_refused(self, tmp_path):
        pq.write_table(pa.Table.from_pylist([dict(zip(HEADER, ROWS[0], strict=True))])[:0], tmp_path / "events.parquet")
        refused("has no rows", tmp_path / "events.parquet", tmp_path)


class TestTypes:
    def test_words_among_positions_are_counted(self, tmp_path):
        rows = [(*row[:3], str(row[3]), *row[4:]) for row in ROWS]
        done = run(events(tmp_path, [("s9", "shoes", "a", "top", 0, 1.0)], rows=rows), tmp_path)
        assert done.dropped == {"bad_position": 1}

    @pytest.mark.parametrize(
        ("column", "value", "message"),
        [
            ("position", [1], "column 'position' holds array<int64>: write whole numbers"),
            ("click", [1], "column 'click' holds array<int64>: write 0 and 1, true and false"),
            ("time", True, "column 'time' holds boolean: write timestamps, ISO 8601 text or numbers since 1970"),
            ("document", ["a"], "column 'document' holds array<string>: ids must be text or numbers"),
        ],
    )
    def test_a_column_of_another_kind_is_refused(self, tmp_path, column, value, message):
        data = pa.Table.from_pylist([dict(zip(HEADER, row, strict=True)) | {column: value} for row in ROWS])
        pq.write_table(data, tmp_path / "events.parquet")
        refused(f"events.parquet: {message}", tmp_path / "events.parquet", tmp_path)

    def test_times_that_cannot_be_read_are_counted(self, tmp_path):
        rows = [(*row, "2024-01-01T10:00:00") for row in ROWS]
        place = events(tmp_path, [("s9", "shoes", "a", 1, 0, 1.0, "yesterday")], [*HEADER, "time"], rows)
        assert run(place, tmp_path).dropped == {"bad_time": 1}

    def test_a_column_that_is_always_null_is_counted_as_such(self, tmp_path):
        data = pa.Table.from_pylist([dict(zip(HEADER, row, strict=True)) for row in ROWS])
        data = data.set_column(3, "position", pa.nulls(len(ROWS)))
        pq.write_table(data, tmp_path / "events.parquet")
        refused("8 rows whose position is not a whole number", tmp_path / "events.parquet", tmp_path)

    def test_scores_that_are_not_finite_are_counted(self, tmp_path):
        rows = [(*row, 0.5) for row in ROWS]
        place = events(tmp_path, [("s9", "shoes", "a", 1, 0, 1.0, float("nan"))], [*HEADER, "policy_score"], rows)
        assert run(place, tmp_path).dropped == {"bad_number": 1}

    def test_a_bias_column_of_ids_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr("unskew.ingestion.run.MAX_LEVELS", 3)
        place = events(tmp_path, header=[*HEADER, "user"], rows=[(*row, f"u{row[0]}") for row in ROWS])
        refused("column 'user' has more than 3 values: if it is an id", place, tmp_path, Columns(bias=["user"]))


class TestLists:
    def test_duplicate_impressions_are_one_and_clicked_if_any_is(self, tmp_path):
        done = run(events(tmp_path, [(*ROWS[0][:4], 1, ROWS[0][5])]), tmp_path)
        assert done.dropped == {"duplicate": 1}
        assert done.examples == {"duplicate": "query shoes, document a"}
        log = read_log(tmp_path / "log")
        assert log.sessions.tolist() == [4]
        assert log.clicks.tolist() == [[1, 0]]

    def test_a_document_shown_again_further_down_stands_where_it_came_first(self, tmp_path):
        done = run(events(tmp_path, [("s0", "shoes", "a", 3, 1, 1.0)]), tmp_path)
        assert done.dropped == {"shown_again": 1}
        assert read_log(tmp_path / "log").clicks.tolist() == [[0, 0]]

    def test_a_list_with_two_documents_at_one_position_is_left_out(self, tmp_path):
        done = run(events(tmp_path, [("s0", "shoes", "c", 2, 1, 1.0)]), tmp_path)
        assert done.dropped == {"shared_position": 3}
        assert read_log(tmp_path / "log").sessions.tolist() == [3]
        message = r"3 impressions in lists with two documents at one position \(query shoes, document a\).*--session"
        (tmp_path / "strict").mkdir()
        place = events(tmp_path / "strict", [("s0", "shoes", "c", 2, 1, 1.0)])
        refused(message, place, tmp_path / "strict", strict=True)

    def test_sessions_that_are_users_break_most_lists_and_are_refused(self, tmp_path):
        rows = [("one user", "shoes", f"d{number}", 1 + number % 2, 0, 1.0) for number in range(8)]
        refused("8 impressions in lists with two documents.*more than half of 8", events(tmp_path, rows=rows), tmp_path)


class TestFeatures:
    def features(self, folder, rows):
        data = pa.Table.from_pylist([dict(zip(["query", "document", "bm25", "age"], row, strict=True)) for row in rows])
        pq.write_table(data, folder / "features.parquet")
        return Tables(events(folder), features=folder / "features.parquet")

    def test_documents_that_the_features_lack_are_counted(self, tmp_path):
        tables = self.features(tmp_path, [("shoes", "a", 1.0, 1.0)])
        done = run(tables, tmp_path)
        assert done.dropped == {"no_features": 4}
        assert "does not have 1 documents, the first is query shoes, document b" in done.examples["no_features"]
        assert read_log(tmp_path / "log").document_ids.tolist() == ["a"]

    def test_features_of_other_documents_are_refused(self, tmp_path):
        tables = self.features(tmp_path, [("shoes", "x", 1.0, 1.0), ("boots", "a", 1.0, 1.0)])
        refused("impressions of documents that have no features.*more than half of 8", tables, tmp_path)

    def test_two_sets_of_features_are_counted_and_one_whole_set_is_kept(self, tmp_path):
        tables = self.features(
            tmp_path,
            [("shoes", "a", 1.0, 9.0), ("shoes", "a", 2.0, 3.0), ("shoes", "b", 5.0, 5.0), ("shoes", "b", 5.0, 5.0)],
        )
        done = run(tables, tmp_path)
        assert done.dropped == {"conflict": 1}
        assert done.examples == {"conflict": "query shoes, document a"}
        assert read_log(tmp_path / "log").features.tolist() == [[1, 9], [5, 5]]
        with pytest.raises(
            ValueError, match=r"1 documents with more than one row in the feature table.*into the event table"
        ):
            run(tables, tmp_path, strict=True)

    @pytest.mark.parametrize("hole", [float("inf"), -float("inf"), 1e300])
    def test_infinite_features_are_refused(self, tmp_path, hole):
        tables = self.features(tmp_path, [("shoes", "a", 1.0, hole), ("shoes", "b", 1.0, 2.0)])
        refused("feature 'age' of query shoes, document a is infinite.*--fill", tables, tmp_path)

    @pytest.mark.parametrize("hole", [None, float("nan")])
    def test_missing_features_are_counted(self, tmp_path, hole):
        tables = self.features(tmp_path, [("shoes", "a", 1.0, hole), ("shoes", "b", 1.0, 2.0)])
        assert run(tables, tmp_path).missing == {"age": 1}

    def test_or_filled_on_request(self, tmp_path):
        tables = self.features(tmp_path, [("shoes", "a", float("inf"), None), ("shoes", "b", float("nan"), 1e300)])
        run(tables, tmp_path, fill=-1.0)
        assert read_log(tmp_path / "log").features.tolist() == [[-1, -1], [-1, -1]]

    def test_holes_of_queries_that_nobody_asked_do_not_matter(self, tmp_path):
        rows = [("shoes", "a", 1.0, 1.0), ("shoes", "b", 1.0, 2.0), ("socks", "a", None, 2.0)]
        assert run(self.features(tmp_path, rows), tmp_path).dropped == {}

    def test_rows_of_features_without_a_document_are_counted(self, tmp_path):
        rows = [("shoes", "a", 1.0, 1.0), ("shoes", "b", 1.0, 2.0), ("shoes", None, 1.0, 2.0)]
        done = run(self.features(tmp_path, rows), tmp_path)
        assert done.dropped == {"no_key": 1}
        assert done.examples == {"no_key": str(tmp_path / "features.parquet")}

    def test_what_is_a_position_or_a_click_in_the_events_is_no_feature(self, tmp_path):
        data = {"document": ["a", "b"], "position": [1, 2], "click": [0, 1], "age": [3.0, 4.0]}
        pq.write_table(pa.table(data), tmp_path / "features.parquet")
        run(Tables(events(tmp_path), features=tmp_path / "features.parquet"), tmp_path)
        assert read_log(tmp_path / "log").feature_names == ("age",)

    def test_ids_that_became_decimals_are_the_same_ids(self, tmp_path):
        rows = [(session, 7, number, place, 0, 1.0) for session in "st" for place, number in ((1, 11), (2, 12))]
        data = {"query": [7.0, 7.0, None], "document": [11.0, 12.0, 13.0], "age": [3.0, 4.0, 5.0]}
        pq.write_table(pa.table(data), tmp_path / "features.parquet")
        run(Tables(events(tmp_path, rows=rows), features=tmp_path / "features.parquet"), tmp_path)
        assert read_log(tmp_path / "log").document_ids.tolist() == ["11", "12"]

    def test_a_table_without_the_document_or_without_numbers_is_refused(self, tmp_path):
        for data, message in (
            ({"name": ["a"], "age": [1]}, "the feature table needs the document"),
            ({"document": ["a"], "title": ["A"]}, "no column can be a feature"),
        ):
            pq.write_table(pa.table(data), tmp_path / "features.parquet")
            refused(message, Tables(events(tmp_path), features=tmp_path / "features.parquet"), tmp_path)


class TestFiles:
    def test_a_truncated_parquet_file_is_named(self, tmp_path):
        whole = events(tmp_path).read_bytes()
        (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
        with pytest.raises(
            ValueError, match=r"cut\.parquet cannot be read as parquet .*truncated or damaged; copy it again"
        ):
            find_source(f"{tmp_path}/*.parquet")

    def test_a_parquet_file_damaged_in_the_middle_is_refused(self, tmp_path):
        place = events(tmp_path)
        content = bytearray(place.read_bytes())
        content[4:200] = b"\xff" * 196
        place.write_bytes(content)
        refused(r"events\.parquet", place, tmp_path)

    def test_files_that_do_not_fit_together_are_named(self, tmp_path):
        folder = tmp_path / "parts"
        folder.mkdir()
        events(folder).rename(folder / "1.parquet")
        events(folder, rows=[(*row[:3], str(row[3]), *row[4:]) for row in ROWS]).rename(folder / "2.parquet")
        with pytest.raises(ValueError, match=r"2\.parquet: column 'position' holds string, but int64 in .*1\.parquet"):
            find_source(folder)
        pq.write_table(pa.table({"session": ["s"]}), folder / "2.parquet")
        with pytest.raises(ValueError, match=r"2\.parquet: no column 'query'"):
            find_source(folder)

    def test_what_is_not_there_or_of_no_known_kind_is_refused(self, tmp_path):
        (tmp_path / "empty").mkdir()
        (tmp_path / "notes.txt").touch()
        (tmp_path / "mixed").mkdir()
        (tmp_path / "mixed" / "a.csv").touch()
        (tmp_path / "mixed" / "a.jsonl").touch()
        for place, message in (
            ("nowhere.parquet", "does not exist"),
            ("*.parquet", "nothing matches"),
            ("empty", "has no parquet, CSV or JSON lines files"),
            ("notes.txt", "unknown file type"),
            ("mixed", "files of 2 types"),
        ):
            with pytest.raises((ValueError, FileNotFoundError), match=message):
                find_source(tmp_path / place)

    def csv(self, folder, *lines, encoding="utf-8"):
        text = ["session,query,document,position,click,bm25", *(",".join(map(str, row)) for row in ROWS)]
        (folder / "events.csv").write_bytes("\n".join([*text, ""]).encode(encoding) + b"\n".join(lines))
        return folder / "events.csv"

    def test_lines_in_another_encoding_are_counted_and_the_first_is_named(self, tmp_path):
        place = self.csv(tmp_path, b"s8,\xe9t\xe9,a,1,1,1.0", b"s9,\xc3\xa9t\xc3\xa9,a,1,1,1.0")
        done = run(place, tmp_path)
        assert done.dropped == {"unreadable": 1}
        assert "events.csv, line 10: " in done.examples["unreadable"]
        assert read_log(tmp_path / "log").query_ids.tolist() == ["shoes", "été"]
        (tmp_path / "strict").mkdir()
        place = self.csv(tmp_path / "strict", b"s8,\xe9t\xe9,a,1,1,1.0")
        refused(r"1 lines that cannot be read \(.*line 10.*--encoding", place, tmp_path / "strict", strict=True)

    def test_a_whole_file_in_another_encoding_is_read_when_it_is_named(self, tmp_path):
        place = self.csv(tmp_path, b"s8,\xe9t\xe9,a,1,1,1.0", encoding="latin-1")
        done = run(Tables(place, encoding="latin-1"), tmp_path)
        assert done.dropped == {}
        assert read_log(tmp_path / "log").query_ids.tolist() == ["shoes", "été"]

    def test_lines_with_too_few_or_too_many_values_are_counted(self, tmp_path):
        done = run(self.csv(tmp_path, b"s8,shoes,a", b"s9,shoes,a,1,1,1.0,7"), tmp_path)
        assert done.dropped == {"unreadable": 2}

    @pytest.mark.parametrize(
        ("line", "message"), [(b'{"session": "\xe9t\xe9"}', "not UTF-8"), (b'{"session": ', "not JSON")]
    )
    def test_a_json_line_that_cannot_be_read_is_named(self, tmp_path, line, message):
        lines = [json.dumps(dict(zip(HEADER, row, strict=True))).encode() for row in ROWS]
        (tmp_path / "events.jsonl").write_bytes(b"\n".join([*lines, line, lines[0]]))
        refused(rf"events\.jsonl, line 9: {message}", tmp_path / "events.jsonl", tmp_path)

    def test_an_engine_that_does_not_exist_or_is_not_installed_is_refused(self, tmp_path):
        refused("unknown engine 'presto': choose one of duckdb, spark", events(tmp_path), tmp_path, engine="presto")
