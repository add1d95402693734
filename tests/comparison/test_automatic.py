"""Auto on logs: agreement with diagnose and compare, and a ranker in any case."""

import pytest

import unskew
from unskew.comparison import automatic
from unskew.comparison.automatic import UNKNOWN
from unskew.comparison.choice import Choice
from unskew.diagnosis.advice import advise, facts, worth_comparing
from unskew.diagnosis.assemble import diagnose

FAST = {"steps": 5, "hidden": [4]}


def test_compare_tries_what_diagnose_calls_worth_training(log):
    advice = advise(facts(diagnose(log, quick=True)))
    names = worth_comparing(advice)
    assert names[0] == "naive"
    assert {entry.method for entry in advice if entry.word == "train"} <= set(names)
    assert not {entry.method for entry in advice if entry.word == "cannot work"} & set(names)


@pytest.fixture(scope="module")
def fixed_order(world):
    return unskew.simulate(world.train, "svm", "position_based", sessions=4).log


def test_the_estimator_always_has_a_ranker_and_warns_where_it_is_not_known_to_be_better(fixed_order):
    with pytest.warns(RuntimeWarning, match="No verdict on production"):
        ranker = unskew.UnbiasedRanker(method="auto", **FAST).fit(fixed_order)
    assert ranker.verdict_.production == UNKNOWN
    assert ranker.model_.name == ranker.verdict_.method
    assert "shuffled or swapped" in ranker.verdict_.surer[0]
    assert ranker.predict(fixed_order.features[:3]).shape == (3,)


def test_the_report_says_what_to_randomize_on_how_much_traffic_and_what_it_costs(fixed_order):
    line = unskew.auto(fixed_order, progress=False, **FAST).verdict.surer[1]
    assert "in 10% of the sessions (80 of 800" in line
    assert "costs at most" in line


def test_an_average_goes_on_from_an_average(fixed_order, monkeypatch):
    monkeypatch.setattr(automatic, "choose", lambda *_, **__: Choice(("dla", "low_rank"), "it is a test"))
    yesterday = unskew.auto(fixed_order, progress=False, **FAST).model
    assert yesterday.name == "dla + low_rank"
    today = unskew.auto(fixed_order, start=yesterday, progress=False, **FAST).model
    assert today.trained_on["started_from"]["steps"] == 5
    assert today.name == "dla + low_rank"
