"""Users who are to be forgotten."""

import pyarrow as pa
import pytest

import unskew
from unskew.data.clicks.click_log import ClickLog

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
