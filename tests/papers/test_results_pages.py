"""The pages of results are built from finished runs, and from nothing else."""

import importlib
import json
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CELLS = """
[[cells]]
experiment = "cdla-table3"
data = "world:tiny"
seeds = 3
settings = ["page context"]
"""


@pytest.fixture(scope="module")
def modules():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield importlib.import_module("results"), importlib.import_module("results_pages")


def line(results, cell, run, value):
    metrics = dict.fromkeys(cell.restricted().metrics, value)
    made = {"key": results.key_of(run), "label": run.label, "metrics": metrics, "code": "today"}
    return made | {"validation": 0.5, "validation_by_step": [0.4, 0.6, 0.5], "cpu_seconds": 1.0}


@pytest.fixture
def folder(modules, tmp_path):
    """CDLA-LD is .1 above its teacher, a little more or less in every repetition; nothing is trained."""
    results, _ = modules
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "cells.toml").write_text(CELLS, encoding="utf-8")
    shutil.copy(ROOT / "docs" / "results" / "notes.toml", folder)
    [cell] = results.read_cells(folder / "cells.toml")
    lines = []
    for group in cell.groups():
        for run in results.every_run(group):
            more = 0.1 + 0.001 * run.repetition.seed if run.label == "CDLA-LD" else 0.0
            lines.append(line(results, cell, run, 0.5 + 0.02 * run.repetition.seed + more))
    (folder / "runs.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in lines), encoding="utf-8")
    return folder


def test_verdicts_and_tables_come_from_the_runs(modules, folder):
    modules[1].build(folder)
    page = (folder / "cdla_ld.md").read_text(encoding="utf-8")
    assert "better than its teacher served alone. **holds**" in page
    assert "CDLA-LD − CDLA +0.1010 ndcg@10" in page
    assert "0.5200" in page  # the mean of .50, .52 and .54
    assert "missing: 0" in page
    assert "CDLA-LD 0.100" in page  # what choosing a state was worth
    summary = (folder.parent / "results.md").read_text(encoding="utf-8")
    assert "| holds | 1 | 0 |" in summary
    assert (folder / "tables" / "cdla-table3-claims.csv").is_file()


def test_what_is_missing_is_said(modules, folder):
    runs = folder / "runs.jsonl"
    lines = runs.read_text(encoding="utf-8").splitlines(keepends=True)
    runs.write_text("".join(text for text in lines if json.loads(text)["label"] != "CDLA"), encoding="utf-8")
    modules[1].build(folder)
    page = (folder / "cdla_ld.md").read_text(encoding="utf-8")
    assert "missing: 3" in page
    assert "**cannot be tested here**" in page


def test_runs_of_two_states_of_the_code_are_refused(modules, folder):
    runs = folder / "runs.jsonl"
    lines = [json.loads(text) for text in runs.read_text(encoding="utf-8").splitlines()]
    lines[0]["code"] = "yesterday"
    runs.write_text("".join(json.dumps(entry) + "\n" for entry in lines), encoding="utf-8")
    with pytest.raises(ValueError, match="today, yesterday"):
        modules[1].build(folder)


def test_the_shipped_cells_can_be_planned(modules):
    results, _ = modules
    for cell in results.read_cells():
        assert cell.restricted().claims


def test_a_later_turn_waits_and_repetitions_come_one_after_the_other(modules):
    results, _ = modules
    contexts = ("page context", "query context")
    late = results.Cell("cdla-table2", "world:tiny", seeds=2, settings=("page context",), turn=2)
    mixed = results.Cell("cdla-table3", "world:tiny", seeds=2, settings=contexts, later=("query context",))
    order = [(cell.experiment, run.setting, run.repetition.seed) for cell, run in results.waiting([late, mixed], {})]
    first = [("cdla-table3", "page context", seed) for seed in (0, 1)]
    assert list(dict.fromkeys(order))[:2] == first
    assert {seed for _, _, seed in order[-3:]} == {1}


def test_a_line_that_was_cut_off_is_not_read(modules, folder):
    results, _ = modules
    runs = folder / "runs.jsonl"
    whole = results.read_lines(runs)
    runs.write_text(runs.read_text(encoding="utf-8") + '{"key": "half', encoding="utf-8")
    assert results.read_lines(runs) == whole
