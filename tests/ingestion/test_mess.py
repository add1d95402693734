"""Pages, grids, conditions on rows, and clicks in a table of their own."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.data.clicks.storage import read_log
from unskew.ingestion.columns import Columns
from unskew.ingestion.run import ingest_tables
from unskew.ingestion.settings import Options, Tables

SHOWN = {  # one search with two pages of two places
    "session": ["s", "s", "s", "s"],
    "query": ["q", "q", "q", "q"],
    "document": ["a", "b", "c", "d"],
    "page": [1, 1, 2, 2],
    "position": [1, 2, 1, 2],
    "clicked": [0, 1, 0, 1],
    "bm25": [4.0, 3.0, 2.0, 1.0],
    "is_sponsored": [True, False, False, False],
    "device": ["phone", "phone", "phone", "phone"],
}


def run(data, folder, columns=None, **places):
    pq.write_table(pa.table(data), folder / "events.parquet")
    tables = Tables(folder / "events.parquet", **places)
    done = ingest_tables(tables, folder / "log", columns, Options(threads=1), overwrite=True)
    return read_log(folder / "log"), done


class TestPages:
    def test_a_page_and_a_place_make_a_position(self, tmp_path):
        log, done = run(SHOWN, tmp_path, Columns(page="page", page_size=10, features=["bm25"]))
        assert log.positions.tolist() == [[0, 1, 10, 11]]
        assert log.clicks.tolist() == [[0, 1, 0, 1]]
        assert done.dropped == {}

    def test_the_size_of_a_page_is_the_most_that_occurs_and_is_said(self, tmp_path):
        log, done = run(SHOWN, tmp_path, Columns(page="page", features=["bm25"]))
        assert log.positions.tolist() == [[0, 1, 2, 3]]
        assert any("Positions per page: 2" in remark for remark in done.remarks)

    def test_positions_that_start_anew_are_recognized(self, tmp_path):
        with pytest.raises(ValueError, match=r"restarts on each page of column 'page': pass --page page --page-size 2"):
            run(SHOWN, tmp_path)

    def test_a_page_number_is_no_feature_where_positions_go_on(self, tmp_path):
        log, _ = run(SHOWN | {"position": [1, 2, 3, 4]}, tmp_path)
        assert log.feature_names == ("bm25", "is_sponsored")

    def test_a_page_that_is_too_small_is_refused(self, tmp_path):
        with pytest.raises(
            ValueError, match=r"'position' goes from 1 to 2, but a page has 1 positions: raise --page-size"
        ):
            run(SHOWN, tmp_path, Columns(page="page", page_size=1))

    def test_rows_and_columns_of_a_grid_make_a_position(self, tmp_path):
        grid = SHOWN | {"page": [1, 1, 1, 1], "line": [0, 0, 1, 1]}
        log, _ = run(grid, tmp_path, Columns(row="line", row_size=3, features=["bm25"]))
        assert log.positions.tolist() == [[0, 1, 3, 4]]


class TestWhere:
    COLUMNS = {"page": "page", "features": ["bm25"]}

    def test_rows_are_left_out_and_counted_and_keep_their_places(self, tmp_path):
        log, done = run(SHOWN, tmp_path, Columns(where="not is_sponsored", **self.COLUMNS))
        assert log.positions.tolist() == [[1, 2, 3]]
        assert done.dropped == {"where": 1}

    @pytest.mark.parametrize(
        ("condition", "left"),
        [
            ("bm25 > 1.5 and device = 'phone'", 3),
            ("document in ('a', 'b') or bm25 < 2", 3),
            ("page = 1 and not (bm25 between 3.5 and 9)", 1),
            ("bm25 * 2 - 1 >= 5", 2),
            ("device like 'ph%' and document is not null", 4),
            ("not clicked", 2),
        ],
    )
    def test_conditions_compare_calculate_and_combine(self, tmp_path, condition, left):
        log, _ = run(SHOWN, tmp_path, Columns(where=condition, **self.COLUMNS))
        assert int(log.mask.sum()) == left

    @pytest.mark.parametrize(
        "condition",
        [
            "1 = 1; drop table events",
            "document in (select document from read_csv('/etc/passwd'))",
            "read_text('/etc/passwd') = 'x'",
            "getenv('HOME') = 'x'",
            "bm25",
            "bm25 +",
            "document > 1",
            "",
        ],
    )
    def test_anything_else_is_refused(self, tmp_path, condition):
        with pytest.raises(ValueError, match=r"--where .*write a condition on columns"):
            run(SHOWN, tmp_path, Columns(where=condition, **self.COLUMNS))

    def test_a_column_that_is_not_there_is_named(self, tmp_path):
        with pytest.raises(
            ValueError, match=r"no column 'sponsored', which --where names \(did you mean 'is_sponsored'\?\)"
        ):
            run(SHOWN, tmp_path, Columns(where="not sponsored", **self.COLUMNS))


class TestClicksApart:
    SHOWN = {name: SHOWN[name] for name in ("session", "query", "document", "bm25")} | {"position": [1, 2, 3, 4]}

    def write(self, folder, *clicks):
        (folder / "clicks.jsonl").write_text("\n".join(json.dumps(click) for click in clicks))
        return {"clicks": folder / "clicks.jsonl"}

    def test_clicks_are_brought_to_their_impressions(self, tmp_path):
        clicks = [{"session": "s", "query": "q", "document": "c"}, {"session": "s", "query": "q", "document": "x"}]
        log, done = run(self.SHOWN, tmp_path, **self.write(tmp_path, *clicks))
        assert log.clicks.tolist() == [[0, 0, 1, 0]]
        assert log.features[:, 0].tolist() == [4, 3, 2, 1]
        assert done.dropped == {"lone_click": 1}

    def test_the_query_of_a_click_is_that_of_its_session(self, tmp_path):
        log, _ = run(self.SHOWN, tmp_path, **self.write(tmp_path, {"session": "s", "document": "b"}))
        assert log.clicks.tolist() == [[0, 1, 0, 0]]
        two = self.SHOWN | {"query": ["q", "q", "p", "p"]}
        with pytest.raises(ValueError, match=r"no column looks like the query, and 1 sessions have several"):
            run(two, tmp_path, **self.write(tmp_path, {"session": "s", "document": "b"}))

    def test_other_events_among_the_clicks_are_counted(self, tmp_path):
        clicks = [{"session": "s", "document": "a", "event": kind} for kind in ("click", "purchase")]
        log, done = run(self.SHOWN, tmp_path, **self.write(tmp_path, *clicks))
        assert log.clicks.tolist() == [[1, 0, 0, 0]]
        assert done.other_events == 1

    def test_clicks_without_a_document_are_refused(self, tmp_path):
        with pytest.raises(ValueError, match=r"clicks\.jsonl: no column looks like the document: call it 'document'"):
            run(self.SHOWN, tmp_path, **self.write(tmp_path, {"session": "s"}))


def test_columns_of_queries_in_a_bulk_file_reach_the_events(tmp_path):
    about = {"query_id": "s", "user_query": "q", "query_attributes": {"device": "phone"}}
    lines = [{"index": {"_index": "ubi_queries"}}, about]
    for place, document in enumerate("ab", start=1):
        shown = {"object": {"object_id": document}, "position": {"ordinal": place}}
        lines += [{"index": {"_index": "ubi_events"}}]
        lines += [{"query_id": "s", "action_name": "impression", "event_attributes": shown}]
    (tmp_path / "ubi.ndjson").write_text("\n".join(json.dumps(line) for line in lines))
    columns = Columns(context=["query_attributes.device"])
    ingest_tables(Tables(tmp_path / "ubi.ndjson"), tmp_path / "log", columns, Options(threads=1))
    log = read_log(tmp_path / "log")
    assert log.categories == {"query_attributes.device": ("phone",)}
