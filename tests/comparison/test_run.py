"""Runs: rows appear at once, nothing finished is run twice, a failure stops nobody, test queries choose nothing."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.comparison.plan import Group, Repetition, Run
from unskew.comparison.rows import Outcome, error_path, read_row, row_path, write_row
from unskew.comparison.run import run_plan


def run_here(groups, folder, perform, metric="ndcg@10", **options):
    return run_plan(groups, folder, metric, tasks={"test": perform}, jobs=1, **options)


def make_run(label, seed=0, **point):
    definition = {"task": "test", "label": label, "seed": seed, **point}
    return Run("", label, point, Repetition(seed, "world:tiny", seed), definition)


def make_group(label, points=({},), seeds=1):
    def again(chosen):
        return [make_run(label, seed, **chosen.point) for seed in range(1, seeds)]

    return Group("", label, tuple(make_run(label, **point) for point in points), again)


def outcome(validation=0.5, test=0.5):
    return Outcome({"ndcg@10": np.array([test, np.nan])}, np.array([7, 8]), {"validation": validation, "seconds": 1.0})


def test_a_row_comes_back_as_it_was_written(tmp_path):
    write_row(tmp_path, "key", {"a": 1}, outcome(test=0.25))
    row = read_row(tmp_path, "key")
    np.testing.assert_array_equal(row.per_query["ndcg@10"], [0.25, np.nan])
    np.testing.assert_array_equal(row.query_ids, [7, 8])
    assert row.about["validation"] == 0.5


def test_a_damaged_row_is_run_again(tmp_path):
    group = make_group("a")
    row_path(tmp_path, group.candidates[0].key).write_bytes(b"half a row")

    def perform(definition):
        return outcome()

    results = run_here([group], tmp_path, perform)
    assert (results.found, len(results.results)) == (0, 1)


def test_a_row_with_another_number_in_it_is_damaged(tmp_path):
    place = write_row(tmp_path, "key", {}, Outcome({"ndcg@10": np.linspace(0.1, 0.9, 50)}, np.arange(50), {}))
    table = pq.read_table(place)
    other = table.set_column(1, "ndcg@10", pa.array(np.linspace(0.1, 0.8, 50)))
    pq.write_table(other, place)
    assert read_row(tmp_path, "key") is None
    pq.write_table(table, place)
    assert read_row(tmp_path, "key") is not None


def test_what_is_on_disk_is_not_run_again_unless_asked(tmp_path):
    done = []

    def perform(definition):
        return done.append(definition["label"]) or outcome()

    run_here([make_group("a")], tmp_path, perform)
    results = run_plan([make_group("a"), make_group("b")], tmp_path, "ndcg@10", tasks={"test": perform}, jobs=1)
    assert (done, results.found, len(results.results)) == (["a", "b"], 1, 2)
    run_here([make_group("a")], tmp_path, perform, fresh=True)
    assert done == ["a", "b", "a"]


def test_a_failed_run_is_reported_with_its_traceback_and_the_others_go_on(tmp_path):
    def perform(definition):
        if definition["label"] == "bad":
            raise RuntimeError("the sky fell")
        return outcome()

    groups = [make_group("bad", seeds=2), make_group("good", seeds=2)]
    results = run_here(groups, tmp_path, perform)
    assert [result.run.label for result in results.results] == ["good", "good"]
    (failed, message) = results.failed[0]
    assert (failed.label, message, len(results.failed)) == ("bad", "RuntimeError: the sky fell", 1)
    text = error_path(tmp_path, failed.key).read_text()
    assert "Traceback" in text
    assert "the sky fell" in text

    def perform(definition):
        return outcome()

    again = run_here(groups, tmp_path, perform)
    assert (len(again.results), len(again.failed)) == (4, 0)
    assert not error_path(tmp_path, failed.key).exists()


def test_hyper_parameters_are_chosen_on_validation_of_the_first_repetition_only(tmp_path):
    # On test queries 1 would win, and 3 on the second repetition; validation of the first repetition says 2.
    validation = {(1, 0): 0.3, (2, 0): 0.6, (3, 0): 0.4, (3, 1): 0.9}
    test = {1: 0.99, 2: 0.10, 3: 0.50}

    def perform(definition):
        point, seed = definition["weight"], definition["seed"]
        return outcome(validation.get((point, seed), 0.0), test[point])

    group = make_group("a", [{"weight": 1}, {"weight": 2}, {"weight": 3}], seeds=3)
    results = run_here([group], tmp_path, perform)
    assert [result.run.point["weight"] for result in results.results] == [2, 2, 2]
    assert [result.run.point["weight"] for result in results.tried] == [1, 2, 3]


def test_a_metric_that_should_be_small_chooses_the_smallest(tmp_path):
    def perform(definition):
        return outcome(validation=float(definition["weight"]))

    group = make_group("a", [{"weight": 5}, {"weight": 2}])
    results = run_here([group], tmp_path, perform, "arp")
    assert results.results[0].run.point == {"weight": 2}


def test_progress_tells_runs_done_running_failed_and_left(tmp_path):
    states = []

    def perform(definition):
        return 1 / 0 if definition["label"] == "bad" else outcome()

    groups = [make_group("good", seeds=2), make_group("bad")]
    run_here(groups, tmp_path, perform, progress=states.append)
    assert (states[0].done, states[0].total) == (0, 3)
    assert states[1].running == ("good, world:tiny, seed 0",)
    last = states[-1]
    assert (last.done, last.total, len(last.failed), last.running) == (3, 3, 1, ())
    assert last.seconds_left == 0


def test_no_jobs_are_refused(tmp_path):
    with pytest.raises(ValueError, match="jobs must be at least 1, got 0"):
        run_plan([], tmp_path, "ndcg@10", tasks={}, jobs=0)


# Runs that note their beginning in a file; spawned workers import this script, so they have the same runs.
SLOW = """
import os, sys, time
from pathlib import Path
import numpy as np
from unskew.comparison.plan import Group, Repetition, Run
from unskew.comparison.rows import Outcome
from unskew.comparison.run import run_plan

