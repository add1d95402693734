"""What a log is: sizes, choices, splits, what it refuses, and how it becomes a table again."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.row_fields import BiasColumn, Patterns


def small_log(**changes):
    """Three lists of queries 0, 0 and 1; the last has one document."""
    fields = {
        "features": np.arange(6, dtype=np.float32).reshape(3, 2),
        "versions": np.array([[0, 1], [1, 0], [2, 0]], dtype=np.int32),
        "mask": np.array([[True, True], [True, True], [True, False]]),
        "clicks": np.array([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]], dtype=np.float32),
        "sessions": np.array([2.0, 4.0, 1.0], dtype=np.float32),
        "document_queries": np.array([0, 0, 1]),
        "query_ids": np.array(["cat", "dog"]),
        "document_ids": np.array([10, 11, 20]),
        "feature_names": ("length", "age"),
        "patterns": Patterns(
            lists=np.array([0, 0, 1, 1, 2]),
            clicks=np.array([[1, 1], [1, 0], [0, 1], [0, 0], [1, 0]], dtype=np.float32),
            sessions=np.array([1.0, 1.0, 3.0, 1.0, 1.0], dtype=np.float32),
        ),
        "bias": {
            "device": BiasColumn(np.array([0, 1, 1]), ("desk", "phone")),
            "height": BiasColumn(np.array([[1, 2], [3, 4], [5, 0]], dtype=np.float32)),
        },
        "policy_scores": np.array([[3, 2], [3, 2], [1, 0]], dtype=np.float32),
        "interventions": BiasColumn(np.array([0, 1, 0]), ("none", "swap")),
        "first_shown": np.array([30, 10, 20]),
    }
    return ClickLog(**{**fields, **changes})


def test_a_log_knows_its_sizes():
    log = small_log()
    assert (log.n_lists, log.n_docs, log.n_features, log.n_positions) == (3, 2, 2, 2)
    assert (log.n_sessions, log.n_clicks, log.compaction) == (7, 7, 7 / 3)
    assert log.queries.tolist() == [0, 0, 1]
    assert repr(log) == "ClickLog(7 sessions in 3 joint lists, 7 clicks, 3 documents, 2 features, 2 positions)"
    assert "counted" in repr(log.marginal())


def test_positions_are_the_order_shown_unless_given():
    assert small_log().positions.tolist() == [[0, 1], [0, 1], [0, 0]]


def test_without_queries_lists_that_share_a_document_answer_the_same():
    log = ClickLog(
        features=np.zeros((6, 1), dtype=np.float32),
        versions=np.array([[0, 1], [2, 3], [1, 4]], dtype=np.int32),
        mask=np.ones((3, 2), dtype=bool),
        clicks=np.zeros((3, 2)),
        sessions=np.ones(3),
    )
    assert log.queries.tolist() == [0, 1, 0]
    assert log.document_queries[:5].tolist() == [0, 0, 1, 1, 0]


@pytest.mark.parametrize("choice", [[2, 0], np.array([True, False, True]), [2, 2, -3]])
def test_chosen_lists_bring_all_that_belongs_to_them(choice):
    log = small_log()
    rows = np.flatnonzero(choice) if np.asarray(choice).dtype == bool else np.array(choice)
    chosen = log.select(choice)
    assert chosen.clicks.tolist() == log.clicks[rows].tolist()
    assert chosen.bias["device"].values.tolist() == log.bias["device"].values[rows].tolist()
    assert chosen.bias["height"].values.tolist() == log.bias["height"].values[rows].tolist()
    assert chosen.first_shown.tolist() == log.first_shown[rows].tolist()
    assert np.bincount(chosen.patterns.lists, chosen.patterns.sessions).tolist() == log.sessions[rows].tolist()
    assert chosen.features is log.features


def test_no_list_at_all_is_a_log():
    nothing = small_log().select([])
    assert (nothing.n_lists, nothing.n_sessions, nothing.n_positions, nothing.compaction) == (0, 0, 0, 0)
    assert nothing.to_table().num_rows == 0


def test_a_log_of_some_queries_has_their_documents_only():
    part = small_log().of_queries([1])
    assert part.document_ids.tolist() == [20]
    assert part.features.tolist() == [[4, 5]]
    assert part.documents.tolist() == [[0, 0]]
    assert part.query_ids.tolist() == ["dog"]
    assert part.sessions.tolist() == [1]


def test_a_split_shares_no_query_and_loses_no_session():
    log = ClickLog.from_arrays(np.zeros((40, 1)), [0] * 40, query=np.repeat(np.arange(10), 4))
    train, held_out = log.split(0.3, seed=1)
    assert (train.n_lists, held_out.n_lists) == (7, 3)
    assert not set(train.queries) & set(held_out.queries)
    assert {*train.queries, *held_out.queries} == set(range(10))


def test_a_split_by_time_holds_out_the_queries_first_seen_last():
    train, held_out = small_log().split(0.5)  # query 0 was first seen at 10, query 1 at 20
    assert set(train.queries) == {0}
    assert set(held_out.queries) == {1}


@pytest.mark.parametrize("share", [0.001, 0.999])
def test_both_sides_of_a_split_have_a_query(share):
    assert all(part.n_lists for part in small_log().split(share))


def test_impossible_splits_are_refused():
    with pytest.raises(ValueError, match="between 0 and 1"):
        small_log().split(1.0)
    with pytest.raises(ValueError, match="one query cannot be split"):
        small_log().of_queries([0]).split(0.5)


def test_interventions_are_found_or_asked_for():
    assert small_log().intervened().sessions.tolist() == [4]
    with pytest.raises(ValueError, match="has no interventions"):
        small_log(interventions=None).intervened()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.zeros(3)}, "features must be a matrix"),
        ({"clicks": np.zeros((3, 3))}, "clicks has shape"),
        ({"sessions": np.ones(2)}, "one value per list"),
        ({"first_shown": np.ones(2)}, "first_shown has shape"),
        ({"policy_scores": np.zeros((2, 2))}, "policy_scores has shape"),
        ({"bias": {"d": BiasColumn(np.zeros(5))}}, "bias column 'd' has shape"),
        ({"feature_names": ("one",)}, "1 feature names, but 2 features"),
        ({"document_ids": np.arange(2)}, "these numbers must agree"),
        ({"document_queries": np.array([0, 0, 5])}, "points beyond query_ids"),
        ({"document_queries": np.array([0, 1, 1])}, "list 0: its documents belong to different queries"),
        ({"versions": np.array([[0, 1], [1, 0], [7, 0]])}, "beyond the feature matrix"),
        ({"versions": np.array([[0, 1], [1, 0], [-1, 0]])}, "beyond the feature matrix"),
        (
            {"mask": np.array([[True, True], [True, True], [False, False]])},
            "list 2: a list must show at least one document",
        ),
        ({"mask": np.array([[False, True], [True, True], [True, False]])}, "list 0: a list must show"),
        ({"sessions": np.array([2.0, 0.0, 1.0])}, "list 1: sessions is 0.0"),
        ({"clicks": np.array([[2, 1], [0, -3], [1, 0]])}, "list 1, document 1: clicks is -3"),
        ({"clicks": np.array([[2, 1], [0, 5], [1, 0]])}, "list 1, document 1: 5 clicks, more than"),
        ({"clicks": np.array([[2, 1], [0, np.nan], [1, 0]])}, "list 1, document 1: clicks is nan"),
        ({"clicks": np.array([[2, 1], [0, 1], [1, 1]])}, "list 2, document 1: clicks is 1 in padding"),
        ({"positions": np.array([[0, -1], [0, 1], [0, 0]])}, "list 0: position -1 is below 0"),
        ({"positions": np.array([[0, 1], [2, 2], [0, 0]])}, r"list 1: positions are \[2, 2\]"),
        ({"patterns": replace(small_log().patterns, lists=np.array([1, 0, 0, 1, 2]))}, "not sorted"),
        ({"patterns": replace(small_log().patterns, sessions=np.ones(5))}, "do not add up"),
        ({"patterns": replace(small_log().patterns, lists=np.array([0, 0, 1, 1, 9]))}, "do not add up"),
        ({"patterns": replace(small_log().patterns, clicks=np.zeros((5, 3)))}, "patterns have clicks"),
    ],
)
def test_logs_that_cannot_be_true_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        small_log(**changes)


def test_a_mask_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="there are 3 lists"):
        small_log().select([True, False])


def test_a_table_has_a_row_for_each_shown_document():
    table = small_log().to_table(features=True)
    assert table["list"].to_pylist() == [0, 0, 1, 1, 2]
    assert table["query"].to_pylist() == ["cat"] * 4 + ["dog"]
    assert table["document"].to_pylist() == [10, 11, 11, 10, 20]
    assert table["position"].to_pylist() == [0, 1, 0, 1, 0]
    assert table["clicks"].to_pylist() == [2, 1, 0, 3, 1]
    assert table["sessions"].to_pylist() == [2, 2, 4, 4, 1]
    assert table["policy_score"].to_pylist() == [3, 2, 3, 2, 1]
    assert table["intervention"].to_pylist() == ["none", "none", "swap", "swap", "none"]
    assert table["device"].to_pylist() == ["desk", "desk", "phone", "phone", "phone"]
    assert table["height"].to_pylist() == [1, 2, 3, 4, 5]
    assert table["first_shown"].cast(pa.int64()).to_pylist() == [30, 30, 10, 10, 20]
    assert table["age"].to_pylist() == [1, 3, 3, 1, 5]


def test_a_table_becomes_the_same_counted_log_again():
    log = small_log()
    again = ClickLog.from_table(
        log.to_table(features=True),
        session="list",
        click="clicks",
        sessions="sessions",
        bias=["device", "height"],
        policy_score="policy_score",
        intervention="intervention",
        time="first_shown",
    )
    assert again.to_table(features=True).equals(log.marginal().to_table(features=True))


def test_features_without_names_are_numbered_in_a_table():
    names = small_log(feature_names=()).to_table(features=True).column_names
    assert names[-2:] == ["feature_0", "feature_1"]
    assert "length" not in small_log().to_table().column_names


def test_names_that_would_clash_in_a_table_are_refused():
    with pytest.raises(ValueError, match="already has another column 'clicks': rename the feature"):
        small_log(feature_names=("clicks", "age")).to_table(features=True)


def test_a_log_without_features_works_like_any_other():
    log = small_log(features=np.zeros((3, 0), dtype=np.float32), feature_names=())
    assert log.to_table(features=True).num_rows == 5
    assert log.of_queries([0]).features.shape == (2, 0)
    assert log.split(0.5)[0].n_features == 0


def test_counts_that_are_not_exact_are_refused_and_the_largest_exact_one_is_kept():
    largest = 2**53 - 1
    log = ClickLog.from_arrays([[1.0], [2.0]], clicks=[largest, 1], group=[2], sessions=[largest])
    assert log.clicks.tolist() == [[largest, 1]]
    assert log.n_sessions == largest
    for count in (2**53, 2**53 + 1, 2**70):
        with pytest.raises(ValueError, match=r"list 0.* sessions: counts of 2\^53 or more are not exact"):
            ClickLog.from_arrays([[1.0], [2.0]], clicks=[1, 0], group=[2], sessions=[count])
    with pytest.raises(ValueError, match=r"'cart': counts of 2\^53 or more are not exact"):
        small_log(events={"cart": np.array([[2.0**53, 0], [0, 0], [0, 0]])})
