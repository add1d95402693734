"""Click matrices: counted by hand, joined by id, refused where nothing can be told."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sample_logs import log_of
from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.judged_set import JudgedSet
from unskew.diagnosis.click_kinds import click_matrix_without_grades
from unskew.diagnosis.click_matrix import ClickMatrix, click_matrix
from unskew.propensities.curve import NotIdentified
from unskew.simulation.policies import Random
from unskew.simulation.simulate import simulate

CURVE = np.array([0.8, 0.5, 0.2])


def of_pairs(documents, clicks, sessions, **more):
    """Four documents, two of each query."""
    return log_of(documents, clicks, sessions, np.zeros((4, 1)), **{"document_queries": np.arange(4) // 2, **more})


TWO_LISTS = of_pairs([[0, 1], [3, 2]], [[6, 1], [4, 2]], [10, 20])  # two queries of two documents


def rotated_log(attraction, sessions=1000.0, curve=CURVE):
    """Expected clicks of documents that take turns, each query's three once in each order."""
    turns = (np.arange(3)[:, None] + np.arange(3)) % 3
    documents = (np.arange(0, len(attraction), 3)[:, None, None] + turns).reshape(-1, 3)
    return ClickLog(
        features=np.zeros((len(attraction), 1), dtype=np.float32),
        versions=documents.astype(np.int32),
        mask=np.ones(documents.shape, dtype=bool),
        clicks=sessions * curve * np.asarray(attraction)[documents],
        sessions=np.full(len(documents), sessions),
        document_queries=np.arange(len(attraction)) // 3,
    )


# -- with grades


def test_rates_are_clicks_an_impression_of_each_grade_at_each_position():
    matrix = click_matrix(TWO_LISTS, [0, 1, 0, 1])
    # Position 0: document 0 (grade 0) 6 of 10, document 3 (grade 1) 4 of 20; position 1: 2 (0) 2 of 20, 1 (1) 1 of 10.
    assert matrix.kinds == ("grade 0", "grade 1")
    assert_array_equal(matrix.positions, [0, 1])
    assert_allclose(matrix.rates, [[0.6, 0.1], [0.2, 0.1]])
    assert_allclose(matrix.impressions, [[10, 20], [20, 10]])


def test_grades_are_joined_by_query_and_document_id():
    ids = {"query_ids": np.array(["a", "b"]), "document_ids": np.array(["x", "y", "x", "y"])}
    log = of_pairs([[0, 1], [3, 2]], [[6, 1], [4, 2]], [10, 20], **ids)
    judged = JudgedSet(
        features=np.zeros((5, 1), dtype=np.float32),
        grades=np.array([0, 9, 1, 1, 0], dtype=np.float32),
        offsets=np.array([0, 3, 5]),
        query_ids=np.array(["b", "a"]),
        document_ids=np.array(["x", "never shown", "y", "y", "x"]),
    )
    assert_allclose(click_matrix(log, judged).rates, [[0.6, 0.1], [0.2, 0.1]])


def test_documents_that_nobody_judged_are_left_out():
    log = of_pairs([[0, 1], [1, 0], [2, 3]], [[6, 1], [4, 2], [7, 7]], [10, 10, 10])
    assert_allclose(click_matrix(log, [0, 1, np.nan, np.nan]).rates, [[0.6, 0.2], [0.4, 0.1]])
    with pytest.raises(NotIdentified, match="no shown document is judged"):
        click_matrix(log, [np.nan] * 4)


def test_kinds_with_an_empty_cell_are_left_out_and_named():
    log = of_pairs([[0, 1], [1, 0], [2, 3]], [[6, 1], [4, 2], [7, 7]], [10, 10, 10])
    matrix = click_matrix(log, [0, 1, 2, 0])  # grade 2 was only shown at the top
    assert matrix.kinds == ("grade 0", "grade 1")
    assert matrix.left_out == ("grade 2",)


def test_only_counted_impressions_count():
    log = of_pairs([[0, 1], [1, 0], [0, 1]], [[6, 1], [4, 2], [9, 9]], [10, 10, 10])
    counted = np.array([[True, True], [True, True], [False, False]])
    assert_allclose(click_matrix(log, [0, 1, 0, 0], counted=counted).rates, [[0.6, 0.2], [0.4, 0.1]])


def test_documents_that_differ_within_a_grade_disperse_the_clicks():
    alike = click_matrix(of_pairs([[0, 1], [2, 3]], [[5, 5], [5, 5]], [10, 10]), [0, 1, 1, 0])
    assert alike.dispersion == 1.0  # clicks as expected disperse less than chance: it counts as chance
    # Both kinds at both positions have rate 1/2, but each query's cell has 10 or 0 clicks of 10: variance 25, not 2.5.
    lists = [[0, 1], [1, 0], [2, 3], [3, 2]]
    differing = click_matrix(of_pairs(lists, [[10, 0], [0, 10], [0, 10], [10, 0]], [10] * 4), [0, 1, 0, 1])
    assert_allclose(differing.dispersion, 25 / 2.5)