folder = Path(sys.argv[1])

def perform(definition):
    with (folder / "begun").open("a") as file:
        file.write(f"{os.getpid()} {definition['label']}\\n")
    if definition["label"] in ("2", "3"):
        time.sleep(120)
    if definition["label"] == "4":
        os._exit(9)
    return Outcome({"ndcg@10": np.array([1.0])}, np.array([1]), {"validation": 1.0, "seconds": 0.1})

def group(label):
    run = Run("", label, {}, Repetition(0, "world:tiny", 0), {"task": "test", "label": label, "seed": 0})
    return Group("", label, (run,), lambda chosen: [])

if __name__ == "__main__":
    groups = [group(label) for label in sys.argv[2].split(",")]
    results = run_plan(groups, folder / "rows", "ndcg@10", tasks={"test": perform}, jobs=2)
    print(len(results.results), [(run.label, why) for run, why in results.failed if run.label != "4"])
"""


def begun(folder):
    path = folder / "begun"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(line.split()[0]), line.split()[1]) for line in lines if len(line.split()) == 2]


def wait_until(condition, seconds=600):  # as long as a busy machine needs
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def is_alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.long
def test_a_killed_experiment_goes_on_where_it_was_and_leaves_no_process(tmp_path):
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    experiment = subprocess.Popen([sys.executable, str(script), str(tmp_path), "0,1,2,3"], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: {label for _, label in begun(tmp_path)} == {"0", "1", "2", "3"})
    finally:
        experiment.send_signal(signal.SIGKILL)
        experiment.wait()
    workers = {process for process, _ in begun(tmp_path)}
    wait_until(lambda: not any(map(is_alive, workers)))
    done = []

    def perform(definition):
        return done.append(definition["label"]) or outcome()

    results = run_plan(
        [make_group(label) for label in "0123"], tmp_path / "rows", "ndcg@10", tasks={"test": perform}, jobs=1
    )
    assert (done, results.found, len(results.results)) == (["2", "3"], 2, 4)


CLAIM = """
import sys, time
from pathlib import Path
from unskew.comparison.rows import Claims
with Claims(Path(sys.argv[1])) as claims:
    print(claims.take(sys.argv[2]), flush=True)
    time.sleep(120)
"""


def test_a_run_of_another_process_is_waited_for_and_not_done_again(tmp_path, monkeypatch):
    groups = [make_group("theirs"), make_group("mine")]
    theirs, done = groups[0].candidates[0], []
    other = subprocess.Popen([sys.executable, "-c", CLAIM, str(tmp_path), theirs.key], stdout=subprocess.PIPE)
    assert other.stdout.readline().strip() == b"True"

    def end_of_the_other(seconds):
        write_row(tmp_path, theirs.key, theirs.record, outcome())
        other.kill()  # which releases its claim
        other.communicate()

    monkeypatch.setattr("unskew.comparison.run.time.sleep", end_of_the_other)
    results = run_here(groups, tmp_path, lambda definition: done.append(definition["label"]) or outcome())
    assert done == ["mine"]
    assert [result.run.label for result in results.results] == ["theirs", "mine"]
    assert {path.suffix for path in tmp_path.iterdir()} == {".parquet"}


@pytest.mark.slow
def test_a_run_whose_process_dies_fails_alone(tmp_path):
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    found = subprocess.run(
        [sys.executable, str(script), str(tmp_path), "4,0,1"], capture_output=True, text=True, timeout=900, check=True
    )
    assert found.stdout.strip() == "2 []"
