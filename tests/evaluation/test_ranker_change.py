"""A change of ranker is found, its date too; one ranker raises no alarm, whatever else changes."""

from dataclasses import replace

import numpy as np
import pytest

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.row_fields import BiasColumn
from unskew.data.clicks.windows import DAY
from unskew.evaluation.held_out import NotMeasured
from unskew.evaluation.production import latest_ranker
from unskew.evaluation.ranker_change import latest_change

N_QUERIES, N_DOCUMENTS, N_DAYS = 30, 5, 6
START = 20_000 * DAY  # 2024-10-04


def shown_by(rankers, *, noise=0.0, drift=0.0, seed=0):
    """A log of six days: each day every query is ranked by that day's weights of its three features."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(N_QUERIES * N_DOCUMENTS, 3))
    days, orders = [], []
    for day in range(N_DAYS):
        now = features + drift * day * rng.normal(size=features.shape)
        scores = now @ np.asarray(rankers[day]) + noise * rng.normal(size=len(now))
        order = np.argsort(-scores.reshape(N_QUERIES, -1), axis=1)
        orders.append(order + N_DOCUMENTS * np.arange(N_QUERIES)[:, None] + day * len(features))
        days.append(now)
    versions = np.concatenate(orders)
    return ClickLog(
        features=np.concatenate(days).astype(np.float32),
        versions=versions.astype(np.int32),
        mask=np.ones(versions.shape, dtype=bool),
        clicks=np.zeros(versions.shape),
        sessions=np.ones(len(versions)),
        version_documents=np.tile(np.arange(len(features)), N_DAYS),
        document_queries=np.repeat(np.arange(N_QUERIES), N_DOCUMENTS),
        feature_names=("title", "price", "age"),
        periods=START + DAY * np.repeat(np.arange(N_DAYS), N_QUERIES),
    )


OLD, NEW, NEWEST = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, -1.0)


def test_the_day_of_a_change_is_found():
    found = latest_change(shown_by([OLD] * 4 + [NEW] * 2))
    assert found is not None
    assert found.day == "2024-10-08"
    assert found.column in ("title", "price")
    assert found.n_queries == N_QUERIES


def test_of_two_changes_the_latest_is_found():
    found = latest_change(shown_by([OLD] * 2 + [NEW] * 2 + [NEWEST] * 2))
    assert found is not None
    assert found.day == "2024-10-08"


@pytest.mark.parametrize("more", [{}, {"noise": 1.0}, {"drift": 0.3}, {"noise": 0.5, "drift": 0.3}])
def test_one_ranker_is_one_ranker_though_orders_vary_and_features_drift(more):
    assert latest_change(shown_by([OLD] * N_DAYS, **more)) is None


def test_intervened_lists_are_no_other_ranker():
    log = shown_by([OLD] * 3 + [NEW] * 3)
    swapped = BiasColumn((log.periods >= START + 3 * DAY).astype(int), ("none", "shuffle"))
    with pytest.raises(NotMeasured):  # what is left has no second order of any query, and ends with day three
        latest_change(replace(log, interventions=swapped, periods=np.where(swapped.values, log.periods, START)))
    assert latest_change(replace(log, interventions=swapped)) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"periods": None}, "no times: ingest it with --time and --period day"),
        ({"periods": np.full(N_QUERIES * N_DAYS, START)}, "one period"),
        ({"periods": None, "first_shown": np.arange(N_QUERIES * N_DAYS), "sessions": np.full(180, 2)}, "--period day"),
    ],
)
def test_a_log_that_cannot_tell_says_what_is_missing(change, message):
    with pytest.raises(NotMeasured, match=message):
        latest_change(replace(shown_by([OLD] * N_DAYS), **change))


def test_production_is_the_latest_ranker_and_the_line_says_how_it_was_found():
    found = latest_ranker(shown_by([OLD] * 4 + [NEW] * 2))
    assert found.which == "since=2024-10-08"
    assert "the ranker changed on 2024-10-08" in found.line
    assert latest_ranker(shown_by([OLD] * N_DAYS)).which is None


def test_a_column_that_names_rankers_comes_before_a_change():
    log = shown_by([OLD] * 4 + [NEW] * 2)
    later = (log.periods >= START + 4 * DAY).astype(int)
    named = replace(log, bias={"ranker": BiasColumn(later, ("bm25", "learnt"))})
    assert latest_ranker(named).which == "logger=ranker:learnt"
    assert "30 of 30 sessions" in latest_ranker(named).line
    without = latest_ranker(replace(named, periods=None))
    assert without.which is None
    assert "bm25, learnt" in without.line
