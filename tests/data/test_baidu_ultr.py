"""Baidu-ULTR and ULTRE-2: generated files of their layout are read, files that differ are told how."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import unskew
from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.catalogue import load_split
from unskew.data.public_logs.baidu_ultr import read_baidu_clicks, read_baidu_judged
from unskew.data.public_logs.result_pages import complete_pages, judged_pages, split_pages
from unskew.data.public_logs.ultre2 import read_features, read_pages, read_ultre2_clicks

# -- tables

CLICKS = {
    "query_id": ["7", "7", "8"],
    "query_length": [2, 2, 3],
    "text_md5": [["a", "b"], ["b", "a"], ["c", "a", "d"]],
    "position": [[1, 2], [1, 2], [1, 2, 3]],
    "click": [[0, 1], [1, 0], [0, 0, 1]],
    "media_type": [[3, 0], [0, 3], [1, 1, 1]],
    "bm25": [[1.5, 2.5], [2.5, 1.5], [0.5, 0.0, 1.0]],
    "tf": [[1.0, 2.0], [2.0, 1.0], [3.0, 4.0, 5.0]],
}
JUDGED = {
    "query_id": ["7", "9"],
    "url_md5": [["a", "b"], ["e"]],
    "label": [[4, 0], [2]],
    "bm25": [[1.5, 2.5], [3.5]],
}


def table_file(tmp_path, columns, kind="parquet"):
    path = tmp_path / f"part-0.{kind}"
    table = pa.table(columns)
    feather.write_feather(table, str(path)) if kind == "feather" else pq.write_table(table, path)
    return path


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_a_row_of_clicks_is_a_page(tmp_path, kind):
    pages = read_baidu_clicks(table_file(tmp_path, CLICKS, kind))
    assert pages["session"].to_pylist() == [0, 0, 1, 1, 2, 2, 2]
    assert pages["query"].to_pylist() == ["7"] * 4 + ["8"] * 3
    assert pages["document"].to_pylist() == ["a", "b", "b", "a", "c", "a", "d"]
    assert pages["position"].to_pylist() == [0, 1, 0, 1, 0, 1, 2]
    assert pages["click"].to_pylist() == [0, 1, 1, 0, 0, 0, 1]
    assert pages["media_type"].to_pylist() == ["3", "0", "0", "3", "1", "1", "1"]
    assert pages["bm25"].to_pylist() == [1.5, 2.5, 2.5, 1.5, 0.5, 0.0, 1.0]
    assert pages["query_length"].to_pylist() == [2, 2, 2, 2, 3, 3, 3]


def test_pages_become_a_log_with_the_kind_of_result_as_bias(tmp_path):
    pages = complete_pages(read_baidu_clicks(table_file(tmp_path, CLICKS)), n_positions=2)
    log = ClickLog.from_table(pages, bias=["media_type"])
    assert log.n_sessions == 2  # the third page was clicked below
    assert set(log.feature_names) == {"bm25", "tf", "query_length"}
    assert log.bias["media_type"].levels == ("0", "3")


def test_features_can_be_named(tmp_path):
    pages = read_baidu_clicks(table_file(tmp_path, {**CLICKS, "mine": CLICKS["tf"]}), features=["mine"])
    assert pages.column_names[-1] == "mine"
    assert "bm25" not in pages.column_names


def test_a_row_of_judgements_is_a_query(tmp_path):
    queries = read_baidu_judged(table_file(tmp_path, JUDGED))
    assert queries.query_ids.tolist() == ["7", "9"]
    assert queries.grades.tolist() == [4, 0, 2]
    assert queries.sizes.tolist() == [2, 1]
    assert queries.features.tolist() == [[1.5], [2.5], [3.5]]
    assert queries.document_ids.tolist() == ["a", "b", "e"]


def without(columns, *names):
    return {name: values for name, values in columns.items() if name not in names}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (without(CLICKS, "click"), "no column 'click' in the table. Found: query_id"),
        (without(CLICKS, "text_md5"), "no column 'text_md5'"),
        (without(CLICKS, "bm25", "tf", "query_length"), "none of the known features"),
        ({**CLICKS, "click": [[0, 1], [1], [0, 0, 1]]}, "column 'click', row 1: 1 values, but 'text_md5' has 2"),
        ({**CLICKS, "click": [[0, 1], [1, 0], [0, 2, 1]]}, "column 'click', row 2: 2 is not allowed"),
        ({**CLICKS, "position": [[0, 1], [1, 2], [1, 2, 3]]}, "column 'position', row 0: 0 is not allowed"),
        (
            {**CLICKS, "bm25": [[0.0, None], [1.0, 1.0], [1.0, 1.0, 1.0]]},
            "column 'bm25', row 0: a document has no value",
        ),
        ({**CLICKS, "query_id": ["7", None, "8"]}, "column 'query_id', row 1: missing value"),
        ({**CLICKS, "click": [0, 1, 0]}, "column 'click' holds int64, but must hold lists"),
        ({**CLICKS, "text_md5": ["a", "b", "c"]}, "column 'text_md5' holds string, but must hold lists"),
    ],
)
def test_a_table_that_differs_is_told_how(tmp_path, columns, message):
    path = table_file(tmp_path, columns)
    with pytest.raises(ValueError, match=message) as error:
        read_baidu_clicks(path)
    assert str(path) in str(error.value)


def test_grades_are_checked(tmp_path):
    with pytest.raises(ValueError, match="column 'label', row 1: 5 is not allowed; grades are 0 to 4"):
        read_baidu_judged(table_file(tmp_path, {**JUDGED, "label": [[4, 0], [5]]}))


def test_text_files_are_no_tables(tmp_path):
    path = tmp_path / "part-00000.gz"
    path.write_text("7\t12\x0134\t\n")
    with pytest.raises(ValueError, match=r"neither parquet nor feather.*hold no features"):
        read_baidu_clicks(path)
    with pytest.raises(FileNotFoundError, match="pass a parquet or feather file"):
        read_baidu_clicks(tmp_path / "nothing.parquet")


# -- ULTRE-2

FILES = {
    "lists": "7_1:a b c\n7_2:b a\n8_1:d a c\n",
    "clicks": "7_1:0 1 0\n7_2:1 0\n8_1:0 0 1\n",
    "grades": "7_1:4 0 1\n7_2:1 0\n8_1:0 0 3\n",
    "heuristic": "a 0:1.5 2:-2\nb 0:0.5 1:1\nc 1:3 \nd\n",
    "score": "a 10\nb 20\nc 30\nd 40\n",
    "policy": "a 0.3\nb 0.2\nc 0.1\nd 0.9\n",
}


def text_files(tmp_path, **changes):
    paths = {}
    for name, content in {**FILES, **changes}.items():
        paths[name] = tmp_path / name
        paths[name].write_text(content)
    return paths


def clicks_of(paths, **options):
    return read_ultre2_clicks(paths["lists"], paths["clicks"], [paths["heuristic"], paths["score"]], **options)


def test_a_line_of_lists_is_a_page(tmp_path):
    pages = clicks_of(text_files(tmp_path))
    assert pages["session"].to_pylist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert pages["query"].to_pylist() == ["7"] * 5 + ["8"] * 3
    assert pages["document"].to_pylist() == ["a", "b", "c", "b", "a", "d", "a", "c"]
    assert pages["position"].to_pylist() == [0, 1, 2, 0, 1, 0, 1, 2]
    assert pages["click"].to_pylist() == [0, 1, 0, 1, 0, 0, 0, 1]
    assert pages.column_names[5:] == ["heuristic:0", "heuristic:1", "heuristic:2", "score:0"]
    assert [pages[name][1].as_py() for name in pages.column_names[5:]] == [0.5, 1.0, 0.0, 20.0]


def test_scores_of_the_policy_come_along(tmp_path):
    paths = text_files(tmp_path)
    pages = clicks_of(paths, scores=paths["policy"])
    log = ClickLog.from_table(complete_pages(pages, n_positions=2), policy_score="policy_score")
    assert log.n_sessions == 2
    np.testing.assert_allclose(np.sort(log.policy_scores, axis=1), [[0.2, 0.3], [0.2, 0.3]])
    train, valid, test = split_pages(pages, (1 / 3, 1 / 3, 1 / 3))
    assert train.num_rows + valid.num_rows + test.num_rows == 8


def test_judged_lists_have_grades(tmp_path):
    paths = text_files(tmp_path)
    known = read_features([paths["heuristic"]])
    queries = judged_pages(read_pages(paths["lists"], paths["grades"], known, "grade", largest=4), known, "ultre-2")
    assert queries.grades.tolist() == [4, 0, 1, 1, 0, 0, 0, 3]
    assert queries.query_ids.tolist() == ["7", "7", "8"]
    assert queries.features[0].tolist() == [1.5, 0.0, -2.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clicks": "7_1:0 1 0\n7_2:1 0\n"}, "has 3 lists, .*clicks has 2 lines"),
        ({"clicks": "7_1:0 1 0\n8_1:1 0\n7_2:0 0 1\n"}, "clicks, line 2: session '8_1', but .*lists, line 2 has '7_2'"),
        ({"clicks": "7_1:0 1\n7_2:1 0\n8_1:0 0 1\n"}, "clicks, line 1: 2 clicks, but .* lists 3 documents"),
        ({"clicks": "7_1:0 1 0\n7_2:1 0\n8_1:0 7 1\n"}, "clicks, line 3: a click must be one of 0, 1, found '7'"),
        ({"lists": "7_1 a b c\n7_2:b a\n8_1:d a c\n"}, "lists, line 1: expected 'session:value value ...'"),
        ({"lists": "7_1:a b x\n7_2:b a\n8_1:d a c\n"}, "lists, line 1: document 'x' has no features"),
        ({"heuristic": "a 0:1\na 0:2\n"}, "heuristic, line 2: document 'a' already has features"),
        ({"heuristic": "a 0:1 x:2\n"}, "heuristic, line 1: expected index:value with an index from 0, found 'x:2'"),
        ({"heuristic": "a 0:1 1:much\n"}, "heuristic, line 1: feature 1 must be a number, found 'much'"),
        ({"score": "a 10\nb 20\nc 30\n"}, "document 'd' is in only one of"),
        ({"score": "a nan\n"}, "score, line 1: the feature must be a number, found 'nan'"),
        ({"score": "\n"}, "this file has no documents"),
        ({"lists": "", "clicks": ""}, "this file has no lists"),
    ],
)
def test_text_that_differs_is_told_where(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        clicks_of(text_files(tmp_path, **changes))


def test_scores_of_several_features_are_refused(tmp_path):
    paths = text_files(tmp_path)
    with pytest.raises(ValueError, match="expected one score per document, found 3"):
        clicks_of(paths, scores=paths["heuristic"])


def test_without_feature_files_there_is_nothing_to_rank_by():
    with pytest.raises(ValueError, match="pass at least one feature file"):
        read_features([])


# -- by form


def test_clicks_of_a_public_form_are_ingested_and_judged_queries_go_by_name(tmp_path):
    place = table_file(tmp_path, CLICKS)
    made = unskew.ingest(place, form="baidu-ultr", progress=False)
    assert made.log.n_sessions == 3
    assert list(made.log.bias) == ["media_type"]
    (tmp_path / "judged").mkdir()
    judged = table_file(tmp_path / "judged", JUDGED)
    assert load_split(f"baidu-ultr:{judged}", "test").grades.tolist() == [4.0, 0.0, 2.0]
    with pytest.raises(ValueError, match="has no path: write baidu-ultr:PATH"):
        load_split("baidu-ultr", "test")


def test_a_folder_that_lacks_a_file_of_its_form_says_which(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no file 'features'"):
        unskew.ingest(tmp_path, form="tiangong-st", progress=False)
