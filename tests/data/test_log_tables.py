"""Logs from tables: a slow reference in pandas, tables of every library, and what must be refused."""

import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import open_log, read_log, write_log
from unskew.data.columns import begin_of_period

# Two sessions saw query "a" in the same order and clicked differently, a third one saw it in the other order.
ROWS = {
    "session": [1, 1, 2, 2, 3, 3],
    "query": ["a"] * 6,
    "document": ["x", "y", "x", "y", "y", "x"],
    "position": [0, 1, 0, 1, 0, 1],
    "click": [1, 0, 1, 1, 0, 0],
    "price": [0.5, 2.0, 0.5, 2.0, 2.0, 0.5],
}


def table(**changes):
    return pa.table({**ROWS, **changes})


def test_sessions_that_showed_the_same_list_are_one_row():
    log = ClickLog.from_table(table())
    assert log.sessions.tolist() == [2, 1]
    assert log.clicks.tolist() == [[2, 1], [0, 0]]
    assert log.document_ids[log.documents].tolist() == [["x", "y"], ["y", "x"]]
    assert log.features.tolist() == [[0.5], [2.0]]
    assert log.feature_names == ("price",)
    assert log.query_ids.tolist() == ["a"]
    assert log.compaction == 1.5


def test_patterns_keep_what_was_clicked_together():
    patterns = ClickLog.from_table(table()).patterns
    assert patterns.lists.tolist() == [0, 0, 1]
    assert patterns.clicks.tolist() == [[1, 0], [1, 1], [0, 0]]
    assert patterns.sessions.tolist() == [1, 1, 1]
    assert not ClickLog.from_table(table(), joint=False).joint


def test_features_belong_to_the_showing():
    log = ClickLog.from_table(table(price=[0.5, 2.0, 0.5, 3.0, 2.0, 0.5]))  # y became dearer for the second session
    assert log.features.tolist() == [[0.5], [2.0], [3.0]]
    assert log.version_documents.tolist() == [0, 1, 1]
    assert log.versions.tolist() == [[0, 1], [0, 2], [1, 0]]
    assert log.documents.tolist() == [[0, 1], [0, 1], [1, 0]]
    assert log.document_ids.tolist() == ["x", "y"]
    assert log.sessions.tolist() == [1, 1, 1]


def test_a_missing_feature_is_a_version_of_its_own_and_equals_itself():
    nan = float("nan")
    log = ClickLog.from_table(table(price=[0.5, nan, 0.5, None, 2.0, 0.5]))
    np.testing.assert_array_equal(log.features, [[0.5], [nan], [2.0]])
    assert log.sessions.tolist() == [2, 1]


def test_text_becomes_categories():
    log = ClickLog.from_table(table(brand=["b", "a", "b", "a", "a", "b"]), features=["price", "brand"])
    assert log.categories == {"brand": ("a", "b")}
    assert log.features.tolist() == [[0.5, 1], [2.0, 0]]
    assert log.to_table(features=True)["brand"].to_pylist() == ["b", "a", "a", "b"]


def test_context_stands_once_per_list_and_parts_lists():
    log = ClickLog.from_table(table(hour=[8, 8, 9, 9, 8, 8]), context=["hour"])
    assert log.context.tolist() == [[8], [9], [8]]
    assert (log.context_names, log.n_features, log.n_inputs) == (("hour",), 1, 2)
    assert log.input_names == ("price", "hour")
    joined = log.with_context_as_features()
    assert joined.features[joined.versions].tolist() == [[[0.5, 8], [2, 8]], [[0.5, 9], [2, 9]], [[2, 8], [0.5, 8]]]
    assert joined.documents.tolist() == log.documents.tolist()


def test_events_of_other_kinds_are_counted():
    log = ClickLog.from_table(table(carts=[1, 0, 1, 0, 0, 0], bought=[1, 0, 0, 0, 0, 0]), events=["carts", "bought"])
    assert log.events["carts"].tolist() == [[2, 0], [0, 0]]
    assert log.events["bought"].tolist() == [[1, 0], [0, 0]]
    assert log.feature_names == ("price",)


