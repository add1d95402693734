"""Rankers of other programs are rows alongside ours."""

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.comparison import held_out
from unskew.comparison.outside import click_grades, read_scores, shown_places
from unskew.comparison.own_log import compare
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.row_fields import BiasColumn
from unskew.data.clicks.storage import write_log
from unskew.evaluation import offline
from unskew.evaluation.held_out import HeldOut

pytestmark = pytest.mark.long

TRAINING = {"steps": 8, "hidden": [4]}


@pytest.fixture(scope="module")
def done(log, tmp_path_factory):
    """A method, trees on its targets, LightGBM, and the scores of a foreign ranker: minus the mean position."""
    place = tmp_path_factory.mktemp("outside")
    folder = write_log(log, place / "log")
    rows = log.to_table()
    mean = rows.group_by(["query", "document"]).aggregate([("position", "mean")])
    scores = pa.table(
        {"query": mean["query"], "document": mean["document"], "score": -mean["position_mean"].to_numpy()}
    )
    pq.write_table(scores, place / "scores.parquet")
    names = ["dla", "dla+trees", "lightgbm", "lightgbm_position"]
    settings = {"options": TRAINING, "seeds": 1, "jobs": 1, "out": place / "out"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_out, "fit_relevance", lambda *_: lambda features: np.full(len(features), 0.1))
        with pytest.warns(UserWarning, match="too optimistic"):
            found = compare(folder, names, scores={"old": place / "scores.parquet"}, **settings)
    return found, folder


def test_every_ranker_has_a_row_with_the_criteria_it_can_be_measured_by(done):
    found, _ = done
    assert not found.results.failed
    criteria = next(sheet for sheet in found.shown.sheets if sheet.name == "criteria")
    assert criteria.columns == ("", "production", "dla", "dla+trees", "lightgbm", "lightgbm_position", "old")
    cells = {row[0][:-2]: list(row[1:]) for row in criteria.rows}
    assert all(re.match(r"[\d.]+ ± ", cell) for cell in cells["IPS DCG@10"])
    assert cells["click likelihood"][2:] == ["predicts no clicks"] * 4  # a network that does not rank is not asked
    assert cells["DR, all documents"][-1] == "scores shown documents only"


def test_scores_that_lack_a_document_or_a_column_are_refused_by_name(done, tmp_path):
    _, folder = done
    file = tmp_path / "scores.parquet"
    pq.write_table(pa.table({"query": [1], "document": [2], "value": [0.5]}), file)
    with pytest.raises(ValueError, match=r"no column 'score'\. Found: query, document, value"):
        read_scores(file)
    pq.write_table(pa.table({"query": [1, 1], "document": [2, 2], "score": [0.5, 0.6]}), file)
    with pytest.raises(ValueError, match="1 documents have several scores"):
        read_scores(file)
    pq.write_table(pa.table({"query": ["?"], "document": ["?"], "score": [0.5]}), file)
    with pytest.warns(UserWarning, match="too optimistic"):
        found = compare(folder, ["dla"], scores={"old": file}, options=TRAINING, seeds=1, jobs=1, out=tmp_path / "out")
    (failure,) = found.results.failed
    assert "have no finite score, the first is document" in str(failure)


def test_any_score_array_has_an_ips_estimate_from_python(log):
    shown = HeldOut(log)
    curve = 1 / np.arange(1, log.n_positions + 1)
    rng = np.random.default_rng(0)
    good = np.bincount(shown.impressions.documents, shown.impressions.clicks / curve[shown.impressions.positions])
    good = np.pad(good, (0, len(log.features) - len(good)))
    assert offline.ips(good, shown, curve).mean() > offline.ips(rng.random(len(good)), shown, curve).mean()


def test_every_click_counts_as_a_grade():
    log = ClickLog.from_arrays(np.zeros((4, 1)), [1, 128, 1, 5_000], sessions=[128, 10_000], group=[2, 2])
    # 5,000 is scaled to 1,000, and 1 / 5 is rounded up.
    assert click_grades(log).tolist() == [[1, 128], [1, 1_000]]


def test_a_place_is_a_position_on_a_device():
    device = BiasColumn(np.array([0, 1, 0]), ("desktop", "phone"))
    log = replace(ClickLog.from_arrays(np.zeros((6, 1)), [1, 0] * 3, group=[2] * 3), bias={"device": device})
    assert shown_places(log).tolist() == [[0, 2], [1, 3], [0, 2]]
