"""Result pages of the TREC Session track."""

import gzip
import os
from pathlib import Path

import pytest

from unskew.data.public_logs.id_pages import read_trec_sessions

DATA = Path(os.environ.get("UNSKEW_DATA") or "no-such-folder") / "trec-session-2014"


def test_a_line_is_a_page(tmp_path):
    path = tmp_path / "pages.txt"
    path.write_text("7\t70\t[5, 6, 9]\t[1, 2, 1]\t[0, 1, 0]\n7\t71\t[6, 5, 8]\t[1, 1, 1]\t[0, 0, 0]\n")
    pages = read_trec_sessions(path)
    assert {name: values.tolist() for name, values in pages.items()} == {
        "session": [7, 7],
        "query": [70, 71],
        "documents": [[5, 6, 9], [6, 5, 8]],
        "verticals": [[1, 2, 1], [1, 1, 1]],
        "clicks": [[0, 1, 0], [0, 0, 0]],
    }


def test_judged_pages_have_grades(tmp_path):
    path = tmp_path / "judged.txt.gz"
    path.write_bytes(gzip.compress(b"7\t70\t[5, 6]\t[1, 2]\t[0, 1]\t[-2, 4]\r\n"))
    assert read_trec_sessions(path)["grades"].tolist() == [[-2, 4]]


GOOD = "7\t70\t[5, 6]\t[1, 2]\t[0, 1]"


@pytest.mark.parametrize(
    ("line", "message"),
    {
        "7\t70\t[5, 6]": "expected 5 or 6 tab-separated fields",
        "x\t70\t[5, 6]\t[1, 2]\t[0, 1]": "session must be a whole number, found 'x'",
        "7\t70\t[5, a]\t[1, 2]\t[0, 1]": "documents must be a list of whole numbers in brackets, found",
        "7\t70\t[5, 6]\t[1, 2]\t[0, 3]": "clicks must be 0 or 1",
        "7\t70\t[5, 6]\t[1]\t[0, 1]": "other fields or positions than on the first page",
        GOOD + "\t[0, 0]": "other fields or positions than on the first page",
    }.items(),
)
def test_a_bad_line_is_named(tmp_path, line, message):
    path = tmp_path / "pages.txt"
    path.write_text(f"{GOOD}\n{line}\n")
    with pytest.raises(ValueError, match="line 2: ") as error:
        read_trec_sessions(path)
    assert message in str(error.value)


def test_a_file_without_pages_is_refused(tmp_path):
    path = tmp_path / "pages.txt"
    path.write_text("\n")
    with pytest.raises(ValueError, match="no page"):
        read_trec_sessions(path)


@pytest.mark.parametrize(("name", "n_pages"), {"train": 2_872, "valid": 361, "test": 363, "judged": 856}.items())
def test_real_files_have_the_counts_of_their_publisher(name, n_pages):
    path = DATA / f"{name}.txt.gz"
    if not path.exists():
        pytest.skip(f"trec-session-2014/{name}.txt.gz is not in UNSKEW_DATA")
    pages = read_trec_sessions(path)
    assert pages["documents"].shape == pages["verticals"].shape == pages["clicks"].shape == (n_pages, 10)
    assert pages["clicks"].sum() > 0
    if name == "judged":
        assert (pages["grades"].min(), pages["grades"].max()) == (-2, 4)
