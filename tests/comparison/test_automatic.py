"""Auto on logs: agreement with diagnose and compare, and a ranker in any case."""

import numpy as np
import pytest

import unskew
from unskew.comparison import automatic
from unskew.comparison.automatic import UNKNOWN
from unskew.comparison.choice import Choice
from unskew.comparison.imitation import ordered_as_production
from unskew.diagnosis.advice import advise, facts, worth_comparing
from unskew.diagnosis.page import diagnose
from unskew.serving.card import model_card
from unskew.serving.model_files import load_model, save_model

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


def test_lists_of_one_document_are_trained_on_once_and_named_once(world):
    log = unskew.simulate(world.train, sessions=4, n_shown=1, progress=False).log
    with pytest.warns(RuntimeWarning) as warned:
        found = unskew.auto(log, progress=False, **FAST)
    assert [str(each.message).partition(":")[0] for each in warned] == ["every list has only one document"]
    assert found.verdict.method == "naive"


@pytest.mark.parametrize(("criteria", "tried"), [((), ["dla", "low_rank"]), (("dr",), ["dla", "low_rank", "naive"])])
def test_plain_clicks_are_tried_only_where_something_is_certified(fixed_order, monkeypatch, criteria, tried):
    monkeypatch.setattr(automatic, "choose", lambda *_, **__: Choice(("dla",), "it is a test", criteria=criteria))
    assert list(unskew.auto(fixed_order, progress=False, **FAST).verdict.means) == tried


def test_an_average_goes_on_from_an_average(fixed_order, monkeypatch):
    monkeypatch.setattr(automatic, "choose", lambda *_, **__: Choice(("dla", "low_rank"), "it is a test"))
    yesterday = unskew.auto(fixed_order, progress=False, **FAST).model
    assert yesterday.name == "dla + low_rank"
    today = unskew.auto(fixed_order, start=yesterday, progress=False, **FAST).model
    assert today.trained_on["started_from"]["steps"] == 5
    assert today.name == "dla + low_rank"


def test_production_is_a_member_that_goes_on_from_itself(fixed_order, monkeypatch, tmp_path):
    choice = Choice(("low_rank", "production"), "it is a test", weights=(1.0, 0.5))
    monkeypatch.setattr(automatic, "choose", lambda *_, **__: choice)
    yesterday = unskew.auto(fixed_order, progress=False, **FAST)
    assert yesterday.verdict.shares == (2 / 3, 1 / 3)
    assert yesterday.model.name == "low_rank + production"
    save_model(yesterday.model, tmp_path / "model")
    assert model_card(load_model(tmp_path / "model"))["method"] == "low_rank + production"
    today = unskew.auto(fixed_order, start=yesterday.model, progress=False, **FAST).model
    assert today.trained_on["started_from"]["steps"] == 5


def test_a_ranker_learns_the_order_of_production(fixed_order):
    shown = ordered_as_production(fixed_order)
    first, last = fixed_order.positions == 0, fixed_order.positions == fixed_order.mask.sum(axis=1)[:, None] - 1
    sessions = np.broadcast_to(fixed_order.sessions[:, None], fixed_order.mask.shape)
    np.testing.assert_array_equal(shown.clicks[first & fixed_order.mask], sessions[first & fixed_order.mask])
    assert not shown.clicks[last & fixed_order.mask].any()
    assert fixed_order.clicks[last & fixed_order.mask].any()
