"""The report: complete in itself, safe against what it shows, and working in a browser."""

import re

import pytest

from unskew.display import Best, Screen
from unskew.reporting.drawing import Drawn, line_figure
from unskew.reporting.sheets import ClaimResult, Section, write_report

ROWS = (("DLA", "0.75 ± 0.01 ++"), ("LBD", Best("0.80")), ("clicks", "0.70"), ("nobody", "–"))


@pytest.fixture
def page(tmp_path):
    lines = {"DLA": ([1, 2, 3], [1.0, 0.5, 0.2]), "truth": ([1, 2, 3], [1.0, 0.6, 0.3])}
    figures = [
        Drawn(name, "Curves <of> two", line_figure(lines, x_label="position", y_label="seen")) for name in ("a", "b")
    ]
    sections = [
        Section("The question", ["Is <script>alert(1)</script> shown as text?"]),
        Section(
            "Verdicts",
            verdicts=[ClaimResult("it works", "holds", "p < .001"), ClaimResult("x", "fails", "")],
        ),
        Section(
            "Results",
            sheets=[Screen("Rankers", ("method", "ndcg@10"), ROWS, ["A note."], name="results")],
            figures=figures,
        ),
        Section("Run it again", facts={"torch": "2"}, command="unskew reproduce x"),
    ]
    return write_report(tmp_path / "report.html", "A report", sections, "lead")


def test_a_report_fetches_nothing_and_shows_text_as_text(page):
    text = page.read_text()
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", text)
    assert "default-src 'none'" in text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_figures_on_one_page_do_not_share_ids(page):
    ids = re.findall(r'\bid="([^"]+)"', page.read_text())
    assert len(ids) == len(set(ids))
    referred = re.findall(r'(?:xlink:href="|url\()#([^")]+)', page.read_text())
    assert set(referred) <= set(ids)


def test_a_figure_is_the_same_file_each_time(tmp_path):
    drawn = [Drawn("a", "t", line_figure({"x": ([1, 2], [1, 2])}, x_label="x", y_label="y")) for _ in range(2)]
    assert drawn[0].svg() == drawn[1].svg()
    assert [path.suffix for path in drawn[0].save(tmp_path)] == [".svg", ".png", ".pdf"]
    assert (tmp_path / "a.png").stat().st_size > 1_000


def test_a_browser_shows_the_report_sorts_a_column_and_has_nothing_to_complain_of(page, browser_tab):
    with browser_tab(page) as tab:
        first = tab.locator("#table-results tbody tr td:first-child")
        tab.get_by_role("button", name="ndcg@10").click()
        falling = first.all_inner_texts()
        tab.get_by_role("button", name="ndcg@10").click()
        rising = first.all_inner_texts()
        widths = [box["width"] for box in (tab.locator("figure svg").nth(n).bounding_box() for n in range(2))]
    assert falling == ["LBD", "DLA", "clicks", "nobody"]
    assert rising == ["clicks", "DLA", "LBD", "nobody"]
    assert min(widths) > 200