def test_dwell_is_added_up_over_sessions_and_kept_with_the_lists(tmp_path):
    sessions = {"session": [1, 1, 2, 2], "query": [7] * 4, "document": [3, 4, 3, 4], "position": [0, 1, 0, 1]}
    rows = pa.table(sessions | {"click": [1, 0, 1, 0], "seconds": [2.5, None, 4.0, 1.0]})
    log = ClickLog.from_table(rows, dwell="seconds")
    assert log.dwell.tolist() == [[6.5, 1.0]]
    assert log.feature_names == ()
    assert log.screen().rows[0] == ("1", "2", "2", "1.0000", "3.2")
    assert log.to_table()["dwell"].to_pylist() == [6.5, 1.0]
    assert read_log(write_log(log, tmp_path / "log")).digest == log.digest
    assert "dwell" not in open_log(write_log(replace(log, dwell=None), tmp_path / "without")).about
    assert log.weighted(np.array([2.0])).dwell.tolist() == [[13.0, 2.0]]
    with pytest.raises(ValueError, match="column 'seconds', row 0"):
        ClickLog.from_table(rows.set_column(5, "seconds", pa.array([-1.0, 0, 0, 0])), dwell="seconds")


def test_looks_are_counted_where_they_were_recorded():
    log = ClickLog.from_table(table(look=[2.5, 0, None, None, 1, 1]), seen="look")  # seconds in the viewport
    assert log.seen.tolist() == [[1, 0], [1, 1]]
    assert log.seen_sessions.tolist() == [1, 1]
    assert log.sessions.tolist() == [2, 1]


def test_lists_are_counted_per_period():
    day = 86_400 * 10**6
    times = [0, 0, day + 5, day + 5, 7, 7]
    log = ClickLog.from_table(table(t=times), time="t", period="day")
    assert log.periods.tolist() == [0, day, 0]
    assert log.sessions.tolist() == [1, 1, 1]
    assert ClickLog.from_table(table(t=times), time="t").sessions.tolist() == [2, 1]
    assert log.between(since=day).sessions.tolist() == [1]
    assert log.between(until=day).n_clicks == 1
    assert log.weighted(np.array([1.0, 0.5, 1.0])).clicks.tolist() == [[1, 0], [0.5, 0.5], [0, 0]]


@pytest.mark.parametrize(
    ("period", "begin"),
    [("hour", "2024-02-29T13"), ("day", "2024-02-29"), ("week", "2024-02-26"), ("month", "2024-02")],
)
def test_a_period_begins_where_the_calendar_says(period, begin):
    time = np.array(["2024-02-29T13:30:01"], dtype="datetime64[us]").astype(np.int64)
    assert begin_of_period(time, period).tolist() == np.array([begin], dtype="datetime64[us]").astype(np.int64).tolist()


@st.composite
def impression_rows(draw):
    """Showings of lists with gaps between positions, rows in any order, bias columns by showing and by document."""
    rows = []
    for session in range(draw(st.integers(1, 6))):
        query = draw(st.integers(0, 2))
        documents = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True))
        places = sorted(draw(st.lists(st.integers(1, 5), min_size=len(documents) - 1, max_size=4, unique=True)))
        device = draw(st.sampled_from(["phone", "desk"]))
        for document, place in zip(documents, [0, *places], strict=False):
            click, kind = draw(st.booleans()), draw(st.sampled_from(["ad", "web"]))
            rows.append((session, query, document, place, int(click), device, kind, 10.0 * query + document))
    columns = ["session", "query", "document", "position", "click", "device", "kind", "feature"]
    return pd.DataFrame(draw(st.permutations(rows)), columns=columns)


def slow_reference(rows, by):
    """Shown list -> (sessions, clicks of each place, patterns), one session after the other."""
    counted = {}
    for _, showing in rows.groupby(["session", "query"]):
        showing = showing.sort_values("position")
        key = (showing["query"].iloc[0], *(tuple(showing[name]) for name in ("document", "position", *by)))
        sessions, clicks, patterns = counted.get(key, (0, np.zeros(len(showing)), {}))
        pattern = tuple(showing["click"])
        patterns[pattern] = patterns.get(pattern, 0) + 1
        counted[key] = (sessions + 1, clicks + pattern, patterns)
    return counted


