import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.data.clicks.build import add_showings, compact_counts, count_patterns, first_rows, pad, shown_order
from unskew.data.clicks.row_fields import BiasColumn


def test_rows_in_any_order_are_padded_into_lists_top_first():
    lists = np.array([1, 0, 1, 0, 0])
    positions = np.array([1, 2, 0, 0, 1])
    rows, mask = pad(lists, positions, 2)
    assert mask.tolist() == [[True, True, True], [True, True, False]]
    assert rows[0].tolist() == [3, 4, 1]
    assert rows[1, :2].tolist() == [2, 0]


def test_rows_without_positions_stand_in_the_order_of_the_table():
    assert shown_order(np.array([1, 0, 1, 0, 1])).tolist() == [0, 0, 1, 1, 2]


def test_the_first_row_of_each_code():
    assert first_rows(np.array([0, 1, 0, 2, 1])).tolist() == [0, 1, 3]


def test_showings_of_a_list_are_added_up():
    clicks = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    assert add_showings(np.array([0, 1, 0]), 2, clicks).tolist() == [[1, 1], [1, 1]]
    assert add_showings(np.array([0, 1, 0]), 3, np.array([2.0, 3.0, 4.0])).tolist() == [6, 3, 0]


def test_patterns_are_counted_by_list():
    lists = np.array([1, 0, 1, 1])
    clicks = np.array([[1, 0], [1, 0], [1, 0], [0, 0]])
    patterns = count_patterns(lists, clicks, np.array([1.0, 1.0, 1.0, 0.5]))
    assert patterns.lists.tolist() == [0, 1, 1]
    assert patterns.clicks.tolist() == [[1, 0], [1, 0], [0, 0]]
    assert patterns.sessions.tolist() == [1, 2, 0.5]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_weights_of_patterns_sum_to_sessions_and_their_clicks_to_clicks(sessions):
    lists = np.array([entry[0] for entry in sessions])
    clicks = np.array([entry[1:] for entry in sessions], dtype=float)
    patterns = count_patterns(lists, clicks, np.ones(len(lists)))
    assert np.bincount(patterns.lists, patterns.sessions, 4).tolist() == np.bincount(lists, minlength=4).tolist()
    weighted = patterns.clicks * patterns.sessions[:, None]
    assert np.array_equal(add_showings(patterns.lists, 4, weighted), add_showings(lists, 4, clicks))


@pytest.mark.parametrize(
    ("counts", "dtype"),
    [
        ([0, 1, 2**24], np.float32),
        ([2**24 + 1], np.float64),
        ([0.5], np.float32),
        ([0.1], np.float64),
        ([], np.float32),
    ],
)
def test_counts_are_float32_only_where_that_is_exact(counts, dtype):
    compact = compact_counts(np.array(counts))
    assert compact.dtype == dtype
    assert compact.tolist() == counts


def test_a_column_of_lists_spreads_over_their_documents():
    assert BiasColumn(np.array([4, 5])).per_document(3).tolist() == [[4, 4, 4], [5, 5, 5]]
    spread = BiasColumn(np.array([[1, 2], [3, 4]]), ("a", "b"))
    assert spread.per_document(2) is spread.values
    assert spread.select(np.array([1])).values.tolist() == [[3, 4]]
