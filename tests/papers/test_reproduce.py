"""From a name to a folder of results, on the smallest world."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import unskew
from unskew.cli import app
from unskew.papers.experiment_files import load_experiment
from unskew.papers.reproduce import _with_options, reproduce

SMALL = """
title = "Small"
paper = "none"
question = "Does it run?"
metrics = ["ndcg@10", "err@10"]
baseline = ["Clicks"]
seeds = 2
[simulation]
sessions = 16
[training]
steps = 8
validate_every = 4
hidden = [4]
[[methods]]
label = "Clicks"
method = "naive"
[[methods]]
label = "DLA"
method = "dla"
grid = { max_weight = [2.0, 20.0] }
[[methods]]
label = "IPW"
method = "ipw"
[[claims]]
text = "DLA beats Clicks."
relation = "better"
label = "DLA"
than = ["Clicks"]
[[figures]]
kind = "bars"
file = "bars"
title = "Bars"
[[figures]]
kind = "curves"
file = "curves"
title = "Curves"
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    (folder / "small.toml").write_text(SMALL)
    done = reproduce(str(folder / "small.toml"), data="world:tiny", jobs=1, out=folder / "out")
    return folder, done


def test_an_experiment_leaves_rows_tables_figures_and_a_report(small):
    folder, _ = small
    written = {path.name for path in (folder / "out").iterdir()}
    assert {"results.parquet", "runs.parquet", "results.md", "results.tex", "bars.svg", "bars.png"} <= written
    assert {"curves.svg", "tests.md", "chosen.md", "report.html"} <= written
    assert "--data world:tiny" in (folder / "out" / "report.html").read_text()
    rows = pq.read_table(folder / "out" / "results.parquet")
    assert len(rows) == 2 * 2 * 60  # methods, seeds, test queries
    assert {"setting", "method", "data", "seed", "query", "ndcg@10", "err@10"} == set(rows.column_names)
    runs = pq.read_table(folder / "out" / "runs.parquet").to_pylist()
    assert sum(run["chosen"] for run in runs) == 4
    assert len(runs) == 5  # and the point of DLA's grid that was not chosen
    dla = next(run for run in runs if run["method"] == "DLA")
    assert (len(dla["examination"]), dla["best_step"] in (4, 8), dla["seconds"] > 0) == (10, True, True)


def test_the_method_that_needs_another_log_fails_alone_and_says_why(small):
    folder, done = small
    ((run, message),) = done.results.failed
    assert run.label == "IPW"
    assert "the log does not identify propensities" in message
    assert "IPW" in (folder / "out" / "report.html").read_text()


def test_an_experiment_that_is_finished_is_not_run_again(small):
    folder, _ = small
    again = reproduce(str(folder / "small.toml"), data="world:tiny", jobs=1, out=folder / "out")
    assert (again.results.found, len(again.results.results)) == (5, 4)


def test_the_same_run_gives_the_same_numbers(small, tmp_path):
    folder, done = small
    other = reproduce(str(folder / "small.toml"), data="world:tiny", jobs=1, seeds=1, out=tmp_path / "other")
    first = {result.run.key: result.outcome.per_query["ndcg@10"].tolist() for result in done.results.results}
    for result in other.results.results:
        assert result.outcome.per_query["ndcg@10"].tolist() == first[result.run.key]


def test_a_place_that_cannot_be_written_is_refused_before_any_work(small, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="cannot be written"):
        reproduce(str(small[0] / "small.toml"), data="world:tiny", out=tmp_path / "file" / "out")


def test_the_command_lists_experiments_and_reports_failures_by_its_exit_code(small):
    runner = CliRunner()
    listed = runner.invoke(app, ["reproduce", "--list", "--json"])
    assert "lbd-table1" in {row["name"] for row in json.loads(listed.stdout)}
    folder, _ = small
    arguments = [str(folder / "small.toml"), "--data", "world:tiny", "--jobs", "1", "--out", str(folder / "out")]
    found = runner.invoke(app, ["reproduce", *arguments, "--json"])
    shown = json.loads(found.stdout)
    assert found.exit_code == 1
    assert shown["failed"][0]["run"].startswith("IPW")
    assert shown["tables"]["results"][0][0] == "Clicks"
    assert runner.invoke(app, ["reproduce", "lbd-table9"]).exit_code == 2
    assert 'paper = "' in runner.invoke(app, ["reproduce", "group-level", "--show"]).stdout


