"""Users who are to be forgotten."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.kept_users import numbers_of

ROWS = [  # session, query, document, price, click, user
    ("s1", "hats", "a", 1.0, 1, "ann"),
    ("s1", "hats", "b", 2.0, 0, "ann"),
    ("s2", "hats", "a", 9.0, 0, "bob"),  # a version of a that bob alone was shown
    ("s2", "hats", "b", 2.0, 1, "bob"),
    ("s3", "gift for ann", "c", 3.0, 1, "bob"),
    ("s4", "hats", "b", 2.0, 0, "cid"),
]


def written(folder, n_shards=1):
    table = pa.Table.from_pylist(
        [
            dict(zip(("session", "query", "document", "price", "click", "user_id"), row, strict=True))
            | {"position": number % 2}
            for number, row in enumerate(ROWS)
        ]
    )
    log = ClickLog.from_table(table, bias=["user_id"], features=["price"])
    return unskew.write_log(log, folder, n_shards=n_shards)


@pytest.mark.parametrize("n_shards", [1, 2])
def test_lists_queries_versions_and_names_of_a_user_go(tmp_path, n_shards):
    place = written(tmp_path / "log", n_shards)
    done = unskew.forget(place, ["bob", "nobody"])
    assert (done.users, done.not_found, done.lists, done.sessions, done.clicks, done.queries) == (1, 1, 2, 2, 2, 1)
    log = unskew.read_log(place)
    assert log.query_ids.tolist() == ["hats"]
    assert sorted(log.features[:, 0].tolist()) == [1.0, 2.0]
    assert log.n_sessions == 2
    assert set(log.bias["user_id"].levels) == {"ann", "cid"}
    assert log.joint
    assert not any("bob" in path.read_bytes().decode("latin-1") for path in place.iterdir())
    assert unskew.open_log(place).about["notes"]["forgotten_users"] == 1


def test_users_come_from_a_file_too(tmp_path):
    place = written(tmp_path / "log")
    (tmp_path / "users.txt").write_text("ann\n\n cid \n")
    assert unskew.forget(place, tmp_path / "users.txt", column="user_id").users == 2


def test_a_log_stays_as_it_is_where_nothing_can_be_removed(tmp_path):
    place = written(tmp_path / "log")
    before = unskew.read_log(place).digest
    assert unskew.forget(place, ["nobody"]).users == 0
    with pytest.raises(ValueError, match="every list belongs to these users"):
        unskew.forget(place, ["ann", "bob", "cid"])
    with pytest.raises(ValueError, match="keeps no column 'who' with users; its bias columns are: user_id"):
        unskew.forget(place, ["ann"], column="who")
    with pytest.raises(ValueError, match="no user to forget"):
        unskew.forget(place, [" "])
    assert unskew.read_log(place).digest == before


def test_a_log_without_users_says_what_to_do(tmp_path):
    unskew.write_log(ClickLog.from_arrays([[1.0], [2.0]], clicks=[1, 0], group=[2]), tmp_path / "log")
    with pytest.raises(ValueError, match=r"holds nobody.* --keep-users"):
        unskew.forget(tmp_path / "log", ["ann"])


def trained(log, place, **options):
    return unskew.save_model(unskew.fit("naive", log, steps=2, progress=False), place, **options)


def test_what_was_made_from_the_log_is_named_with_what_to_do(tmp_path):
    place = written(tmp_path / "log")
    log = unskew.read_log(place)
    old = trained(log, tmp_path / "old")
    about = json.loads((old / "model.json").read_text())
    del about["trained_on"]["log"]  # as 0.2 wrote it
    (old / "model.json").write_text(json.dumps(about))
    for name in ("README.md", "card.json"):
        (old / name).unlink()
    trained(log, tmp_path / "model")
    unskew.export(tmp_path / "model", tmp_path / "model.onnx")
    unskew.fit("naive", log, steps=2, progress=False, checkpoint=tmp_path / ".model.checkpoint")
    unskew.diagnose(place, tmp_path / "report.html", quick=True, progress=False)
    part = unskew.write_log(log.select([0]), tmp_path / "part")
    trained(unskew.read_log(part), tmp_path / "of part")
    other = unskew.write_log(ClickLog.from_arrays([[1.0], [2.0]], clicks=[1, 0], group=[2]), tmp_path / "other")
    trained(unskew.read_log(other), tmp_path / "of other")
    done = unskew.forget(place, ["bob"])
    assert {(one.kind, one.place.rpartition("/")[2]) for one in done.made} == {
        ("model", "model"),
        ("model", "of part"),
        ("model without lineage", "old"),
        ("exported model", "model.onnx"),
        ("checkpoint", ".model.checkpoint"),
        ("report", "report.html"),
        ("copy of the log", "part"),
    }
    assert unskew.forget(place, ["bob"]).made == done.made, "a second call names them too"
    trained(unskew.read_log(place), tmp_path / "model", overwrite=True)
    assert str(tmp_path / "model") not in {one.place for one in unskew.forget(place, ["bob"]).made}


def test_check_finds_an_id_in_every_format_and_nothing_where_there_is_none(tmp_path):
    (tmp_path / "site").mkdir()
    place = written(tmp_path / "site" / "log")
    (tmp_path / "users.txt").write_text("bob\n")
    site = place.parent
    (site / "bobby.txt").write_text("bobby, and bob-cat")
    unskew.forget(place, tmp_path / "users.txt")
    check = unskew.forget(site, tmp_path / "users.txt", check=True)
    assert (check.found, check.unread) == ([], [])
    assert check.files == len([file for file in site.rglob("*") if file.is_file()])
    (site / "log.salt").write_text("secret")
    number = numbers_of(["bob"], "secret")
    hidden = {
        "cells.parquet": lambda file: pq.write_table(pa.table({"query": ["gift for bob"], "n": [1]}), file),
        "lists.parquet": lambda file: pq.write_table(pa.table({"who": pa.array([["x", "bob"]])}), file),
        "numbers.parquet": lambda file: pq.write_table(pa.table({"user": number}), file),
        "page.html": lambda file: file.write_text("<b>bob</b>"),
        ".zipped.csv.gz": lambda file: file.write_bytes(gzip.compress(b"a,bob\n")),
        "bob.json": lambda file: file.write_text("{}"),
    }
    for name, write in hidden.items():
        write(site / name)
    (site / "base.duckdb").write_bytes(b"?")
    check = unskew.forget(site, ["bob"], check=True)
    assert check.found == [
        (".zipped.csv.gz", "its text"),
        ("bob.json", "its name"),
        ("cells.parquet", "column query"),
        ("lists.parquet", "column who"),
        ("numbers.parquet", "column user"),
        ("page.html", "its text"),
    ]
    assert check.unread == ["base.duckdb (its format is not known)"]
