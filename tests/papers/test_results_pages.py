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
        yield importlib.import_module("results_cells"), importlib.import_module("results_pages")


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
    assert "Repetitions of every row: page context 3. Runs that were planned and not done: 0." in page
    assert "CDLA-LD 0.100" in page  # what choosing a state was worth
    summary = (folder.parent / "results.md").read_text(encoding="utf-8")
    assert "| holds | 1 | 0 |" in summary
    assert (folder / "tables" / "cdla-table3-claims.csv").is_file()


def test_what_is_missing_is_said(modules, folder):
    runs = folder / "runs.jsonl"
    lines = runs.read_text(encoding="utf-8").splitlines(keepends=True)
    runs.write_text("".join(lines[:-1]), encoding="utf-8")
    modules[1].build(folder)
    page = (folder / "cdla_ld.md").read_text(encoding="utf-8")
    assert "0.5200" not in page  # two repetitions of all rows are too few to be shown
    summary = (folder.parent / "results.md").read_text(encoding="utf-8")
    assert "cdla-table3 on world:tiny (1 of 15 runs)" in summary


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
        assert cell.restricted().methods


def test_a_later_turn_waits_and_repetitions_come_one_after_the_other(modules):
    results, _ = modules
    contexts = ("page context", "query context")
    late = results.Cell("cdla-table2", "world:tiny", seeds=2, settings=("page context",), turn=2)
    mixed = results.Cell("cdla-table3", "world:tiny", seeds=6, settings=contexts, later=("query context",))
    planned = results.planned([late, mixed])
    done = {}  # of key and line
    order = []
    while runs := results.waiting(planned, done, (2, 2)):  # the second of two processes
        cell, run = runs[0]
        order.append((cell.experiment, run.setting, run.repetition.number))
        done[results.key_of(run)] = line(results, cell, run, 0.5)
    page, late, query = ("cdla-table3", contexts[0]), ("cdla-table2", contexts[0]), ("cdla-table3", contexts[1])
    assert list(dict.fromkeys(order)) == [
        *((*page, number) for number in (1, 3, 5, 0, 2, 4)),
        *((*late, number) for number in (1, 0)),
        *((*query, number) for number in (1, 3, 0, 2, 4)),  # five repetitions
    ]


def test_a_grid_is_chosen_from_when_all_of_its_points_were_tried(modules):
    results, _ = modules
    cell = results.Cell("lbd-table1", "world:tiny", seeds=2, settings=("DNN",))
    [group] = [group for group in cell.groups() if group.label == "LBD (Lips)"]
    slow, best, diverged = group.candidates
    done = {results.key_of(slow): line(results, cell, slow, 0.5)}
    done[results.key_of(best)] = line(results, cell, best, 0.5) | {"validation": 0.6}
    assert [run for _, run in results.waiting([(cell, "ndcg@10", [group])], done)] == [diverged]
    done[results.key_of(diverged)] = {"diverged": "no finite loss"}
    [(_, again)] = results.waiting([(cell, "ndcg@10", [group])], done)
    assert (again.point, again.repetition.seed) == (best.point, 1)
    assert results.results_of([group], done, "ndcg@10")[1] == 1  # missing


def test_rows_of_a_table_have_the_same_repetitions(modules):
    results, _ = modules
    cell = results.Cell("cdla-table3", "world:tiny", seeds=5, settings=("page context",))
    groups = cell.groups()
    runs = [run for group in groups for run in results.every_run(group)]
    done = {results.key_of(run): line(results, cell, run, 0.5) for run in runs}
    del done[results.key_of(runs[1])]
    found, missing = results.results_of(groups, done, "ndcg@10")
    assert {result.run.repetition.number for result in found.results} == {0, 2, 3, 4}
    assert (len(found.results), missing) == (4 * len(groups), 1)


def test_a_line_that_was_cut_off_is_not_read(modules, folder):
    results, _ = modules
    runs = folder / "runs.jsonl"
    whole = results.read_lines(runs)
    runs.write_text(runs.read_text(encoding="utf-8") + '{"key": "half', encoding="utf-8")
    assert results.read_lines(runs) == whole
