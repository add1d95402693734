"""Watching: a callable is told every step and every validation, in worker processes too."""

import json
import pickle

import pytest

import unskew
from unskew.training.watching import of_run

WORLD = unskew.load("world:tiny")


def test_a_callable_is_told_every_step_and_every_validation():
    log = unskew.simulate(WORLD.train, sessions=8, progress=False).log
    seen = []
    unskew.UnbiasedRanker("naive", steps=6, validate_every=3, hidden=[4]).fit(
        log, eval_set=WORLD.valid, progress=False, watch=seen.append
    )
    steps = [report.step for report in seen if report.validation is None]
    assert steps == [1, 2, 3, 4, 5, 6]
    assert [report.step for report in seen if report.validation is not None] == [3, 6]
    assert all(set(report.terms) == {"clicks"} for report in seen)


class Notes:
    """Writes what it is told alongside the results: sent to worker processes."""

    def __init__(self, folder, title=""):
        self.folder, self.title = folder, title

    def of_run(self, title):
        return Notes(self.folder, title)

    def __call__(self, report):
        with (self.folder / "notes.jsonl").open("a") as file:
            file.write(json.dumps([self.title, report.step]) + "\n")


def test_runs_of_an_experiment_are_told_apart(tmp_path):
    (tmp_path / "mine.toml").write_text(
        'title = "t"\npaper = "our own"\nquestion = "q"\nmetrics = ["ndcg@10"]\ndata = "world:tiny"\nseeds = 1\n'
        "[simulation]\nsessions = 4\n[training]\nsteps = 2\nhidden = [4]\n"
        '[[methods]]\nlabel = "Clicks"\nmethod = "naive"\n'
    )
    place = str(tmp_path / "mine.toml")
    unskew.reproduce(place, out=tmp_path / "out", jobs=1, progress=False, watch=Notes(tmp_path))
    lines = [json.loads(line) for line in (tmp_path / "notes.jsonl").read_text().splitlines()]
    assert {title for title, _ in lines} == {"Clicks, world:tiny, seed 0"}
    assert {step for _, step in lines} == {1, 2}


def test_a_plain_callable_watches_all_runs():
    assert of_run(print, "a") is print
    assert of_run(None, "a") is None


def test_tensorboard_reads_what_was_written(tmp_path):
    pytest.importorskip("tensorboard", reason="the extra 'tensorboard' is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = unskew.simulate(WORLD.train, sessions=8, progress=False).log
    watch = pickle.loads(pickle.dumps(unskew.TensorBoard(tmp_path, every=1))).of_run("DLA, seed 0")
    unskew.fit("naive", log, steps=4, validate_every=2, validate=WORLD.valid, progress=False, watch=watch)
    found = EventAccumulator(str(tmp_path / "DLA-seed-0"))
    found.Reload()
    assert [event.step for event in found.Scalars("loss/clicks")] == [1, 2, 3, 4]
    assert [event.step for event in found.Scalars("validation")] == [2, 4]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # MLflow's own, on its file store
def test_mlflow_keeps_what_was_logged(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow", reason="the extra 'mlflow' is not installed")
    uri = (tmp_path / "store").as_uri()
    log = unskew.simulate(WORLD.train, sessions=8, progress=False).log
    watch = unskew.MLflow("mine", uri, every=2).of_run("DLA, seed 0")
    unskew.fit("naive", log, steps=4, validate_every=2, validate=WORLD.valid, progress=False, watch=watch)
    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert run.info.run_name == "DLA, seed 0"
    assert [entry.step for entry in client.get_metric_history(run.info.run_id, "loss/clicks")] == [2, 4]
