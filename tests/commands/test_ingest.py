"""`unskew events` and `unskew ingest`, as a person types them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.data.clicks.storage import read_log, write_log


@pytest.fixture(scope="module")
def exported(run, log, tmp_path_factory):
    """A simulated log as an event table with a table of features."""
    folder = tmp_path_factory.mktemp("exported")
    write_log(log, folder / "log")
    files = ("--out", folder / "events.parquet", "--features", folder / "features.parquet")
    said = json.loads(run("events", folder / "log", *files, "--json"))
    assert said["impressions"] == pq.read_metadata(folder / "events.parquet").num_rows
    assert said["documents"] == len(log.features)
    return folder


def test_an_exported_log_is_ingested_and_trained_on(run, exported, log, tmp_path):
    tables = (exported / "events.parquet", "--features", exported / "features.parquet")
    said = json.loads(run("ingest", *tables, "--out", tmp_path / "log", "--joint", "--threads", 1, "--json"))
    assert said["sessions"] == log.n_sessions
    assert said["clicks"] == log.n_clicks
    assert said["lists"] == log.n_lists
    assert said["dropped"] == {}
    assert read_log(tmp_path / "log").joint
    fast = ("--set", "steps=10", "--set", "hidden=4", "--stream", "--quiet")
    run("train", tmp_path / "log", "--method", "naive", "--out", tmp_path / "model", *fast)
    assert (tmp_path / "model" / "model.json").exists()


@pytest.mark.long
def test_a_dry_run_shows_what_was_guessed_and_writes_nothing(run, exported, tmp_path):
    tables = ("ingest", exported / "events.parquet", "--features", exported / "features.parquet", "--threads", 1)
    out = tmp_path / "log"
    text = run(*tables, "--out", out, "--dry-run", "--position", "position")
    assert "session_id" in text
    assert "guessed" in text
    assert "Nothing was written" in text
    found = json.loads(run(*tables, "--dry-run", "--json", "--position", "position"))
    assert found["columns"]["session"] == {"column": "session_id", "from": "guessed"}
    assert found["columns"]["position"] == {"column": "position", "from": "named"}
    assert found["counts"]["impressions"] == pq.read_metadata(exported / "events.parquet").num_rows
    assert len(found["rows"]) == 5
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def odd(tmp_path):
    """A table whose names nobody can guess, with a row that cannot be used."""
    columns = {
        "visit": ["1", "1", "2", "2", None],
        "words": ["shoes"] * 5,
        "sku": ["a", "b", "a", "b", "a"],
        "slot": [1, 2, 1, 2, 1],
        "hit": [0, 1, 0, 0, 1],
        "device": ["phone", "phone", "desk", "desk", "desk"],
        "f_1": [0.5, 1.5, 0.5, 1.5, 0.5],
        "dwell": [0.0, 33.0, 0.0, 0.0, 12.0],
    }
    pq.write_table(pa.table(columns), tmp_path / "odd.parquet")
    (tmp_path / "columns.toml").write_text(
        'session = "visit"\nquery = "words"\ndocument = "sku"\nclick = "hit"\nfeatures = ["f_*"]\nbias = ["device"]\n'
    )
    return tmp_path


def test_names_come_from_a_file_and_from_flags_and_what_is_left_out_is_shown(run, odd):
    where = (odd / "odd.parquet", "--out", odd / "log", "--columns", odd / "columns.toml", "--threads", 1)
    text = run("ingest", *where, "--position", "slot")
    assert "rows without a session" in text
    log = read_log(odd / "log")
    assert log.feature_names == ("f_1",)
    assert log.bias["device"].levels == ("other",), "each has fewer than 20 sessions"
    assert log.n_sessions == 2
    assert "exists: choose another path" in run("ingest", *where, code=2)


def test_strict_refuses_with_exit_code_2(run, odd):
    where = (odd / "odd.parquet", "--out", odd / "log", "--columns", odd / "columns.toml", "--threads", 1)
    said = run("ingest", *where, "--strict", code=2)
    assert "1 rows without a session" in said
    assert "row 4, from 0" in said
    assert not (odd / "log").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--dry-run",), "no column looks like the session"),
        (("--yes",), "only you can decide: - no column looks like the query"),
        (("--yes", "--columns", "COLUMNS"), "pass --out FOLDER"),
        (("--dry-run", "--columns", "nowhere.toml"), "does not exist"),
        (("--dry-run", "--form", "wide"), "choose from impressions, events, ubi"),
        (("--dry-run", "--memory", "some"), "write at least 100MB"),
    ],
)
def test_refusals_are_one_line_and_exit_code_2(run, odd, arguments, message):
    arguments = [odd / "columns.toml" if word == "COLUMNS" else word for word in arguments]
    assert message in run("ingest", odd / "odd.parquet", *arguments, code=2).replace("\n", " ")


def test_a_table_without_options_gets_a_command_and_yes_runs_it(run, tmp_path):
    rows = {
        "search_id": [f"s{n}" for n in range(30) for _ in range(4)],
        "keywords": [f"w{n % 3}" for n in range(30) for _ in range(4)],
        "sku": [f"p{4 * (n % 3) + (n + k) % 4}" for n in range(30) for k in range(4)],
        "rank": [k for _ in range(30) for k in range(4)],
        "clicked": [int((n + k) % 4 == 0) for n in range(30) for k in range(4)],
        "price": [float((n + k) % 4) + n % 3 for n in range(30) for k in range(4)],
    }
    pq.write_table(pa.table(rows), tmp_path / "shop.parquet")
    said = run("ingest", tmp_path / "shop.parquet").replace("\n", " ")
    roles = "--session search_id --query keywords --document sku --position rank --click clicked --feature price"
    assert roles in said
    assert "Nothing was written" in said
    done = json.loads(run("ingest", tmp_path / "shop.parquet", "--yes", "--out", tmp_path / "log", "--json"))
    assert (done["sessions"], done["clicks"], done["dropped"]) == (30, sum(rows["clicked"]), {})
