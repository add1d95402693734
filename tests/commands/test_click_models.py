"""Click models on the command line: a log of ids is trained on, evaluated and ranked."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from unskew.cli import app
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import write_log


@pytest.fixture
def place(tmp_path):
    """A log of ids: document 0 is clicked often, document 2 never."""
    rng = np.random.default_rng(0)
    orders = rng.permuted(np.tile(np.arange(3), (200, 1)), axis=1)
    clicks = rng.random(orders.shape) < np.array([0.6, 0.2, 0.0])[orders]
    columns = {
        "session": np.repeat(np.arange(200), 3),
        "query": ["q"] * 600,
        "document": orders.reshape(-1),
        "position": np.tile(np.arange(3), 200),
        "click": clicks.reshape(-1).astype(int),
    }
    write_log(ClickLog.from_table(pa.table(columns), features=()), tmp_path / "log")
    return tmp_path


def run(*arguments):
    result = CliRunner().invoke(app, [str(entry) for entry in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_log_of_ids_is_trained_evaluated_and_ranked(place):
    run("train", place / "log", "--method", "ubm", "--out", place / "model", "--quiet")
    found = json.loads(run("evaluate", place / "model", place / "log", "--json"))
    assert found["sessions"] == 200
    assert found["perplexity"]["low"] < found["perplexity"]["value"] < 1.7
    assert found["predicted / observed clicks"]["value"] == pytest.approx(1, abs=0.1)
    assert len(found["positions"]) == 3
    top = found["positions"][0]["conditional perplexity"]
    assert 1 < top["low"] < top["value"] < top["high"]
    assert "conditional perplexity" in run("evaluate", place / "model", place / "log")

    pq.write_table(pa.table({"query": ["q"] * 4, "document": [2, 0, 1, 7]}), place / "candidates.parquet")
    out = run("rank", place / "model", place / "candidates.parquet", "--out", place / "ranking.parquet")
    assert "1 documents are not in the log" in out
    ranked = pq.read_table(place / "ranking.parquet")["document"].to_pylist()
    assert [entry for entry in ranked if entry != 7] == [0, 1, 2]


def test_a_model_without_a_ranker_is_evaluated_but_does_not_rank(place):
    run("train", place / "log", "--method", "rctr", "--out", place / "model", "--quiet")
    assert "log-likelihood per page" in run("evaluate", place / "model", place / "log")
    pq.write_table(pa.table({"query": ["q"], "document": [2]}), place / "candidates.parquet")
    arguments = ["rank", place / "model", place / "candidates.parquet", "--out", place / "ranking.parquet"]
    result = CliRunner().invoke(app, [str(entry) for entry in arguments])
    assert result.exit_code != 0
    assert "rctr does not distinguish documents" in result.output + str(result.exception)


def test_levels_of_a_bias_column_are_those_of_training_whatever_their_order(place):
    """Phones click lower positions less; a log of phones alone numbers its levels anew."""
    rng = np.random.default_rng(0)
    phone = np.repeat(rng.random(400) < 0.5, 3)
    rates = np.where(phone[:, None], (0.5, 0.1, 0.02), (0.5, 0.4, 0.3))
    columns = {
        "session": np.repeat(np.arange(400), 3),
        "query": ["q"] * 1200,
        "document": np.tile(np.arange(3), 400),
        "position": np.tile(np.arange(3), 400),
        "click": (rng.random(1200) < rates[np.arange(1200), np.tile(np.arange(3), 400)]).astype(int),
        "device": np.where(phone, "phone", "desk"),
    }
    table = pa.table(columns)
    phones = table.filter(pa.array(phone))
    unknown = phones.set_column(5, "device", pa.array(["tv"] * len(phones)))
    for name, rows in {"all": table, "phones": phones, "tv": unknown}.items():
        write_log(ClickLog.from_table(rows, features=(), bias=["device"]), place / name)
    write_log(ClickLog.from_table(table.drop(["device"]), features=()), place / "none")
    run("train", place / "all", "--method", "rctr", "--out", place / "model", "--quiet")
    found = json.loads(run("evaluate", place / "model", place / "phones", "--json"))
    assert found["positions"][2]["predicted click rate"] < 0.1
    for name, message in {"tv": "tv: not among the levels", "none": "bias column 'device'"}.items():
        result = CliRunner().invoke(app, ["evaluate", str(place / "model"), str(place / name)])
        assert result.exit_code != 0
        assert message in " ".join((result.output + str(result.exception)).split())


def test_click_models_are_compared_on_a_public_log_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path))
    (tmp_path / "sogou-mouse").mkdir()
    rng = np.random.default_rng(0)
    still = "\t".join(["0 0"] * 7)
    pages = [
        f"{query % 20}\t{query % 20} {100 + query % 20}\t{clicks}\t{still}"
        for query, clicks in enumerate(f"{int(top)} {int(below)}" for top, below in rng.random((300, 2)) < (0.6, 0.3))
    ]
    for name in ("train_data", "test_data"):
        (tmp_path / "sogou-mouse" / name).write_text("\n".join(pages) + "\n")
    options = ("--methods", "rctr,pbm,ubm", "--seeds", 1, "--jobs", 1, "--out", tmp_path / "out", "--quiet")
    out = run("compare", "sogou-mouse@train", *options)
    assert "pbm" in out
    rows = (tmp_path / "out" / "criteria.md").read_text().splitlines()
    measured = next(row for row in rows if row.startswith("| conditional perplexity"))
    assert measured.count(" ± ") == 3  # rctr has no ranker, but predicts clicks
    as_evaluated = (tmp_path / "out" / "click_prediction.md").read_text()
    assert all(name in as_evaluated for name in ("log-likelihood per page", "predicted / observed clicks", "| ubm |"))
