"""What production would have shown."""

from dataclasses import replace

import numpy as np
import pytest

import unskew
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.row_fields import BiasColumn
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.evaluate import evaluate_scorer
from unskew.evaluation.production import production_of_judged, production_of_log
from unskew.simulation.policies import make_policy


def test_policy_scores_are_the_production_ranking(world, log):
    found = production_of_log(log)
    truth = make_policy("svm").fit(world.train).scores(world.train)
    shown = ~np.isnan(found.scores)
    assert found.source == "policy score"
    assert shown.sum() == len(np.unique(log.documents[log.mask]))
    np.testing.assert_allclose(found.scores[shown], truth[shown].astype(np.float32))


def test_without_scores_it_is_the_usual_position(log):
    found = production_of_log(replace(log, policy_scores=None))
    assert found.source == "shown order"
    usual = log.select(log.interventions.values == 0)
    for row in range(5):
        np.testing.assert_array_equal(found.scores[usual.documents[row]], -np.arange(10.0))


def test_several_scores_of_one_document_are_no_ranking(log):
    policy = log.policy_scores.copy()
    policy[log.interventions.values > 0] += 1
    assert production_of_log(replace(log, policy_scores=policy)).source == "shown order"


def test_judged_queries_of_the_log_are_looked_up_and_what_was_not_shown_stands_below(world, log):
    found = production_of_judged(log, world.train)
    own = production_of_log(log).scores
    assert found.source == "policy score"
    shown = ~np.isnan(own)
    np.testing.assert_array_equal(found.scores[shown], own[shown])
    assert (found.scores[~shown] < own[shown].min()).all()


def test_equal_ids_of_other_documents_are_not_taken_for_the_same(world, log):
    # Queries of both splits are numbered from 0: the ids agree, the features do not.
    found = production_of_judged(log, world.test)
    assert found.source.startswith("imitated from features")


def test_an_imitation_says_how_good_it_is_and_ranks_nearly_as_production_does(world):
    made = unskew.simulate(world.train, "svm", "position_based", sessions=4, n_shown=10, seed=0)
    found = production_of_judged(made.log, world.test)
    truth = make_policy("svm").fit(world.train).scores(world.test)
    own, other = (evaluate_scorer(scores, world.test, ("ndcg@10",)).mean("ndcg@10") for scores in (found.scores, truth))
    assert abs(own - other) < 0.1
    assert 0.6 < float(found.source.split(", ")[1].split("%")[0]) / 100 < 1


def test_an_empty_judged_set_has_no_scores(log):
    empty = JudgedSet.from_arrays(np.zeros((0, 111), dtype=np.float32), np.zeros(0), np.zeros(0, dtype=int))
    assert len(production_of_judged(log, empty).scores) == 0


def two_rankers():
    """Ranker a showed 0 before 1 in three sessions, on the first day; ranker b turned them round, on the second."""
    day = 86_400_000_000
    return ClickLog(
        features=np.array([[0.5], [0.25]], dtype=np.float32),
        versions=np.array([[0, 1], [1, 0]], dtype=np.int32),
        mask=np.ones((2, 2), dtype=bool),
        clicks=np.zeros((2, 2)),
        sessions=np.array([3, 1]),
        document_queries=np.zeros(2, dtype=int),
        feature_names=("bm25",),
        first_shown=np.array([0, day]),
        bias={"ranker": BiasColumn(np.array([0, 1]), ("a", "b"))},
    )


FIRST = ", dated by the first showing of each list (ingest with --period day to count by day)"


@pytest.mark.parametrize(
    ("which", "scores", "source"),
    [
        (None, [-0.25, -0.75], "shown order"),
        ("since=1970-01-02", [-1, 0], f"shown order of since=1970-01-02, 1 of 4 sessions{FIRST}"),
        ("logger=ranker:a", [0, -1], "shown order of logger=ranker:a, 3 of 4 sessions"),
        ("score=bm25", [0.5, 0.25], "score bm25"),
    ],
)
def test_production_is_the_ranker_that_is_meant_and_the_source_names_its_sessions(which, scores, source):
    found = production_of_log(two_rankers(), which)
    np.testing.assert_allclose(found.scores, scores)
    assert found.source == source


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("yesterday", "write since=DATE, score=COLUMN, logger=COLUMN:VALUE"),
        ("since=1970-01-05", "there are no sessions since 1970-01-05: the last is of 1970-01-02 00:00"),
        ("since=5.1.1970", "since '5.1.1970' is not a day: write"),
        ("logger=ranker:c", "Found: ranker:a, ranker:b"),
        ("score=price", "bias column 'price'"),
    ],
)
def test_a_production_that_the_log_does_not_have_is_refused(which, message):
    with pytest.raises(ValueError, match=message):
        production_of_log(two_rankers(), which)
