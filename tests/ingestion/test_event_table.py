"""A log as an event table, and back."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.row_fields import BiasColumn
from unskew.data.clicks.storage import read_log
from unskew.ingestion.columns import Columns
from unskew.ingestion.event_table import event_tables, feature_table, single_sessions, write_event_table
from unskew.ingestion.run import ingest_tables
from unskew.ingestion.settings import Options, Tables

COUNTED = ClickLog(
    features=np.array([[1.0], [2.0], [3.0]], dtype=np.float32),
    versions=np.array([[0, 1], [2, 0]], dtype=np.int32),
    mask=np.array([[True, True], [True, False]]),
    clicks=np.array([[2.0, 1.0], [0.0, 0.0]]),
    sessions=np.array([3.0, 1.0]),
    document_queries=np.array([0, 0, 1]),
    query_ids=np.array(["shoes", "hats"], dtype=object),
    document_ids=np.array(["a", "b", "c"], dtype=object),
    bias={"device": BiasColumn(np.array([1, 0]), ("desktop", "phone"))},
)


def test_clicks_of_single_sessions_add_up_to_the_counts():
    lists, clicks = single_sessions(COUNTED, np.random.default_rng(0))
    assert lists.tolist() == [0, 0, 0, 1]
    assert clicks[:3].sum(0).tolist() == [2, 1]
    assert clicks[3].sum() == 0


def test_the_table_has_a_row_for_each_shown_document_and_counts_positions_from_1():
    (table,) = event_tables(COUNTED, np.random.default_rng(0))
    assert table.num_rows == 3 * 2 + 1
    rows = [row for row in table.to_pylist() if row["query"] == "hats"]
    assert [(row["document"], row["position"], row["clicked"], row["device"]) for row in rows] == [
        ("c", 1, 0, "desktop")
    ]
    assert feature_table(COUNTED).to_pydict() == {
        "query": ["shoes", "shoes", "hats"],
        "document": ["a", "b", "c"],
        "feature_0": [1.0, 2.0, 3.0],
    }


def test_weighted_and_graded_logs_have_no_single_events():
    weighted = ClickLog.from_arrays([[1.0]], [1], [1], weight=[0.5])
    with pytest.raises(ValueError, match="sessions of the log have weights"):
        next(event_tables(weighted, np.random.default_rng(0)))
    graded = ClickLog.from_arrays([[1.0]], [2.5], [1], graded=True)
    with pytest.raises(ValueError, match="graded feedback"):
        next(event_tables(graded, np.random.default_rng(0)))


def as_rows(log):
    """Lists of a log by what they say, in an order of their own."""
    rows = []
    for number in range(log.n_lists):
        shown = log.mask[number]
        documents = log.documents[number][shown]
        rows.append(
            (
                log.query_ids[log.queries[number]],
                tuple(log.document_ids[documents]),
                tuple(log.positions[number][shown]),
                tuple(log.clicks[number][shown]),
                float(log.sessions[number]),
                () if log.interventions is None else log.interventions.levels[log.interventions.values[number]],
                tuple(log.features[documents].ravel()),
            )
        )
    return sorted(rows, key=repr)


@pytest.mark.long
@pytest.mark.parametrize("joint", [False, True])
def test_a_simulated_log_comes_back_from_its_event_table(log, tmp_path, joint):
    original = log if joint else log.marginal()
    write_event_table(original, tmp_path / "events.parquet", np.random.default_rng(0))
    pq.write_table(feature_table(original), tmp_path / "features.parquet")
    done = ingest_tables(
        Tables(tmp_path / "events.parquet", features=tmp_path / "features.parquet"),
        tmp_path / "log",
        options=Options(joint=joint, threads=1),
    )
    back = read_log(tmp_path / "log")
    assert as_rows(back) == as_rows(original)
    assert done.dropped == {}
    assert done.sessions == original.n_sessions
    assert back.feature_names == original.feature_names or tuple(
        f"feature_{number}" for number in range(original.n_features)
    )
    if joint:
        counts = sorted(zip(back.patterns.clicks.sum(1).tolist(), back.patterns.sessions.tolist(), strict=True))
        expected = sorted(
            zip(original.patterns.clicks.sum(1).tolist(), original.patterns.sessions.tolist(), strict=True)
        )
        assert counts == expected


def test_bias_columns_come_back_as_one_value_a_list(tmp_path):
    write_event_table(COUNTED, tmp_path / "events.parquet", np.random.default_rng(0))
    pq.write_table(feature_table(COUNTED), tmp_path / "features.parquet")
    tables = Tables(tmp_path / "events.parquet", features=tmp_path / "features.parquet")
    ingest_tables(tables, tmp_path / "log", Columns(bias=["device"]), Options(threads=1))
    device = read_log(tmp_path / "log").bias["device"]
    assert device.levels == ("desktop", "phone")
    assert device.values.tolist() == [0, 1]  # hats come before shoes
