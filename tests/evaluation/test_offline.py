"""Counterfactual estimates by hand, and against the truth of a simulation."""

import numpy as np
import pytest

import unskew
from unskew.data.clicks.click_log import ClickLog
from unskew.evaluation.differences import standard_error
from unskew.evaluation.evaluate import evaluate_scorer
from unskew.evaluation.held_out import HeldOut, NotMeasured, of_ratio
from unskew.evaluation.offline import dr, exposed, fit_relevance, ips, rank_discounts, snips
from unskew.simulation.browsing import Shown
from unskew.simulation.users import make_user

SECOND = 1 / np.log2(3)  # discount of the second rank


def tiny_log():
    """Query 0: documents 0, 1 shown 8 times in this order and 2 times in the other; query 1: documents 2, 3."""
    return ClickLog(
        features=np.arange(4, dtype=np.float32)[:, None],
        versions=np.array([[0, 1], [1, 0], [2, 3]], dtype=np.int32),
        mask=np.ones((3, 2), dtype=bool),
        clicks=np.array([[4, 2], [2, 0], [0, 0]]),
        sessions=np.array([8, 2, 10]),
        document_queries=np.array([0, 0, 1, 1]),
    )


def test_looks_are_sessions_times_propensity_and_clicks_are_added_up():
    shown = exposed(HeldOut(tiny_log()), [1.0, 0.5])
    assert shown.clicks.tolist() == [4, 4, 0, 0]
    assert shown.exposure.tolist() == [8 + 2 * 0.5, 2 + 8 * 0.5, 10, 5]


def test_ips_is_discounted_clicks_over_looks():
    values = ips(np.array([1.0, 2.0, 0.0, 0.0]), HeldOut(tiny_log()), [1.0, 0.5])
    first, second = 4 / 6, 4 / 9  # document 1 is ranked first, document 0 second
    np.testing.assert_allclose(values, [first + SECOND * second, 0.0])


def test_below_the_cut_off_nothing_counts():
    discounts = rank_discounts(np.array([1.0, 2.0]), np.zeros(2, dtype=np.int64), cutoff=1)
    np.testing.assert_allclose(discounts, [0.0, 1.0])


def test_the_bound_keeps_a_rarely_seen_document_from_deciding():
    bounded = exposed(HeldOut(tiny_log()), [1.0, 0.5], least_exposure=0.8).bounded
    assert bounded.tolist() == [9, 8, 10, 8]  # 0.8 of 10 sessions


def test_snips_is_the_mean_discount_of_relevance_and_leaves_out_queries_without_clicks():
    values = snips(np.array([1.0, 2.0, 0.0, 0.0]), HeldOut(tiny_log()), [1.0, 0.5])
    np.testing.assert_allclose(values, [(4 / 6 + SECOND * 4 / 9) / (4 / 6 + 4 / 9), np.nan])


def test_snips_does_not_ask_for_the_scale_of_propensities():
    held_out, scores = HeldOut(tiny_log()), np.array([1.0, 2.0, 0.0, 0.0])
    np.testing.assert_allclose(snips(scores, held_out, [1.0, 0.5]), snips(scores, held_out, [0.6, 0.3]))


def test_without_a_click_snips_is_not_measured():
    log = tiny_log().select([2])
    with pytest.raises(NotMeasured, match="no held-out query has a click"):
        snips(np.zeros(4), HeldOut(log), [1.0, 0.5])


@pytest.mark.parametrize("least_exposure", [0.0, 0.8])
def test_doubly_robust_with_a_zero_model_is_ips(least_exposure):
    held_out, scores = HeldOut(tiny_log()), np.array([1.0, 2.0, 0.0, 1.0])
    plain = ips(scores, held_out, [1.0, 0.5], least_exposure=least_exposure)
    robust = dr(scores, held_out, [1.0, 0.5], np.zeros(4), least_exposure=least_exposure)
    np.testing.assert_allclose(robust, plain)


def test_doubly_robust_without_residual_is_the_model():
    model = np.array([4 / 9, 4 / 6, 0.0, 0.0])  # clicks over looks
    values = dr(np.array([1.0, 2.0, 0.0, 1.0]), HeldOut(tiny_log()), [1.0, 0.5], model, least_exposure=0.8)
    np.testing.assert_allclose(values, [4 / 6 + SECOND * 4 / 9, 0.0])


