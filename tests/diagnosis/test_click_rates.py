"""Click-through by position: rates by hand, and an interval that holds the truth as often as it says."""

import numpy as np
from numpy.testing import assert_allclose

from sample_logs import log_of
from unskew.diagnosis.click_rates import click_rates, single_documents


def counted(clicks, sessions, documents=None):
    documents = np.arange(np.size(clicks)).reshape(np.shape(clicks)) if documents is None else documents
    return log_of(documents, clicks, sessions)


def test_rates_are_clicks_over_showings():
    found = click_rates(counted([[4, 1], [2, 1]], [10, 20]))
    assert_allclose(found.rates, [6 / 30, 2 / 30])
    assert_allclose(found.impressions, [30, 30])
    # Two queries, position 0: surpluses 4 - 2 and 2 - 4, so the standard error is sqrt(8) / 30.
    assert_allclose(found.high[0] - found.rates[0], 1.959964 * np.sqrt(8) / 30, rtol=1e-5)


def test_one_query_has_no_interval():
    assert np.isnan(click_rates(counted([[4, 1]], [10])).low).all()


def test_the_interval_holds_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    held = []
    for _ in range(200):
        chances = rng.beta(2, 8, size=(60, 2))  # queries differ
        found = click_rates(counted(rng.binomial(20, chances), [20] * 60))
        held.append((found.low < 0.2) & (found.high > 0.2))
    assert 0.9 < np.mean(held) < 0.98  # 0.95, standard error 0.011


def test_a_log_of_single_documents_counts_the_same():
    log = counted([[4, 1], [2, 3]], [10, 20], [[0, 1], [1, 0]])
    single = single_documents(log)
    assert_allclose(click_rates(single).rates, click_rates(log).rates)
    assert_allclose(click_rates(single).low, click_rates(log).low)
    rows = {
        (int(d), int(k)): (float(c), float(n))
        for d, k, c, n in zip(
            single.documents[:, 0], single.positions[:, 0], single.clicks[:, 0], single.sessions, strict=True
        )
    }
    assert rows == {(0, 0): (4, 10), (1, 1): (1, 10), (1, 0): (2, 20), (0, 1): (3, 20)}
