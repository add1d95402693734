"""Curves that cannot be right, on click rates that a reader can redo."""

import re

import numpy as np
import pytest

from sample_logs import log_of
from unskew.evaluation.plausibility import runaway


def log_with_rates(*rates, sessions=1_000):
    """One list whose documents were clicked at these rates."""
    return log_of([np.arange(len(rates))], [np.array(rates) * sessions], [sessions])


def test_a_curve_that_falls_as_the_click_rates_do_is_possible():
    assert runaway(np.array([1.0, 0.5, 0.1]), log_with_rates(0.4, 0.2, 0.04)) is None


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (3.1, "position 3 relative to position 1.*31 times less relevant"),  # .1 / 3.1
        (0.1 / 31, "31 times more relevant"),
        (2.9, None),  # 29 times: below the limit of 30
    ],
)
def test_a_relevance_thirty_times_that_of_the_top_is_not(last, said):
    message = runaway(np.array([1.0, 0.5, last]), log_with_rates(0.4, 0.2, 0.04))
    assert message is None if said is None else re.search(said, message)


def test_positions_with_few_clicks_say_nothing():
    assert runaway(np.array([1.0, 1_000.0]), log_with_rates(0.4, 0.029)) is None
    assert runaway(np.array([1.0, 1_000.0]), log_with_rates(0.4, 0.031)) is not None
