"""The rule of auto: which methods may be right, averages of what clicks cannot tell apart, and the certificate."""

from dataclasses import replace

import numpy as np
import pytest

import unskew
from unskew.comparison.choice import Choice, Signs, average, certify, choose, read_signs, spread, tried_first
from unskew.comparison.held_out import make_case
from unskew.evaluation.criteria import Contender
from unskew.evaluation.differences import Paired
from unskew.simulation.policies import Random

RNG = np.random.default_rng(0)


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


def signs(as_production=0.2, alike=0.9, **more):
    return Signs(as_production, alike, **more)


TRIED = dict.fromkeys(["naive", "dla", "two_tower", "low_rank"], Contender(np.zeros(1)))
CLEAR = Paired(np.array([-1.0, -1.1, -0.9]))  # far below 0


def shares(found):
    return dict(zip(found.members, (round(share, 2) for share in found.shares), strict=True))


def test_far_from_production_two_corrections_that_agree_are_averaged():
    found = choose(TRIED, signs())
    assert shares(found) == {"low_rank": 0.5, "dla": 0.5}
    assert found.criteria == ("dr", "pair_agreement")
    assert "Nothing shows that examination depends on the document" in found.signs.line


def test_production_has_a_share_to_the_degree_that_clicks_lead_to_its_order():
    assert shares(choose(TRIED, signs(as_production=0.45))) == {"low_rank": 0.5, "dla": 0.38, "production": 0.12}
    assert shares(choose(TRIED, signs(as_production=0.7))) == {"low_rank": 0.5, "production": 0.5}
    assert "tau 0.70" in choose(TRIED, signs(as_production=0.7)).reason


def test_plain_clicks_have_a_share_to_the_degree_that_corrections_contradict_each_other():
    assert shares(choose(TRIED, signs(alike=0.55))) == {"low_rank": 0.5, "dla": 0.25, "naive": 0.25}
    assert shares(choose(TRIED, signs(alike=0.3))) == {"low_rank": 0.5, "naive": 0.5}


def test_an_average_has_at_most_three_members():
    found = choose(TRIED, signs(as_production=0.5, alike=0.5))  # a half near; 0.6 of the rest to plain clicks
    assert shares(found) == {"low_rank": 0.56, "production": 0.28, "naive": 0.17}


def test_examination_by_document_needs_two_signs_and_then_no_criterion_counts():
    assert choose(TRIED, signs(alike=0.4)).criteria == ("dr", "pair_agreement")
    for sign in ({"score_likelihood": CLEAR}, {"click_likelihood": Paired(-CLEAR.values)}, {"diagnosed": True}):
        found = choose(TRIED, signs(alike=0.4, **sign))
        assert found.signs.coupled
        assert found.criteria == ()


def test_criteria_of_position_alone_do_not_count_where_diagnose_rejects_it():
    assert choose(TRIED, signs(diagnosed=True)).criteria == ()
    assert choose(TRIED, signs(rejected=True)).criteria == ()


def test_looks_come_first_and_plain_clicks_alone_are_called_so():
    looks = {**TRIED, "attention": TRIED["dla"]}
    assert choose(looks, signs(alike=0.1, diagnosed=True)).members == ("attention",)
    assert shares(choose(looks, signs(as_production=0.6))) == {"attention": 0.5, "production": 0.5}
    found = choose({"naive": TRIED["naive"]}, Signs())
    assert (found.members, found.reason) == (("naive",), "only plain clicks can work on this log")
    assert tried_first(["attention", "lbd", "dla", "naive"]) == ["naive", "dla", "attention"]


def test_signs_are_read_from_orders_and_held_out_clicks(evidence, truth):
    noise = Contender(np.where(np.isnan(truth), np.nan, RNG.normal(size=len(truth))))
    tried = {"naive": noise, "dla": Contender(truth), "two_tower": Contender(truth), "low_rank": noise}
    found = read_signs(tried, Contender(truth), evidence, coupled=None)
    assert found.as_production > 0.95
    assert abs(found.alike) < 0.2
    assert found.click_likelihood is None  # these contenders predict no clicks
    assert found.score_likelihood.mean < 0
    assert found.coupled
    assert read_signs({"naive": noise}, noise, evidence) == Signs()


def test_scores_of_an_average_count_alike_whatever_their_scale(evidence, truth):
    noise = np.where(np.isnan(truth), np.nan, RNG.normal(size=len(truth)))
    one, other = Contender(truth, truth), Contender(1_000 * noise, 1_000 * noise)
    found = average([one, other], evidence.held_out)
    unit = average([Contender(truth / 7, truth / 7), Contender(noise, noise)], evidence.held_out)
    np.testing.assert_allclose(found.scores, unit.scores)
    assert average([one], evidence.held_out) is one
    assert spread(np.zeros(len(truth)), evidence.held_out) == 1.0


def test_a_good_ranker_is_certified_and_a_bad_one_is_not(evidence, truth):
    bad = Contender(np.where(np.isnan(truth), np.nan, RNG.normal(size=len(truth))))
    good = Contender(truth)
    choice = Choice(("dla",), "", criteria=("dr", "pair_agreement"))
    found = certify(choice, {"dla": good, "naive": bad}, bad, evidence)
    assert found.better
    assert not found.worse
    refused = certify(choice, {"dla": bad, "naive": bad}, good, evidence)
    assert refused.worse
    replaced = certify(choice, {"dla": bad, "naive": good}, bad, evidence)
    assert replaced.choice.members == ("naive",)
    assert "plain clicks beat dla" in replaced.choice.reason


def test_without_a_criterion_that_can_rank_production_there_is_no_verdict(evidence, truth):
    good = Contender(truth)
    blind = replace(evidence, propensities=None)
    found = certify(Choice(("dla",), "", criteria=("dr",)), {"dla": good, "naive": good}, good, blind)
    assert found.criteria == ()
    assert not found.better
    assert not found.worse


def test_production_counts_in_the_average_that_is_certified(evidence, truth):
    bad = Contender(np.where(np.isnan(truth), np.nan, RNG.normal(size=len(truth))))
    good = Contender(truth)
    choice = Choice(("dla", "production"), "", criteria=("dr", "pair_agreement"), weights=(1.0, 0.5))
    assert choice.shares == (2 / 3, 1 / 3)
    found = certify(choice, {"dla": bad, "naive": bad}, good, evidence)
    assert (
        found.own("dr").mean
        > certify(Choice(("dla",), "", criteria=("dr",)), {"dla": bad, "naive": bad}, good, evidence).own("dr").mean
    )
