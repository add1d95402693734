"""The page of `look`: what it says of a query, and that a browser shows what came from the log as text."""

import numpy as np
import pyarrow as pa
import pytest

import unskew

HOSTILE = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>"
QUERIES = ["shoe", "hat & coat", HOSTILE]
SESSIONS = 40


@pytest.fixture(scope="module")
def log():
    """Three queries with two documents each; the second document, which alone has the feature, gets all clicks."""
    rows = [(number, query, place) for query in QUERIES for number in range(SESSIONS) for place in (0, 1)]
    numbers, queries, places = zip(*rows, strict=True)
    clicked = [place == 1 and (number % 4 > 0 or query == "shoe") for number, query, place in rows]
    table = {
        "session": [f"{query} {number}" for number, query in zip(numbers, queries, strict=True)],
        "query": queries,
        "document": [f"{'good' if place else 'poor'} {query}" for _, query, place in rows],
        "position": places,
        "click": np.array(clicked, dtype=int),
        "bm25": np.array(places, dtype=float),
    }
    return unskew.ClickLog.from_table(pa.table(table))


@pytest.fixture(scope="module")
def model(log):
    return unskew.fit("naive", log, steps=30, progress=False)


def test_the_gain_of_a_query_is_the_change_of_its_discounted_clicks(log, model):
    told = unskew.look(model, log)
    table, documents = told.to_table().to_pydict(), told.documents.to_pandas()
    shoe = documents[documents["query"] == table["query"].index("shoe")].set_index("document")
    assert shoe.loc["good shoe", ["before", "after"]].tolist() == [2, 1]
    assert shoe.loc["good shoe", ["raw", "impressions"]].tolist() == [1.0, SESSIONS]
    change = 1 / np.log2(2) - 1 / np.log2(3)  # of the good document, and less of it the poor one's
    gain = change * (shoe.loc["good shoe", "rate"] - shoe.loc["poor shoe", "rate"])
    assert table["gain"][table["query"].index("shoe")] == pytest.approx(gain)
    assert table["top_changed"] == [True] * 3


def test_a_page_of_few_queries_has_those_with_the_most_sessions_and_says_so(log, model):
    busy = log.weighted(np.where(log.queries == 1, 2.0, 1.0))
    told = unskew.look(model, busy, queries=1)
    assert told.to_table()["query"].to_pylist() == [str(busy.query_ids[1])]
    assert "The 1 queries of 3 with the most sessions." in told.notes


@pytest.mark.parametrize(
    ("place", "message"),
    [("page.txt", "the page is an .html file"), ("there.html", "there.html exists: choose another path")],
)
def test_a_page_is_an_html_file_that_is_not_there_yet(log, model, tmp_path, place, message):
    (tmp_path / "there.html").write_text("")
    with pytest.raises((ValueError, FileExistsError), match=message):
        unskew.look(model, log, tmp_path / place)


@pytest.mark.long
def test_a_browser_searches_filters_sorts_and_prints_and_runs_nothing_of_the_log(log, model, tmp_path, browser_tab):
    page = tmp_path / "look.html"
    unskew.look(model, log, page)
    with browser_tab(page) as tab:
        tab.wait_for_selector("html[data-ready]")
        names = lambda: [name.partition("\n")[0] for name in tab.locator("#list button").all_inner_texts()]  # noqa: E731
        assert sorted(names()) == sorted(QUERIES)
        assert tab.title() != "owned"
        assert tab.locator("main img, main script").count() == 0

        tab.keyboard.press("/")
        tab.keyboard.type("COAT")
        assert (names(), tab.inner_text("#query")) == (["hat & coat"], "hat & coat")
        tab.fill("#search", "")
        tab.keyboard.press("Escape")

        tab.select_option("#kind", "losers")
        assert (names(), tab.inner_text("#count")) == ([], "0 queries")
        tab.select_option("#kind", "winners")
        tab.select_option("#sort", "gain")
        assert names()[0] == "shoe"  # clicked in every session, the others in three of four
        tab.keyboard.press("Tab")
        tab.evaluate("document.activeElement.blur()")
        tab.keyboard.press("j")
        assert tab.inner_text("#query") == names()[1]
        assert tab.locator("#after tr").first.inner_text().startswith("1\t2 ▲\tgood ")
        assert "75% (60% to 86%) of 40" in tab.locator("#after tr").first.inner_text()  # Wilson's of 30 in 40

        paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        tab.emulate_media(color_scheme="dark")
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") != paper
        tab.emulate_media(media="print", color_scheme="light")
        assert not tab.is_visible("#list")
        assert tab.is_visible("#after")
        tab.emulate_media(media="screen")
        tab.set_viewport_size({"width": 390, "height": 844})
        assert tab.evaluate("document.documentElement.scrollWidth") == 390
