"""Scores with one free number per position."""

import numpy as np
import pytest

from sample_logs import log_of
from unskew.evaluation.agreement import score_likelihood
from unskew.evaluation.held_out import HeldOut, NotMeasured


def test_in_a_fixed_order_positions_alone_give_the_entropy_of_the_click_shares():
    log = log_of([[0, 1]], [[6, 2]], [10], document_queries=np.zeros(2, int))
    value = score_likelihood(np.array([1.0, 0.0]), HeldOut(log))[0]
    assert value == pytest.approx(0.75 * np.log(0.75) + 0.25 * np.log(0.25), abs=1e-6)


def test_with_both_orders_scores_and_positions_explain_what_each_can():
    # Odds of a click are position (2 to 1) times document (3 to 1): in the orders 6 to 1 and 2 to 3.
    log = log_of([[0, 1], [1, 0]], [[60, 10], [28, 42]], [100, 100], document_queries=np.zeros(2, int))
    right, wrong = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    perfect = sum(clicks * np.log(clicks / 70) for clicks in (60, 10, 28, 42)) / 140
    assert score_likelihood(right, HeldOut(log)).mean() == pytest.approx(perfect, abs=1e-6)
    # Scores the wrong way round are not turned: they are as good as none, and positions alone say 88 to 52.
    on_top = (60 + 28) / 140
    alone = on_top * np.log(on_top) + (1 - on_top) * np.log(1 - on_top)
    assert score_likelihood(wrong, HeldOut(log)).mean() == pytest.approx(alone, abs=1e-6)


def test_the_scale_and_level_of_scores_do_not_matter(world, log):
    scores = world.train.grades.astype(np.float64)
    first, second = (np.nanmean(score_likelihood(s, HeldOut(log))) for s in (scores, 100 * scores - 7))
    assert first == pytest.approx(second, abs=1e-6)


def test_scores_that_order_nothing_are_not_measured(log):
    with pytest.raises(NotMeasured, match="the same score"):
        score_likelihood(np.zeros(len(log.features)), HeldOut(log))