def as_reference(log, by):
    counted = {}
    for row in range(log.n_lists):
        real = log.mask[row]
        shown = log.documents[row][real]
        columns = [np.array(log.bias[name].levels)[log.bias[name].per_document(log.n_docs)[row][real]] for name in by]
        parts = (log.document_ids[shown], log.positions[row][real], *columns)
        key = (log.query_ids[log.queries[row]], *(tuple(part.tolist()) for part in parts))
        mine = log.patterns.lists == row
        patterns = {
            tuple(int(click) for click in pattern[real]): int(weight)
            for pattern, weight in zip(log.patterns.clicks[mine], log.patterns.sessions[mine], strict=True)
        }
        counted[key] = (log.sessions[row], log.clicks[row][real].tolist(), patterns)
        assert log.features[shown].tolist() == [[10.0 * key[0] + document] for document in key[1]]
    return counted


@given(impression_rows(), st.sampled_from([(), ("device",), ("kind",), ("device", "kind")]))
@settings(max_examples=60, deadline=None)
def test_counting_agrees_with_a_slow_reference(rows, by):
    log = ClickLog.from_table(rows, features=["feature"], bias=by)
    expected = slow_reference(rows, by)
    found = as_reference(log, by)
    assert found.keys() == expected.keys()
    assert log.n_lists == len(expected)
    for key, (sessions, clicks, patterns) in expected.items():
        assert found[key] == (sessions, clicks.tolist(), patterns)


@pytest.mark.parametrize(
    "same",
    [
        pd.DataFrame(ROWS),
        pd.DataFrame(ROWS, index=[5, 3, 9, 1, 0, 2]),
        pd.DataFrame(ROWS).astype({"session": "Int64", "click": "boolean", "query": "category", "price": "Float32"}),
        pl.DataFrame(ROWS),
        pl.DataFrame(ROWS).with_columns(
            pl.col("query").cast(pl.Enum(["b", "a"])), pl.col("document").cast(pl.Categorical)
        ),
        table(price=[Decimal(str(price)) for price in ROWS["price"]]),
        table(click=[bool(click) for click in ROWS["click"]], session=["s1", "s1", "s2", "s2", "s3", "s3"]),
        table(session=np.array(ROWS["session"], dtype=np.uint64) + np.uint64(2**63)),
        pa.concat_tables([table().slice(0, 3), table().slice(3)]),
        table().to_batches()[0],
    ],
)
def test_tables_of_every_library_and_type_give_the_same_log(same):
    log = ClickLog.from_table(same)
    assert log.feature_names == ("price",)
    assert log.features.tolist() == [[0.5], [2.0]]
    assert log.clicks.tolist() == [[2, 1], [0, 0]]
    assert log.document_ids.tolist() == ["x", "y"]


def test_ids_keep_their_type():
    log = ClickLog.from_table(table(query=[2**62] * 6, document=["日本", "ü"] * 2 + ["ü", "日本"]))
    assert log.query_ids.tolist() == [2**62]
    assert log.document_ids.tolist() == ["日本", "ü"]


def test_feature_columns_are_in_memory_one_at_a_time():
    n_rows = 50_000
    base = {
        "session": np.arange(n_rows) // 10,
        "query": np.zeros(n_rows, dtype=int),
        "document": np.arange(n_rows) % 10,
        "position": np.arange(n_rows) % 10,
        "click": np.zeros(n_rows, dtype=int),
    }

    def peak(n_features):
        columns = {f"f{number}": (np.arange(n_rows) % 10).astype(float) for number in range(n_features)}
        impressions = pa.table({**base, **columns})
        tracemalloc.start()
        ClickLog.from_table(impressions)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(60) - peak(1) < 5 * n_rows * 8  # five columns, not sixty


