"""Files as people have them: empty, cut off, of another kind, with surprises further down."""

import gzip
import json
import sqlite3

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.data.clicks.storage import read_log
from unskew.ingestion.columns import Columns
from unskew.ingestion.run import ingest_tables
from unskew.ingestion.settings import Options, Tables
from unskew.ingestion.sources import find_source

HEADER = "session,query,document,position,click,bm25"
QUOTED = b'"session","query","document","position","click","f"\n' + b'"s","q","a",1,0,1.5\n' * 9
FAR_DOWN = 21_000  # lines, beyond those from which DuckDB guesses types


def run(place, columns=None, **options):
    """What an ingestion of a file says; the log stands alongside it."""
    tables = place if isinstance(place, Tables) else Tables(place)
    out = tables.events.parent / "log"
    return ingest_tables(tables, out, columns, Options(threads=1, **options), overwrite=True)


def csv(folder, *lines, name="events.csv", encoding="utf-8"):
    (folder / name).write_bytes("\n".join([HEADER, *lines]).encode(encoding))
    return folder / name


def events(n=4):
    return {
        "session": [f"s{row}" for row in range(n)],
        "query": ["shoes"] * n,
        "document": [f"d{row}" for row in range(n)],
        "position": [1] * n,
        "click": [0] * n,
        "bm25": [0.5] * n,
    }


def json_lines(n):
    columns = events(n)
    return [json.dumps(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


GZIPPED = gzip.compress(b"session,query\n" + b"".join(b"%d,q%d\n" % (n, 7 * n) for n in range(200)), mtime=0)
DAMAGED_GZIP = GZIPPED[:12] + bytes([GZIPPED[12] ^ 0xFF]) + GZIPPED[13:]


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("events.csv", b"", "events.csv is empty"),
            ("events.jsonl", b"", "events.jsonl is empty"),
            ("events.json", b'[{"session": 1}]', "begins with one JSON array: write one object per line"),
            ("events.jsonl", b"1\n2\n", "write one object per line"),
            ("events.csv", QUOTED[:-11], r"quotation mark.*never closed, so the file is truncated.*copy it again"),
            ("events.csv.gz", b"session,query\n", "Not a gzipped file.*compress it again"),
            ("events.csv.gz", DAMAGED_GZIP, r"events\.csv\.gz cannot be read .*compress it again"),
            (
                "events.jsonl.gz",
                gzip.compress(b'{"a": 1}\n' * 9999, mtime=0)[:60],
                "truncated or damaged.*copy it again",
            ),
        ],
        # Ids must not show the content: two workers that collect in different seconds must see the same tests.
        ids=[
            "empty CSV",
            "empty JSON",
            "one array",
            "no objects",
            "open quotes",
            "not gzipped",
            "damaged gzip",
            "cut gzip",
        ],
    )
    def test_a_file_that_is_not_what_its_name_says(self, tmp_path, name, content, message):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            run(tmp_path / name)

    def test_an_sqlite_database_is_told_from_one_of_duckdb(self, tmp_path):
        with sqlite3.connect(tmp_path / "shop.db") as connection:
            connection.execute("CREATE TABLE events (session TEXT)")
        connection.close()
        with pytest.raises(ValueError, match=r"is an SQLite database: pass it as a URL, sqlite://.*shop\.db"):
            find_source(tmp_path / "shop.db")

    def test_a_click_log_is_no_table_of_events(self, tmp_path):
        run(csv(tmp_path, "s,q,a,1,0,1"))
        with pytest.raises(ValueError, match="is already a click log"):
            find_source(tmp_path / "log")

    def test_a_table_is_named_in_a_database_only(self, tmp_path):
        tables = Tables(csv(tmp_path, "s,q,a,1,0,1"), events_table="events")
        with pytest.raises(
            ValueError, match=r"events\.csv is csv, which has no tables: leave out the table name 'events'"
        ):
            run(tables)

    def test_an_address_that_nothing_answers_to_keeps_its_password(self, tmp_path):
        with pytest.raises(ValueError, match=r"host/shop: .*driver is installed") as refusal:
            ingest_tables(Tables("nosuch://me:secret@host/shop"), tmp_path / "log")
        assert "secret" not in str(refusal.value)

    def test_a_file_in_another_encoding_throughout_is_told_by_it(self, tmp_path):
        place = csv(tmp_path, "s,été,a,1,0,1", "t,été,a,1,0,1", encoding="latin-1")
        with pytest.raises(ValueError, match=r"2 lines that cannot be read .*more than half of 2 rows.*--encoding"):
            run(place)

    def test_an_encoding_that_cannot_be_read_is_to_be_converted(self, tmp_path):
        with pytest.raises(ValueError, match=r"does not support the encoding.*iconv -f ENCODING -t utf-8"):
            run(Tables(csv(tmp_path, "s,été,a,1,0,1", encoding="cp1252"), encoding="cp1252"))


