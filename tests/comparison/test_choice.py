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
    return Signs(as_production, more.pop("document_as_production", 0.2), alike, **more)


TRIED = dict.fromkeys(["naive", "dla", "two_tower", "low_rank"], Contender(np.zeros(1)))
CLEAR = Paired(np.array([-1.0, -1.1, -0.9]))  # far below 0


def test_rankers_that_agree_are_averaged():
    found = choose(TRIED, signs())
    assert found.members == ("dla", "low_rank")
    assert found.criteria == ("dr", "pair_agreement")
    assert "Examination does not seem to depend on the document" in found.signs.line


def test_corrections_that_end_where_production_is_are_averaged_with_plain_clicks():
    assert choose(TRIED, signs(as_production=0.7)).label == "dla + naive"


def test_rankers_that_contradict_each_other_need_another_sign_of_eye_catchers():
    assert choose(TRIED, signs(alike=0.4)).members == ("dla", "low_rank")
    for sign in ({"score_likelihood": CLEAR}, {"click_likelihood": Paired(-CLEAR.values)}, {"diagnosed": True}):
        found = choose(TRIED, signs(alike=0.4, **sign))
        assert (found.members, found.criteria, found.keeps_production) == (("low_rank", "naive"), (), False)
    kept = choose(TRIED, signs(alike=0.4, diagnosed=True, document_as_production=0.5))
    assert kept.keeps_production


def test_criteria_of_position_alone_do_not_count_where_diagnose_rejects_it():
    assert choose(TRIED, signs(diagnosed=True)).criteria == ()


def test_looks_come_first_and_plain_clicks_alone_are_called_so():
    assert choose({**TRIED, "attention": TRIED["dla"]}, signs(alike=0.1, diagnosed=True)).members == ("attention",)
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


def test_where_nothing_counts_and_rankers_agree_with_production_it_is_kept(evidence, truth):
    good = Contender(truth)
    found = certify(Choice(("dla",), "", keeps_production=True), {"dla": good, "naive": good}, good, evidence)
    assert found.worse