def test_the_same_document_of_another_query_is_another_document():
    log = ClickLog.from_table(table(query=["a", "a", "b", "b", "b", "b"], price=[1.0, 2.0, 3.0, 4.0, 4.0, 3.0]))
    assert log.features.tolist() == [[1.0], [2.0], [3.0], [4.0]]
    assert log.query_ids[log.queries].tolist() == ["a", "b", "b"]


def test_rows_of_a_query_need_not_stand_together():
    order = [4, 0, 3, 1, 5, 2]
    shuffled = ClickLog.from_table(table().take(order))
    assert sorted(shuffled.sessions.tolist()) == [1, 2]
    assert shuffled.n_clicks == 3


def test_a_session_may_hold_several_queries():
    log = ClickLog.from_table(table(session=[1] * 6, query=["a", "a", "b", "b", "c", "c"]))
    assert log.n_lists == 3
    assert log.n_sessions == 3


def test_lists_of_one_document_no_clicks_and_all_clicks_are_logs():
    alone = table().take([0, 2])
    log = ClickLog.from_table(alone)
    assert (log.n_docs, log.n_lists, log.n_sessions) == (1, 1, 2)
    assert ClickLog.from_table(table(click=[0] * 6)).n_clicks == 0
    assert ClickLog.from_table(table(click=[1] * 6)).n_clicks == 6


def test_gaps_in_positions_are_kept():
    log = ClickLog.from_table(table(position=[0, 4, 0, 4, 0, 7]))
    assert log.positions.tolist() == [[0, 4], [0, 7]]
    assert log.n_positions == 8


def test_positions_may_count_from_one():
    log = ClickLog.from_table(table(position=[1, 2, 1, 2, 1, 2]), first_position=1)
    assert log.positions.tolist() == [[0, 1], [0, 1]]


def test_no_features_are_features_too():
    log = ClickLog.from_table(table().drop_columns(["price"]))
    assert log.features.shape == (2, 0)
    assert ClickLog.from_table(table(), features=[]).n_features == 0


def test_counts_come_with_the_sessions_of_the_list():
    counted = pa.table(
        {
            "list": [1, 1, 2, 2],
            "query": ["a"] * 4,
            "document": ["x", "y", "x", "y"],
            "position": [0, 1, 0, 1],
            "clicks": [30, 2, 5, 0],
            "shown": [100, 100, 2**25 + 1, 2**25 + 1],
        }
    )
    log = ClickLog.from_table(counted, session="list", click="clicks", sessions="shown")
    assert log.clicks.tolist() == [[35, 2]]
    assert log.sessions.tolist() == [2**25 + 101]
    assert not log.joint
    assert log.n_features == 0


def test_counts_of_single_sessions_are_joint():
    assert ClickLog.from_table(table(n=[1] * 6), sessions="n").joint


def test_weights_multiply_sessions_and_clicks():
    log = ClickLog.from_table(table(weight=[0.5, 0.5, 2.0, 2.0, 1.0, 1.0]), weight="weight")
    assert log.sessions.tolist() == [2.5, 1.0]
    assert log.clicks.tolist() == [[2.5, 2.0], [0, 0]]
    assert log.patterns.clicks.max() == 1
    assert log.patterns.sessions.tolist() == [0.5, 2.0, 1.0]


def test_graded_feedback_is_added_up():
    log = ClickLog.from_table(table(click=[0, 12.5, 0, 30, 0, 0]), graded=True)
    assert log.clicks.tolist() == [[0, 42.5], [0, 0]]


def test_a_bias_column_of_lists_tells_lists_apart():
    log = ClickLog.from_table(table(device=["phone", "phone", "desk", "desk", "desk", "desk"]), bias=["device"])
    assert log.n_lists == 3
    assert log.bias["device"].levels == ("desk", "phone")
    assert log.bias["device"].values.tolist() == [1, 0, 0]


@pytest.mark.parametrize("values", [["ad", "web", "ad", "web", "ad", "web"], [7, 8, 7, 8, 7, 8], [True, False] * 3])
def test_text_integers_and_booleans_are_levels_by_document(values):
    column = ClickLog.from_table(table(kind=values), bias=["kind"]).bias["kind"]
    assert column.values.shape == (2, 2)
    assert np.array(column.levels)[column.values[0]].tolist() == [str(value).lower() for value in values[:2]]


