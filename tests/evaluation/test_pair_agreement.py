"""Pairs of documents at one position."""

import numpy as np
import pytest

import unskew
from sample_logs import log_of
from unskew.evaluation import agreement
from unskew.evaluation.agreement import across_queries, at_the_top, same_query
from unskew.evaluation.differences import standard_error
from unskew.evaluation.held_out import HeldOut, NotMeasured

RISING, FALLING, EQUAL = np.array([0.0, 1.0]), np.array([1.0, 0.0]), np.array([0.0, 0.0])


@pytest.fixture
def _few_pairs_do(monkeypatch):
    monkeypatch.setattr(agreement, "LEAST_PAIRS", 0)


def two_orders(clicks, sessions=(10, 10)):
    return log_of([[0, 1], [1, 0]], clicks, sessions, document_queries=np.zeros(2, int))


@pytest.mark.usefixtures("_few_pairs_do")
def test_agreement_is_the_share_of_pairs_of_a_click_and_a_skip():
    # On top: document 0 with 6 of 10 clicks, document 1 with 2; below: 1 of 10 and 3 of 10.
    log = two_orders([[6, 3], [2, 1]])
    top = (6 * 8, 2 * 4)  # for 0, for 1
    below = (1 * 7, 3 * 9)
    share = (top[0] + below[0]) / (sum(top) + sum(below))
    assert same_query(FALLING, HeldOut(log))[0] == pytest.approx(share)
    assert same_query(RISING, HeldOut(log))[0] == pytest.approx(1 - share)


@pytest.mark.usefixtures("_few_pairs_do")
def test_pairs_count_in_proportion_to_traffic_not_to_its_square():
    log = two_orders([[1, 0], [0, 0]], sessions=(4, 2))
    # Only on top: 1 click of 4 showings of document 0 against 2 skips of document 1, over 4 + 2 showings.
    values = same_query(FALLING, HeldOut(log))
    assert values.tolist() == [1.0]


@pytest.mark.usefixtures("_few_pairs_do")
def test_on_top_only_pairs_of_the_top_count():
    log = two_orders([[6, 3], [2, 1]])
    assert at_the_top(FALLING, HeldOut(log))[0] == pytest.approx(6 * 8 / (6 * 8 + 2 * 4))


def test_what_says_nothing_is_no_coin_flip_but_not_measured():
    with pytest.raises(NotMeasured, match="orders never vary"):
        same_query(RISING, HeldOut(two_orders([[6, 3], [2, 1]]).select([0])))
    with pytest.raises(NotMeasured, match="pairs of a click and a skip"):
        same_query(RISING, HeldOut(two_orders([[1, 0], [0, 0]])))
    with pytest.raises(NotMeasured, match="the same score"):
        same_query(EQUAL, HeldOut(two_orders([[6, 3], [2, 1]])))
    with pytest.raises(NotMeasured, match="the same score"):
        across_queries(EQUAL, HeldOut(two_orders([[6, 3], [2, 1]])))


def test_random_scores_agree_in_half_of_the_pairs(log):
    rng = np.random.default_rng(0)
    held_out = HeldOut(log)
    for measured in (same_query, across_queries):
        found = [np.nanmean(measured(rng.normal(size=len(log.features)), held_out)) for _ in range(30)]
        assert abs(np.mean(found) - 0.5) < 3 * np.std(found, ddof=1) / np.sqrt(30)
        assert np.std(found) < 0.03


def test_across_queries_a_click_wins_against_the_skips_below_it():
    # Two queries of two documents in a fixed order; on top the first is clicked 3 of 4 times, the other 1 of 4.
    log = log_of([[0, 1], [2, 3]], [[3, 0], [1, 0]], [4, 4], document_queries=np.array([0, 0, 1, 1]))
    scores = np.array([1.0, 0.0, 0.2, 0.1])  # relative to the mean of the query: 0.5 and 0.05 on top
    # 4 clicks x 4 skips: 3 clicks above 3 skips, 3 ties with the skip of the same, 3 ties of the other, 1 pair lost
    won = 3 * 3 + 0.5 * (3 * 1 + 1 * 3)
    assert across_queries(scores, HeldOut(log)).mean() == pytest.approx(won / 16)


def test_across_queries_the_spread_is_that_of_other_logs(world):
    found, errors = [], []
    for seed in range(20):
        chosen = world.train.select(np.random.default_rng(seed).integers(0, world.train.n_queries, 100))
        held_out = HeldOut(unskew.simulate(chosen, "random", "position_based", sessions=4, seed=seed).log)
        values = across_queries(chosen.grades.astype(np.float64), held_out)
        found.append(np.nanmean(values))
        errors.append(standard_error(values))
    assert 0.6 < np.mean(errors) / np.std(found, ddof=1) < 1.7
