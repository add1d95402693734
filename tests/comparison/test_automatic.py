"""Auto on logs: agreement with diagnose and compare, and a ranker in any case."""

import numpy as np
import pytest

import unskew
from unskew.comparison import automatic
from unskew.comparison.automatic import UNKNOWN
from unskew.comparison.choice import Choice
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


@pytest.fixture
def trained(monkeypatch):
    """Methods that were trained, in their order."""
    done, usual = [], automatic.fit_recipe

    def counted(recipe, *arguments, **more):
        done.append(recipe.method)
        return usual(recipe, *arguments, **more)

    monkeypatch.setattr(automatic, "fit_recipe", counted)
    return done


@pytest.fixture
def by_position(monkeypatch):
    """The choice is `two_tower`, whatever clicks say, after both models were tried."""

    def chosen(_, likelihood):
        likelihood("naive"), likelihood("two_tower")
        return Choice("two_tower", reason="it is a test")

    monkeypatch.setattr(automatic, "choose", chosen)


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


def test_the_models_of_the_choice_are_served_as_they_are(fixed_order, trained, by_position, tmp_path):
    found = unskew.auto(fixed_order, progress=False, **FAST)
    assert trained == ["naive", "two_tower"]
    assert found.model.name == found.verdict.method == "two_tower + naive"
    assert found.model.weights == (0.9, 0.1)
    save_model(found.model, tmp_path / "model")
    assert model_card(load_model(tmp_path / "model"))["method"] == "two_tower + naive"


def test_a_model_that_auto_made_is_where_the_next_one_starts(fixed_order, trained, by_position):
    yesterday = unskew.auto(fixed_order, progress=False, **FAST).model
    today = unskew.auto(fixed_order, start=yesterday, progress=False, **FAST).model
    assert today.trained_on["started_from"]["steps"] == 5
    assert today.name == "two_tower + naive"
    assert trained == ["naive", "two_tower", "naive", "two_tower", "two_tower", "naive"]


def test_a_training_of_auto_is_that_of_the_same_method_by_name(fixed_order):
    found = unskew.auto(fixed_order, hidden=[4], progress=False)
    alone = unskew.fit("naive", fixed_order, hidden=[4], progress=False)
    chosen = found.model if found.verdict.method == "naive" else found.model.others[0]
    for name, value in alone.method.state_dict().items():
        np.testing.assert_array_equal(chosen.method.state_dict()[name], value)