def test_fractions_are_numbers():
    column = ClickLog.from_table(table(height=[0.5, 1.5] * 3), bias=["height"]).bias["height"]
    assert column.levels is None
    assert column.values.tolist() == [[0.5, 1.5], [0.5, 1.5]]


def test_interventions_are_numbered_from_none():
    log = ClickLog.from_table(table(changed=["none", "none", "alpha", "alpha", "none", "none"]), intervention="changed")
    assert log.interventions.levels == ("none", "alpha")
    assert log.n_lists == 3
    assert log.intervened().n_sessions == 1


def test_policy_scores_are_averaged_over_sessions():
    log = ClickLog.from_table(table(score=[1.0, 0.0, 3.0, 0.0, 5.0, 4.0]), policy_score="score")
    assert log.policy_scores.tolist() == [[2.0, 0.0], [5.0, 4.0]]
    assert log.feature_names == ("price",)


@pytest.mark.parametrize(
    "times",
    [
        [datetime(2024, 1, day, tzinfo=UTC) for day in (3, 3, 1, 1, 2, 2)],
        pa.array([datetime(2024, 1, day) for day in (3, 3, 1, 1, 2, 2)], pa.timestamp("ns")),
        pa.array([datetime(2024, 1, day).date() for day in (3, 3, 1, 1, 2, 2)]),
        [1_704_067_200_000_000 + day * 86_400_000_000 for day in (2, 2, 0, 0, 1, 1)],
    ],
)
def test_a_list_is_first_shown_at_its_earliest_session(times):
    log = ClickLog.from_table(table(time=times), time="time")
    assert log.first_shown.tolist() == [1_704_067_200_000_000, 1_704_153_600_000_000]


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({}, {"click": "clicked"}, "no column 'clicked' in the table. Found: session, query"),
        ({}, {"features": ["weight"]}, "no column 'weight'"),
        ({"position": [0, 0, 0, 1, 0, 1]}, {}, r"column 'position', rows 0 and 1: two documents at position 0"),
        ({"position": [0, -1, 0, 1, 0, 1]}, {}, "column 'position', row 1: -1 is not allowed"),
        ({"position": [0, 1.5, 0, 1, 0, 1]}, {}, "column 'position', row 1: 1.5 .* whole number"),
        ({"position": [0, 2**40, 0, 1, 0, 1]}, {}, "column 'position', row 1: .* to 32767"),
        ({"position": [1, 2, 1, 2, 1, 2]}, {}, "does the log count from 1\\? If so, pass first_position=1"),
        ({"position": ["a", "b"] * 3}, {}, "column 'position' holds string, but must hold numbers, e.g. 'a' in row 0"),
        ({"click": [0, 0, 0, -1, 0, 0]}, {}, "column 'click', row 3: -1.0 is not allowed"),
        (
            {"click": [0, 0, 0, 2, 0, 0]},
            {},
            r"column 'click', row 3: 2.0 .* a click is 0 or 1 \(for dwell times, pass graded=True",
        ),
        ({"click": [0, 0, float("nan"), 0, 0, 0]}, {}, "column 'click', row 2: nan"),
        ({"click": [0, 0, None, 0, 0, 0]}, {}, "column 'click', row 2: missing value"),
        ({"click": [0, 0, -1.0, 0, 0, 0]}, {"graded": True}, "column 'click', row 2: -1.0"),
        ({"session": [1, 1, None, 2, 3, 3]}, {}, "column 'session', row 2: missing value"),
        ({"price": [0.5, 2, 0.5, 2, 1e300, 0.5]}, {}, "column 'price', row 4: inf"),
        ({"hour": [1, 1, 2, 2, 3, 4]}, {"context": ["hour"]}, "column 'hour', row 5: 4.0, but row 4 has 3.0"),
        ({}, {"period": "day"}, "lists cannot be counted per day without times"),
        ({"t": [0] * 6}, {"time": "t", "period": "fortnight"}, "choose from hour, day, week, month"),
        ({"look": [1, 1, -1, 1, 1, 1]}, {"seen": "look"}, "column 'look', row 2: -1"),
        ({"carts": [0, 1, 0, -1, 0, 0]}, {"events": ["carts"]}, "column 'carts', row 3: -1"),
        ({"n": [5, 5, 5, 5, 5, 4]}, {"sessions": "n"}, "column 'n', row 5: 4.0, but row 4 has 5.0"),
        ({"n": [0] * 6}, {"sessions": "n"}, "column 'n', row 0: 0.0 .* sessions must be above 0"),
        ({"n": [2.0**54] * 6}, {"sessions": "n"}, r"counts of 2\^53 or more"),
        ({"click": [6] * 6, "n": [5] * 6}, {"sessions": "n"}, "column 'click', row 0: 6.0 .* cannot exceed 'n'"),
        ({"w": [1.0, 0, 1, 1, 1, 1]}, {"weight": "w"}, "column 'w', row 1: 0.0 .* weights must be above 0"),
        ({"w": [1.0, 2, 1, 1, 1, 1]}, {"weight": "w"}, "column 'w', row 1: 2.0, but row 0 has 1.0"),
        ({"n": [1] * 6}, {"sessions": "n", "weight": "n"}, "not both"),
        ({"t": ["monday"] * 6}, {"time": "t"}, "column 't' holds string, but must hold timestamps"),
        ({"i": [0.5] * 6}, {"intervention": "i"}, "column 'i' holds fractions"),
        ({"s": [float("inf")] * 6}, {"policy_score": "s"}, "column 's', row 0: inf"),
        ({"b": [float("nan")] * 6}, {"bias": ["b"]}, "column 'b', row 0: nan"),
    ],
)
def test_wrong_tables_are_refused_by_column_and_row(changes, arguments, message):
    with pytest.raises(ValueError, match=message):
        ClickLog.from_table(table(**changes), **arguments)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (table().slice(0, 0), "no rows"),
        (pd.DataFrame({**ROWS, "query": ["a", 1, "a", 1, "a", 1]}), "column query.*convert it"),
        (table().append_column("click", pa.array([0] * 6)), "column 'click' occurs 2 times"),
        (ROWS, "got dict"),
    ],
)
def test_what_is_no_table_of_impressions_is_refused(wrong, words):
    with pytest.raises((TypeError, ValueError), match=words):
        ClickLog.from_table(wrong)


