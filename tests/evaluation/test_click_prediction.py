"""Held-out clicks: definitions checked by hand on three pages."""

from math import exp, log

import numpy as np
import pyarrow as pa
import pytest
import torch

from unskew.data.clicks.click_log import ClickLog
from unskew.evaluation.click_prediction import paired_difference, predict_clicks
from unskew.evaluation.held_out import NotMeasured
from unskew.methods import METHODS
from unskew.networks.registry import Problem

# Three pages of two documents: a click on top, no click, and two clicks.
PAGES = ((1, 0), (0, 0), (1, 1))


def pages_log(pages=PAGES, **options):
    rows = [
        {"session": number, "query": "q", "document": place, "position": place, "click": click}
        for number, page in enumerate(pages)
        for place, click in enumerate(page)
    ]
    return ClickLog.from_table(pa.Table.from_pylist(rows), features=(), **options)


def rates(top, below):
    """`rctr` with these click rates."""
    model = METHODS["rctr"](Problem(0, 2)).double()
    with torch.no_grad():
        model.rate.logits.copy_(torch.tensor([top, below]).logit())
    return model


def cascade(attraction, stray):
    """Every document is unknown, and attracts alike."""
    model = METHODS["cascade"](Problem(0, 2, n_ids=(1, 1, 1))).double()
    with torch.no_grad():
        model.attraction.offset.fill_(log(attraction / (1 - attraction)))
        model.stray.fill_(log(stray / (1 - stray)))
    return model


def test_likelihood_and_perplexity_of_rates_by_position():
    found = predict_clicks(rates(0.5, 0.25), pages_log())
    top, below = 3 * log(0.5), 2 * log(0.75) + log(0.25)
    assert found.per_page().value == pytest.approx((top + below) / 3)
    assert found.per_impression().value == pytest.approx((top + below) / 6)
    assert found.perplexity().value == pytest.approx((exp(-top / 3) + exp(-below / 3)) / 2)
    assert [entry.value for entry in found.perplexity_by_position()] == pytest.approx([2.0, exp(-below / 3)])
    predicted, observed = zip(*found.rates_by_position(), strict=True)
    assert predicted == pytest.approx([0.5, 0.25])
    assert observed == pytest.approx([2 / 3, 1 / 3])
    assert found.calibration().value == pytest.approx(3 * 0.75 / 3)


def test_conditional_perplexity_knows_the_clicks_above():
    found = predict_clicks(cascade(0.5, 0.1), pages_log())
    below_given_top = log(0.9) + log(0.5) + log(0.1)  # stray does not come, attraction does not come, stray comes
    assert found.per_page().value == pytest.approx((3 * log(0.5) + below_given_top) / 3)
    conditional = found.perplexity_by_position(conditional=True)
    assert conditional[1].value == pytest.approx(exp(-below_given_top / 3))
    marginal = 0.5 * 0.5 + 0.5 * 0.1
    below = 2 * log(1 - marginal) + log(marginal)
    assert found.perplexity_by_position()[1].value == pytest.approx(exp(-below / 3))


def test_intervals_are_those_of_the_mean_over_sessions_counted_or_not():
    found = predict_clicks(rates(0.5, 0.25), pages_log((*PAGES, PAGES[0])))
    pages = np.log([0.5 * 0.75, 0.5 * 0.75, 0.5 * 0.25, 0.5 * 0.75])
    error = 1.959964 * pages.std(ddof=1) / 2
    assert found.per_page().high - found.per_page().value == pytest.approx(error)
    assert len(found.sessions) == 3  # the page that came twice is counted
    below = found.perplexity_by_position()[1]  # all that varies is below the top: exp turns the error by the slope
    assert below.high - below.value == pytest.approx(below.value * error)


def test_pages_of_different_length_count_by_their_documents():
    found = predict_clicks(rates(0.5, 0.25), pages_log(((1, 0), (0,))))
    assert found.per_impression().value == pytest.approx((2 * log(0.5) + log(0.75)) / 3)
    assert found.perplexity_by_position()[1].value == pytest.approx(1 / 0.75)


def test_two_models_are_compared_session_by_session():
    one, other = (predict_clicks(model, pages_log()) for model in (rates(0.5, 0.25), rates(0.5, 0.5)))
    differences = np.log([0.75 / 0.5, 0.75 / 0.5, 0.25 / 0.5])
    found = paired_difference(one, other)
    assert found.value == pytest.approx(differences.mean())
    assert found.high - found.value == pytest.approx(1.959964 * differences.std(ddof=1) / np.sqrt(3))


def test_what_cannot_be_measured_says_why():
    with pytest.raises(NotMeasured, match="only counts"):
        predict_clicks(rates(0.5, 0.5), pages_log(joint=False))
    with pytest.raises(NotMeasured, match="does not predict whether a document is clicked"):
        predict_clicks(METHODS["dla"](Problem(1, 2)), pages_log())
