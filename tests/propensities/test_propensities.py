"""Propensities: exact on expected clicks, close on simulated ones, and refused where the log cannot tell."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import approx_fprime

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.row_fields import BiasColumn
from unskew.data.judged.judged_set import JudgedSet
from unskew.diagnosis.click_rates import PairCauses, pair_causes
from unskew.propensities import position_pairs
from unskew.propensities.curve import NotIdentified
from unskew.propensities.estimate import (
    ESTIMATORS,
    adjacent_chain,
    all_pairs,
    estimate_by,
    estimate_propensities,
    pivot,
    propensity_matrix,
    randomization,
)
from unskew.propensities.harvesting import fit_all_pairs, negative_log_likelihood, refit_all_pairs
from unskew.propensities.position_pairs import count_pairs, intervention_coverage
from unskew.simulation.simulate import simulate

CURVE = np.array([0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06])
HARVESTERS = {name: ESTIMATORS[name] for name in ("pivot", "adjacent_chain", "all_pairs")}


def showings(rows, relevance, curve=CURVE, queries=None, **more):
    """A log of lists of one document, (document, position, sessions) each, with the clicks to be expected."""
    documents, positions, sessions = (np.array(column) for column in zip(*rows, strict=True))
    return ClickLog(
        features=np.zeros((len(relevance), 1), dtype=np.float32),
        versions=documents[:, None].astype(np.int32),
        mask=np.ones((len(rows), 1), dtype=bool),
        clicks=(sessions * np.asarray(curve)[positions] * np.asarray(relevance)[documents])[:, None],
        sessions=sessions.astype(np.float64),
        positions=positions[:, None].astype(np.int16),
        document_queries=np.arange(len(relevance)) if queries is None else np.asarray(queries),
        **more,
    )


def rotated_log(n_queries=6, n_docs=10, sessions=1.0, seed=0, curve=CURVE):
    """Expected clicks of queries whose documents take turns: each is at each position in one list."""
    relevance = np.random.default_rng(seed).uniform(0.1, 1.0, n_queries * n_docs)
    turns = (np.arange(n_docs)[:, None] + np.arange(n_docs)) % n_docs
    documents = (np.arange(n_queries)[:, None, None] * n_docs + turns).reshape(-1, n_docs)
    shown = np.full(len(documents), float(sessions))
    return ClickLog(
        features=np.zeros((len(relevance), 1), dtype=np.float32),
        versions=documents.astype(np.int32),
        mask=np.ones(documents.shape, dtype=bool),
        clicks=shown[:, None] * curve[:n_docs] * relevance[documents],
        sessions=shown,
        document_queries=np.repeat(np.arange(n_queries), n_docs),
        interventions=BiasColumn(np.ones(len(documents), dtype=np.int64), ("none", "shuffle")),
    )


def simulated(interventions, n_queries=200, sessions=200, policy="noisy_oracle", n_docs=12, seed=0):
    rng = np.random.default_rng(seed)
    judged = JudgedSet(
        features=rng.normal(size=(n_queries * n_docs, 2)).astype(np.float32),
        grades=rng.integers(0, 5, n_queries * n_docs).astype(np.float32),
        offsets=np.arange(n_queries + 1) * n_docs,
    )
    return simulate(
        judged, policy, "position_based", sessions=sessions, interventions=interventions, seed=seed, threads=1
    ).log


@pytest.mark.parametrize("name", ESTIMATORS)
def test_expected_clicks_give_the_exact_curve(name):
    curve = ESTIMATORS[name](rotated_log())
    assert curve.estimator == name
    assert_allclose(curve.values, CURVE / 0.68, rtol=1e-6)
    assert_allclose(curve.n_impressions, 60.0)
    assert (curve.low <= curve.values).all()
    assert (curve.values <= curve.high).all()


@pytest.mark.parametrize("weighting", position_pairs.WEIGHTINGS)
@pytest.mark.parametrize("name", HARVESTERS)
def test_unequal_traffic_does_not_bend_the_curve(name, weighting):
    log = rotated_log()
    traffic = np.random.default_rng(1).integers(1, 50, log.n_lists).astype(np.float64)
    uneven = replace(log, clicks=log.clicks * traffic[:, None], sessions=traffic)
    assert_allclose(ESTIMATORS[name](uneven, weighting=weighting).values, CURVE / 0.68, rtol=1e-6)


def test_inverse_propensities_of_a_shuffled_log_are_those_of_the_position_based_user():
    log = simulated({"shuffle": 1.0}, n_queries=40, sessions=5_000, n_docs=10)
    expected = [1, 1.117, 1.415, 2.003, 2.435, 3.401, 6.192, 6.808, 8.546, 11.333]
    assert_allclose(1 / randomization(log, n_bootstrap=0).values, expected, rtol=0.06)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_most_intervals_hold_the_truth(name):
    inside = []
    for seed in range(8):
        curve = ESTIMATORS[name](simulated({"shuffle": 0.2}, n_queries=60, seed=seed))
        inside.append((curve.low <= CURVE / 0.68) & (curve.high >= CURVE / 0.68))
    assert 0.85 <= np.mean(np.array(inside)[:, 1:]) < 1.0  # 72 intervals of 95%


def test_an_interval_reaches_over_resampled_queries():
    # One query says 0.6 / 0.5, the other 0.2 / 0.5. A quarter of the resamples hold only the one, a quarter the other.
    rows = [(0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 1, 1)]
    log = replace(showings(rows, [0.5, 0.5]), clicks=np.array([[0.5], [0.6], [0.5], [0.2]]))
    for estimator in HARVESTERS.values():
        curve = estimator(log)
        assert_allclose([curve.low[1], curve.values[1], curve.high[1]], [0.4, 0.8, 1.2], rtol=1e-6)
        assert_allclose([curve.low[0], curve.high[0]], 1.0)


def test_queries_that_say_the_same_leave_no_doubt():
    rows = [(document, position, 3) for document in range(20) for position in (0, 1)]
    curve = pivot(showings(rows, [0.5] * 20))
    assert_allclose([curve.low, curve.high], [curve.values] * 2)


def test_one_query_alone_has_no_interval():
    curve = pivot(showings([(0, 0, 1), (0, 1, 1)], [0.5]))
    assert_allclose(curve.values, [1.0, 0.61 / 0.68])
    assert np.isnan(curve.low).all()
    assert np.isnan(curve.high).all()


def test_the_same_seed_gives_the_same_interval():
    log = simulated({"swap_top": 0.5}, n_queries=20)
    one, same, other = (all_pairs(log, seed=seed, n_bootstrap=20) for seed in (0, 0, 1))
    assert_allclose(one.low, same.low, rtol=0, atol=0)
    assert (one.low[1:] != other.low[1:]).any()


def test_counts_of_a_pair_are_weighted_as_written():
    # Shown 4 times at the top with 2 clicks, and 2 times below with 1 click.
    log = replace(showings([(0, 0, 4), (0, 1, 2)], [0.5]), clicks=np.array([[2.0], [1.0]]))
    clicks, others = count_pairs(log).total()
    assert_allclose(clicks, [[0, 2 / 4], [1 / 2, 0]])
    assert_allclose(others, [[0, 2 / 4], [1 / 2, 0]])
    clicks, others = count_pairs(log, weighting="shared").total()
    assert_allclose(clicks, [[0, 2 * 2 / 4], [1 * 2 / 2, 0]])
    assert_allclose(others, [[0, 2 * 2 / 4], [1 * 2 / 2, 0]])


def test_counting_in_pieces_gives_the_same_counts(monkeypatch):
    log = simulated({"shuffle": 0.1}, n_queries=30, sessions=20)
    whole = count_pairs(log)
    monkeypatch.setattr(position_pairs, "PAIRS_AT_ONCE", 50)
    pieces = count_pairs(log)
    assert_allclose(pieces.per_query.toarray(), whole.per_query.toarray())
    assert (pieces.documents == whole.documents).all()


def test_sessions_counted_together_or_apart_give_the_same_curve():
    log = rotated_log(sessions=2.0)
    halves = replace(log.select(np.repeat(np.arange(log.n_lists), 2)))
    apart = replace(halves, sessions=halves.sessions / 2, clicks=halves.clicks / 2)
    for estimator in ESTIMATORS.values():
        assert_allclose(estimator(apart).low, estimator(log).low)


def test_gradient_and_curvature_are_derivatives():
    rng = np.random.default_rng(0)
    clicks, others = rng.uniform(0.1, 5, (2, 1, 5, 5))
    others[0, 1, 3] = 0.0  # a position where every document was clicked
    at = rng.normal(size=5)
    _, gradient, curvature = negative_log_likelihood(at[None], clicks, others)
    assert_allclose(
        gradient[0],
        approx_fprime(at, lambda x: negative_log_likelihood(x[None], clicks, others)[0][0], 1e-7),
        atol=1e-5,
    )
    slopes = approx_fprime(at, lambda x: negative_log_likelihood(x[None], clicks, others)[1][0], 1e-7)
    assert_allclose(curvature[0], slopes, atol=1e-5)


def test_both_ways_to_the_likeliest_propensities_meet():
    rng = np.random.default_rng(0)
    clicks, others = rng.uniform(0.1, 5, (2, 20, 6, 6))
    start = fit_all_pairs(clicks.mean(axis=0), others.mean(axis=0))
    slow = [fit_all_pairs(*counts) for counts in zip(clicks, others, strict=True)]
    assert_allclose(refit_all_pairs(clicks, others, start), slow, rtol=1e-5)


def test_every_pair_of_positions_has_a_relevance_of_its_own():
    # Counted from 1, positions 1 and 6 share documents of relevance 0.9, positions 2 and 3 those of relevance 0.1.
    links = {(0, 5): 0.9, (1, 2): 0.1, (0, 1): 0.4, (2, 3): 0.7, (3, 4): 0.2}
    rows = [(document, position, 1) for document, pair in enumerate(links) for position in pair]
    assert_allclose(all_pairs(showings(rows, list(links.values()))).values, CURVE[:6] / 0.68, rtol=1e-4)


@pytest.mark.parametrize("name", HARVESTERS)
def test_positions_may_have_gaps(name):
    rows = [(document, position, 5) for document in range(4) for position in (0, 3, 8)]
    curve = HARVESTERS[name](showings(rows, [0.2, 0.4, 0.6, 0.9]))
    assert curve.positions.tolist() == [0, 3, 8]
    assert_allclose(curve.values, [1.0, 0.34 / 0.68, 0.08 / 0.68], rtol=1e-4)


@pytest.mark.parametrize("name", HARVESTERS)
def test_a_part_of_a_log_without_the_top_is_relative_to_its_highest_position(name):
    rows = [(document, position, 5) for document in range(4) for position in range(5)]
    log = showings(rows, [0.2, 0.4, 0.6, 0.9])
    curve = HARVESTERS[name](log.select(log.positions[:, 0] >= 2))
    assert curve.positions.tolist() == [2, 3, 4]
    assert_allclose(curve.values, CURVE[2:5] / CURVE[2], rtol=1e-4)


def test_gaps_are_filled_for_ipw_and_the_ends_held():
    rows = [(document, position, 5) for document in range(2) for position in (1, 3)]
    curve = pivot(showings(rows, [0.5, 0.5]))
    end = 0.34 / 0.61
    assert_allclose(curve.propensities(6), [1, 1, np.sqrt(end), end, end, end])


def test_short_lists_of_another_kind_do_not_bend_the_curve():
    # Lists of one document are clicked 0.9 as often as seen, those of two 0.1: a plain rate would give far below 0.5.
    log = ClickLog(
        features=np.zeros((3, 1), dtype=np.float32),
        versions=np.array([[0, 0], [1, 2], [2, 1]], dtype=np.int32),
        mask=np.array([[True, False], [True, True], [True, True]]),
        clicks=100 * np.array([[0.9, 0.0], [0.1, 0.05], [0.1, 0.05]]),
        sessions=np.full(3, 100.0),
        document_queries=np.array([0, 1, 1]),
    )
    assert_allclose(randomization(log, assume_random=True).values, [1.0, 0.5])


def test_positions_can_be_left_out():
    log = rotated_log()
    for estimator in ESTIMATORS.values():
        curve = estimator(log, counted=log.positions < 4)
        assert_allclose(curve.values, CURVE[:4] / 0.68, rtol=1e-6)


def test_coverage_says_which_positions_are_linked():
    rows = [(0, 0, 10), (0, 2, 4), (1, 0, 3), (1, 2, 9), (2, 1, 5), (2, 3, 5)]
    coverage = intervention_coverage(showings(rows, [0.5, 0.5, 0.5]))
    assert coverage.documents.tolist() == [[2, 0, 2, 0], [0, 1, 0, 1], [2, 0, 2, 0], [0, 1, 0, 1]]
    assert coverage.impressions[0].tolist() == [10 + 3, 0, 4 + 3, 0]
    assert coverage.components == [(0, 2), (1, 3)]
    assert not coverage.connected


def test_each_level_of_a_column_has_its_curve():
    desktop, phone = rotated_log(), rotated_log(curve=CURVE**2)
    both = replace(
        desktop.select(np.tile(np.arange(desktop.n_lists), 2)),
        clicks=np.concatenate([desktop.clicks, phone.clicks]),
        bias={"device": BiasColumn(np.repeat([0, 1], desktop.n_lists), ("desktop", "phone", "tablet"))},
    )
    for name in ESTIMATORS:
        curves = estimate_by(both, "device", name)
        assert list(curves) == ["desktop", "phone"]  # no tablet was seen
        matrix = propensity_matrix(curves, ("desktop", "phone", "tablet"), 10)
        assert_allclose(matrix, [CURVE / 0.68, (CURVE / 0.68) ** 2, np.ones(10)], rtol=1e-6)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_column_of_documents_has_its_curves_too(name):
    log = rotated_log()
    kinds = log.documents % 2  # every other document is a video, and those lower down are seen less than text
    videos = np.where(kinds == 1, log.clicks * CURVE / 0.68, log.clicks)
    log = replace(log, clicks=videos, bias={"kind": BiasColumn(kinds.astype(np.int64), ("text", "video"))})
    curves = estimate_by(log, "kind", name)
    assert_allclose(curves["text"].values, CURVE / 0.68, rtol=1e-6)
    assert_allclose(curves["video"].values, (CURVE / 0.68) ** 2, rtol=1e-6)


LOG = rotated_log()
SWAPPED = replace(LOG, interventions=BiasColumn(LOG.interventions.values, ("none", "swap_top")))
UNTOUCHED = replace(LOG, interventions=BiasColumn(LOG.interventions.values * 0, ("none", "shuffle")))
ONE_ORDER = showings([(0, 0, 1), (1, 1, 1)], [0.5, 0.5])
PHONES = replace(ONE_ORDER, bias={"device": BiasColumn(np.array([0, 0]), ("phone",))})
AGES = replace(LOG, bias={"age": BiasColumn(np.zeros(LOG.n_lists, dtype=np.float32))})
NEIGHBORS = showings([(0, 0, 1), (0, 1, 1), (1, 1, 1), (1, 2, 1)], [0.5, 0.5])
WITH_TOP = showings([(0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 2, 1)], [0.5, 0.5])
APART = showings([(0, 0, 1), (0, 2, 1), (1, 1, 1), (1, 3, 1), (2, 4, 1)], [0.5] * 3)
GRADED = replace(LOG, clicks=LOG.clicks * 30, graded=True)
REFUSED = [
    (lambda: estimate_by(PHONES, "device"), "device 'phone': the log does not identify"),
    (lambda: estimate_by(AGES, "age"), "by='age' holds numbers"),
    (lambda: estimate_by(AGES, "device"), "by='device' is not a bias column of the log; there are: age"),
    (lambda: randomization(replace(LOG, interventions=None)), "has no interventions.*assume_random=True"),
    (lambda: randomization(SWAPPED), "marked 'shuffle': its interventions are none, swap_top"),
    (lambda: randomization(UNTOUCHED), "no list of the log is marked 'shuffle'"),
    (lambda: pivot(NEIGHBORS), "pivot compares positions 1 and 3, but no document .* swap or shuffle"),
    (lambda: adjacent_chain(WITH_TOP), "adjacent_chain compares positions 2 and 3, but no document"),
    (lambda: all_pairs(APART), "compare positions 1, 3 with positions 2, 4 with position 5: no document"),
    (lambda: all_pairs(GRADED), "this log is graded: use pivot"),
    (lambda: estimate_propensities(ONE_ORDER), "too little of it is marked as shuffled, and all_pairs cannot .* swap"),
    (lambda: estimate_propensities(LOG, "em"), "unknown estimator 'em': choose auto or one of randomization, pivot"),
    (lambda: estimate_propensities(LOG, "pivot", assume_random=True), "no option 'assume_random'; it accepts n_boot"),
    (
        lambda: estimate_propensities(LOG, "pivot", weighting="best"),
        "unknown weighting 'best': choose one of",
    ),
    (lambda: estimate_propensities(LOG, "pivot", level=95), "level must be between 0 and 1, got 95"),
]


@pytest.mark.parametrize(("estimate", "words"), REFUSED)
def test_what_cannot_be_estimated_is_refused_with_what_to_do(estimate, words):
    with pytest.raises(ValueError, match=words):
        estimate()


def test_what_one_estimator_cannot_use_another_can():
    assert_allclose(randomization(SWAPPED, intervention="swap_top").values, CURVE / 0.68)
    assert_allclose(adjacent_chain(NEIGHBORS).values, CURVE[:3] / 0.68)
    assert_allclose(pivot(WITH_TOP).values, CURVE[:3] / 0.68)
    assert_allclose(pivot(GRADED).values, CURVE / 0.68)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_position_without_clicks_is_refused_and_can_be_left_out(name):
    log = rotated_log(n_docs=4)
    log = replace(log, clicks=np.where(log.positions == 3, 0.0, log.clicks))
    with pytest.raises(NotIdentified, match=r"4.*count from 0, .*counted=log.positions < 3"):
        ESTIMATORS[name](log)
    assert_allclose(ESTIMATORS[name](log, counted=log.positions < 3).values, CURVE[:3] / 0.68, rtol=1e-6)


def test_an_empty_choice_is_refused():
    log = rotated_log()
    for estimator in ESTIMATORS.values():
        with pytest.raises(NotIdentified, match="is empty"):
            estimator(log, counted=np.zeros_like(log.mask))


def test_auto_takes_randomization_only_with_enough_shuffled_clicks():
    # At the last position 60 shuffled lists are clicked 0.06 x about 0.55 times a session: 100 clicks take 50 sessions.
    assert estimate_propensities(rotated_log(sessions=100.0), n_bootstrap=0).estimator == "randomization"
    assert estimate_propensities(rotated_log(sessions=20.0), n_bootstrap=0).estimator == "all_pairs"
    swapped = simulated({"swap_top": 0.3}, n_queries=50)
    assert estimate_propensities(swapped, n_bootstrap=0).estimator == "all_pairs"


@pytest.mark.parametrize("name", ESTIMATORS)
def test_few_clicks_give_wide_intervals_and_no_nan(name):
    log = simulated({"shuffle": 1.0}, n_queries=6, sessions=30, n_docs=10)
    curve = ESTIMATORS[name](log, counted=log.positions < 6)
    assert (curve.low <= curve.values).all()
    assert (curve.values <= curve.high).all()
    assert curve.low[-1] < 0.5 * curve.high[-1]


def test_all_clicked_everywhere_is_a_flat_curve():
    log = rotated_log(n_docs=4)
    assert_allclose(all_pairs(replace(log, clicks=np.ones_like(log.clicks))).values, 1.0, rtol=1e-3)


def test_a_log_of_one_position_has_a_curve_of_one():
    log = showings([(0, 0, 5), (1, 0, 5)], [0.5, 0.9])
    for estimator in HARVESTERS.values():
        assert estimator(log).values.tolist() == [1.0]


def test_a_curve_prints_as_a_table():
    curve = pivot(showings([(0, 0, 1000), (0, 4, 2000), (1, 0, 1000), (1, 4, 2000)], [0.5, 0.5]))
    assert [row["position"] for row in curve.rows()] == [0, 4]
    assert curve.to_table().column_names == ["position", "propensity", "low", "high", "n_impressions"]
    assert repr(curve).splitlines()[-1].split() == ["5", "0.412", "0.412", "to", "0.412", "4,000"]  # counted from 1


def test_positions_are_compared_within_a_version():
    """A document at the top with one price and below with another is not an experiment, unless that is asked for."""
    log = ClickLog(
        features=np.array([[1.0], [2.0]], dtype=np.float32),  # two prices of one document
        versions=np.array([[0], [1]], dtype=np.int32),
        version_documents=np.array([0, 0]),
        mask=np.ones((2, 1), dtype=bool),
        clicks=np.array([[3.0], [1.0]]),
        sessions=np.array([10.0, 10.0]),
        positions=np.array([[0], [1]], dtype=np.int16),
    )
    assert count_pairs(log).documents.tolist() == [[1, 0], [0, 1]]
    assert count_pairs(log, across_versions=True).documents.tolist() == [[1, 1], [1, 1]]


class TestInterventionsByAnotherName:
    def marked(self, name, **more):
        """Lists in all turns, half of them marked as an experiment; below position 5 the marked ones are cut."""
        log = rotated_log(sessions=4000.0)
        half = BiasColumn((np.arange(log.n_lists) % 2 == 0).astype(np.int8), ("none", name))
        return replace(log, interventions=half, **more)

    def test_a_name_that_says_so_is_a_shuffle_as_far_down_as_it_says(self):
        curve = randomization(self.marked("shuffle_top5"), n_bootstrap=0)
        assert curve.positions.tolist() == [0, 1, 2, 3, 4]
        assert randomization(self.marked("Randomized"), n_bootstrap=0).positions.tolist() == list(range(10))

    def test_any_other_name_can_be_told_to_the_log_or_to_the_estimator(self):
        with pytest.raises(NotIdentified, match=r"none, exploration\. If one of them shuffles lists, declare it"):
            randomization(self.marked("exploration"), n_bootstrap=0)
        told = randomization(self.marked("exploration", shuffled={"exploration": 4}), n_bootstrap=0)
        assert told.positions.tolist() == [0, 1, 2, 3]
        asked = randomization(self.marked("exploration"), intervention="exploration", n_bootstrap=0)
        assert len(asked.positions) == 10
        assert (
            estimate_propensities(self.marked("mix", shuffled={"mix": 10}), n_bootstrap=0).estimator == "randomization"
        )


class TestCauses:
    def moved(self, interventions=None):
        """One document in two versions: version 0 at positions 0 and 1, version 1 at 2."""
        log = showings([(0, 0, 10), (0, 1, 10), (1, 2, 10)], [0.5, 0.9], queries=[0, 0])
        return replace(
            log, version_documents=np.zeros(2, np.int64), document_queries=np.zeros(1, np.int64),
            document_ids=np.arange(1), interventions=interventions,
        )  # fmt: skip

    def test_pairs_are_counted_by_what_moved_the_document(self):
        assert pair_causes(self.moved()) == PairCauses(ranker=1, randomization=0, features=2)
        mixed = BiasColumn(np.array([0, 1, 0]), ("none", "shuffle"))
        assert pair_causes(self.moved(mixed)) == PairCauses(ranker=0, randomization=1, features=2)

    def test_pairs_of_changed_features_are_compared_on_request_only(self):
        with pytest.raises(NotIdentified):
            all_pairs(self.moved(), n_bootstrap=0)
        curve = all_pairs(self.moved(), n_bootstrap=0, across_versions=True)
        # The version at position 2 is better: what the change did is booked as examination.
        assert curve.values[2] > CURVE[2] / CURVE[0]