def test_parquet_errors_name_the_file(tmp_path):
    good = tmp_path / "rows.parquet"
    pq.write_table(table(), good)
    assert ClickLog.from_parquet(good).n_clicks == 3
    with pytest.raises(ValueError, match=r"rows.parquet: no column 'c'"):
        ClickLog.from_parquet(good, click="c")
    with pytest.raises(FileNotFoundError, match=r"none.parquet does not exist"):
        ClickLog.from_parquet(tmp_path / "none.parquet")
    (tmp_path / "cut.parquet").write_bytes(good.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"cut.parquet cannot be read as parquet"):
        ClickLog.from_parquet(tmp_path / "cut.parquet")


def test_grades_weigh_events_by_kind():
    rows = table(carts=[1, 0, 1, 0, 0, 0], bought=[1, 0, 0, 0, 0, 0])
    log = ClickLog.from_table(rows, events=["carts", "bought"])  # x: 2 clicks, 2 carts, 1 purchase; y: 1 click
    weights = {"click": 1, "carts": 3, "bought": 5}
    strongest, added = log.with_grades(weights), log.with_grades(weights, "sum")
    assert strongest.clicks.tolist() == [[5 + 3, 1], [0, 0]]
    assert added.clicks.tolist() == [[2 * 1 + 2 * 3 + 5, 1], [0, 0]]
    assert strongest.graded
    assert not strongest.joint
    assert log.clicks.tolist() == [[2, 1], [0, 0]]
    with pytest.raises(ValueError, match="the log has no events of type 'rent': choose from click, carts, bought"):
        log.with_grades({"rent": 1})
