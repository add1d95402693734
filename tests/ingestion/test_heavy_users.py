"""A cap on sessions per user: who is capped, what stays, and what is counted."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew import read_log
from unskew.ingestion.columns import Columns
from unskew.ingestion.run import ingest
from unskew.ingestion.settings import Options, Tables, parse_cap

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


def capped(folder, most, **options):
    pq.write_table(TABLE, folder / "events.parquet")
    done = ingest(
        Tables(folder / "events.parquet"),
        folder / f"log-{most}",
        Columns(user="user_number"),
        Options(sessions_a_user=most, **options),
    )
    return done, read_log(folder / f"log-{most}")


def test_a_user_keeps_as_many_sessions_as_the_cap_allows(tmp_path):
    done, log = capped(tmp_path, 2)
    assert log.n_sessions == 2 + 2 + 1
    assert done.dropped == {"capped": 3 * 2}
    assert done.examples["capped"] == "3 sessions of 1 users, 3 of them by robot"
    assert log.feature_names == ("price",), "a user is not a feature"


def test_a_cap_of_one_takes_most_of_the_log_and_is_not_refused_for_that(tmp_path):
    done, log = capped(tmp_path, 1)
    assert log.n_sessions == 1 + 1 + 1
    assert done.dropped == {"capped": (4 + 1) * 2}


def test_a_cap_that_nobody_reaches_leaves_nothing_out(tmp_path):
    done, log = capped(tmp_path, 5, strict=True)
    assert log.n_sessions == 8
    assert done.dropped == {}


def test_a_cap_is_a_column_and_a_number():
    assert parse_cap("a=b=3") == ("a=b", 3)
    for text in ("user", "user=", "=3", "user=0", "user=-1", "user=1.5"):
        with pytest.raises(ValueError, match="write COLUMN=N"):
            parse_cap(text)