def test_options_replace_those_of_the_experiment_wherever_they_stand():
    experiment = load_experiment("lbd-table1")
    changed = _with_options(experiment, {"steps": 7, "penalty": 0.5, "learning_rate": 0.2})
    assert changed.training["steps"] == 7
    assert all("penalty" not in entry.grid for entry in changed.methods)
    assert all(entry.options.get("learning_rate", 0.2) == 0.2 for entry in (*changed.methods, *changed.settings))


CAMERA_READY = """
title = "Two methods, & a % of 100 under η_1"
paper = "our own"
question = "q"
metrics = ["ndcg@10", "ndcg@10:never_shown", "rbp"]
baseline = ["Clicks"]
data = ["world:tiny", "world:tiny:7"]
[simulation]
sessions = 4
n_shown = 5
[training]
steps = 4
validate_every = 2
hidden = [4]
[[methods]]
label = "Clicks"
method = "naive"
[[methods]]
label = "Labels"
method = "labelled"
[[figures]]
kind = "learning_curves"
file = "learning"
title = "Validation over steps"
"""


def test_a_folder_of_results_says_what_made_it_and_shards_are_put_together(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text(CAMERA_READY)
    for part in ("1/2", "2/2"):
        unskew.reproduce(str(mine), out=tmp_path / part[0], shard=part, seeds=2, jobs=1, progress=False)
    halves = [tmp_path / "1", tmp_path / "2"]
    done = unskew.reproduce(str(mine), out=tmp_path / "all", merge=halves, seeds=2, jobs=1, progress=False)
    assert (done.results.found, len(done.results.results)) == (8, 8)  # nothing was run again
    assert (tmp_path / "all" / "experiment.toml").read_text() == CAMERA_READY
    about = json.loads((tmp_path / "all" / "provenance.json").read_text())
    assert (about["runs"], about["grid_points"]) == (8, {"Clicks": 1, "Labels": 1})
    assert about["experiment"]["simulation"]["n_shown"] == 5
    assert {"torch", "python"} <= set(about["versions"])
    assert (tmp_path / "all" / "learning-world-tiny.pdf").is_file()
    table = done.shown.sheets[0].to_table()
    assert table.column_names == ["method", "world:tiny", "world:tiny:7"]
    assert table.column("world:tiny").type == "double"
    again = unskew.reproduce(str(mine), out=tmp_path / "all", fresh=["Clicks"], seeds=2, jobs=1, progress=False)
    assert again.results.found == 4  # those of Labels
    with pytest.raises(ValueError, match="no method 'Click' to run again"):
        unskew.reproduce(str(mine), out=tmp_path / "all", fresh=["Click"], seeds=2, progress=False)
    with pytest.raises(ValueError, match="shard must have the form 2/8, the second of eight parts, got '3/2'"):
        unskew.reproduce(str(mine), out=tmp_path / "all", shard="3/2", progress=False)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
def test_tables_compile_as_they_stand(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text(CAMERA_READY)
    done = unskew.reproduce(str(mine), out=tmp_path / "out", seeds=2, jobs=1, progress=False)
    tables = "\n".join(rf"\input{{{path.stem}}}" for path in sorted(done.out.glob("*.tex")))
    head = "\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n"
    (done.out / "paper.tex").write_text(f"{head}{tables}\n\\end{{document}}\n")
    made = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"],
        cwd=done.out,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout[-2000:]


def test_the_python_of_the_page_on_experiments_runs():
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")
    names = {}
    for text in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        exec(compile(text, "experiments.md", "exec"), names)
    assert len(names["losses"]) == 10