def test_counted_noise_is_binomial_and_wider_where_clicks_are_dispersed():
    rates = np.array([[0.5, 0.1], [0.2, 0.3]])
    for dispersion in (1.0, 4.0):
        matrix = ClickMatrix(("a", "b"), np.arange(2), rates, np.full((2, 2), 400.0), dispersion)
        drawn = matrix.draw(rates, 4000, np.random.default_rng(0))
        assert_allclose(drawn.mean(axis=0), rates, atol=0.004)
        assert_allclose(drawn.var(axis=0), dispersion * rates * (1 - rates) / 400, rtol=0.1)


def test_the_matrix_can_be_read_and_drawn():
    matrix = click_matrix(TWO_LISTS, [0, 1, 0, 1])
    assert matrix.rows()[1] == {"kind": "grade 0", "position": 1, "impressions": 20.0, "rate": 0.1}
    assert matrix.to_table().to_pylist() == matrix.rows()
    assert repr(matrix).splitlines()[1].split() == ["1", "2"]
    assert "grade 0  0.6000  0.1000" in repr(matrix)
    assert [label.get_text() for label in matrix.plot().get_yticklabels()] == list(matrix.kinds)


# -- without grades


def test_without_grades_kinds_of_attraction_have_the_curve_of_the_position():
    attraction = np.tile([0.2, 0.5, 1.0], 30)
    matrix = click_matrix_without_grades(rotated_log(attraction, sessions=20_000), n_kinds=3)
    assert matrix.kinds == ("kind 1 of 3", "kind 2 of 3", "kind 3 of 3")
    assert_allclose(matrix.rates, np.outer([0.2, 0.5, 1.0], CURVE), rtol=0.01)


def test_without_grades_it_does_not_matter_which_documents_stood_where():
    # Good documents are at the top ten times as often as below, bad ones below: counted rates would blame the position.
    order = [[0, 1], [1, 0], [2, 3], [3, 2]]
    attraction = np.array([0.9, 0.4, 0.9, 0.4])
    sessions = np.array([100_000.0, 10_000.0, 100_000.0, 10_000.0])
    clicks = sessions[:, None] * CURVE[:2] * attraction[order]
    matrix = click_matrix_without_grades(of_pairs(order, clicks, sessions), n_kinds=2)
    assert_allclose(matrix.rates, np.outer([0.4, 0.9], CURVE[:2]), rtol=0.02)


def test_the_covariance_of_a_curve_is_what_repetition_shows():
    rng = np.random.default_rng(0)
    expected = rotated_log(np.full(30, 0.6), sessions=60.0)
    found = []
    for seed in range(60):
        clicks = rng.binomial(60, expected.clicks / 60)
        log = ClickLog(**{**vars(expected), "clicks": clicks.astype(np.float64)})
        matrix = click_matrix_without_grades(log, n_kinds=2, seed=seed)
        logs = np.log(matrix.rates[0])
        found.append((logs - logs.mean(), matrix.covariances[0]))
    curves, covariances = (np.array(part) for part in zip(*found, strict=True))
    assert_allclose(
        np.diag(covariances.mean(axis=0)), curves.var(axis=0, ddof=1), rtol=0.5
    )  # of 60: standard error 0.18


def test_a_log_of_one_order_is_refused_and_told_why():
    judged = JudgedSet.from_arrays(np.zeros((40, 1)), np.arange(40) % 5, group=[10] * 4)
    log = simulate(judged, Random(orders_per_query=1), "position_based", sessions=500).log
    with pytest.raises(NotIdentified, match=r"only one position.*Pass grades, or a log in which the order was changed"):
        click_matrix_without_grades(log)


def test_positions_between_which_nothing_moved_are_named():
    rows = [[0, 1, 2, 3], [1, 0, 3, 2]]
    log = of_pairs(rows, [[6, 2, 1, 1], [5, 2, 1, 1]], [10, 10], document_queries=np.zeros(4, dtype=np.int64))
    with pytest.raises(NotIdentified, match="between positions 1, 2 and positions 3, 4"):
        click_matrix_without_grades(log)


def test_one_kind_and_graded_feedback_are_refused():
    with pytest.raises(NotIdentified, match="two kinds"):
        click_matrix(TWO_LISTS, [1, 1, 1, 1])
    with pytest.raises(ValueError, match="the log has 4 documents"):
        click_matrix(TWO_LISTS, [0, 1])
    graded = ClickLog(**{**vars(TWO_LISTS), "graded": True})
    for count in (lambda: click_matrix(graded, [0, 1, 0, 1]), lambda: click_matrix_without_grades(graded)):
        with pytest.raises(ValueError, match="graded"):
            count()
