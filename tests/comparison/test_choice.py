"""The rule of auto: a family of nested models, a step upwards only where held-out clicks gain, and the certificate."""

from dataclasses import replace

import numpy as np
import pytest

import unskew
from unskew.comparison.choice import Choice, certify, choose
from unskew.comparison.held_out import make_case
from unskew.comparison.safety import stakes
from unskew.data.clicks.click_log import ClickLog
from unskew.evaluation.criteria import NO_CURVE, Contender
from unskew.evaluation.held_out import HeldOut
from unskew.simulation.policies import Random

RNG = np.random.default_rng(0)
ALL = ("naive", "two_tower", "low_rank")


@pytest.fixture(scope="module")
def evidence(world):
    log = unskew.simulate(world.train, Random(orders_per_query=8), "position_based", sessions=64, seed=1).log
    return make_case(log, 0.5).evidence


@pytest.fixture(scope="module")
def truth(evidence):
    """Clicks per showing of each document: in random orders a good ranker."""
    impressions = evidence.held_out.impressions
    n = len(evidence.held_out.log.features)
    clicks = np.bincount(impressions.documents, impressions.clicks, n)
    shown = np.bincount(impressions.documents, impressions.sessions, n)
    return np.divide(clicks, shown, out=np.full(n, np.nan), where=shown > 0)


@pytest.mark.parametrize(
    ("gains", "chosen", "tried"),
    [
        ({}, "naive", 2),
        ({"two_tower": 0.5, "low_rank": 0.5}, "two_tower", 3),
        ({"two_tower": 0.5, "low_rank": 0.8}, "low_rank", 3),
        ({"two_tower": 0.5, "low_rank": 0.501}, "two_tower", 3),  # .001 is within the interval
        ({"low_rank": 0.9}, "low_rank", 2),  # the part of the position alone is not enough
        ({"two_tower": -0.5, "low_rank": -0.5}, "naive", 2),
    ],
)
def test_the_next_model_is_the_simplest_whose_gain_exceeds_its_interval(gains, chosen, tried):
    noise = np.tile([0.1, -0.1], 50)  # per query: a mean gain below 0.02 is within its interval

    def likelihood(name):
        return gains.get(name, 0.0) + noise * ALL.index(name)

    found = choose(ALL, likelihood)
    assert (found.method, len(found.steps)) == (chosen, tried)
    assert [round(step.gain, 3) for step in found.steps[:2]] == [gains.get(name, 0.0) for name in ALL[1:]]


def test_a_correction_is_served_with_a_tenth_of_plain_clicks_and_plain_clicks_alone():
    tried = {"naive": Contender(np.array([1.0, 0.0])), "two_tower": Contender(np.array([0.0, 2.0]))}
    found = Choice("two_tower")
    assert found.label == "two_tower + naive"
    np.testing.assert_allclose(found.served(tried).scores, [0.1, 1.8])
    assert Choice("naive").served(tried) is tried["naive"]


def test_the_reason_is_one_sentence_with_the_gain_and_its_interval():
    found = choose(["naive", "two_tower"], lambda name: np.array([0.1, 0.3]) * (name == "two_tower"))
    # mean .2, standard error .1, t quantile 12.706 at one degree of freedom
    assert found.reason == "No bias can be shown, so a click is taken as it is"
    assert (found.steps[0].part, found.steps[0].numbers) == ("position", ("+0.2000", "−1.0706 to +1.4706"))
    sure = choose(["naive", "two_tower"], lambda name: np.full(2, 0.25) * (name == "two_tower"))
    assert sure.reason.endswith("clicks of 2 held-out queries better by 0.2500 per click (0.2500 to 0.2500)")


def test_a_good_ranker_is_certified_and_a_bad_one_is_not(evidence, truth):
    bad = Contender(np.where(np.isnan(truth), np.nan, RNG.normal(size=len(truth))))
    good = Contender(truth)
    choice = Choice("two_tower")
    found = certify(choice, {"two_tower": good, "naive": bad}, bad, evidence)
    assert found.better
    assert not found.worse
    refused = certify(choice, {"two_tower": bad, "naive": bad}, good, evidence)
    assert refused.worse
    replaced = certify(choice, {"two_tower": bad, "naive": good}, bad, evidence)
    assert replaced.choice.method == "naive"
    assert "Raw clicks beat two_tower" in replaced.choice.reason


def test_without_a_criterion_that_can_rank_production_there_is_no_verdict(evidence, truth):
    good = Contender(truth)
    blind = replace(evidence, propensities=NO_CURVE, held_out=HeldOut(evidence.held_out.log.select(np.arange(1))))
    found = certify(Choice("naive"), {"naive": good}, good, blind)
    assert found.criteria == ()
    assert not found.better
    assert not found.worse


def test_exposure_moves_and_the_first_three_change_where_an_order_is_reversed():
    log = ClickLog.from_arrays(np.arange(8.0).reshape(8, 1), [1, 0, 0, 0] * 2, group=[4, 4])
    down, up = np.array([4.0, 3.0, 2.0, 1.0] * 2), np.array([4.0, 3.0, 2.0, 1.0, 1.0, 2.0, 3.0, 4.0])
    found = stakes(up, down, down, HeldOut(log))
    # of exposures 1, .631, .5, .431: (1 - .431) + (.631 - .5) move in the second query, of 2 x 2.562 in both
    assert found.moved == pytest.approx(0.7004 / 5.1234, abs=1e-3)
    assert found.top_changed == 0.5
    # shares of raw clicks .644, .237, .087, .032: worth .851 in their order, .483 reversed; the first query is equal
    assert found.if_wrong == pytest.approx((0.8508 - 0.4830) / (2 * 0.8508), abs=2e-3)
    assert found.if_right == pytest.approx(found.if_wrong)
    assert stakes(up, down, None, HeldOut(log)).moved is None
