"""Every benchmark and study runs at its smallest size, so that none can rot."""

import importlib
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from unskew.data.judged.catalogue import MissingDataError

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(BENCHMARKS)
    run = importlib.import_module("run")


@pytest.fixture
def _beside_the_benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


def test_every_file_is_a_benchmark_with_a_smallest_size_or_a_study_or_shared_by_them():
    listed = [*run.BENCHMARKS, *run.STUDIES, *run.STUDIES_APART, *run.SHARED]
    assert sorted(listed) == sorted(file.stem for file in BENCHMARKS.glob("*.py"))


@pytest.mark.usefixtures("_beside_the_benchmarks")
@pytest.mark.parametrize("name", run.BENCHMARKS)
def test_every_benchmark_gives_rows_at_its_smallest_size(name):
    rows = run.rows_of(name, smallest=True)
    assert rows
    assert all(len(row) == 3 and all(isinstance(cell, str) for cell in row) for row in rows)


@pytest.mark.usefixtures("_beside_the_benchmarks")
@pytest.mark.parametrize("name", run.STUDIES)
def test_studies_run_at_their_smallest_size(name, tmp_path, monkeypatch, capsys):
    arguments = [word.replace("OUT", str(tmp_path)) for word in shlex.split(run.STUDIES[name])]
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    code: object = None
    try:
        runpy.run_path(str(BENCHMARKS / f"{name}.py"), run_name="__main__")
    except SystemExit as end:
        code = end.code
    except MissingDataError as missing:
        pytest.skip(str(missing))
    assert not code
    assert capsys.readouterr().out


@pytest.mark.usefixtures("_beside_the_benchmarks")
def test_the_table_against_the_peers_is_that_of_the_rows():
    import peers

    lines = peers.table(peers.read_rows(peers.ROWS))
    for page in peers.PAGES:
        text = page.read_text(encoding="utf-8")
        assert peers.with_table(text, lines) == text, f"{page.name}: run python benchmarks/peers.py --write"


def test_a_benchmark_that_fails_is_named_at_the_end_and_the_others_run(monkeypatch, capsys):
    ends = {"digests": None, "parser": "SIGABRT", "trees": None}
    tried = []
    monkeypatch.setattr(run, "run_apart", lambda name, options: tried.append(name) or ends[name])
    assert run.main(list(ends)) == 1
    assert tried == list(ends)
    assert capsys.readouterr().out == "1 of 3 failed: parser (SIGABRT)\n"


def test_a_benchmark_says_that_it_still_runs_and_how_it_ended(monkeypatch, capsys, tmp_path):
    script = tmp_path / "run.py"
    script.write_text("import os, time; time.sleep(0.5); os.abort()")
    monkeypatch.setattr(run, "__file__", str(script))
    monkeypatch.setattr(run, "PATIENCE", 0.1)
    assert run.run_apart("parser", []) == "SIGABRT"
    assert "parser: 0 min so far" in capsys.readouterr().out
