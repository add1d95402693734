"""The guard of the defaults: what counts as a fall, and that an interrupted table is continued."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import unskew
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe

ROOT = Path(__file__).parents[1]
NAMES = ("quality", "quality_logs", "quality_runs", "quality_table", "row_file")
SMALLEST = ("raw, 60 features", "linear, 8 sessions")  # logs of the slow test if there is no finished table


@pytest.fixture(scope="module")
def parts():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})


@pytest.fixture
def entry(parts):
    return parts.quality_logs.QualityLog("tiny", "world:tiny", 4, "ridge", number=3, queries=20)


@pytest.fixture
def work(parts, entry, tmp_path):
    """Two methods and two seeds on a tiny log: 20 queries are a batch, so that defaults take few steps."""
    runs = [parts.quality_runs.Run(entry, method, seed) for seed in (0, 1) for method in ("naive", "two_tower")]
    return parts.quality.Work(runs, tmp_path / "rows.jsonl", tmp_path / "accepted.json", "today")


@pytest.fixture
def measured(parts, monkeypatch):
    """Measurement without training: every run takes 3 seconds, and the second seed is .02 better."""
    done = []

    def measure(run):
        done.append(run.key)
        return row(run.log.name, run.method, run.seed, 0.7 + 0.02 * run.seed)

    monkeypatch.setattr(parts.quality, "measure", measure)
    return done


def row(log, method, seed, value, seconds=3.0):
    same = {"log": log, "method": method, "seed": seed, "ndcg@10": value, "examination": None}
    same |= {"total_seconds": seconds}
    return same | {"steps": 50, "cpu_seconds": seconds, "warnings": [], "code": "today"}


def cell(method, *values):
    return [row("log", method, seed, value) for seed, value in enumerate(values)]


def fallen(parts, now, accepted):
    table = parts.quality_table
    return table.fallen(table.cells_of(now), table.cells_of(accepted))


def test_a_fall_exceeds_a_hundredth_and_twice_its_standard_error(parts):
    before = cell("dla", 0.70, 0.71, 0.72)
    # Differences -.02, -.02, -.02: mean -.02, error 0.
    assert fallen(parts, cell("dla", 0.68, 0.69, 0.70), before) == [("log", "dla")]
    # Differences -.009, -.009, -.009: too small.
    assert fallen(parts, cell("dla", 0.691, 0.701, 0.711), before) == []
    # Differences 0, -.03, -.06: mean -.03, deviation .03, error .03 / sqrt(3) = .0173, twice that is .0346.
    assert fallen(parts, cell("dla", 0.70, 0.68, 0.66), before) == []
    assert fallen(parts, cell("dla", 0.75, 0.76, 0.77), before) == []


def test_the_error_is_the_deviation_over_the_root_of_the_number_of_seeds(parts):
    table = parts.quality_table
    found = table.changes(table.cells_of(cell("dla", 0.70, 0.68, 0.66)), table.cells_of(cell("dla", 0.70, 0.71, 0.72)))
    assert found[("log", "dla")].mean == pytest.approx(-0.03)
    assert found[("log", "dla")].error == pytest.approx(0.03 / math.sqrt(3))


def test_a_single_seed_is_judged_by_the_deviation_of_the_other_cells(parts):
    before = [*cell("dla", 0.70, 0.70), *cell("hte", 0.70)]
    # The differences of dla are .01 and -.01: variance .0002, deviation .0141, twice that is .0283.
    steady = cell("dla", 0.71, 0.69)
    assert fallen(parts, [*steady, *cell("hte", 0.68)], before) == []
    assert fallen(parts, [*steady, *cell("hte", 0.67)], before) == [("log", "hte")]


def test_a_training_that_fails_is_a_fall_unless_it_failed_before(parts):
    failing = cell("dla", 0.7, None)
    assert fallen(parts, failing, cell("dla", 0.7, 0.7)) == [("log", "dla")]
    assert fallen(parts, failing, failing) == []


def test_lightgbm_is_shown_and_not_judged(parts):
    name = parts.quality_runs.OPPONENT
    now, before = cell(name, 0.6, 0.6), cell(name, 0.7, 0.7)
    assert fallen(parts, now, before) == []
    table = parts.quality_table
    assert "-0.1000 ± 0.0000" in table.table_text(table.cells_of(now), table.cells_of(before))


def test_the_table_of_the_docs_is_bold_where_plain_clicks_are_a_hundredth_better_and_marks_warnings(parts):
    rows = [*cell("naive", 0.72, 0.74), *cell("dla", 0.71, 0.72), *cell("ipw", 0.72, 0.724)]  # means .730, .715, .722
    rows[-1]["warnings"] = ["it has run away"]
    table = parts.quality_table.markdown(parts.quality_table.cells_of(rows))
    assert table.splitlines() == [
        "| log | `naive` | `dla` | `ipw` |",
        "|---|---|---|---|",
        "| log | .730 | **.715** | .722 * |",
    ]


def test_a_half_written_file_is_continued(parts, work, measured):
    parts.quality.run_missing(work)
    whole = work.path.read_text()
    assert len(measured) == 4
    lines = whole.splitlines(keepends=True)
    work.path.write_text("".join(lines[:2]) + lines[2][:30])  # killed while it wrote the third
    parts.quality.run_missing(work)
    assert measured[4:] == [("tiny", "naive", 1, None), ("tiny", "two_tower", 1, None)]
    assert work.path.read_text() == whole


def test_rows_of_another_state_of_the_code_are_made_again(parts, work, measured):
    work.path.write_text("".join(json.dumps(row("tiny", "naive", 0, 0.9) | {"code": "yesterday"}) + "\n"))
    parts.quality.run_missing(work)
    assert len(measured) == 4
    assert [found["ndcg@10"] for found in work.rows()] == [0.7, 0.7, 0.72, 0.72]


def test_an_accepted_table_is_what_later_ones_are_compared_to(parts, work, measured, capsys):
    with pytest.raises(SystemExit, match="4 of 4 runs are missing"):
        parts.quality.accept(work)
    parts.quality.run_missing(work)
    parts.quality.accept(work)
    assert parts.quality.show(work) == 0
    assert "+0.0000 ± 0.0000" in capsys.readouterr().out
    lines = work.accepted.read_text().splitlines()
    assert [json.loads(line.rstrip(","))["method"] for line in lines[1:-1]] == [*["naive"] * 2, *["two_tower"] * 2]
    better = [found | {"ndcg@10": found["ndcg@10"] + 0.05} for found in work.rows()]
    parts.quality_table.write_accepted(work.accepted, better)
    assert parts.quality.show(work) == 1
    assert "FELL: two_tower on 'tiny'" in capsys.readouterr().out


def test_the_plan_expects_what_known_rows_took(parts, work, measured):
    usual = parts.quality.USUAL_SECONDS
    assert sum(work.seconds().values()) == pytest.approx(4 * usual)
    parts.quality_table.write_accepted(work.accepted, [row("tiny", "naive", 0, 0.7, seconds=60.0)])
    # Two runs of naive take a minute each, those of two_tower what was once measured.
    minutes = 2 + 2 * usual / 60
    assert parts.quality.plan_text(work).splitlines()[-1].split() == ["all", "4", "4", *[f"{minutes:.1f}"] * 2]
    assert work.shared(1, 2) + work.shared(2, 2) == list(work.runs)


def test_shares_have_about_equal_times(parts, work):
    assert [run.key[1:3] for run in work.shared(1, 2)] == [("naive", 0), ("two_tower", 0)]


def test_the_guard_trains_defaults_and_continues(parts, work, capsys):
    real = parts.quality.Work(work.runs[:2], work.path, work.accepted, parts.quality_runs.state_of_code())
    parts.quality.run_missing(real)
    first = work.path.read_text()
    parts.quality.run_missing(real)
    assert work.path.read_text() == first
    naive, two_tower = real.rows()
    assert (naive["examination"], len(two_tower["examination"])) == (None, 3)
    assert 0 < two_tower["ndcg@10"] < 1
    assert (
        naive["steps"]
        == fit_recipe(Recipe.of("naive"), parts.quality_runs.case_of(work.runs[0].log, 0).log).history.rows[-1]["step"]
    )
    assert parts.quality.show(real) == 0  # nothing was accepted yet
    assert "two_tower" in capsys.readouterr().out


@pytest.mark.parametrize(("method", "grid"), [("dla", (6, 12)), ("low_rank", (6, 12)), ("lbd", (6, 12))])
def test_a_point_of_the_grid_is_what_so_many_steps_give(parts, entry, method, grid):
    log = parts.quality_runs.case_of(entry, 0).log
    recipe = Recipe.of(method, hidden=[8], seed=1, warm_up=0)  # warm-up is shorter below 80 steps only
    for steps, (model, seconds) in zip(grid, parts.quality_runs.long_run(recipe, log, grid), strict=True):
        alone = fit_recipe(Recipe.of(method, hidden=[8], seed=1, warm_up=0, steps=steps), log)
        assert seconds > 0
        for name, value in alone.method.state_dict().items():
            np.testing.assert_array_equal(model.method.state_dict()[name], value, err_msg=name)


def test_a_method_whose_last_stage_has_a_fixed_length_is_trained_once_for_each_point(parts, entry, monkeypatch):
    runs = parts.quality_runs
    monkeypatch.setattr(runs, "GRID_STEPS", (6, 12))
    log = runs.case_of(entry, 0).log
    with pytest.raises(runs.SeveralPaths):
        runs.long_run(Recipe.of("vectorization"), log, (6, 12))
    found = runs.measure(runs.Run(entry, "vectorization", 0, rate=3.0))
    assert (found["rate"], found["steps"]) == (3.0, [6, 12])
    model = fit_recipe(Recipe.of("vectorization", steps=12, learning_rate=3 * 0.005), log)
    assert found["ndcg@10"][1] == round(
        unskew.evaluate(model, runs.case_of(entry, 0).test, ["ndcg@10"]).mean("ndcg@10"), 5
    )


def test_a_training_that_ends_with_an_error_is_a_row_without_a_quality(parts, entry, monkeypatch):
    runs = parts.quality_runs

    def diverging(*_, **__):
        raise FloatingPointError("20 batches in a row gave no finite loss")

    monkeypatch.setattr(runs, "fit_recipe", diverging)
    found = runs.measure(runs.Run(entry, "dla", 0))
    assert (found["ndcg@10"], found["steps"]) == (None, None)
    assert found["error"] == "FloatingPointError: 20 batches in a row gave no finite loss"
    grid = runs.measure(runs.Run(entry, "dla", 0, rate=3.0))
    assert grid["ndcg@10"] == [None] * len(runs.GRID_STEPS)


def test_only_the_defaults_on_the_reference_logs_are_accepted(parts, capsys):
    for more in (["--set", "aside"], ["--reference"]):
        with pytest.raises(SystemExit):
            parts.quality.main(["--accept", *more])
    assert "only the table of the defaults" in capsys.readouterr().err


def test_the_gap_is_to_the_best_point_and_its_time_to_the_fastest_close_one(parts):
    table = parts.quality_table
    # Means over both seeds: .70 after 10 s, .747 after 20 s, .75 after 40 s, the best.
    grid = [
        {"log": "log", "method": "dla", "seed": seed, "rate": 1.0, "steps": [500, 1000, 2000], "ndcg@10": values}
        | {"cpu_seconds": [10.0, 20.0, 40.0]}
        for seed, values in enumerate([[0.70, 0.746, 0.75], [0.70, 0.748, 0.75]])
    ]
    defaults = [row("log", "dla", seed, value, seconds=30.0) for seed, value in enumerate([0.74, 0.746, 0.1])]
    (gap,) = table.gaps(grid, table.cells_of(defaults))
    assert (gap.steps, gap.rate) == (2000, 1.0)
    assert gap.size == pytest.approx(0.75 - 0.743)
    assert gap.time == pytest.approx(30 / 20)
    assert "median time 1.50 x" in table.gaps_text([gap])


def test_a_linear_regression_of_the_grades_ranks_by_them(parts, world):
    policy = parts.quality_logs.LinearRegression(fraction=1.0).fit(world.train)
    shuffled = parts.quality_logs.LinearRegression(fraction=0.01, seed=1).fit(world.train)
    fits = [np.corrcoef(each.scores(world.train), world.train.grades)[0, 1] for each in (policy, shuffled)]
    assert fits[0] > fits[1] > 0  # least squares on all grades has the largest correlation
    with pytest.raises(ValueError, match=r"call fit\(train\) first"):
        parts.quality_logs.LinearRegression().scores(world.train)


def test_sets_of_logs_share_no_world(parts):
    documents = {name: {entry.documents for entry in entries} for name, entries in parts.quality_logs.SETS.items()}
    assert [len(entries) for entries in parts.quality_logs.SETS.values()] == [8, 12, 20]
    names = [entry.name for entries in parts.quality_logs.SETS.values() for entry in entries]
    assert len(names) == len(set(names))
    assert not documents["reference"] & documents["aside"]
    assert not documents["further"] & (documents["reference"] | documents["aside"])


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_default_fell_against_the_accepted_table(parts):
    """By the finished table of this code if there is one, else by two methods on two logs."""
    work, _ = parts.quality.works("reference", parts.quality.HERE)
    accepted = parts.quality_table.read_accepted(work.accepted)
    if not accepted:
        pytest.skip("no table is accepted yet: make quality, then benchmarks/quality.py --accept")
    rows = work.rows()
    if work.missing():
        runs = [run for run in work.runs if run.log.name in SMALLEST and run.method in ("dla", "naive")]
        rows = [parts.quality_runs.measure(run) for run in runs]
    assert fallen(parts, rows, accepted) == []
