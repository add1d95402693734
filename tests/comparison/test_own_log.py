"""Methods and production on a log of your own, with and without labels."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from unskew.comparison import held_out
from unskew.comparison.own_log import compare, level_figures
from unskew.comparison.plan import Repetition, Run
from unskew.comparison.rows import Outcome
from unskew.comparison.run import Result, Results
from unskew.data.clicks.storage import write_log
from unskew.evaluation.criteria import CRITERIA, DEFAULT_CRITERION
from unskew.evaluation.differences import mean_interval

TRAINING = {"steps": 8, "validate_every": 4, "hidden": [4]}


@pytest.fixture(autouse=True, scope="module")
def _no_trees():
    """A model of relevance that takes no time; tests of `selection` use the real one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_out, "fit_relevance", lambda *_: lambda features: np.full(len(features), 0.1))
        yield


@pytest.fixture(scope="module")
def folder(log, tmp_path_factory):
    return write_log(log, tmp_path_factory.mktemp("comparison") / "log")


@pytest.fixture(scope="module")
def unlabelled(folder, tmp_path_factory):
    """Three methods, two seeds, no judged document."""
    out = tmp_path_factory.mktemp("unlabelled")
    return compare(folder, ["naive", "dla", "regression_em"], options=TRAINING, seeds=2, jobs=1, out=out)


def labels_of(sheet):
    return [row[0] for row in sheet.rows]


def test_without_labels_production_is_a_row_with_its_interval(unlabelled):
    assert not unlabelled.results.failed
    first = unlabelled.shown.sheets[0]
    assert labels_of(first) == ["production", "naive", "dla", "regression_em"]
    production = unlabelled.shown.outlook.standings[0]
    values = next(r for r in unlabelled.results.results if r.run.label == "production").outcome.per_query
    assert (production.mean, production.low, production.high) == mean_interval(values[DEFAULT_CRITERION])
    assert "Production: policy score" in first.notes[0]


def test_without_labels_every_criterion_stands_in_the_table_with_a_number_or_a_reason(unlabelled):
    sheets = {sheet.name: sheet for sheet in unlabelled.shown.sheets}
    criteria = sheets["criteria"]
    assert criteria.columns == ("", "production", "naive", "dla", "regression_em")
    assert len(criteria.rows) == len(CRITERIA) - 1  # without display probabilities there are no reweighted clicks
    rows = {row[0][:-2]: list(row[1:]) for row in criteria.rows}
    assert rows["click likelihood"][0] == "predicts no clicks"
    assert rows["click likelihood"][3] == "predicts single clicks: see perplexity"
    assert rows["perplexity"][1] == "predicts the place of a click: see click likelihood"
    assert all(" ± " in text for text in rows["pair agreement"])
    assert len(sheets["meaning"].rows) == len(CRITERIA) - 1


def test_the_verdict_is_a_line_in_the_report_and_a_column_of_each_query_on_disk(unlabelled):
    outlook = unlabelled.shown.outlook
    assert "production" in outlook.line
    report = (unlabelled.out / "report.html").read_text()
    assert "Does anything beat production?" in report
    rows = pq.read_table(unlabelled.out / "results.parquet").to_pandas()
    means = rows.groupby("method")[DEFAULT_CRITERION].mean()
    for entry in outlook.standings:
        assert means[entry.label] == pytest.approx(entry.mean)


def test_queries_are_learnt_from_or_compared_on_never_both(unlabelled, log):
    about = unlabelled.results.results[0].outcome.about
    assert (about["learning_queries"], about["held_out_queries"]) == (160, 40)


def test_production_is_one_run_whatever_the_seeds(unlabelled):
    keys = [r.run.key for r in unlabelled.results.results if r.run.label == "production"]
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_a_log_that_cannot_tell_propensities_leaves_their_criteria_out_with_the_reason(log, tmp_path):
    fixed = log.select(log.interventions.values == 0)
    write_log(replace(fixed, interventions=None), tmp_path / "log")
    done = compare(tmp_path / "log", ["naive"], options=TRAINING, seeds=1, jobs=1, out=tmp_path / "out")
    sheet = next(sheet for sheet in done.shown.sheets if sheet.name == "criteria")
    assert "IPS DCG@10: the log does not identify propensities" in sheet.notes[0]
    assert "pair agreement: no query shows two documents at one position" in sheet.notes[0]
    assert "agreement across queries ↑" in labels_of(sheet)
    # Production's order is the position: methods are ranked, and nothing is said of production.
    assert done.shown.outlook.measure == "score likelihood"
    assert done.shown.outlook.line.startswith("no verdict on production: score likelihood cannot rank it")
    assert "shuffled or swapped" in done.shown.outlook.line
    assert labels_of(done.shown.sheets[0]) == ["naive"]


def test_what_chooses_cannot_measure(folder, tmp_path):
    lines = [f"{n % 2} qid:{n // 3} " + " ".join(f"{i}:{n + i}" for i in range(1, 4)) for n in range(12)]
    one, other = tmp_path / "one.txt", tmp_path / "other.txt"
    one.write_text("\n".join(lines) + "\n")
    other.write_text("\n".join(lines[6:]) + "\n")
    with pytest.raises(ValueError, match=r"one\.txt is used for both validation and test"):
        compare(folder, ["naive"], validate=str(one), test=str(one), out=tmp_path / "out")
    with pytest.raises(ValueError, match=r"2 queries are in both .*by id and features"):
        compare(folder, ["naive"], validate=str(one), test=str(other), out=tmp_path / "out")
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        compare(folder, ["naive"], seeds=0, out=tmp_path / "out")


