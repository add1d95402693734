import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import csr_array

from unskew.data.clicks.click_log import ClickLog

X = np.array([[0.0], [1.0], [2.0], [3.0], [4.0]])
CLICKS = [1, 0, 0, 1, 1]


def test_groups_are_lists_in_shown_order():
    log = ClickLog.from_arrays(X, CLICKS, group=[2, 3])
    assert log.documents.tolist() == [[0, 1, 0], [2, 3, 4]]
    assert log.mask.tolist() == [[True, True, False], [True, True, True]]
    assert log.clicks.tolist() == [[1, 0, 0], [0, 1, 1]]
    assert log.positions.tolist() == [[0, 1, 0], [0, 1, 2]]
    assert log.sessions.tolist() == [1, 1]
    assert log.joint


def test_positions_order_the_rows_of_a_group():
    log = ClickLog.from_arrays(X, CLICKS, group=[2, 3], position=[1, 0, 5, 2, 0])
    assert log.documents.tolist() == [[1, 0, 0], [4, 3, 2]]
    assert log.positions.tolist() == [[0, 1, 0], [0, 2, 5]]
    assert log.clicks.tolist() == [[0, 1, 0], [1, 1, 0]]


@pytest.mark.parametrize("query", [["b", "a", "b", "a", "b"], pd.Series(["b", "a", "b", "a", "b"], dtype="category")])
def test_query_ids_group_rows_in_any_order(query):
    log = ClickLog.from_arrays(X, CLICKS, query=query)
    assert log.query_ids.tolist() == ["b", "a"]
    assert log.features[log.documents[0]].squeeze(-1).tolist() == [0, 2, 4]


def test_counts_with_sessions_are_not_joint():
    log = ClickLog.from_arrays(X, [10, 0, 0, 7, 7], group=[2, 3], sessions=[10, 20])
    assert log.sessions.tolist() == [10, 20]
    assert not log.joint
    assert ClickLog.from_arrays(X, CLICKS, group=[2, 3], sessions=[1, 1]).joint


def test_a_weight_multiplies_the_session_of_a_list():
    log = ClickLog.from_arrays(X, CLICKS, group=[2, 3], weight=[0.1, 3])
    assert log.clicks.tolist() == [[0.1, 0, 0], [0, 3, 3]]
    assert log.sessions.tolist() == [0.1, 3]
    assert log.patterns.clicks.tolist() == [[1, 0, 0], [0, 1, 1]]


def test_graded_feedback_may_exceed_one():
    assert ClickLog.from_arrays(X, [9.5, 0, 0, 0, 2], group=[5], graded=True).n_clicks == 11.5


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"price": X[:, 0]}, index=[9, 8, 7, 6, 5]),
        pl.DataFrame({"price": X[:, 0]}),
        pa.table({"price": X[:, 0]}),
    ],
)
def test_columns_of_a_table_name_the_features(table):
    log = ClickLog.from_arrays(table, CLICKS, group=[5])
    assert log.features.tolist() == X.tolist()
    assert log.feature_names == ("price",)


def test_sparse_and_integer_matrices_and_none_at_all_become_float32():
    for matrix in (csr_array(X), X.astype(int), X.tolist(), np.zeros((5, 0))):
        assert ClickLog.from_arrays(matrix, CLICKS, group=[5]).features.dtype == np.float32


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"group": [2, 2]}, "group sizes add up to 4, but X has 5 rows"),
        ({"group": [5, 0]}, "column 'group', row 1: 0 .* at least one row"),
        ({"group": [2.5, 2.5]}, "group must hold whole numbers"),
        ({}, "pass either group .* or query"),
        ({"group": [5], "query": [1] * 5}, "pass either group"),
        ({"query": [1] * 4}, "query has 4 values, but there are 5 rows"),
        ({"query": [1, 1, None, 1, 1]}, "row 2 is missing"),
        ({"query": [1, "a", 1, 1, 1]}, "all whole numbers .* or all text"),
        ({"group": [5], "clicks": [0, 1]}, "clicks has 2 values, but must have 5: one per row"),
        ({"group": [5], "clicks": [0, -1, 0, 0, 0]}, "column 'clicks', row 1: -1.0"),
        ({"group": [5], "clicks": [0, 0, 3, 0, 0]}, r"column 'clicks', row 2: 3.0 .*for counts, pass sessions"),
        (
            {"group": [5], "clicks": [0, 0, 3, 0, 0], "sessions": [2]},
            "column 'clicks', row 2: 3.0 .* cannot have more clicks than its list has sessions",
        ),
        ({"group": [5], "clicks": [0, np.nan, 0, 0, 0]}, "column 'clicks', row 1: nan"),
        ({"group": [5], "sessions": [0]}, "column 'sessions', row 0: 0.0"),
        ({"group": [5], "weight": [-1]}, "column 'weight', row 0: -1.0"),
        ({"group": [5], "sessions": [1], "weight": [1]}, "not both"),
        ({"group": [5], "position": [0, 1, 2, 2, 3]}, "column 'position', rows 2 and 3: two documents at position 2"),
        ({"group": [5], "position": [0, 1, -2, 2, 3]}, "column 'position', row 2: -2"),
        ({"group": [5], "position": [0, 1, 2.5, 2, 3]}, "column 'position', row 2: 2.5"),
        ({"group": [5], "position": [1, 2, 3, 4, 5]}, "does the log count from 1"),
        ({"group": [5], "X": np.where(X == 2, np.inf, X)}, "feature number 0 of row 2 is inf"),
        ({"group": [5], "X": np.where(X == 2, 1e300, X)}, "feature number 0 of row 2 is inf"),
        ({"group": [5], "X": pd.DataFrame({"price": [0, 1, np.inf, 3, 4]})}, "column 'price', row 2: inf"),
        ({"group": [5], "X": np.zeros(5)}, "X must be a matrix"),
        ({"group": [], "X": np.zeros((0, 1)), "clicks": []}, "X has no rows"),
    ],
)
def test_wrong_arrays_are_refused_by_name_and_row(arguments, message):
    with pytest.raises(ValueError, match=message):
        ClickLog.from_arrays(**{"X": X, "clicks": CLICKS, **arguments})


def test_features_whose_sum_is_too_large_for_float32_are_finite_all_the_same():
    X = np.full((4, 2), 3e38, dtype=np.float32)
    assert ClickLog.from_arrays(X, [0, 1, 0, 1], group=[2, 2]).features.max() == np.float32(3e38)
