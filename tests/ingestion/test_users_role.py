"""Users: a role that is read for a cap and for forgetting, and leaves nothing else behind."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.data.clicks.kept_users import numbers_of, salt_file
from unskew.ingestion import users as personal

# A robot with five sessions, a person with two, and one session of nobody; two documents in each.
USERS = ["robot"] * 5 + ["ann"] * 2 + [None]
TABLE = pa.table(
    {
        "session": [number for number in range(8) for _ in range(2)],
        "query": ["boots"] * 16,
        "document": ["a", "b"] * 8,
        "position": [1, 2] * 8,
        "click": [1, 0] * 8,
        "user_number": [user for user in USERS for _ in range(2)],
        "price": [1.0, 2.0] * 8,
    }
)


def ingested(table=TABLE, out=None, **options):
    return unskew.ingest(table, out, progress=False, **options)


@pytest.mark.parametrize(
    ("user", "sessions", "dropped"),
    [("user_number=2", 5, 6), ("user_number=1", 3, 10), ("user_number=5", 8, 0), ("user_number", 8, 0)],
)
def test_a_user_keeps_as_many_sessions_as_the_cap_allows(user, sessions, dropped):
    done = ingested(user=user)
    assert done.log.n_sessions == sessions
    assert done.report.dropped == ({"capped": dropped} if dropped else {})
    assert "robot" not in str(done.report.examples)
    assert done.log.feature_names == ("price",), "a user is not a feature"


def test_a_cap_of_nothing_and_a_log_that_keeps_nobody_are_refused(tmp_path):
    for options, words in (
        ({"user": "user_number=0"}, "at least 1"),
        ({"keep_users": True}, "pass out"),
        ({"keep_users": True, "out": tmp_path / "log"}, "pass --user COLUMN"),
    ):
        with pytest.raises(ValueError, match=words):
            ingested(**options)


def test_sessions_of_two_users_are_left_out_and_counted():
    users = ["ann", "bob", *TABLE["user_number"].to_pylist()[2:]]
    table = TABLE.set_column(5, "user_number", pa.array(users))
    done = ingested(table, user="user_number")
    assert done.report.dropped == {"two_users": 2}
    assert done.log.n_sessions == 7


def many(seed=0):
    """Sessions of ten users who see few lists, with everything that a log may count."""
    rng = np.random.default_rng(seed)
    sessions = np.repeat(np.arange(300), 3)
    users = rng.choice([*(f"person-{number}" for number in range(9)), None], 300)
    user = users[sessions]
    own = {"person-3": "her watch"}  # names of levels and categories that one of them alone had
    orders = np.concatenate([[(0, 1, 2), (1, 0, 2)][rng.integers(2)] for _ in range(300)])
    query = rng.integers(0, 4, 300)
    query[users == "person-3"] = np.where(rng.random((users == "person-3").sum()) < 0.5, 9, 1)
    rows = {
        "session": sessions,
        "query": [f"query {number}" for number in query[sessions]],
        "document": [f"d{number}" for number in orders],
        "position": np.tile([1, 2, 3], 300),
        "click": rng.integers(0, 2, 900),
        "buy": rng.integers(0, 2, 900),
        "looked": rng.choice([0.0, 1.0, np.nan], 300)[sessions],
        "user_id": user,
        "device": [
            own.get(who, each) for who, each in zip(user, rng.choice(["phone", "desk"], 300)[sessions], strict=True)
        ],
        "member": [
            own.get(who, each) for who, each in zip(user, rng.choice(["yes", "no"], 300)[sessions], strict=True)
        ],
        "brand": [own.get(who, "acme" if number else "zeta") for who, number in zip(user, orders, strict=True)],
        "policy_score": rng.random(900),
        "display_probability": rng.uniform(0.1, 1.0, 900),
        "timestamp": 1_700_000_000 + rng.integers(0, 10**7, 300)[sessions],
        "price": np.where(user == "person-5", 9.5, orders * 1.5),  # a version that they alone were shown
    }
    return pa.table(rows)


ROLES = {
    "user": "user_id",
    "bias": ["device"],
    "context": ["member"],
    "seen": "looked",
    "grades": {"click": 1.0, "buy": 2.0},
    "period": "month",
    "feature": ["price", "brand"],
}


@pytest.mark.parametrize("joint", [False, True])
def test_a_log_without_a_user_is_the_log_of_events_without_them(tmp_path, joint):
    gone = ["person-3", "person-5"]
    ingested(many(), tmp_path / "log", keep_users=True, joint=joint, **ROLES)
    assert unskew.read_log(tmp_path / "log").digest == ingested(many(), joint=joint, **ROLES).log.digest
    done = unskew.forget(tmp_path / "log", [*gone, "stranger"])
    others = many().filter(pc.invert(pc.fill_null(pc.is_in(many()["user_id"], pa.array(gone)), False)))
    expected = ingested(others, joint=joint, **ROLES).log
    assert unskew.read_log(tmp_path / "log").digest == expected.digest
    assert (done.users, done.not_found) == (2, 1)
    assert done.sessions == 300 - expected.n_sessions
    assert done.queries == 1, "query 9 was asked by one of them only"
    again = unskew.forget(tmp_path / "log", gone)
    assert (again.users, again.not_found) == (0, 2)
    unskew.forget(tmp_path / "log", ["person-1"])


def test_users_are_opaque_numbers_in_a_file_of_their_own(tmp_path):
    ingested(many(), tmp_path / "log", keep_users=True, **ROLES)
    for file in (tmp_path / "log").iterdir():
        assert b"person-" not in file.read_bytes()
        assert "users" in file.name or file.suffix == ".json" or "user" not in pq.read_schema(file).names
    stored = set(pq.read_table(tmp_path / "log" / "shard-00000.users.parquet")["user"].to_pylist())
    salt = salt_file(tmp_path / "log")
    assert salt.stat().st_mode & 0o077 == 0
    known = numbers_of([f"person-{number}" for number in range(9)], salt.read_text().strip())
    assert stored == {0, *known.tolist()}
    ingested(many(), tmp_path / "log", keep_users=True, overwrite=True, **ROLES)
    assert salt_file(tmp_path / "log").read_text().strip() == salt.read_text().strip()
    salt.unlink()
    with pytest.raises(FileNotFoundError, match="without it nobody can tell"):
        unskew.forget(tmp_path / "log", ["person-1"])


def test_users_of_events_belong_to_their_impressions(tmp_path):
    table = many().select(["session", "query", "document", "position", "click", "user_id", "price"])
    shown = table.drop(["click"]).append_column("event", pa.array(["impression"] * 900))
    clicks = table.filter(pc.equal(table["click"], 1)).drop(["click"])
    events = pa.concat_tables([shown, clicks.append_column("event", pa.array(["click"] * len(clicks)))])
    one = ingested(events, tmp_path / "events", keep_users=True, user="user_id", feature=["price"])
    ingested(table, tmp_path / "rows", keep_users=True, user="user_id", feature=["price"])
    assert one.report.dropped == {}
    for place in ("events", "rows"):
        unskew.forget(tmp_path / place, ["person-5"])
    assert unskew.read_log(tmp_path / "events").digest == unskew.read_log(tmp_path / "rows").digest


def with_devices(devices):
    """One page of two documents per session, each with the device of its session."""
    n = len(devices)
    rows = {"session": range(n), "query": ["boots"] * n, "position": [1] * n, "price": [1.0] * n}
    rows = {name: [value for value in values for _ in range(2)] for name, values in rows.items()}
    places = {"document": ["a", "b"] * n, "position": [1, 2] * n, "click": [1, 0] * n}
    return pa.table({**rows, **places, "device": [device for device in devices for _ in range(2)]})


def test_levels_with_few_sessions_are_merged_and_counted(monkeypatch):
    monkeypatch.setattr(personal, "LEAST_SESSIONS", 20)
    done = ingested(with_devices(["phone"] * 30 + ["desk"] * 20 + ["watch"] * 19 + ["tv"]), bias=["device"])
    column = done.log.bias["device"]
    assert column.levels == ("desk", "other", "phone")
    assert dict(zip(column.levels, np.bincount(column.values, done.log.sessions), strict=True)) == {
        "desk": 20,
        "other": 20,
        "phone": 30,
    }
    text = "Bias column device: 2 of 4 levels have fewer than 20 sessions: merged into 'other', 20 sessions."
    assert text in done.report.remarks


def test_a_bias_column_of_ids_is_refused(monkeypatch):
    monkeypatch.setattr(personal, "LEAST_SESSIONS", 20)
    people = [f"person {number // 3}" for number in range(75)] + ["office"] * 60
    with pytest.raises(ValueError, match=r"looks like an id: 25 of its 26 values .* pass --user"):
        ingested(with_devices(people), bias=["device"])
    assert ingested(with_devices([*people, *["office"] * 15]), bias=["device"]).log.bias["device"].levels == (
        "office",
        "other",
    ), "half of the sessions have a level of their own"


def test_queries_are_stored_as_digests_on_request(tmp_path):
    features = pa.table({"query": ["boots", "boots"], "document": ["a", "b"], "weight": [3.0, 4.0]})
    done = ingested(TABLE, tmp_path / "log", hash_queries=True, features=features, user="user_number")
    salt = salt_file(tmp_path / "log").read_text().strip()
    assert done.log.query_ids.tolist() == [hashlib.sha256(f"{salt}boots".encode()).hexdigest()[:16]]
    assert done.log.features[:, 0].tolist() == [3, 4]
    assert not unskew.forget(tmp_path / "log", ["boots"], check=True).found
    assert "users" not in json.loads((tmp_path / "log" / "log.json").read_text())["shards"][0]["digests"]
    with pytest.raises(ValueError, match="pass out"):
        ingested(hash_queries=True)
