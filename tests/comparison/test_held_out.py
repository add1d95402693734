"""A log, parted for learning and for comparing."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from unskew.comparison import held_out
from unskew.comparison.held_out import contender_of, make_case
from unskew.data.clicks.click_log import ClickLog
from unskew.evaluation.criteria import measure_all
from unskew.evaluation.held_out import HeldOut
from unskew.reporting.answers import Refusal
from unskew.simulation.simulate import simulate
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe


@pytest.fixture
def _no_trees(monkeypatch):
    """A model of relevance that takes no time."""
    monkeypatch.setattr(held_out, "fit_relevance", lambda *_: lambda features: np.zeros(len(features)))


@pytest.mark.usefixtures("_no_trees")
def test_what_criteria_need_is_estimated_from_other_queries_than_they_compare_on(log):
    case = make_case(log)
    held_out = np.isin(log.query_ids[log.queries], case.evidence.held_out.query_ids)
    assert not set(log.query_ids[case.learning.queries]) & set(case.evidence.held_out.query_ids)
    changed = replace(log.marginal(), clicks=np.where(held_out[:, None], 0, log.clicks))
    np.testing.assert_array_equal(make_case(changed).evidence.propensities, case.evidence.propensities)


@pytest.mark.usefixtures("_no_trees")
def test_the_parts_are_the_same_for_every_seed_of_training(log):
    first, second = make_case(log), make_case(log)
    np.testing.assert_array_equal(first.evidence.held_out.query_ids, second.evidence.held_out.query_ids)


@pytest.mark.usefixtures("_no_trees")
def test_queries_that_choose_hyper_parameters_do_not_give_the_numbers(log):
    case = make_case(log, choosing=True)
    groups = [set(part.held_out.query_ids) for part in (case.evidence, case.choosing)]
    learning = set(log.query_ids[np.unique(case.learning.queries)])
    assert [len(group) for group in (*groups, learning)] == [20, 20, 160]
    assert len(groups[0] | groups[1] | learning) == 200


def test_a_log_in_a_fixed_order_has_no_propensities_and_says_why(world):
    case = make_case(simulate(world.train, "svm", "position_based", sessions=4).log)
    assert isinstance(case.evidence.propensities, Refusal)
    assert case.about["propensities"].startswith("the log does not identify propensities")
    assert case.about["production"] == "policy score, which orders 100% of shown pairs as shown"


def test_a_log_with_context_is_measured_with_it(log):
    device = (np.arange(log.n_lists) % 2).astype(np.float32)[:, None]
    case = make_case(replace(log, context=device, context_names=("device",)), 0.5)
    model = fit_recipe(Recipe.of("naive", steps=2), case.learning)
    values, _ = measure_all(contender_of(model, case.evidence.held_out), case.evidence)
    assert {"dr", "ips"} <= set(values)


def test_held_out_queries_are_ranked_by_urls_that_other_queries_showed():
    """Users click url 1 and skip url 0, under both queries; query 1 is held out."""
    table = {
        "session": np.repeat(np.arange(80), 2),
        "query": np.repeat(np.arange(80) % 2, 2),
        "document": np.tile([0, 1], 80),
        "position": np.tile([0, 1, 0, 1, 1, 0, 1, 0], 20),
        "click": np.tile([0, 1], 80),
    }
    log = ClickLog.from_table(pa.table(table), features=())
    learning, held_out = (log.of_queries([query]) for query in (0, 1))
    contender = contender_of(fit_recipe(Recipe.of("pbm"), learning), HeldOut(held_out))
    skipped, clicked = contender.scores
    assert clicked > skipped + 0.5
