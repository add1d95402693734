"""Leaks: planted features are found, honest ones are left alone."""

from dataclasses import replace

import numpy as np
import pytest

from unskew.diagnosis.leaks import click_leaks, position_leaks
from unskew.propensities.curve import NotIdentified
from unskew.simulation.simulate import simulate


def with_feature(log, values):
    return replace(log, features=np.column_stack([log.features, values]).astype(np.float32))


def production_score(log):
    scores = np.zeros(len(log.features))
    scores[log.documents[log.mask]] = log.policy_scores[log.mask]
    return scores


def click_rate(log, showings_more=10):
    shown = np.broadcast_to(log.sessions[:, None], log.mask.shape)[log.mask]
    n = len(log.features)
    clicks = np.bincount(log.documents[log.mask], log.clicks[log.mask], n)
    return (clicks + 1) / (np.bincount(log.documents[log.mask], shown, n) + showings_more)


def test_honest_features_do_not_leak(log):
    assert position_leaks(log).leaks == ()
    assert click_leaks(log).leaks == ()


def test_the_production_score_is_the_position_whichever_way_it_points(log):
    planted = f"feature {log.n_features}"
    for sign in (1, -1):
        (leak,) = position_leaks(with_feature(log, sign * production_score(log))).leaks
        assert leak.feature == planted
        assert leak.agreement == 1.0
    assert click_leaks(with_feature(log, production_score(log))).leaks == ()  # it is no click rate


def test_a_click_rate_of_this_log_is_known_by_its_luck(log):
    (leak,) = click_leaks(with_feature(log, click_rate(log))).leaks
    assert leak.feature == f"feature {log.n_features}"
    assert leak.of_these_clicks


def test_a_click_rate_of_other_sessions_is_found_without_its_luck(world):
    one, other = (simulate(world.train, "svm", "position_based", sessions=256, seed=seed).log for seed in (1, 2))
    (leak,) = click_leaks(with_feature(one, click_rate(other))).leaks
    assert leak.feature == f"feature {one.n_features}"
    assert not leak.of_these_clicks


def test_a_feature_as_good_as_a_judgement_is_no_leak(log, world):
    planted = with_feature(log, world.train.grades)
    assert click_leaks(planted).leaks == ()
    assert position_leaks(planted).leaks == ()


def test_the_ceiling_is_near_one_with_many_sessions_and_low_with_few(world):
    few, many = (
        click_leaks(simulate(world.train, "svm", "position_based", sessions=n, seed=1).log).ceiling for n in (4, 2000)
    )
    assert few < 0.7
    assert many > 0.97


def test_documents_shown_once_cannot_tell_luck_from_a_leak(world):
    log = simulate(world.train, "svm", "position_based", sessions=1, seed=1).log
    with pytest.raises(NotIdentified, match="shown twice"):
        click_leaks(log)
