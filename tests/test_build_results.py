"""The page of results is built from finished runs, and from nothing else."""

import importlib
import json
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from unskew.cli import app
from unskew.comparison.plan import plan
from unskew.comparison.rows import Outcome, write_row
from unskew.papers.experiment_files import load_experiment

DOCS = Path(__file__).parent.parent / "docs"
NOTES = tomllib.loads((DOCS / "results_notes.toml").read_text(encoding="utf-8"))
BETTER_BY = {"page context": 0.1, "query context": 0.0, "position only": -0.1}  # CDLA-LD than CDLA, on every query


@pytest.fixture(scope="module")
def page_builder():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        yield importlib.import_module("build_results")


def value(run):
    """0.5 on the first seed and 0.6 on the second, and what CDLA-LD has more."""
    return 0.5 + 0.1 * run.repetition.seed + (BETTER_BY[run.setting] if run.label == "CDLA-LD" else 0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """CDLA-LD's Table 3 with values of our own on four queries, so that nothing is trained."""
    experiment = load_experiment("cdla-table3")
    folder = tmp_path_factory.mktemp("runs") / "cdla-table3-world-small"
    (folder / "runs").mkdir(parents=True)
    for group in plan(experiment, "world:small", seeds=2):
        for run in (*group.candidates, *group.again(group.candidates[0])):
            values = dict.fromkeys(experiment.metrics, np.full(4, value(run)))
            about = {"validation": 0.5, "seconds": 1.0}
            write_row(folder / "runs", run.key, run.definition, Outcome(values, np.arange(4), about))
    words = ["reproduce", "cdla-table3", "--data", "world:small", "--seeds", "2", "--out", str(folder), "--json"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    (folder / "out.json").write_text(result.stdout, encoding="utf-8")
    return folder.parent


@pytest.fixture
def runs(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "runs"))


def said(runs):
    return json.loads((runs / "cdla-table3-world-small" / "out.json").read_text(encoding="utf-8"))


def change(runs, **entries):
    (runs / "cdla-table3-world-small" / "out.json").write_text(json.dumps(said(runs) | entries), encoding="utf-8")


def drop_one_run(runs):
    path = runs / "cdla-table3-world-small" / "runs.parquet"
    table = pq.read_table(path)
    last = (pc.field("setting") == "position only") & (pc.field("method") == "CDLA") & (pc.field("seed") == 1)
    pq.write_table(table.filter(~last), path)


def test_tables_and_verdicts_stand_on_the_page(page_builder, runs, tmp_path):
    assert page_builder.build(runs, tmp_path / "results.md", NOTES) == []
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    lines = page.replace("\u00a0", " ").splitlines()
    # Two repetitions 0.1 apart: half of the interval is 12.706 * 0.1 / 2, with 12.706 of t at one degree of freedom.
    assert "| method | page context | query context | position only | paper,<br>Baidu-ULTR (ULTRE-2) |" in lines
    assert "| CDLA | 0.5500 ± 0.6353 | **0.5500 ± 0.6353** | **0.5500 ± 0.6353** | 0.4769 |" in lines
    assert "| CDLA-LD | **0.6500 ± 0.6353 ++** | 0.5500 ± 0.6353 | 0.4500 ± 0.6353 −− | 0.5025 |" in lines
    claim = "CDLA-LD is significantly better than its teacher served alone."
    words = "fails (of 3: 1 hold, 1 fail, 1 undecided)"
    assert f"| CDLA-LD, [cdla-table3](#cdla-table3) | {claim} | {words} | – | – | – |" in lines
    assert "| *fails* | 1 | 0 | 0 | 0 |" in lines
    assert "page context: CDLA-LD − CDLA +0.1000 ndcg@10 (+0.1000 to +0.1000): holds" in page
    assert "Repetitions: 2. Runs: 30. Failed: 0." in page
    assert "unskew reproduce cdla-table3 --data world:small --seeds 2" in lines
    assert "* `lbd-table1`: LBD, Tables 1, 3 and 4: ranking when examination depends on the document" in lines
    assert (tmp_path / "figures" / "results" / "cdla-table3-world-small-ndcg10.svg").is_file()


def test_building_again_changes_nothing_and_takes_old_figures_away(page_builder, runs, tmp_path):
    def everything():
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and runs not in path.parents}

    page_builder.build(runs, tmp_path / "results.md", NOTES)
    first = everything()
    (tmp_path / "figures" / "results" / "old.svg").touch()
    page_builder.build(runs, tmp_path / "results.md", NOTES)
    assert everything() == first
    assert len(first) == 2  # the page and its figure


def test_notes_stand_in_their_section(page_builder, runs, tmp_path):
    page_builder.build(runs, tmp_path / "results.md", NOTES | {"cdla-table3": "The student is *mixed*."})
    assert "\nThe student is *mixed*.\n" in (tmp_path / "results.md").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="'cdla-table9', which is no experiment"):
        page_builder.build(runs, tmp_path / "results.md", NOTES | {"cdla-table9": ""})


def test_what_is_not_finished_is_refused_and_no_page_written(page_builder, runs, tmp_path):
    (runs / "cdla-table2-mq2008").mkdir()
    (runs / "cdla-table2-mq2008" / "out.json").touch()
    with pytest.raises(ValueError, match="cdla-table2-mq2008 is not finished"):
        page_builder.build(runs, tmp_path / "results.md", NOTES)
    assert not (tmp_path / "results.md").exists()
    [problem] = page_builder.build(runs, tmp_path / "results.md", NOTES, draft=True)
    assert "cdla-table2-mq2008" in problem


def test_runs_that_are_not_those_planned_are_refused(page_builder, runs, tmp_path):
    drop_one_run(runs)
    with pytest.raises(ValueError, match="lacks 1 runs that cdla-table3 plans today"):
        page_builder.build(runs, tmp_path / "results.md", NOTES)


def test_runs_that_failed_are_counted_and_named(page_builder, runs, tmp_path):
    drop_one_run(runs)
    change(runs, failed=[{"run": "position only, CDLA, world:small, seed 1", "error": "MemoryError"}])
    page_builder.build(runs, tmp_path / "results.md", NOTES)
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "Runs: 29. Failed: 1." in page
    assert "* failed: position only, CDLA, world:small, seed 1: MemoryError" in page


def test_a_table_that_is_not_of_the_same_run_is_refused(page_builder, runs, tmp_path):
    tables = said(runs)["tables"]
    tables["results-page-context"][0][1] = "0.9999"
    change(runs, tables=tables)
    with pytest.raises(ValueError, match=r"results-page-context\.md and out\.json have different numbers"):
        page_builder.build(runs, tmp_path / "results.md", NOTES)


def test_verdicts_on_other_claims_are_refused(page_builder, runs, tmp_path):
    change(runs, verdicts=[])
    with pytest.raises(ValueError, match=r"judges other claims than cdla-table3\.toml makes"):
        page_builder.build(runs, tmp_path / "results.md", NOTES)
