"""`unskew diagnose`, as a person types it."""

import json

import pytest

from unskew.data.clicks.storage import write_log


@pytest.fixture(scope="module")
def clicks(log, tmp_path_factory):
    return write_log(log, tmp_path_factory.mktemp("diagnose") / "clicks")


def test_the_verdict_stands_last_and_the_report_is_written(run, clicks, tmp_path):
    out = run("diagnose", clicks, "--quick", "--out", tmp_path / "report.html")
    headings = [
        out.index(text) for text in ("what the log says", "Positions (from 1)", "Methods", "Worth training: naive")
    ]
    assert headings == sorted(headings)
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_json_holds_everything(run, clicks, tmp_path):
    data = json.loads(run("diagnose", clicks, "--quick", "--json", "--out", tmp_path / "report.html"))
    assert data["connectivity"]["groups"] == [[str(position) for position in range(10)]]
    assert data["bounds"] == {"refused": "skipped by --quick"}
    assert data["verdict"]


def test_what_cannot_be_done_is_refused_in_a_line(run, clicks, tmp_path):
    assert "--users" in run("diagnose", clicks, "--cap", 5, "--out", tmp_path / "r.html", code=2)
    assert "is not a folder" in run("diagnose", clicks, "--out", clicks / "log.json" / "r.html", code=2)
    assert "no bias column 'who' with users. Found: none" in " ".join(
        run("diagnose", clicks, "--users", "who", "--out", tmp_path / "r.html", code=2).split()
    )
    assert "is a folder: pass a file" in run("diagnose", clicks, "--out", tmp_path, code=2)
    run("diagnose", tmp_path / "nothing", "--out", tmp_path / "r.html", code=2)
