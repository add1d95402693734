"""Rows for trees, by hand."""

from types import SimpleNamespace

import numpy as np

from unskew.data.clicks.click_log import ClickLog
from unskew.serving.ratings import debiased_rows
from unskew.training.recipe import Recipe

# Lists of two queries that take turns; the second position is seen half as often.
LOG = ClickLog(
    features=np.arange(4, dtype=np.float32).reshape(4, 1),
    versions=np.array([[0, 1], [2, 3], [1, 0]], dtype=np.int32),
    mask=np.ones((3, 2), dtype=bool),
    clicks=np.array([[2, 1], [0, 4], [1, 0]], dtype=np.float32),
    sessions=np.array([4, 8, 1], dtype=np.float32),
    document_queries=np.array([0, 0, 1, 1]),
    query_ids=np.array(["a", "b"]),
)
MODEL = SimpleNamespace(recipe=Recipe.of("dla"), examination=lambda: np.array([1.0, 0.5]))


def test_targets_are_clicks_over_what_was_seen():
    rows = debiased_rows(LOG, MODEL)
    assert rows["target"].to_pylist() == [2 / 4, 1 / (4 * 0.5), 1.0, 0.0, 0.0, 4 / (8 * 0.5)]
    weight = np.array([4, 4 * 0.25, 1, 0.25, 8, 8 * 0.25])
    np.testing.assert_allclose(rows["weight"].to_numpy(), weight / weight.mean())


def test_groups_are_numbered_in_the_order_of_rows():
    rows = debiased_rows(LOG, MODEL)
    assert rows["query"].to_pylist() == ["a", "a", "a", "a", "b", "b"]
    assert rows["group"].to_pylist() == [0, 0, 1, 1, 2, 2]