def test_for_documents_never_shown_the_model_speaks_alone():
    log = tiny_log()
    fewer = log.select([2])
    never_shown = ClickLog(
        features=log.features,
        versions=fewer.documents[:, :1],
        mask=fewer.mask[:, :1],
        clicks=np.array([[5]]),
        sessions=fewer.sessions,
        document_queries=log.document_queries,
    )
    values = dr(
        np.array([0.0, 0.0, 1.0, 2.0]), HeldOut(never_shown), [1.0], np.array([0, 0, 0.1, 0.3]), candidates="all"
    )
    np.testing.assert_allclose(values, [0.3 + SECOND * 0.5])  # document 3 by the model, document 2 by 5 of 10 clicks


def test_equal_scores_share_their_discounts():
    discounts = rank_discounts(np.array([1.0, 1.0, 5.0, 0.0]), np.array([0, 0, 1, 1]))
    np.testing.assert_allclose(discounts, [(1 + SECOND) / 2, (1 + SECOND) / 2, 1, SECOND])


def test_queries_count_by_their_sessions():
    values = of_ratio(np.array([10 * 1.0, 30 * 3.0]), np.array([10, 30]))
    assert values.mean() == pytest.approx((10 * 1 + 30 * 3) / 40)


def test_propensities_that_are_none_are_refused():
    with pytest.raises(ValueError, match="one for each of 2 positions"):
        ips(np.zeros(4), HeldOut(tiny_log()), [1.0])
    with pytest.raises(ValueError, match="must be above 0"):
        ips(np.zeros(4), HeldOut(tiny_log()), [1.0, 0.0])


@pytest.fixture(scope="module")
def small_world(world):
    return world.train.select(np.arange(40))


def simulated(judged, seed):
    return unskew.simulate(
        judged, "random", "position_based", sessions=20, n_shown=8, interventions={"swap_top": 0.3}, seed=seed
    )


def true_dcg(judged, log, scores):
    """DCG@10 of the true relevance among the shown documents of each query."""
    held_out = HeldOut(log)
    documents, queries = held_out.candidates("shown")
    grades = judged.grades[documents][None].astype(np.float64)
    relevance = make_user("position_based").attraction(Shown(grades=grades, mask=np.ones_like(grades, dtype=bool)))[0]
    discounts = rank_discounts(scores[documents], queries)
    return float(held_out.sum_by_query(queries, discounts * relevance).mean())


def test_with_the_true_curve_ips_and_dr_are_unbiased(small_world):
    scores = np.random.default_rng(0).normal(size=small_world.n_documents)
    rough_model = np.random.default_rng(1).random(small_world.n_documents)  # a bad model must not bias dr
    errors = {"ips": [], "dr": []}
    for seed in range(150):
        made = simulated(small_world, seed)
        held_out, curve = HeldOut(made.log), made.truth.position_curve
        truth = true_dcg(small_world, made.log, scores)
        errors["ips"].append(ips(scores, held_out, curve, least_exposure=0.0).mean() - truth)
        errors["dr"].append(dr(scores, held_out, curve, rough_model, least_exposure=0.0).mean() - truth)
    for values in errors.values():
        assert abs(np.mean(values)) < 3 * np.std(values, ddof=1) / np.sqrt(len(values))
        assert np.std(values) > 0.01  # the margin above is no blank cheque


def test_the_standard_error_is_the_spread_over_logs_of_other_queries(world):
    found, errors = [], []
    for seed in range(40):
        queries = world.train.select(np.random.default_rng(seed).integers(0, world.train.n_queries, 60))
        made = simulated(queries, seed)
        values = ips(queries.grades.astype(np.float64), HeldOut(made.log), made.truth.position_curve)
        found.append(values.mean())
        errors.append(standard_error(values))
    assert 0.7 < np.mean(errors) / np.std(found, ddof=1) < 1.4


def test_the_model_of_relevance_learns_the_order_of_grades(world):
    made = unskew.simulate(world.train, "random", "position_based", sessions=32, seed=2)
    model = fit_relevance(made.log, made.truth.position_curve)
    ndcg = evaluate_scorer(model(world.test.features), world.test, ("ndcg@10",)).mean("ndcg@10")
    assert ndcg > evaluate_scorer(np.zeros(world.test.n_documents), world.test, ("ndcg@10",)).mean("ndcg@10") + 0.15
