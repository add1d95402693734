"""Public logs of ids: what the readers make of small files, and of the real ones where they are."""

import os

import numpy as np
import pytest

from unskew import read_log
from unskew.data.judged.catalogue import MissingDataError
from unskew.data.public_logs.id_pages import read_pages

CLARA = "\n".join(
    [
        "7\t0\tQ\t5\t0.0\t11\t12",
        "7\t1\tC\t12\t\t",
        "7\t2\tQ\t6\t0.0\t12\t13",
        "7\t3\tC\t12",
        "7\t3\tC\t12",
        "7\t4\tC\t99",
        "8\t5\tC\t11",
    ]
)
MOUSE_STILL = "0 0"


def write(folder, **files):
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_a_click_belongs_to_the_latest_page_that_shows_its_document(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path))
    write(tmp_path / "naver-clara2", CLARA2SearchLog_beta=CLARA)
    pages = read_pages("naver-clara2")
    assert pages.clicks.tolist() == [[0, 1], [1, 0]]  # 12 once on the first page, then on the second, there once
    assert pages.left_out == {"clicks outside the pages of their session": 2}
    assert pages.grades is None


def test_grades_of_clara_are_found_by_query_and_document(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path))
    labels = "query\turl\trelevance\n5\t11\t3\n6\t11\t1\n6\t13\t2"
    write(tmp_path / "naver-clara2", CLARA2SearchLog_beta=CLARA, labels_by_log_query__tsv=labels)
    pages = read_pages("naver-clara2")
    np.testing.assert_array_equal(pages.grades, [[3, np.nan], [np.nan, 2]])
    judged = pages.judged()
    found = (judged.query_ids, judged.document_ids, judged.grades)
    assert [each.tolist() for each in found] == [[5, 6], [11, 13], [3, 2]]


def test_pages_without_mouse_movements_say_nothing_of_hovers(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path))
    still = "\t".join(["1", "4 5", "1 0", "3 -1", *[MOUSE_STILL] * 6])
    moved = "\t".join(["2", "4 6", "0 0", "-1 -1", *[MOUSE_STILL] * 4, "0 8", MOUSE_STILL])
    write(tmp_path / "sogou-mouse", train_data=still, test_data=moved)
    pages = read_pages("sogou-mouse")
    np.testing.assert_array_equal(pages.hovered, [[np.nan, np.nan], [0, 1]])


def test_a_log_of_ids_has_no_features_and_knows_what_was_clicked_together(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path))
    write(tmp_path / "naver-clara2", CLARA2SearchLog_beta=CLARA)
    log = read_log("naver-clara2")
    assert (log.n_features, log.n_lists, log.n_sessions, log.n_clicks, log.joint) == (0, 2, 2, 2, True)
    assert len(log.features) == 4  # 12 answers two queries: two documents


def test_a_public_log_that_is_not_there_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path))
    with pytest.raises(MissingDataError, match=r"naver-clara2.*CLARA2SearchLog_beta.*UNSKEW_DATA"):
        read_log("naver-clara2")
    with pytest.raises(ValueError, match="no split 'tset'; choose one of train, valid, test"):
        read_pages("sogou-mouse@tset")


@pytest.mark.parametrize(
    ("name", "pages", "pairs", "clicks", "splits"),
    [
        ("trec-session-2014", 3_596, 27_964, 1_610, [2_872, 361, 363]),
        ("naver-clara2", 31_564, 41_073, 9_327, [25_296, 3_146, 3_122]),
        ("sogou-mouse", 8_809, 36_090, 9_495, [7_047, 881, 881]),
    ],
)
def test_the_real_logs_have_the_counts_of_their_publishers(name, pages, pairs, clicks, splits):
    if not os.environ.get("UNSKEW_DATA"):
        pytest.skip("UNSKEW_DATA names no folder with the real logs")
    try:
        found = read_pages(name)
    except MissingDataError as error:
        pytest.skip(str(error))
    shown = np.stack([np.repeat(found.query_ids, 10), found.document_ids.reshape(-1)], axis=1)
    assert (found.n_pages, len(np.unique(shown, axis=0)), found.clicks.sum()) == (pages, pairs, clicks)
    assert np.bincount(found.split).tolist() == splits
