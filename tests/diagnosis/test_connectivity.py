"""Connectivity: which positions documents link, and what would link the others. Hand-made logs, arithmetic by hand."""

import numpy as np
import pytest

from sample_logs import log_of
from unskew.data.clicks.row_fields import BiasColumn
from unskew.diagnosis.connectivity import connectivity, connectivity_by


def log_with(lists, clicks, sessions, features=None, **more):
    n = np.max(lists) + 1
    return log_of(lists, clicks, sessions, np.arange(n)[:, None] if features is None else features, **more)


def test_one_order_links_nothing_and_two_orders_link_what_they_exchange():
    one = connectivity(log_with([[0, 1, 2]], [[5, 3, 1]], [10]))
    assert one.groups == (("0",), ("1",), ("2",))
    assert not one.connected
    two = connectivity(log_with([[0, 1, 2], [1, 0, 2]], [[5, 3, 1], [4, 3, 1]], [10, 10]))
    assert two.groups == (("0", "1"), ("2",))
    three = connectivity(log_with([[0, 1, 2], [1, 0, 2], [0, 2, 1]], [[4, 3, 1]] * 3, [10, 10, 4]))
    assert three.connected
    # Documents 1 and 2 were at positions 1 and 2, four times each where they stood less.
    assert (three.weakest.one, three.weakest.other, three.weakest.impressions) == (1, 2, 8.0)


def test_the_share_to_swap_brings_a_hundred_clicks_where_less_is_clicked():
    """Position 1 is clicked in 200 of 1000 sessions: a hundred clicks there are half of the sessions."""
    found = connectivity(log_with([[0, 1]], [[500, 200]], [1000]))
    (link,) = found.links
    assert (link.one, link.other) == (0, 1)
    assert link.share == pytest.approx(0.5)
    assert link.rate_ratio == pytest.approx(0.4)
    assert found.shuffle_share == pytest.approx(0.5)


def test_the_mildest_merge_is_that_of_the_most_alike_click_rates():
    found = connectivity(log_with([[0, 1, 2]], [[500, 100, 90]], [1000]))
    assert [(merge.one, merge.other) for merge in found.merges] == [(1, 2), (0, 1)]
    assert found.merges[0].rate_ratio == pytest.approx(0.9)


def test_documents_with_equal_features_link_positions_if_relevance_is_a_function_of_them():
    found = connectivity(log_with([[0, 1]], [[5, 3]], [10], features=[[0.0], [-0.0]]))
    assert not found.connected
    assert found.connected_by_features


def test_a_bias_column_makes_more_factors():
    device = BiasColumn(np.array([0, 0, 1, 1]), ("desk", "phone"))
    lists = [[0, 1], [1, 0], [2, 3], [3, 2]]
    log = log_with(lists, [[5, 3]] * 4, [10] * 4, bias={"device": device})
    found = connectivity_by(log, "device")
    assert found.groups == (("0, desk", "1, desk"), ("0, phone", "1, phone"))
    with pytest.raises(ValueError, match="not a bias column"):
        connectivity_by(log, "country")


def test_a_position_without_clicks_counts_as_if_it_had_one():
    assert connectivity(log_with([[0, 1]], [[5, 0]], [10])).shuffle_share == 100
