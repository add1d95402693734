"""Outcomes are no features, scores of production are named, and what looks odd in real data is neither."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.data.clicks.storage import read_log
from unskew.data.judged.catalogue import load_split
from unskew.ingestion.columns import Columns
from unskew.ingestion.event_table import event_tables, feature_table
from unskew.ingestion.preview import preview
from unskew.ingestion.run import ingest_tables
from unskew.ingestion.settings import Options, Tables
from unskew.simulation.policies import make_policy
from unskew.simulation.simulate import simulate
from unskew.simulation.users import make_user


def shop(n_sessions=40):
    """Lists of four documents with scores 4, 3, 2, 1; one of four is clicked, and every other click is a cart."""
    row = np.arange(4 * n_sessions)
    session, place = row // 4, row % 4
    clicked = (session % 4 == place).astype(int)
    return pa.table(
        {
            "session": session,
            "query": session % 20,
            "document": place,
            "position": place + 1,
            "clicked": clicked,
            "cart": clicked * (session % 8 < 4),
            "dwell": pa.array(7.0 + session, mask=clicked == 0),
            "points": 4.0 - place,
            "age": (place * 7) % 4,
            "rare": (row == 0).astype(float),  # its one row is clicked: that may be luck
        }
    )


def run(table, folder, columns=None):
    pq.write_table(table, folder / "events.parquet")
    done = ingest_tables(Tables(folder / "events.parquet"), folder / "log", columns, Options(threads=1), overwrite=True)
    return read_log(folder / "log"), done


def test_what_is_nonzero_only_after_a_click_is_left_out_by_name(tmp_path):
    log, done = run(shop().drop_columns(["rare"]), tmp_path)
    assert log.feature_names == ("points", "age")
    assert any("Outcomes, not features: cart, dwell" in remark for remark in done.remarks)


def test_one_document_with_a_value_and_a_click_may_be_luck(tmp_path):
    log, _ = run(shop().drop_columns(["cart", "dwell"]).take(pa.array([*range(160)])), tmp_path)
    assert log.feature_names == ("points", "age", "rare")  # .25 ** 1 is far from one in a million


def test_an_outcome_that_is_named_is_taken_and_said(tmp_path):
    log, done = run(shop(), tmp_path, Columns(features=["cart", "age"]))
    assert log.feature_names == ("cart", "age")
    assert any("nonzero only after a click: cart" in remark for remark in done.remarks)


def test_what_orders_the_lists_is_named_and_kept(tmp_path):
    table = shop().drop_columns(["rare"])
    _, done = run(table, tmp_path)
    assert any("orders the lists as shown: points" in remark for remark in done.remarks)
    _, done = run(table, tmp_path, Columns(policy_score="points"))
    assert not any("orders the lists" in remark for remark in done.remarks)


def test_a_text_column_is_no_score_of_production(tmp_path):
    table = shop(400).drop_columns(["rare", "points", "document"])
    place = table["position"].to_numpy()
    table = table.append_column("document", pa.array(place + 4 * table["query"].to_numpy()))
    table = table.append_column("shelf", pa.array(np.where(place < 3, "upper", "lower")))
    _, done = run(table, tmp_path)
    assert any("Categories: shelf" in remark for remark in done.remarks)
    assert not any("orders the lists" in remark for remark in done.remarks)


def test_a_dry_run_lists_every_column_and_counts_what_the_run_counts(tmp_path):
    table = shop().drop_columns(["rare"])
    lost = pa.concat_tables([table, table.slice(0, 1).set_column(2, "document", pa.array([3]))])  # two at place 1
    _, done = run(lost, tmp_path)
    found = preview(Tables(tmp_path / "events.parquet"), Columns(), Options(threads=1))
    assert found.dropped == done.dropped
    assert done.dropped["shared_position"] == 4
    assert found.counts["lists"] == done.lists
    listed = {entry.column: entry for entry in found.columns}
    assert list(listed) == table.column_names
    roles = ["session", "query", "document", "position", "click", "outcome", "outcome", "feature", "feature"]
    assert [entry.role for entry in listed.values()] == roles
    assert listed["dwell"].missing == pytest.approx(121 / 161, abs=0.01)
    assert (listed["points"].type, listed["points"].example) == ("float64", "4")


@pytest.mark.long
@pytest.mark.parametrize("data", ["world:tiny", "mq2008/1", "mslr-sample"])
def test_no_column_of_judged_data_is_taken_for_an_outcome(data, tmp_path):
    try:
        judged = load_split(data, "train")
    except FileNotFoundError:
        pytest.skip(f"{data} is not here")
    judged = judged.select(np.arange(min(60, judged.n_queries)))
    user = make_user("position_based")
    log = simulate(judged, make_policy("random"), user, sessions=20).log
    events = pa.concat_tables(event_tables(log, np.random.default_rng(1)))
    joined = events.join(feature_table(log), ["query", "document"])
    log, _ = run(joined, tmp_path)
    assert log.n_features == judged.n_features