def test_a_criterion_that_production_lacks_cannot_tell_whether_it_is_beaten(folder, tmp_path):
    done = compare(
        folder, ["naive"], criterion="click_likelihood", options=TRAINING, seeds=1, jobs=1, out=tmp_path / "out"
    )
    assert done.shown.outlook.line.startswith("no verdict on production: click likelihood cannot rank it")


def test_without_labels_grids_are_chosen_on_other_queries_than_those_reported(folder, tmp_path):
    done = compare(
        folder,
        ["dla"],
        grids={"dla": {"max_weight": [2.0, 20.0]}},
        options=TRAINING,
        seeds=1,
        jobs=1,
        out=tmp_path / "out",
    )
    assert not done.results.failed
    chosen = next(r for r in done.results.results if r.run.label == "dla")
    tried = [r for r in done.results.tried if r.run.label == "dla"]
    assert len(tried) == 2
    assert chosen.outcome.about["validation"] == max(r.outcome.about["validation"] for r in tried)
    assert chosen.outcome.about["held_out_queries"] == 20
    assert chosen.outcome.about["validation"] != np.nanmean(chosen.outcome.per_query[DEFAULT_CRITERION])


def test_when_everything_fails_the_reasons_are_reported_all_the_same(log, tmp_path):
    write_log(log.select(log.queries == 0), tmp_path / "log")
    done = compare(tmp_path / "log", ["naive"], options=TRAINING, seeds=1, jobs=1, out=tmp_path / "out")
    assert [run.label for run, _ in done.results.failed] == ["production", "naive"]
    assert all("a log of one query cannot be split" in error for _, error in done.results.failed)
    assert done.shown.outlook is None


def test_a_log_of_ones_own_is_compared_with_grids_and_a_baseline(log, tmp_path):
    write_log(log, tmp_path / "log")
    done = compare(
        tmp_path / "log",
        ["naive", "dla", "ipw"],
        validate="world:tiny",
        test="world:tiny",
        grids={"dla": {"max_weight": [2.0, 20.0]}},
        options=TRAINING,
        seeds=2,
        jobs=1,
        out=tmp_path / "out",
    )
    assert not done.results.failed
    sheets = {sheet.name: sheet for sheet in done.shown.sheets}
    assert [row[0] for row in sheets["results"].rows] == ["production", "naive", "dla", "ipw"]
    assert "against naive" in sheets["results"].notes[0]
    assert labels_of(sheets["production"]) == ["production", "naive", "dla", "ipw"]
    assert "imitated from features" in sheets["production"].notes[0]
    assert "production by" in done.shown.outlook.line or "beats production" in done.shown.outlook.line


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"methods": ["naive", "magic"]}, ValueError, "unknown method 'magic'"),
        ({"grids": {"dla": {"max_weight": [1]}}}, ValueError, "a grid for 'dla', which is not in the comparison"),
        ({"baseline": "dla"}, ValueError, "the baseline 'dla' is not in the comparison"),
        ({"methods": ["labelled"]}, ValueError, "pass judged data"),
        ({"test": "world:huge"}, ValueError, "unknown world 'world:huge'"),
        ({"log": "nowhere"}, FileNotFoundError, "nowhere is not a click log"),
        ({"options": {"stepps": 1}}, ValueError, "unknown option 'stepps'"),
    ],
)
def test_a_comparison_that_cannot_be_made_is_refused_before_any_work(change, error, message, log, tmp_path):
    write_log(log, tmp_path / "log")
    arguments = {"log": tmp_path / "log", "methods": ["naive"], "validate": "world:tiny", "test": "world:tiny"}
    with pytest.raises(error, match=message):
        compare(**{**arguments, "out": tmp_path / "out", **change})
    assert not (tmp_path / "out" / "runs").exists()


def test_a_log_without_clicks_is_refused_before_any_work(log, tmp_path):
    silent = replace(log, clicks=np.zeros_like(log.clicks), patterns=None)
    with pytest.raises(ValueError, match="has no clicks: there is nothing to learn from"):
        compare(write_log(silent, tmp_path / "silent"), ["naive"], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_curves_per_level_are_drawn_in_the_report():
    def result(label, seed, curves):
        run = Run("", label, {}, Repetition(seed, "d", seed), {})
        return Result(run, Outcome(about={"examination_by_level": curves}))

    curves = {"device=phone": [1.0, 0.4], "device=desktop": [1.0, 0.8]}
    found = Results((result("dla", 0, curves), result("dla", 1, curves), result("naive", 0, {})), (), (), 0, 0)
    (drawn,) = level_figures(found)
    assert (drawn.file, drawn.title) == ("examination-dla", "Examination by level, learned by dla")
    lines = drawn.figure.axes[0].get_lines()
    assert [(line.get_label(), line.get_ydata().tolist()) for line in lines] == list(curves.items())
