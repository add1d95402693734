"""How well criteria choose."""

import pytest

from unskew.papers.reproduce import reproduce
from unskew.papers.selection import Case, records

TRUTH = {"a": 0.80, "b": 0.796, "c": 0.60}


def case(said, truth=TRUTH, **production):
    return Case("world", truth, {"snips": said}, **production)


def test_regret_is_what_the_choice_lacks_to_the_best():
    near, far = case({"a": 1.0, "b": 2.0, "c": 0.0}), case({"a": 0.0, "b": 0.1, "c": 0.2})
    assert (near.choice("snips"), far.choice("snips")) == ("b", "c")
    assert near.regret("b") == pytest.approx(1 - 0.796 / 0.80)
    found = {entry.name: entry for entry in records([near, far])}
    assert found["snips"].near == 0.5  # 0.5% and 25% below the best
    assert found["snips"].regret == pytest.approx((0.005 + 0.25) / 2)
    assert found["snips"].worst == pytest.approx(0.25)


def test_what_a_criterion_cannot_measure_it_cannot_choose_but_the_best_stays_the_best():
    partial = case({"b": 1.0, "c": 2.0})
    assert partial.choice("snips") == "c"
    assert partial.regret("c") == pytest.approx(0.25)
    assert case({"a": 1.0}).choice("snips") is None
    assert partial.choice("ips") is None


def test_rank_correlation_is_spearmans():
    assert case({"a": 3.0, "b": 2.0, "c": 1.0}).rank_correlation("snips") == pytest.approx(1)
    assert case({"a": 1.0, "b": 2.0, "c": 3.0}).rank_correlation("snips") == pytest.approx(-1)
    assert case({"a": 1.0, "b": 2.0}).rank_correlation("snips") is None


def test_the_right_side_of_production_is_counted_method_by_method():
    sides = case(
        {"a": 3.0, "b": 1.0, "c": 1.5}, production_truth=0.7, production_said={"snips": 2.0}
    ).right_about_production("snips")
    assert sides == [True, False, True]


def test_always_the_same_method_and_chance_stand_beside_the_criteria():
    found = {entry.name: entry for entry in records([case({"a": 1.0, "b": 2.0, "c": 0.0})])}
    assert found["always a"].regret == 0
    assert found["a random method"].regret == pytest.approx((0 + 0.005 + 0.25) / 3)
    assert found["a random method"].near == pytest.approx(2 / 3)


SMALL = """
title = "Small"
paper = "none"
question = "Does it run?"
task = "selection"
metrics = ["ndcg@10"]
seeds = 1
[training]
steps = 8
hidden = [4]
[simulation]
sessions = 32
joint = true
interventions = { swap_top = 0.2 }
[[settings]]
name = "trust"
simulation = { user = { name = "trust" } }
[[settings]]
name = "cascade"
simulation = { user = { name = "dbn" } }
[[methods]]
label = "naive"
method = "naive"
[[methods]]
label = "ipw"
method = "ipw"
[[methods]]
label = "pair_debias"
method = "pair_debias"
"""


def test_one_training_is_measured_by_all_criteria_and_by_the_truth(tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    done = reproduce(str(tmp_path / "small.toml"), data="world:tiny", jobs=1, out=tmp_path / "out")
    assert not done.results.failed
    assert len(done.results.results) == 6  # one a case and method
    about = done.results.results[0].outcome.about
    assert set(about["criteria"]) >= {"ips", "snips", "dr", "pair_agreement", "score_likelihood", "click_likelihood"}
    assert set(about["production_criteria"]) >= {"ips", "pair_agreement"}
    assert 0 < about["production_truth"] < 1
    selection, truth, choices = done.shown.sheets
    assert [row[0] for row in truth.rows] == ["trust", "cascade"]
    assert "always ipw" in [row[0] for row in selection.rows]
    assert len(choices.rows) == 2
    again = reproduce(str(tmp_path / "small.toml"), data="world:tiny", jobs=1, out=tmp_path / "out")
    assert again.results.found == 6
