"""The report of a diagnosis: self-contained, shown by a browser without complaint."""

import re
from dataclasses import replace

import numpy as np
import pytest

from unskew.diagnosis.page import diagnose, position_rows, write_diagnosis
from unskew.simulation.simulate import simulate


@pytest.fixture(scope="module")
def diagnosis(log):
    return diagnose(log, quick=True)


@pytest.fixture(scope="module")
def page(diagnosis, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_diagnosis(diagnosis, path, "clicks <of> mine", "unskew diagnose clicks")


def test_the_page_fetches_nothing_and_holds_the_verdict(page):
    text = page.read_text()
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", text)
    assert "Diagnosis of clicks &lt;of&gt; mine" in text
    assert "Worth training" in text
    assert "What was not measured, and why" in text
    assert text.count("<svg") == 5  # click rates, curves, logger, links, click matrix


def test_the_table_of_positions_has_a_row_each(diagnosis):
    columns, rows = position_rows(diagnosis)
    assert len(rows) == 10
    assert {len(row) for row in rows} == {len(columns)}
    assert [row[0] for row in rows] == [str(place) for place in range(1, 11)], "people count from 1"
    assert rows[0][4:] == ["1.000", "1.000–1.000", "1.00"]


def test_what_has_no_interval_shows_none(log):
    silent = diagnose(replace(log, clicks=np.zeros_like(log.clicks), patterns=None), quick=True)
    _, rows = position_rows(silent)
    assert {row[3] for row in rows} == {"–"}
    assert "never clicked at positions 1, 2, 3" in silent.rank.reason, "people count from 1"


def test_curves_of_which_all_are_unsure_are_compared_without_complaint(diagnosis):
    unsure = {name: replace(curve, high=np.full_like(curve.high, np.inf)) for name, curve in diagnosis.curves.items()}
    assert replace(diagnosis, curves=unsure).curve is not None


def test_a_log_that_can_tell_nothing_still_has_a_page(world, tmp_path):
    log = simulate(world.train, "svm", "position_based", sessions=4, seed=1).log
    page = write_diagnosis(diagnose(log, quick=True), tmp_path / "report.html", "one order", "unskew diagnose x")
    assert "No document was shown at two positions" in page.read_text()


def test_a_browser_shows_it_without_complaint(page, browser_tab):
    with browser_tab(page) as tab:
        widths = [tab.locator("figure svg").nth(n).bounding_box()["width"] for n in range(5)]
        tab.set_viewport_size({"width": 1100, "height": 900})
        overflow = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        hidden = tab.evaluate(
            "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length"
        )
    assert min(widths) > 200
    assert overflow <= 0
    assert hidden == 0, "at 1,100 pixels no table scrolls out of sight"
