"""Judgement lists: clicks over examination, with intervals, as CSV and as the workbench imports them."""

import json

import numpy as np
import pytest
from scipy.stats import poisson
from typer.testing import CliRunner

from unskew import ClickLog, write_log
from unskew.cli import app
from unskew.serving.ratings import judgements


@pytest.fixture
def log():
    """Two documents that change places, 100 sessions each; the second place is examined half as often."""
    return ClickLog(
        features=np.eye(2, dtype=np.float32),
        versions=np.array([[0, 1], [1, 0]], dtype=np.int32),
        mask=np.ones((2, 2), dtype=bool),
        clicks=np.array([[40.0, 10.0], [20.0, 20.0]]),
        sessions=np.array([100.0, 100.0]),
    )


def test_ratings_are_clicks_over_examination(log):
    table = judgements(log, curve=[1.0, 0.5]).table
    assert table["rating"].to_pylist() == pytest.approx([60 / 150, 30 / 150])
    assert table["impressions"].to_pylist() == [200, 200]
    rates = 60 / 200, 30 / 200  # of the two places
    assert table["coec"].to_pylist() == pytest.approx([60 / (100 * sum(rates)), 30 / (100 * sum(rates))])


def test_intervals_are_those_of_poisson_counts(log):
    table = judgements(log, curve=[1.0, 0.5]).table
    low, high = table["low"][0].as_py() * 150, table["high"][0].as_py() * 150
    assert poisson.sf(59, low) == pytest.approx(0.025)
    assert poisson.cdf(60, high) == pytest.approx(0.025)


def test_the_curve_is_estimated_where_documents_change_places(log):
    found = judgements(log)
    ratings = found.table["rating"].to_pylist()
    assert ratings[0] == pytest.approx(2 * ratings[1])
    assert found.estimator != "given"


def test_the_command_writes_what_the_workbench_imports(log, tmp_path):
    write_log(log, tmp_path / "log")
    for ending in ("csv", "json"):
        place = tmp_path / f"out.{ending}"
        assert CliRunner().invoke(app, ["judgements", str(tmp_path / "log"), "--out", str(place)]).exit_code == 0
    body = json.loads((tmp_path / "out.json").read_text())
    assert body["type"] == "IMPORT_JUDGMENT"
    assert [entry["docId"] for entry in body["judgmentRatings"][0]["ratings"]] == ["0", "1"]
    assert (tmp_path / "out.csv").read_text().startswith('"query","document","rating","low","high","coec"')
