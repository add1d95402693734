"""Claims: a run belongs to one living process."""

import json
import os
import subprocess
import sys
import time

import numpy as np

from unskew.comparison import claims as claiming
from unskew.comparison import run as running
from unskew.comparison.claims import Claims, claim_path
from unskew.comparison.rows import Outcome, write_row
from unskew.comparison.run import run_plan


def outcome():
    return Outcome({"ndcg@10": np.array([0.5])}, np.array([1]), {"validation": 0.5, "seconds": 1.0})


def make_group(label):
    from unskew.comparison.plan import Group, Repetition, Run

    run = Run("", label, {}, Repetition(0, "world:tiny", 0), {"task": "test", "label": label})
    return Group("", label, (run,), lambda chosen: [])


def dead_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def write_claim(folder, key, process, host=None, age=0.0):
    path = claim_path(folder, key)
    path.write_text(json.dumps({"host": host or claiming.socket.gethostname(), "process": process}))
    os.utime(path, (time.time() - age, time.time() - age))


def test_only_one_takes_a_run_and_gives_it_back(tmp_path):
    with Claims(tmp_path) as one, Claims(tmp_path) as other:
        assert one.take("a")
        assert not other.take("a")
        one.release("a")
        assert other.take("a")
    assert list(tmp_path.iterdir()) == []


def test_claims_of_the_dead_expire(tmp_path):
    write_claim(tmp_path, "dead here", dead_process())
    write_claim(tmp_path, "alive here", os.getpid())
    write_claim(tmp_path, "silent there", 1, host="elsewhere", age=claiming.EXPIRED + 60)
    write_claim(tmp_path, "at work there", 1, host="elsewhere", age=claiming.EXPIRED - 60)
    with Claims(tmp_path) as own:
        assert [own.take(name) for name in ("dead here", "alive here", "silent there", "at work there")] == [
            True,
            False,
            True,
            False,
        ]


def test_a_run_of_another_process_is_waited_for_and_not_done_again(tmp_path, monkeypatch):
    groups = [make_group("theirs"), make_group("mine")]
    theirs = groups[0].candidates[0]
    write_claim(tmp_path, theirs.key, os.getpid())
    done = []

    def perform(definition):
        done.append(definition["label"])
        return outcome()

    def finish_elsewhere(seconds):
        write_row(tmp_path, theirs.key, theirs.record, outcome())
        claim_path(tmp_path, theirs.key).unlink(missing_ok=True)

    monkeypatch.setattr(running.time, "sleep", finish_elsewhere)
    results = run_plan(groups, tmp_path, "ndcg@10", tasks={"test": perform}, jobs=1)
    assert done == ["mine"]
    assert [result.run.label for result in results.results] == ["theirs", "mine"]
    assert not list(tmp_path.glob("*.claim"))
