"""The rule of auto: which methods may be right, averages of what clicks cannot tell apart, and the certificate."""

from dataclasses import replace

import numpy as np
import pytest

import unskew
from unskew.comparison.choice import Choice, Signs, average, certify, choose, read_signs, spread, tried_first
from unskew.comparison.held_out import make_case
from unskew.evaluation.criteria import Contender
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


TRIED = dict.fromkeys(["naive", "dla", "low_rank"], Contender(np.zeros(1)))


def chosen(**found):
    return choose(TRIED, signs(**found), ["lbd"])


def shares(found):
    return dict(zip(found.members, (round(share, 2) for share in found.shares), strict=True))


def test_far_from_production_two_corrections_that_agree_are_averaged():
    found = chosen()
    assert shares(found) == {"dla": 0.5, "low_rank": 0.5}
    assert found.criteria == ("dr", "pair_agreement")
    assert found.signs.line == "dla and low_rank agree (Kendall's tau 0.90)."


def test_where_clicks_lead_to_productions_order_the_correction_is_small():
    found = chosen(as_production=0.5)
    assert shares(found) == {"naive": 0.75, "dla": 0.25}
    assert found.criteria == ("dr", "pair_agreement")
    assert found.reason.endswith("Shares: 75% naive, 25% dla")


def test_where_corrections_contradict_each_other_lbd_corrects_a_part_and_no_criterion_counts():
    found = chosen(alike=0.6)
    assert shares(found) == {"lbd": 0.75, "low_rank": 0.25}
    assert found.criteria == ()
    assert "contradict each other" in found.signs.line
    assert shares(chosen(alike=0.6, as_production=0.5)) == {"lbd": 0.5, "production": 0.5}
    assert shares(chosen(diagnosed=True)) == {"lbd": 0.75, "low_rank": 0.25}
    assert "depend on the document" in chosen(diagnosed=True).reason


def test_plain_clicks_take_the_place_of_what_cannot_work():
    assert choose(TRIED, signs(alike=0.6)).members == ("naive", "low_rank")
    assert choose(TRIED, signs(alike=0.6, as_production=0.8)).members == ("naive", "production")


def test_criteria_of_position_alone_do_not_count_where_diagnose_rejects_it():
    assert chosen(diagnosed=True).criteria == ()
    assert chosen(rejected=True).criteria == ()
    assert chosen(rejected=True).members == ("dla", "low_rank")


def test_looks_come_first_and_plain_clicks_alone_are_called_so():
    looks = {**TRIED, "attention": TRIED["dla"]}
    assert choose(looks, signs(alike=0.1, diagnosed=True)).members == ("attention",)
    assert shares(choose(looks, signs(as_production=0.6))) == {"attention": 0.5, "production": 0.5}
    found = choose({"naive": TRIED["naive"]}, Signs(), ["lbd", "dla"])
    assert (found.members, found.reason) == (("naive",), "only plain clicks can work on this log")
    assert tried_first(["attention", "lbd", "dla", "naive"]) == ["naive", "dla", "attention"]


def test_signs_are_read_from_orders(evidence, truth):
    noise = Contender(np.where(np.isnan(truth), np.nan, RNG.normal(size=len(truth))))
    tried = {"naive": noise, "dla": Contender(truth), "low_rank": noise}
    found = read_signs(tried, Contender(truth), evidence.held_out, coupled=None)
    assert found.as_production > 0.95
    assert abs(found.alike) < 0.2
    assert found.doubtful
    assert found.near
    assert read_signs({"naive": noise}, noise, evidence.held_out) == Signs()


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
