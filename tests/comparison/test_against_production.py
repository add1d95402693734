"""Differences from production."""

import numpy as np
import pytest

from unskew.comparison.against_production import Outlook, Standing, standing_sheet, standings
from unskew.evaluation.differences import mean_interval

RNG = np.random.default_rng(0)
BASE = RNG.normal(size=200)
NOISE = RNG.normal(size=200)


def test_differences_are_paired_and_their_intervals_hold_for_all_methods_at_once():
    found = standings({"a": BASE + 1 + 0.1 * NOISE, "production": BASE, "b": BASE - NOISE})
    assert [entry.label for entry in found] == ["production", "a", "b"]
    difference, least, most = mean_interval(1 + 0.1 * NOISE, level=1 - 0.05 / 2)
    a = found[1]
    assert (a.difference, a.least, a.most) == pytest.approx((difference, least, most))
    assert [entry.verdict for entry in found] == ["–", "better", "no clear difference"]


def test_where_lower_is_better_a_negative_difference_wins():
    a = standings({"production": BASE, "a": BASE - 1 + 0.1 * NOISE}, higher_is_better=False)[1]
    assert (a.beats, a.verdict) == (True, "better")
    b = standings({"production": BASE, "a": BASE - 1 + 0.1 * NOISE})[1]
    assert (b.beats, b.verdict) == (False, "worse")


def test_queries_that_are_left_out_do_not_count():
    gap = np.append(BASE, np.nan)
    found = standings({"production": gap, "a": gap + 0.5})
    assert found[1].difference == pytest.approx(0.5)


def outlook(*entries, measure="SNIPS", higher=True):
    production = Standing("production", 0.5, 0.4, 0.6)
    return Outlook(measure, higher, (production, *entries), "policy score")


def test_the_line_names_the_best_its_margin_and_who_else_wins():
    best = Standing("dla", 0.7, 0.6, 0.8, 0.2, 0.15, 0.25, beats=True)
    other = Standing("ipw", 0.6, 0.5, 0.7, 0.1, 0.05, 0.15, beats=True)
    worse = Standing("naive", 0.4, 0.3, 0.5, -0.1, -0.15, -0.05)
    assert outlook(other, best, worse).line == "dla beats production by +0.2000 SNIPS (+0.1500 to +0.2500); so does ipw"


def test_a_margin_that_chance_explains_is_no_clear_difference_and_a_worse_best_loses():
    close, worse = (Standing("dla", 0.52, 0.4, 0.6, value, value - 0.03, value + 0.03) for value in (0.02, -0.05))
    numbers = "the best, dla, differs by +0.0200 SNIPS (−0.0100 to +0.0500)"
    assert outlook(close).line == f"no clear difference from production: {numbers}"
    assert outlook(worse).line.startswith("production beats every method: the best, dla, differs by −0.0500")


def test_where_lower_is_better_the_best_is_the_lowest():
    low = Standing("dla", 1.1, 1.0, 1.2, -0.2, -0.3, -0.1, beats=True)
    high = Standing("naive", 1.4, 1.3, 1.5, 0.1, 0.0, 0.2)
    assert outlook(high, low, higher=False).line.startswith("dla beats production by −0.2000")


def test_the_table_has_a_row_for_production_and_says_where_it_comes_from():
    sheet = standing_sheet(outlook(Standing("dla", 0.7, 0.6, 0.8, 0.2, 0.15, 0.25, beats=True)), 5)
    assert list(sheet.rows[0]) == ["production", "0.5000", "0.4000 to 0.6000", "–", "–", "–"]
    assert list(sheet.rows[1])[3:] == ["+0.2000", "+0.1500 to +0.2500", "better"]
    assert sheet.notes[0].startswith("Production: policy score.")
