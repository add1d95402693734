"""Judged queries that a click log shows: counted, and numbers of the two kinds side by side."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import unskew
from unskew.cli import app
from unskew.comparison.rows import Outcome
from unskew.comparison.tables import seen_sheet
from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.evaluate import seen_queries


def log_of(queries, features):
    rows = len(queries)
    table = {"session": range(rows), "query": queries, "document": [f"d{n}" for n in range(rows)]}
    table |= {"position": [0] * rows, "click": [1] * rows, "a": features}
    return ClickLog.from_table(pa.table(table))


def judged_of(ids, features):
    judged = JudgedSet.from_arrays(np.array(features)[:, None], grades=[1] * len(ids), group=[1] * len(ids))
    return replace(judged, query_ids=np.array(ids, dtype=object if isinstance(ids[0], str) else None))


def test_text_is_the_same_query_where_it_is_the_same_text():
    log = log_of(["hats", "shoes"], [0.5, 0.25])
    assert seen_queries(judged_of(["shoes", "coats"], [9.0, 9.0]), log).tolist() == [True, False]


def test_a_number_is_the_same_query_only_with_a_row_of_features_in_common():
    log = log_of([0, 1, 1], [0.5, 0.25, 0.75])
    assert seen_queries(judged_of([0, 1, 2], [9.0, 0.75, 0.25]), log).tolist() == [False, True, False]


def test_an_evaluation_tells_both_kinds_apart():
    log = log_of(["hats"], [0.5])
    judged = JudgedSet.from_arrays([[1.0], [2.0], [1.0], [2.0]], grades=[0, 1, 1, 0], group=[2, 2])
    judged = replace(judged, query_ids=np.array(["hats", "shoes"], dtype=object))
    found = unskew.evaluate(judged.features[:, 0], judged, ["mrr"], shown=log)
    assert found.by_seen() == [("mrr ↑", "1.0000", "1", "0.5000", "1")]
    assert found.to_table()["seen"].to_pylist() == [True, False]


def test_a_comparison_shows_both_kinds_side_by_side():
    outcomes = [Outcome({"mrr": np.array([1.0, 0.5, np.nan])}, np.array([3, 4, 5])) for _ in range(2)]
    results = SimpleNamespace(results=[SimpleNamespace(run=SimpleNamespace(label="dla"), outcome=o) for o in outcomes])
    experiment = SimpleNamespace(metric="mrr")
    sheet = seen_sheet(experiment, results, {"3": True, "4": False, "5": False})
    assert sheet.columns == ("method", "in the log (1)", "not in the log (2)")
    assert list(sheet.rows[0]) == ["dla", "1.0000", "0.5000"]
    assert seen_sheet(experiment, results, {"3": False}) is None


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seen")
    rows = "".join(f"q{n // 4},d{n},{n % 3},{n % 5}.5\n" for n in range(40))
    (folder / "judged.csv").write_text("query,document,grade,a\n" + rows)
    runner = CliRunner()
    shown = ["simulate", str(folder / "judged.csv"), "--policy", "random", "--n-shown", "4", "--sessions", "4"]
    assert runner.invoke(app, [*shown, "--out", str(folder / "log")]).exit_code == 0
    small = ["--set", "steps=3", "--set", "hidden=[4]", "--quiet"]
    assert runner.invoke(app, ["train", str(folder / "log"), "--out", str(folder / "model"), *small]).exit_code == 0
    return folder


def test_the_command_counts_them(trained):
    arguments = ["evaluate", str(trained / "model"), str(trained / "judged.csv"), "--shown", str(trained / "log")]
    found = CliRunner().invoke(app, [*arguments, "--metrics", "mrr", "--json"])
    assert found.exit_code == 0, found.output
    about = json.loads(found.stdout)
    assert (about["seen"]["queries"], about["unseen"]["queries"]) == (10, 0)
    shown = CliRunner().invoke(app, [*arguments, "--metrics", "mrr"])
    assert "10 of 10 judged queries also occur in the click log" in shown.stdout
