"""Rankings on disk, and debiased rows for trees."""

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from unskew import ClickLog, JudgedSet, Recipe, fit
from unskew.serving.rankings import write_ranking
from unskew.serving.ratings import debiased_rows

JUDGED = JudgedSet(
    features=np.zeros((3, 1), np.float32),
    grades=np.zeros(3, np.float32),
    offsets=np.array([0, 2, 3]),
    query_ids=np.array(["x", "y"]),
    document_ids=np.array(["a", "b", "c"]),
)


def test_scores_are_keyed_by_the_original_ids_best_first(tmp_path):
    write_ranking(JUDGED, np.array([0.1, 0.9, 0.5]), tmp_path / "scores.parquet")
    table = pq.read_table(tmp_path / "scores.parquet").to_pydict()
    assert table == {"query": ["x", "x", "y"], "document": ["b", "a", "c"], "score": [0.9, 0.1, 0.5], "rank": [1, 2, 1]}


def test_csv_and_trec_runs_hold_the_same(tmp_path):
    write_ranking(JUDGED, np.array([0.1, 0.9, 0.5]), tmp_path / "scores.csv")
    assert pa_csv.read_csv(tmp_path / "scores.csv")["document"].to_pylist() == ["b", "a", "c"]
    write_ranking(JUDGED, np.array([0.1, 0.9, 0.5]), tmp_path / "scores.trec", tag="mine")
    assert (tmp_path / "scores.trec").read_text().splitlines()[0] == "x Q0 b 1 0.9 mine"


def test_another_ending_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"must be one of \.parquet, \.csv, \.trec"):
        write_ranking(JUDGED, np.zeros(3), tmp_path / "scores.xlsx")
    assert not list(tmp_path.iterdir())


def test_targets_are_click_rates_over_examination():
    log = ClickLog.from_arrays(np.eye(4), [60, 10, 30, 20], group=[2, 2], sessions=[100, 100])
    model = fit(Recipe.of("ipw", propensities=[1.0, 0.5], steps=1, hidden=(4,)), log)
    rows = debiased_rows(log, model)
    np.testing.assert_allclose(rows["target"].to_numpy(), [0.6, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(rows["weight"].to_numpy(), np.array([1, 0.25, 1, 0.25]) / 0.625)
    assert rows["grade"].to_pylist() == [4, 1, 2, 3]


def test_a_method_without_a_curve_cannot_debias():
    log = ClickLog.from_arrays(np.eye(2), [1, 0], group=[2])
    model = fit(Recipe.of("naive", steps=1, hidden=(4,)), log)
    with pytest.raises(ValueError, match="naive learns no examination curve"):
        debiased_rows(log, model)
