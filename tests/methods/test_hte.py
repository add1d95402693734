"""HTE: effects of positions from interventions, added to clicks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.judged.world import make_world
from unskew.methods.bias.hte import HTE, Effects, correct_clicks
from unskew.methods.bias.naive import Naive
from unskew.networks.registry import Problem
from unskew.simulation.simulate import simulate
from unskew.simulation.truth import Truth
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe


def estimate_effects(log, interventions, folds=3, trees=100):
    return Effects(interventions, log.query_ids[np.unique(log.queries)], folds, trees, max_leaves=31).of(log)


def judged_by_first_feature(n_queries=150, n_docs=6, seed=0):
    """Grade 4 where the first feature is positive, else 0; the second feature means nothing."""
    features = np.random.default_rng(seed).normal(size=(n_queries * n_docs, 2)).astype(np.float32)
    grades = 4.0 * (features[:, 0] > 0)
    return JudgedSet.from_arrays(features, grades, group=[n_docs] * n_queries)


def intervened(sessions=400, seed=0):
    judged = judged_by_first_feature()
    return simulate(
        judged, "svm", "position_based", sessions=sessions, n_shown=6, interventions={"swap_top": 1.0}, seed=seed
    )


@pytest.fixture(scope="module")
def simulation():
    return intervened()


def two_lists(clicks, sessions, **fields):
    return ClickLog(
        features=np.eye(3, dtype=np.float32),
        versions=np.array([[0, 1, 2], [2, 1, 0]], dtype=np.int32),
        mask=np.array([[True, True, True], [True, True, False]]),
        clicks=np.array(clicks, dtype=np.float32),
        sessions=np.array(sessions, dtype=np.float32),
        **fields,
    )


# -- correcting clicks


def test_effects_are_added_once_for_every_session():
    log = two_lists([[4, 2, 1], [1, 1, 0]], [10, 2])
    corrected = correct_clicks(log, np.array([[0.0, 0.1, 0.95], [0.0, 0.75, 9.0]]))
    # 2 + 10 * .1, 1 + 10 * .95 (more than there were sessions), 1 + 2 * .75; what is in padding is nothing
    assert_allclose(corrected.clicks, [[4, 3, 10.5], [1, 2.5, 0]], rtol=1e-6)
    assert corrected.graded
    assert corrected.patterns is None
    assert_allclose(corrected.sessions, log.sessions)
    assert_allclose(log.clicks, [[4, 2, 1], [1, 1, 0]])


def test_no_document_ends_with_less_than_no_click():
    corrected = correct_clicks(two_lists([[4, 2, 1], [1, 1, 0]], [10, 2]), np.full((2, 3), -0.3))
    assert_allclose(corrected.clicks, [[1, 0, 0], [0.4, 0.4, 0]], rtol=1e-6)


def test_effects_of_another_log_are_refused():
    log = two_lists([[4, 2, 1], [1, 1, 0]], [10, 2])
    with pytest.raises(ValueError, match=r"effects have shape \(2, 2\), but the log's lists \(2, 3\)"):
        correct_clicks(log, np.zeros((2, 2)))
    with pytest.raises(ValueError, match="must be finite"):
        correct_clicks(log, np.full((2, 3), np.nan))


def test_the_oracle_gives_every_document_its_clicks_on_top(simulation):
    log, truth = simulation.log, simulation.truth
    effects = truth.position_effects()
    assert_allclose(effects[:, 0], 0.0, atol=1e-7)
    expected = replace(log, clicks=truth.click_probability * log.sessions[:, None])
    corrected = correct_clicks(expected, effects)
    assert_allclose(corrected.clicks / log.sessions[:, None], truth.click_probability_on_top, rtol=1e-5)


def test_there_is_no_oracle_where_clicks_depend_on_the_whole_page():
    nothing = np.zeros((1, 2), dtype=np.float32)
    truth = Truth(nothing, nothing, nothing, nothing.astype(np.int64), np.zeros(1, dtype=np.int64))
    with pytest.raises(ValueError, match="depend on the whole page"):
        truth.position_effects()


# -- estimating effects


def test_estimated_effects_come_close_to_the_true_ones(simulation):
    effects = estimate_effects(simulation.log, simulation.log)
    truth = simulation.truth.position_effects()
    assert_allclose(effects[:, 0], 0.0)
    error = np.abs(effects - truth)[:, 1:]
    assert truth[:, 1:].max() > 0.4  # a wanted document at the end loses .68 - .20
    assert error.mean() < 0.03
    assert np.corrcoef(effects[:, 1:].ravel(), truth[:, 1:].ravel())[0, 1] > 0.95


def test_a_query_s_own_clicks_do_not_enter_its_effects(simulation):
    log = simulation.log
    chosen = log.queries == 7
    changed = replace(log, clicks=np.where(chosen[:, None], log.sessions[:, None], log.clicks))
    before, after = (estimate_effects(log, each, trees=10) for each in (log, changed))
    assert_allclose(after[chosen], before[chosen])
    assert not np.allclose(after[~chosen], before[~chosen])


def test_folds_go_by_query_even_if_the_interventions_are_another_log(simulation):
    log = simulation.log
    other = intervened(sessions=200, seed=5).log
    chosen = other.query_ids[other.queries] == log.query_ids[7]
    changed = replace(other, clicks=np.where(chosen[:, None], other.sessions[:, None], other.clicks))
    before, after = (estimate_effects(log, each, trees=10) for each in (other, changed))
    assert_allclose(after[log.queries == 7], before[log.queries == 7])
    assert not np.allclose(after, before)


# -- the method


def test_it_is_naive_on_corrected_clicks(simulation):
    method = HTE(Problem(2, 6), trees=10)
    logs = method.prepare({"clicks": simulation.log, "interventions": simulation.log})
    effects = estimate_effects(simulation.log, simulation.log, trees=10)
    assert_allclose(logs["clicks"].clicks, correct_clicks(simulation.log, effects).clicks)
    assert logs["interventions"] is simulation.log

    model = fit_recipe(Recipe.of("hte", trees=10, steps=20, transform="identity"), simulation.log)
    plain = fit_recipe(Recipe.of("naive", steps=20, transform="identity"), logs["clicks"])
    lists = judged_by_first_feature(5).lists()
    with torch.inference_mode():
        assert torch.equal(model.ranker()(lists.features, lists.mask), plain.ranker()(lists.features, lists.mask))
    assert isinstance(plain.method, Naive)


def test_without_interventions_it_says_which_command_makes_them(simulation):
    with pytest.raises(ValueError, match=r"unskew simulate \.\.\. --intervene swap_top=0\.2"):
        HTE(Problem(2, 6)).prepare({"clicks": simulation.log})
    only_top = simulation.log.select(np.arange(10))
    only_top = replace(
        only_top,
        versions=only_top.documents[:, :1],
        mask=only_top.mask[:, :1],
        clicks=only_top.clicks[:, :1],
        positions=only_top.positions[:, :1],
        policy_scores=None,
        patterns=None,
    )
    with pytest.raises(ValueError, match="does not show documents at the top and below"):
        estimate_effects(simulation.log, only_top)


def test_what_cannot_be_learnt_from_is_refused(simulation):
    log = simulation.log
    with pytest.raises(ValueError, match="has no clicks"):
        estimate_effects(log, replace(log, clicks=np.zeros_like(log.clicks)))
    with pytest.raises(ValueError, match="has 3 features, but the click log has 2"):
        estimate_effects(log, replace(log, features=np.zeros((len(log.features), 3), dtype=np.float32)))
    with pytest.raises(ValueError, match="1 queries, too few for 3 folds"):
        estimate_effects(log, log.select(log.queries == 0))


@pytest.mark.slow
def test_corrected_clicks_rank_better_than_clicks():
    world = make_world("small", seed=0)
    log = simulate(world.train, "svm", "position_based", sessions=128, interventions={"swap_top": 0.2}, seed=1).log
    models = [fit_recipe(Recipe.of(name), log, validate=world.valid) for name in ("hte", "naive")]
    corrected, plain = (model.history.best_value for model in models)
    assert corrected > plain + 0.005
