"""Traffic: what a log is made of, and robots in it."""

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose

from unskew.data.clicks.click_log import ClickLog
from unskew.diagnosis.traffic import heavy_users, scale_heavy_users, traffic
from unskew.simulation.simulate import simulate


def table(sessions):
    """Sessions are (user, query, clicks of three documents)."""
    rows = {name: [] for name in ("session", "user", "query", "document", "position", "click", "length")}
    for number, (user, query, clicks) in enumerate(sessions):
        for place, click in enumerate(clicks):
            for name, value in zip(rows, (number, user, query, place, place, click, float(place)), strict=True):
                rows[name].append(value)
    return pa.table(rows)


@pytest.fixture
def robot_log():
    people = [(f"p{n}", "q", (1, 0, 0)) for n in range(10)]
    robot = [("robot", "q", (1, 1, 1)) for _ in range(90)]
    return ClickLog.from_table(table([*people, *robot]), bias=["user"])


def test_the_heaviest_user_is_named_and_a_cap_is_counted(robot_log):
    found = heavy_users(robot_log, "user", most=10)
    assert (found.n_users, found.n_capped, found.heaviest) == (11, 1, "robot")
    assert (found.heaviest_share, found.heaviest_rate) == (0.9, 1.0)
    assert_allclose([found.sessions_dropped, found.impressions_dropped, found.clicks_dropped], [80, 240, 240])


def test_capped_sessions_weigh_less_and_patterns_with_them(robot_log):
    capped = scale_heavy_users(robot_log, "user", 10)
    assert_allclose([capped.n_sessions, capped.n_clicks], [20, 10 + 30])
    assert_allclose(capped.patterns.sessions.sum(), 20)
    assert traffic(capped).everything_clicked is not None


def test_users_are_seen_only_where_a_column_names_them(log):
    with pytest.raises(ValueError, match="not a bias column"):
        heavy_users(log, "user")


def test_counts_of_a_hand_made_log():
    lists = [("a", "q1", (1, 0, 0)), ("a", "q1", (0, 0, 0)), ("b", "q2", (1, 1, 1)), ("b", "q2", (0, 1, 0))]
    found = traffic(ClickLog.from_table(table(lists)))
    assert (found.n_sessions, found.n_lists, found.n_queries, found.compaction) == (4, 2, 2, 2.0)
    assert (found.orders_per_query, found.one_order, found.never_shown) == (1.0, 1.0, 0.0)
    assert found.only_shown
    assert found.clickless == 0.25
    assert found.everything_clicked == 0.0  # three documents are too few to say so


def test_a_log_without_clickless_sessions_is_suspected(world):
    whole, cut = (
        traffic(simulate(world.train, "svm", "position_based", sessions=8, joint=True, drop_clickless=drop, seed=1).log)
        for drop in (False, True)
    )
    assert not whole.clickless_missing
    assert cut.clickless_missing


def test_candidates_that_were_never_shown_are_counted(log, world):
    shown = len(np.unique(log.documents[log.mask]))
    assert traffic(log).never_shown == pytest.approx(1 - shown / world.train.n_documents)


def test_orders_count_once_whatever_the_intervention_is_called(log):
    orders = {
        (int(query), tuple(documents[mask].tolist()))
        for query, documents, mask in zip(log.queries, log.documents, log.mask, strict=True)
    }
    assert traffic(log).orders_per_query == pytest.approx(len(orders) / traffic(log).n_queries)


def test_a_counted_log_with_repeated_lists_cannot_tell_the_share_without_a_click():
    """Lists shown once say nothing of those shown often: with the patterns the same log has one half."""
    sessions = [("a", "q1", (0, 0, 0)), ("b", "q2", (1, 1, 0)), ("b", "q2", (0, 1, 0)), ("b", "q2", (0, 0, 0))]
    assert traffic(ClickLog.from_table(table(sessions), joint=False)).clickless is None
    assert traffic(ClickLog.from_table(table(sessions), joint=True)).clickless == 0.5
