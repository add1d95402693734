"""Auto: the rule of choice, and what becomes of it on logs."""

import numpy as np
import pytest

import unskew
from unskew.comparison.automatic import UNKNOWN
from unskew.comparison.choice import Choice, CouplingTest, certify, choose_method, tried_later
from unskew.diagnosis.advice import advise, facts, worth_comparing
from unskew.diagnosis.assemble import diagnose

RNG = np.random.default_rng(0)
NOISE = 0.01 * RNG.normal(size=(5, 100))
FAST = {"steps": 5, "hidden": [4]}


def values(**means):
    """One value per query around a mean, for each criterion."""
    return {name: mean + NOISE[i] for i, (name, mean) in enumerate(means.items())}


def measured(gain, **dr):
    """Methods whose nested observation models differ by `gain` in click likelihood."""
    likelihood = {"two_tower": -2.0, "low_rank": -2.0 + gain}
    found = {}
    for row, (name, mean) in enumerate(dr.items()):
        found[name] = {"dr": mean + NOISE[row]}
        if name in likelihood:
            found[name]["click_likelihood"] = likelihood[name] + NOISE[row]
    return found


def test_without_coupling_the_safe_choice_stays_unless_another_is_better_beyond_the_interval():
    close = choose_method(measured(0.0, naive=1.0, dla=1.2, two_tower=1.2005, low_rank=5.0))
    assert close.method == "dla"
    assert not close.coupling.found
    assert "safe choice" in close.reason
    far = choose_method(measured(0.0, naive=1.0, dla=1.2, two_tower=1.3, low_rank=5.0))
    assert far.method == "two_tower"


def test_where_position_alone_is_rejected_its_criteria_do_not_count():
    chosen = choose_method(measured(0.05, naive=1.0, dla=1.2, two_tower=9.0, low_rank=0.5))
    assert chosen.coupling.found
    assert (chosen.method, chosen.criterion) == ("low_rank", None)
    assert "no criterion can rank" in chosen.reason


def test_with_signs_of_trust_beside_coupling_the_safe_choice_is_another():
    found = {**measured(0.05, naive=1.0, two_tower=1.0, low_rank=1.0), "lbd": {"dr": 1.0 + NOISE[3]}}
    assert choose_method(found, trust=True).method == "lbd"
    assert tried_later(["lbd"], measured(0.05, two_tower=1.0, low_rank=1.0), trust=True) == ["lbd"]
    assert tried_later(["lbd"], measured(0.0, two_tower=1.0, low_rank=1.0), trust=True) == []


def test_plain_clicks_that_are_better_on_other_queries_replace_the_choice():
    choice = Choice("dla", "", CouplingTest(0.0, -0.1, 0.1), "dr")
    found = {"dla": values(dr=1.0), "naive": values(dr=1.5)}
    certified, criterion, standings = certify(found, values(dr=1.2), choice)
    assert (certified.method, criterion) == ("naive", "dr")
    assert [entry.label for entry in standings] == ["production", "dla", "naive"]


def test_a_criterion_that_cannot_rank_production_gives_no_verdict():
    choice = Choice("dla", "")
    found = {"dla": values(score_likelihood=1.0), "naive": values(score_likelihood=0.5)}
    assert certify(found, {}, choice) == (choice, None, [])


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
    assert ranker.model_.recipe.method == ranker.verdict_.method
    assert "shuffled or swapped" in ranker.verdict_.surer[0]
    assert ranker.predict(fixed_order.features[:3]).shape == (3,)
