"""Lineage: what came from which log, by digests."""

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import unskew
from unskew.cli import app
from unskew.data.clicks.lineage import joined, lineage_line
from unskew.data.clicks.shards import join_logs
from unskew.data.clicks.windows import window
from unskew.data.files import json_digest

ROWS = {
    "session": [session for session in range(8) for _ in range(2)],
    "query": [f"q{session % 4}" for session in range(8) for _ in range(2)],
    "document": ["a", "b", "b", "a"] * 4,
    "position": [0, 1] * 8,
    "click": [1, 0, 1, 1] * 4,
    "user": [user for user in ["ann", "ann", "bob", "bob", "cid", "cid", "dan", "dan"] for _ in range(2)],
    "time": [session * 86_400_000_000 for session in range(8) for _ in range(2)],
    "price": [1.0, 2.0, 3.0, 4.0] * 4,
}


@pytest.fixture
def place(tmp_path):
    log = unskew.ClickLog.from_table(pa.table(ROWS), features=["price"], bias=["user"], time="time", period="day")
    return unskew.write_log(log, tmp_path / "log", n_shards=2)


def trained(log):
    return unskew.fit("naive", log, steps=2, hidden=(4,), progress=False)


def test_a_log_read_whole_or_by_shards_has_the_digest_of_its_folder(place):
    folder = unskew.open_log(place)
    assert unskew.read_log(place).lineage == folder.lineage
    assert folder.lineage.to_json() == {"digest": folder.digest}
    assert trained(place).trained_on["log"] == trained(folder).trained_on["log"] == {"digest": folder.digest}


def test_a_log_in_memory_has_the_digest_of_its_content(place):
    log = replace(unskew.read_log(place), origin=None)
    assert trained(log).trained_on["log"] == {"digest": log.digest}


def test_forgetting_records_the_digests_before_and_after(place):
    before = unskew.open_log(place).digest
    unskew.forget(place, ["ann"])
    after = unskew.open_log(place)
    assert after.digest != before
    assert after.about["notes"]["lineage"] == [{"step": "forget", "users": 1, "from": [before], "to": after.digest}]
    unskew.forget(place, ["bob"])
    steps = trained(place).trained_on["log"]["steps"]
    assert [step["from"] for step in steps] == [[before], [after.digest]]
    assert steps[-1]["to"] == unskew.open_log(place).digest


def test_a_window_records_the_log_that_it_was_cut_from(place):
    whole = unskew.open_log(place)
    cut = window(whole, since="1970-01-03")
    step = {"step": "window", "since": "1970-01-03", "until": None, "half_life": None, "from": [whole.digest]}
    assert cut.lineage.steps == ({**step, "to": json_digest(step)},)
    assert window(unskew.read_log(place), since="1970-01-03").lineage == cut.lineage
    assert trained(cut).trained_on["log"]["digest"] == json_digest(step)


def test_a_join_records_both_logs_and_parts_of_one_log_are_that_log(place):
    folder = unskew.open_log(place)
    one, other = folder.shards()
    assert join_logs([one, other]).origin is None
    one, other = replace(one, origin=folder.lineage), replace(other, origin=folder.lineage)
    assert join_logs([one, other]).lineage == folder.lineage
    other = replace(other, origin=None)
    assert join_logs([one, other]).lineage == joined([folder.lineage, other.lineage])
    assert join_logs([one, other]).lineage.steps[0]["from"] == [folder.digest, other.digest]


def test_a_copy_records_where_it_came_from(place, tmp_path):
    copy = unskew.open_log(unskew.write_log(unskew.read_log(place), tmp_path / "copy"))
    before = unskew.open_log(place).digest
    assert copy.about["notes"]["lineage"] == [{"step": "copy", "from": [before], "to": copy.digest}]


def test_a_saved_model_and_its_card_name_the_model_and_its_log(place, tmp_path):
    model = trained(place)
    saved = unskew.save_model(model, tmp_path / "model")
    assert unskew.load_model(saved).digest == model.digest
    assert trained(place).digest == model.digest  # the same training, the same weights
    lineage = {"model": model.digest, "log": {"digest": unskew.open_log(place).digest}}
    assert json.loads((saved / "card.json").read_text())["lineage"] == lineage
    line = f"Model {model.digest[:12]}, trained on log {lineage['log']['digest'][:12]}"
    assert lineage_line(lineage) == line
    assert line in (saved / "README.md").read_text()


def test_a_later_model_names_all_logs_that_its_starts_learned_from(place):
    first = trained(place)
    logs = [unskew.open_log(place).digest]
    for user in ("ann", "bob"):
        unskew.forget(place, [user])
        first = unskew.fit("naive", place, start=first, steps=2, progress=False, hidden=(4,))
        assert first.trained_on["started_from"]["logs"] == logs
        logs = [unskew.open_log(place).digest, *logs]


def test_a_ranking_names_model_and_log_in_its_metadata(place, tmp_path):
    model = trained(place)
    candidates = pa.table({"query": ["q", "q"], "document": ["a", "b"], "price": [1.0, 2.0]})
    found = unskew.rank(model, candidates, tmp_path / "ranking.parquet", progress=False)
    stored = json.loads(pq.read_schema(found.out).metadata[b"unskew"])
    assert stored == {"model": model.digest, "log": {"digest": unskew.open_log(place).digest}}
    assert lineage_line(stored) in repr(found)


def test_evaluate_prints_the_lineage_in_one_line(place, tmp_path):
    model = trained(place)
    folder = unskew.save_model(model, tmp_path / "model")
    queries = tmp_path / "judged.txt"
    queries.write_text("1 qid:1 1:1.0\n0 qid:1 1:2.0\n")
    said = CliRunner().invoke(app, ["evaluate", str(folder), str(queries)])
    assert said.exit_code == 0, said.output
    assert f"{lineage_line(model.lineage)}." in said.output.splitlines()


def test_an_exported_file_keeps_the_lineage(place, tmp_path):
    pytest.importorskip("onnxruntime")
    model = trained(place)
    exported = unskew.export(model, tmp_path / "model.onnx").path
    judged = unskew.JudgedSet.from_arrays([[1.0], [2.0]], grades=[0, 1], group=[2])
    assert unskew.evaluate(exported, judged, ["mrr"]).lineage == model.lineage


def test_judgements_and_reports_name_their_log(place):
    digest = unskew.open_log(place).digest
    found = unskew.judgements(place, curve=[1.0, 0.5])
    assert json.loads(found.to_table().schema.metadata[b"unskew"]) == {"log": {"digest": digest}}
    assert unskew.diagnose(place, quick=True, progress=False).lineage == {"log": {"digest": digest}}
