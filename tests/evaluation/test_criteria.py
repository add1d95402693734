"""Criteria for choosing without labels."""

from dataclasses import replace

import numpy as np
import pytest

from unskew.data.clicks.batches import ClickBatches
from unskew.data.judged.catalogue import load_split
from unskew.data.transformed import transform_log
from unskew.evaluation.criteria import (
    CRITERIA,
    DEFAULT_CRITERION,
    Contender,
    Evidence,
    click_log_likelihood,
    leading_criterion,
    measure_all,
    measure_production,
    pattern_log_likelihood,
)
from unskew.evaluation.differences import mean_interval
from unskew.evaluation.evaluate import evaluate_scorer
from unskew.evaluation.held_out import HeldOut
from unskew.evaluation.production import production_of_log
from unskew.reporting.answers import Refusal
from unskew.simulation.policies import NoisyOracle
from unskew.simulation.simulate import simulate
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe
from unskew.training.validation import click_likelihood

FAST = {"steps": 10, "hidden": [4]}
NEEDS_PROPENSITIES = {"ips", "snips", "dr", "dr_all"}
LIKELIHOODS = {"click_likelihood", "perplexity", "conditional_perplexity"}
NO_CHANCES = {"reweighted_clicks": "no display probabilities are logged"}


def trained(method, log):
    model = fit_recipe(Recipe.of(method, **FAST), log)
    clicks = transform_log(log, model.transform)
    held_out = HeldOut(log)
    return (
        model,
        clicks,
        Contender(
            scores=held_out.score(model.ranker()),
            scores_of_all=held_out.score(model.ranker(), "all"),
            click_model=model.method.click_model,
            log_likelihood=click_log_likelihood(model.method, clicks),
            pattern_likelihood=pattern_log_likelihood(model.method, clicks),
        ),
    )


@pytest.fixture(scope="module")
def evidence(log):
    curve = 1 / np.arange(1, 11)
    return Evidence(HeldOut(log), curve, relevance=np.full(len(log.features), 0.1))


def test_the_click_likelihood_is_that_of_validation(log, evidence):
    model, clicks, contender = trained("two_tower", log)
    values, _ = measure_all(contender, evidence)
    assert np.nanmean(values["click_likelihood"]) == pytest.approx(
        click_likelihood(model.method, ClickBatches(clicks)), rel=1e-5
    )


def test_perplexity_is_that_of_evaluate(log, evidence):
    model, _, contender = trained("regression_em", log)
    values, reasons = measure_all(contender, evidence)
    assert np.mean(values["perplexity"]) == pytest.approx(model.predict_clicks(log).perplexity().value, rel=1e-5)
    assert reasons == {"click_likelihood": "predicts single clicks: see perplexity", **NO_CHANCES}


def test_a_method_that_predicts_places_has_no_perplexity(log, evidence):
    values, reasons = measure_all(trained("naive", log)[2], evidence)
    lacking = {"perplexity", "conditional_perplexity"}
    assert set(values) == set(CRITERIA) - lacking - set(NO_CHANCES)
    assert reasons == {**dict.fromkeys(lacking, "predicts the place of a click: see click likelihood"), **NO_CHANCES}


def test_conditional_perplexity_is_that_of_the_click_patterns():
    judged = load_split("world:tiny", "train")
    log = simulate(judged, "svm", "dbn", sessions=8, joint=True).log
    model, _, contender = trained("ubm", log)
    values, _ = measure_all(contender, Evidence(HeldOut(log)))
    found = model.predict_clicks(log)
    assert contender.pattern_likelihood.sum() / log.n_sessions == pytest.approx(found.per_page().value, rel=1e-4)
    expected = found.perplexity(conditional=True).value
    assert np.mean(values["conditional_perplexity"]) == pytest.approx(expected, rel=1e-5)


def test_production_has_every_criterion_but_likelihoods_and_unshown_documents(log, evidence):
    values, reasons = measure_all(Contender(production_of_log(log).scores), evidence)
    assert set(values) == set(CRITERIA) - LIKELIHOODS - {"dr_all", *NO_CHANCES}
    assert reasons["click_likelihood"] == "predicts no clicks"
    assert reasons["dr_all"] == "scores shown documents only"


def test_without_propensities_the_reason_stands_in_their_place(log):
    evidence = Evidence(HeldOut(log), Refusal("the order never varies"))
    values, reasons = measure_all(Contender(production_of_log(log).scores), evidence)
    assert {reasons[name] for name in NEEDS_PROPENSITIES} == {"the order never varies"}
    assert not NEEDS_PROPENSITIES & set(values)


def test_scores_of_all_documents_are_those_of_whole_queries(log):
    _, _, contender = trained("naive", log)
    held_out = HeldOut(log)
    documents, _ = held_out.candidates("all")
    assert len(documents) == len(log.features)
    assert np.isfinite(contender.scores_of_all).all()
    assert np.isnan(contender.scores).sum() == len(log.features) - len(np.unique(log.documents[log.mask]))


def test_every_criterion_says_what_it_can_and_cannot_tell():
    assert DEFAULT_CRITERION in CRITERIA
    for criterion in CRITERIA.values():
        assert min(len(criterion.measures), len(criterion.can_tell), len(criterion.cannot_tell)) > 20
    assert "Unlimited" in CRITERIA["click_likelihood"].cannot_tell


def test_the_default_decides_unless_a_contender_lacks_it():
    everything = list(CRITERIA)
    assert leading_criterion({"a": everything, "b": everything}) == DEFAULT_CRITERION
    less = [name for name in everything if name != DEFAULT_CRITERION]
    assert leading_criterion({"a": everything, "b": less}) == less[0]
    assert leading_criterion({"a": everything}, "ips") == "ips"
    with pytest.raises(ValueError, match="unknown criterion 'magic'"):
        leading_criterion({"a": everything}, "magic")


def test_with_one_order_per_query_the_score_likelihood_would_praise_a_worse_ranker_and_gives_no_verdict(world):
    judged = world.train
    good, worse = NoisyOracle(strength=0.7), NoisyOracle(strength=0.5, seed=1).scores(judged)
    ndcg = [evaluate_scorer(scores, judged, ["ndcg@10"]).mean("ndcg@10") for scores in (good.scores(judged), worse)]
    assert ndcg[0] > ndcg[1] + 0.1
    log = replace(simulate(judged, good, "position_based", sessions=64).log, policy_scores=None)
    evidence = Evidence(HeldOut(log))
    production, rival = Contender(production_of_log(log).scores), Contender(worse)
    by_likelihood = [measure_all(entry, evidence)[0]["score_likelihood"] for entry in (production, rival)]
    assert mean_interval(by_likelihood[1] - by_likelihood[0])[1] > 0  # beyond the interval, and wrong
    values, reasons = measure_production(production, evidence)
    assert not values
    assert "its order is the position" in reasons["score_likelihood"]
    assert "its order is the position" in reasons["pair_agreement_across"]
