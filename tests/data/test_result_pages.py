"""Result pages: which are kept, and how they and judged queries are split."""

import gzip

import numpy as np
import pyarrow as pa
import pytest

from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.public_logs.result_pages import complete_pages, numbered_lines, split_judged, split_pages


def pages_of(*pages):
    """A table of pages, each a list of (position, click)."""
    rows = [(session, *row) for session, page in enumerate(pages) for row in page]
    session, position, click = zip(*rows, strict=True)
    query = [f"q{number % 7}" for number in session]
    document = [f"d{place}" for place in position]
    bm25 = [float(place) for place in position]
    return pa.table(
        {"session": session, "query": query, "document": document, "position": position, "click": click, "bm25": bm25}
    )


def test_pages_with_every_position_and_a_click_are_kept():
    pages = pages_of(
        [(0, 0), (1, 1), (2, 0)],
        [(0, 1), (2, 0)],  # a place is missing
        [(0, 0), (1, 0), (2, 0)],  # no click
        [(0, 0), (1, 0), (2, 0), (3, 1)],  # no click on the three
        [(0, 1), (1, 1), (2, 0), (3, 1)],
        [(0, 1), (1, 1), (1, 0), (2, 0)],  # a place twice
    )
    kept = complete_pages(pages, n_positions=3)
    assert kept["session"].to_pylist() == [0, 0, 0, 4, 4, 4]
    assert kept["click"].to_pylist() == [0, 1, 0, 1, 1, 0]


def test_what_is_kept_becomes_a_log():
    pages = pages_of([(0, 0), (1, 1)], [(0, 1), (1, 0)], [(1, 1)])
    log = ClickLog.from_table(complete_pages(pages, n_positions=2))
    assert (log.n_sessions, log.n_clicks, log.n_positions, log.feature_names) == (2, 2, 2, ("bm25",))


def test_if_nothing_is_left_the_reason_is_told():
    with pytest.raises(ValueError, match="1 of 2 pages show all of the first 2 positions"):
        complete_pages(pages_of([(0, 0), (1, 0)], [(1, 1)]), n_positions=2)


def test_sessions_are_split_whole_and_by_their_shares():
    pages = pages_of(*[[(0, 1), (1, 0), (2, 0)]] * 100)
    parts = split_pages(pages, seed=3)
    sessions = [set(part["session"].to_pylist()) for part in parts]
    assert [len(part) for part in sessions] == [80, 10, 10]
    assert [part.num_rows for part in parts] == [240, 30, 30]
    assert set.union(*sessions) == set(range(100))
    assert sessions[0] != set(range(80))  # at random
    assert sessions == [set(part["session"].to_pylist()) for part in split_pages(pages, seed=3)]
    assert sessions != [set(part["session"].to_pylist()) for part in split_pages(pages, seed=4)]


def test_shares_that_do_not_add_up_are_refused():
    with pytest.raises(ValueError, match="add up to 1"):
        split_pages(pages_of([(0, 1)]), shares=(0.5, 0.4))


def test_judged_queries_are_split_twenty_to_eighty():
    judged = JudgedSet.from_arrays(np.arange(100.0)[:, None], np.zeros(100), [2] * 50)
    valid, test = split_judged(judged, seed=1)
    assert (valid.n_queries, test.n_queries) == (10, 40)
    assert sorted([*valid.query_ids, *test.query_ids]) == list(range(50))
    with pytest.raises(ValueError, match="leaves one side empty"):
        split_judged(judged.select([0, 1]), 0.1)


@pytest.mark.parametrize("packed", [False, True])
def test_lines_are_read_plain_and_packed_with_where_they_stand(tmp_path, packed):
    path = tmp_path / "text"
    content = b"one\r\n\ntwo\n"
    path.write_bytes(gzip.compress(content) if packed else content)
    assert list(numbered_lines(path)) == [(f"{path}, line 1", "one"), (f"{path}, line 3", "two")]


def test_what_is_no_text_is_refused(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="is not text"):
        list(numbered_lines(path))
