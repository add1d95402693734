"""TianGong-ST: a generated file of its layout is read, files that differ are told how."""

import gzip

import pytest

from unskew.data.clicks.click_log import ClickLog
from unskew.data.public_logs.result_pages import click_table, complete_pages, judged_pages
from unskew.data.public_logs.tiangong_st import read_tiangong_clicks, read_tiangong_features, read_tiangong_judged


def page(number, query, documents, clicked=()):
    results = "".join(
        f'<result rank="{rank}"><url>http://x</url><docid>{name}</docid><vtype>30{rank}</vtype></result>'
        for rank, name in enumerate(documents, start=1)
    )
    clicks = "".join(f'<click num="1"><rank>{rank}</rank><docid>d</docid></click>' for rank in clicked)
    shown = f"<query>text</query><query_id>{query}</query_id><results>{results}</results>"
    return f'<interaction num="{number}">{shown}{f"<clicked>{clicks}</clicked>" if clicked else ""}</interaction>'


def sessions_file(*sessions):
    inside = "".join(f'<session num="{number}">{pages}</session>' for number, pages in enumerate(sessions, start=1))
    return f'<?xml version="1.0" encoding="utf-8"?><sessions>{inside}</sessions>'


SESSIONS = sessions_file(
    page(1, "q1", ["d1", "d2"], clicked=[2]) + page(2, "q2", ["d3"], clicked=[1, 10]),
    page(1, "q1", ["d2", "d1"]) + page(2, "q1", ["d1", "d2"], clicked=[1, 2]),
)
FEATURES = "query\tdocument\tbm25\tage\nq1\td1\t1.5\t10\nq1\td2\t2.5\t20\nq2\td3\t3.5\t30\n"
LABELS = "1\t2 q1\td1\t4\n1\t2 q1\td2\t0\n2\t1 q2\td3\t3\n"


def written(tmp_path, name, content, *, packed=False):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    return path


def features(tmp_path, content=FEATURES):
    return read_tiangong_features(written(tmp_path, "features.tsv", content))


def pages_of(tmp_path, content=SESSIONS, **options):
    known = features(tmp_path)
    return click_table(read_tiangong_clicks(written(tmp_path, "sessions.xml", content, **options), known), known)


@pytest.mark.parametrize("packed", [False, True])
def test_an_interaction_is_a_page(tmp_path, packed):
    pages = pages_of(tmp_path, packed=packed)
    assert pages["session"].to_pylist() == [0, 0, 1, 2, 2, 3, 3]
    assert pages["query"].to_pylist() == ["q1", "q1", "q2", "q1", "q1", "q1", "q1"]
    assert pages["document"].to_pylist() == ["d1", "d2", "d3", "d2", "d1", "d1", "d2"]
    assert pages["position"].to_pylist() == [0, 1, 0, 0, 1, 0, 1]
    assert pages["click"].to_pylist() == [0, 1, 1, 0, 0, 1, 1]  # the click on a rank that is not shown is ignored
    assert pages["vtype"].to_pylist() == ["301", "302", "301", "301", "302", "301", "302"]
    assert pages["age"].to_pylist() == [10, 20, 30, 20, 10, 10, 20]


def test_complete_pages_become_a_log(tmp_path):
    log = ClickLog.from_table(complete_pages(pages_of(tmp_path), n_positions=2), bias=["vtype"])
    assert (log.n_sessions, log.n_clicks, log.feature_names) == (2, 3, ("bm25", "age"))


def test_judged_samples_are_queries_of_sessions(tmp_path):
    known = features(tmp_path)
    judged = judged_pages(read_tiangong_judged(written(tmp_path, "labels.txt", LABELS), known), known, "tiangong-st")
    assert judged.query_ids.tolist() == ["q1/2", "q2/1"]
    assert judged.grades.tolist() == [4, 0, 3]
    assert judged.features.tolist() == [[1.5, 10], [2.5, 20], [3.5, 30]]
    assert judged.document_ids.tolist() == ["d1", "d2", "d3"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (SESSIONS[:-20], "sessions.xml is not XML: .*line 1, column"),
        (SESSIONS.replace("utf-8", "tf-8"), "sessions.xml is not XML: unknown encoding"),
        (SESSIONS.replace("<query_id>q2</query_id>", ""), "session 1, interaction 2: <interaction> has no <query_id>"),
        (SESSIONS.replace("<docid>d3</docid>", ""), "session 1, interaction 2: <result> has no <docid>"),
        (SESSIONS.replace('rank="2"', 'rank="two"', 1), "session 1, interaction 1: the attribute rank .* found 'two'"),
        (
            SESSIONS.replace("<docid>d3</docid>", "<docid>d9</docid>"),
            "document 'd9' of query 'q2' has no features",
        ),
        (sessions_file(""), "no <interaction> with a <result>"),
    ],
)
def test_sessions_that_differ_are_told_where(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        pages_of(tmp_path, content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: the first line must be 'query', 'document'"),
        ("query\tdocument\n", "line 1: the first line must be 'query', 'document' and feature names"),
        ("qid\tdocument\tbm25\n", "line 1: the first line must be"),
        ("query\tdocument\tbm25\nq1\td1\n", "line 2: 2 fields, but the first line names 3 columns"),
        ("query\tdocument\tbm25\nq1\td1\tx\n", "line 2: 'bm25' must be a number, found 'x'"),
        ("query\tdocument\tbm25\nq1\td1\t1\nq1\td1\t1\n", "line 3: document 'd1' of query 'q1' already has features"),
    ],
)
def test_features_that_differ_are_told_where(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        features(tmp_path, content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 2 q1 d1\n", "line 1: expected 5 fields, sample, session, query, document, grade; found 4"),
        ("1 2 q1 d1 5\n", "line 1: grades must be whole numbers from 0 to 4, found '5'"),
        ("1 2 q1 d1 good\n", "line 1: the grade must be a number, found 'good'"),
        ("1 2 q1 d1 4\n1 2 q2 d3 4\n", "line 2: sample '1' has another session or query"),
        ("1 2 q1 d9 4\n", "line 1: document 'd9' of query 'q1' has no features"),
        ("\n", "this file has no judgements"),
    ],
)
def test_labels_that_differ_are_told_where(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_tiangong_judged(written(tmp_path, "labels.txt", content), features(tmp_path))
