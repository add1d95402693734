"""The commands, as a person types them."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import lightgbm
import numpy as np
import pyarrow.parquet as pq
import pytest
import xgboost
from typer.testing import CliRunner

from unskew import load_model, open_log, write_log
from unskew.cli import app

UNSKEW = [sys.executable, "-m", "unskew"]
FAST = ["--set", "steps=20", "--set", "hidden=8"]


def run(words, *arguments, code=0):
    words = [*words.split(), *map(str, arguments)]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def clicks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "clicks"
    run("simulate world:tiny --sessions 16 --seed 1 --joint --intervene shuffle=0.2 --out", folder)
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "no_log", "--out"),
        ("rank", "no_model", "world:tiny", "--out"),
        ("evaluate", "no_model", "world:tiny", "--out"),
        ("weights", "no_log", "--out"),
        ("simulate", "no_data", "--out"),
    ],
)
def test_places_that_cannot_be_written_are_refused_first(tmp_path, arguments):
    (tmp_path / "file").touch()
    assert "is not a folder: create it first" in run(*arguments, tmp_path / "file" / "out", code=2)


def test_brackets_in_what_was_typed_are_shown_as_they_are(tmp_path):
    assert "'[world]' is neither" in run("simulate", "[world]", "--out", tmp_path / "log", code=2)
    assert "'[/x]' is neither" in run("simulate", "[/x]", "--out", tmp_path / "log", code=2)


def test_simulate_writes_a_log_and_its_truth_and_prints_json(tmp_path):
    about = json.loads(
        run("simulate world:tiny --user coupled --coupling 0.3 --sessions 4 --json --out", tmp_path / "log")
    )
    assert about["sessions"] == 4 * 200
    assert len(about["click_rates"]) == 10
    assert (tmp_path / "log.truth.parquet").exists()
    assert (tmp_path / "log" / "log.json").exists()


def test_positions_that_were_never_shown_have_no_number(log, tmp_path):
    gaps = replace(log, positions=np.where(log.positions > 2, log.positions + 2, log.positions))
    write_log(gaps, tmp_path / "log")
    shown = run("train", tmp_path / "log", "--method", "dla", *FAST, "--out", tmp_path / "model")
    lines = {row[0]: row[1:] for row in map(str.split, shown.splitlines()) if row and row[0].isdigit()}
    assert [place for place, value in lines.items() if value == ["never", "shown"]] == ["4", "5"]
    assert len(lines) == 12


def test_train_evaluate_and_rank(clicks, tmp_path):
    model = tmp_path / "model"
    shown = run("train", clicks, "--method", "dla", *FAST, "--validate", "world:tiny", "--out", model)
    assert "Training ended after" in shown
    results = json.loads(run("evaluate", model, "world:tiny", "--metrics", "ndcg@10,err@10,arp", "--json"))
    assert set(results) == {"ndcg@10", "err@10", "arp", "lineage"}
    assert results["lineage"] == {"model": load_model(model).digest, "log": {"digest": open_log(clicks).digest}}
    assert "world:tiny@valid" in run("evaluate", model, "world:tiny@valid")
    run("rank", model, "world:tiny", "--out", tmp_path / "scores.parquet")
    assert pq.read_table(tmp_path / "scores.parquet").column_names == ["query", "document", "score", "rank"]
    assert not list(tmp_path.glob(".*")), "no scratch file is left"


def test_weights_are_rows_that_trees_take(clicks, tmp_path):
    run("weights", clicks, "--method", "two_tower", *FAST, "--out", tmp_path / "rows.parquet")
    rows = pq.read_table(tmp_path / "rows.parquet")
    assert rows.column_names[:7] == ["query", "document", "group", "position", "target", "grade", "weight"]
    assert len(rows) > 0
    table = rows.to_pandas()
    X, groups = table[table.columns[7:]], table.groupby("group", sort=False)
    lightgbm.LGBMRanker(n_estimators=2, verbose=-1, n_jobs=1).fit(
        X, table["grade"], group=groups.size(), sample_weight=table["weight"]
    )
    xgboost.XGBRanker(n_estimators=2, n_jobs=1).fit(
        X, table["grade"], qid=table["group"], sample_weight=groups["weight"].mean()
    )


def test_weights_need_a_curve_and_no_clicks_that_are_predicted(clicks, tmp_path):
    run("weights", clicks, "--method", "pair_debias", *FAST, "--out", tmp_path / "rows.parquet")
    said = run("weights", clicks, "--method", "naive", *FAST, "--out", tmp_path / "other.parquet", code=2)
    assert "naive learns no examination curve and gives no debiased targets: choose dla" in said


@pytest.mark.long
def test_training_that_blows_up_warns_in_lines_and_ends_with_advice(clicks, tmp_path):
    wild = ["learning_rate=1e30", "optimizer=sgd", "max_gradient_norm=none", "norm=false", "steps=60", "hidden=8"]
    options = [word for option in wild for word in ("--set", option)]
    command = [*UNSKEW, "train", str(clicks), "--method", "dla", *options, "--out", str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.stderr.splitlines() if " about 0:" not in line]  # progress, on a busy machine
    assert all(line.startswith(("warning: ", "error: ")) for line in lines)
    assert "is nan; this batch was skipped" in lines[0]
    assert "lower the learning rate" in lines[-1]


def test_methods_and_data_list_what_there_is():
    methods = json.loads(run("methods", "--json"))
    assert methods["dla"]["hyper_parameters"]["max_weight"] is None
    assert "two_tower" in run("methods")
    assert any(row["name"] == "world:small" for row in json.loads(run("data", "--json")))
    assert run("--version").startswith("unskew ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "world:huge", "--out", "log"], "world"),
        (["simulate", "world:tiny", "--user", "ghost", "--out", "log"], "ghost"),
        (["simulate", "world:tiny", "--intervene", "shuffle=2", "--out", "log"], "shuffle"),
        (["train", "nowhere", "--out", "model"], "nowhere is not a click log"),
        (["evaluate", "nowhere", "world:tiny"], "nowhere is not a saved model"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = run(*arguments, code=2)
    assert message in output
    assert "Traceback" not in output
    assert not list(tmp_path.iterdir())


def test_an_unknown_method_or_option_is_refused_before_any_work(clicks, tmp_path):
    assert "choose one of naive" in run("train", clicks, "--method", "magic", "--out", tmp_path / "m", code=2)
    assert "unknown option 'stepz'" in run("train", clicks, "--set", "stepz=3", "--out", tmp_path / "m", code=2)
    assert "name=value" in run("train", clicks, "--set", "steps", "--out", tmp_path / "m", code=2)


def test_a_killed_training_run_goes_on_to_the_same_weights(clicks, tmp_path):
    def command(out):
        options = "--set steps=60 --set validate_every=5 --set hidden=16 --quiet --validate world:tiny --out"
        return [*UNSKEW, "train", str(clicks), *options.split(), str(out)]

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command(tmp_path / "whole"), check=True, env=environment, stdout=subprocess.DEVNULL)
    killed = subprocess.Popen(command(tmp_path / "killed"), env=environment, stdout=subprocess.DEVNULL)
    checkpoint = tmp_path / ".killed.checkpoint"
    while not checkpoint.exists() and killed.poll() is None:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not (tmp_path / "killed").exists(), "killed on the way"
    subprocess.run(command(tmp_path / "killed"), check=True, env=environment, stdout=subprocess.DEVNULL)
    name = "weights.safetensors"
    assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not checkpoint.exists()


def test_an_interrupted_training_run_goes_on(clicks, tmp_path):
    # More steps than it can do before the signal comes, on any machine.
    options = "--method dla --set steps=100000 --set validate_every=10 --set hidden=8 --out"
    command = [*UNSKEW, "train", str(clicks), *options.split(), str(tmp_path / "model")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / ".model.checkpoint").exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert "repeat the command to resume" in said
    assert (tmp_path / ".model.checkpoint").exists()