class TestFurtherDown:
    def test_a_key_that_comes_late_is_read(self, tmp_path):
        lines = json_lines(FAR_DOWN)
        lines[-1] = json.dumps(json.loads(lines[-1]) | {"note": "late"})
        (tmp_path / "events.jsonl").write_text("\n".join(lines))
        done = run(tmp_path / "events.jsonl")
        assert (done.impressions, done.dropped) == (FAR_DOWN, {})
        assert list(done.unused) == ["note (string)"]

    def test_whole_numbers_may_get_decimals(self, tmp_path):
        lines = [f"s{row},q,d{row},1,0,1" for row in range(FAR_DOWN)]
        done = run(csv(tmp_path, *lines, "last,q,z,1,0,0.5"))
        assert done.dropped == {}
        assert read_log(tmp_path / "log").features[-1].tolist() == [0.5]

    def test_but_names_stay_whole(self, tmp_path):
        (tmp_path / "events.csv").write_text(f"{HEADER},device\ns,q,a,1,0,1,7\nt,q,a,1,0,1,8\n")
        run(tmp_path / "events.csv", Columns(bias=["device"]))
        assert read_log(tmp_path / "log").bias["device"].levels == ("7", "8")


class TestColumnsThatNothingTakes:
    def test_a_feature_with_a_word_in_it_is_named(self, tmp_path):
        done = run(csv(tmp_path, "s,q,a,1,0,n/a", "s,q,b,2,0,0.5"))
        assert done.features == 0
        assert read_log(tmp_path / "log").joint
        assert done.remarks[1:] == [
            "There are no features: click models learn from ids alone (train --method ubm), other methods need "
            "features. "
            "The log keeps which documents were clicked together, as with --joint.",
            "Unused columns: bm25 (string).",
        ]
        with pytest.raises(
            ValueError, match="column 'bm25' holds numbers and 1 values that are not numbers, such as 'n/a'"
        ):
            run(tmp_path / "events.csv", Columns(features=["bm25"]))

    def test_a_log_without_a_click_says_so(self, tmp_path):
        silent = run(csv(tmp_path, "s,q,a,1,0,1", "s,q,b,2,0,2"))
        assert silent.remarks == ["There are no clicks: nothing can be learned from this log."]
        assert run(csv(tmp_path, "s,q,a,1,1,1", "s,q,b,2,0,2")).remarks == []

    def test_lists_of_one_document_are_named(self, tmp_path):
        (remark,) = run(csv(tmp_path, "s,q,a,1,1,1", "t,q,b,2,0,2")).remarks
        assert remark.startswith("Every list has one document")

    def test_empty_positions_are_counted(self, tmp_path):
        done = run(csv(tmp_path, "s,q,a,1,1,1", "s,q,b,3,0,2", "t,q,a,1,0,1", "t,q,b,2,1,2"))
        assert done.with_gaps == 1
        (remark,) = done.remarks
        assert remark.startswith("1 sessions (50%) have empty positions above their last document")

    def test_names_of_folders_are_no_features(self, tmp_path):
        for day in ("1", "2"):
            (tmp_path / "parts" / f"day={day}").mkdir(parents=True)
            data = pa.table(events() | {"session": [f"{day}-{row}" for row in range(4)]})
            pq.write_table(data, tmp_path / "parts" / f"day={day}" / "part.parquet")
        done = run(tmp_path / "parts")
        assert (done.features, list(done.unused)) == (1, ["day (int64)"])
        assert find_source(tmp_path / "parts").partitions == ("day",)

    def test_a_column_that_only_later_files_have_is_named(self, tmp_path):
        (tmp_path / "parts").mkdir()
        pq.write_table(pa.table(events()), tmp_path / "parts" / "1.parquet")
        pq.write_table(pa.table(events() | {"age": [1] * 4}), tmp_path / "parts" / "2.parquet")
        assert list(run(tmp_path / "parts").unused) == ["age (not in every file)"]

    def test_an_empty_part_holds_no_rows(self, tmp_path):
        (tmp_path / "parts").mkdir()
        csv(tmp_path / "parts", "s,q,a,1,0,1", name="1.csv")
        (tmp_path / "parts" / "0.csv").touch()
        assert run(tmp_path / "parts").impressions == 1


def test_a_table_in_a_schema_of_a_database_is_read(tmp_path):
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.register("incoming", pa.table(events()))
        connection.sql("CREATE SCHEMA raw")
        connection.sql("CREATE TABLE raw.events AS SELECT * FROM incoming")
        connection.sql("CREATE TABLE other AS SELECT 1 AS one")
    assert run(Tables(tmp_path / "shop.duckdb", events_table="raw.events")).impressions == 4
    with pytest.raises(ValueError, match=r"choose a table with --table. Found: other, raw\.events"):
        run(Tables(tmp_path / "shop.duckdb"))


def test_a_view_of_a_database_reads_nothing_outside_it(tmp_path):
    (tmp_path / "secret.csv").write_text("session,query,document,position,click,bm25\ns,q,a,1,1,0.5\n")
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.register("incoming", pa.table(events()))
        connection.sql("CREATE TABLE rows AS SELECT * FROM incoming")
        connection.sql("CREATE VIEW inside AS SELECT * FROM rows WHERE session <> 's0'")
        connection.sql(f"CREATE VIEW outside AS SELECT * FROM read_csv('{tmp_path / 'secret.csv'}')")
    assert run(Tables(tmp_path / "shop.duckdb", events_table="inside")).impressions == 3
    with pytest.raises(ValueError, match=r"view 'outside' reads data outside the database.*CREATE TABLE"):
        run(Tables(tmp_path / "shop.duckdb", events_table="outside"))
