"""Ranking of parquet files: whole queries, original ids, bounded parts, and what is refused."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import torch
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

import unskew
from unskew.cli import app
from unskew.serving import candidates as candidates_module
from unskew.serving.candidates import Candidates, is_table, open_candidates
from unskew.serving.exports import export_model
from unskew.serving.rankings import rank_table
from unskew.serving.saved_ranker import SavedRanker, open_ranker

SUM = SavedRanker(lambda features, mask: features.sum(-1), "sum", 2, ("price", "age"))
TABLE = pa.table(
    {
        "document": [7, 3, 9, 7, 5],
        "query": ["hats", "hats", "hats", "boots", "boots"],
        "age": [0.0, 0.5, 0.0, 1.0, 2.0],
        "price": pa.array([1, 2, 3, 10, 1], pa.int16()),
        "title": ["a", "b", "c", "d", "e"],
    }
)
RANKED = {
    "query": ["hats", "hats", "hats", "boots", "boots"],
    "document": [9, 3, 7, 7, 5],
    "score": [3.0, 2.5, 1.0, 11.0, 3.0],
    "rank": [1, 2, 3, 1, 2],
}


def changed(name, values):
    """The table with other values in one column."""
    return TABLE.set_column(TABLE.column_names.index(name), name, pa.array(values))


def written(table, path, rows_a_group=None):
    pq.write_table(table, path, row_group_size=rows_a_group)
    return path


def rank(table, folder, **options):
    done = rank_table(SUM, written(table, folder / "candidates.parquet"), folder / "ranking.parquet", **options)
    return done, pq.read_table(folder / "ranking.parquet")


def refusal(table, folder, **options):
    with pytest.raises(ValueError, match=r".") as caught:
        rank(table, folder, **options)
    assert sorted(path.name for path in folder.iterdir()) == ["candidates.parquet"], "nothing is left behind"
    return str(caught.value)


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(candidates_module, "CELLS_AT_ONCE", 4)  # 2 rows of 2 features


def test_columns_are_found_by_name_and_ids_stay_as_they_are(tmp_path):
    done, ranking = rank(TABLE, tmp_path)
    assert ranking.to_pydict() == RANKED
    assert ranking.schema.field("document").type == pa.int64()
    assert (done.n_documents, done.n_queries) == (5, 2)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("rows_a_group", [1, 2, 5])
def test_queries_stay_whole_across_row_groups_files_and_parts(tmp_path, small_parts, rows_a_group):
    folder = tmp_path / "candidates"
    folder.mkdir()
    written(TABLE.slice(0, 2), folder / "part-0.parquet", rows_a_group)
    written(TABLE.slice(2), folder / "part-1.parquet", rows_a_group)
    rank_table(SUM, folder, tmp_path / "ranking.parquet")
    assert pq.read_table(tmp_path / "ranking.parquet").to_pydict() == RANKED


def test_a_part_is_no_larger_than_its_rows_and_the_query_it_ends_in(tmp_path):
    queries = np.repeat(np.arange(40), 5)
    table = pa.table({"query": queries, "document": np.arange(200), "price": np.ones(200), "age": np.ones(200)})
    candidates = Candidates(
        (str(written(table, tmp_path / "c.parquet")),), "query", "document", ("price", "age"), ("price", "age")
    )
    sizes = [len(part.features) for part in candidates.parts(rows_at_once=12)]
    assert sum(sizes) == 200
    assert max(sizes) <= 12 + 5
    assert len(sizes) > 10


def test_csv_and_trec_grow_part_by_part_too(tmp_path, small_parts):
    path = written(TABLE, tmp_path / "candidates.parquet")
    rank_table(SUM, path, tmp_path / "ranking.csv")
    assert pa_csv.read_csv(tmp_path / "ranking.csv").to_pydict() == RANKED
    rank_table(SUM, path, tmp_path / "ranking.trec")
    lines = (tmp_path / "ranking.trec").read_text().splitlines()
    assert lines[0] == "hats Q0 9 1 3.0 sum"
    assert len(lines) == 5


def test_a_trec_run_cannot_hold_ids_with_spaces(tmp_path):
    table = TABLE.set_column(1, "query", pa.array(["red hats"] * 3 + ["boots"] * 2))
    path = written(table, tmp_path / "candidates.parquet")
    with pytest.raises(ValueError, match=r"query 'red hats' contains a space .* write \.parquet or \.csv"):
        rank_table(SUM, path, tmp_path / "ranking.trec")
    assert not list(tmp_path.glob("*ranking*"))


def test_progress_counts_documents(tmp_path, small_parts):
    seen = []
    rank(TABLE, tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (5, 5)
    assert len(seen) > 1


def test_a_query_in_two_places_is_refused_or_sorted(tmp_path):
    mixed = TABLE.take([0, 3, 1, 4, 2])
    said = refusal(mixed, tmp_path)
    path = tmp_path / "candidates.parquet"
    assert f"the rows of query hats are not adjacent, at {path}, row 0 and again at {path}, row 2" in said
    assert "--sort" in said
    _, ranking = rank(mixed, tmp_path, sort=True)
    expected = pa.table(RANKED)
    assert ranking.to_pydict() == expected.take([3, 4, 0, 1, 2]).to_pydict()  # boots, then hats


INFINITE = changed("age", [0.0, 0.5, 0.0, np.inf, 2.0])
REFUSED = {
    "ids in lists": (changed("document", [[7], [3], [9], [7], [5]]), {}, "column 'document' holds list<"),
    "a size": (TABLE, {"memory": "lots"}, "memory 'lots' is not a valid size: write at least 100MB"),
    "a feature": (TABLE.drop_columns("age"), {}, "1 of the 2 features .* are missing: age. Found: document"),
    "an id": (TABLE, {"query": "qid"}, "no column 'qid': pass the query column with --query"),
    "text": (changed("age", ["old"] * 5), {}, "column 'age' holds string, but the model was trained on numbers"),
    "infinite": (INFINITE, {}, r"candidates\.parquet, row 3 \(query boots, document 7\): column 'age' is inf"),
    "in a copy": (INFINITE, {"sort": True}, "^query boots, document 7: column 'age' is inf"),  # its rows mean nothing
    "twice": (changed("document", [7, 3, 7, 7, 5]), {}, r"row 2 \(query hats, document 7\): the query already has"),
    "no id": (changed("document", [7, 3, None, 7, 5]), {}, r"row 2 \(.*document None\): column 'document' is empty"),
    "no rows": (TABLE.slice(0, 0), {}, "has no rows"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_ranked_is_named_by_row_and_column_and_leaves_nothing(case, tmp_path, small_parts):
    table, options, words = REFUSED[case]
    assert re.search(words, refusal(table, tmp_path, **options))


def test_a_table_of_another_kind_is_told_from_judged_data(tmp_path):
    place = tmp_path / "candidates.csv"
    place.write_text("query,document,price,age\nhats,7,1,0\n")
    assert is_table(str(place))
    with pytest.raises(ValueError, match=r"candidates\.csv is csv, but candidates must be parquet"):
        open_candidates(place, SUM)


def test_a_query_in_two_files_is_refused_by_name(tmp_path):
    folder = tmp_path / "candidates"
    folder.mkdir()
    for number, rows in enumerate([[0, 1, 3], [2, 4]]):
        written(TABLE.take(rows), folder / f"{number}.parquet")
    with pytest.raises(ValueError, match=r"hats .* at .*0\.parquet, row 0 and again at .*1\.parquet, row 0"):
        rank_table(SUM, folder, tmp_path / "ranking.parquet")


def test_equal_scores_keep_the_order_of_the_file_also_when_sorted(tmp_path):
    tied = TABLE.set_column(2, "age", pa.array([0.0] * 5)).set_column(3, "price", pa.array([1.0] * 5))
    _, ranking = rank(tied.take([0, 3, 1, 4, 2]), tmp_path, sort=True)
    assert ranking["document"].to_pylist() == [7, 5, 7, 3, 9]


def fill_with_5(features, _):
    return features.nan_to_num(5.0).sum(-1)


@pytest.mark.parametrize("value", [None, float("nan")])
def test_missing_values_reach_the_ranker_and_are_counted_where_training_had_none(tmp_path, value):
    holed = TABLE.set_column(2, "age", pa.array([value, 0.5, value, 1.0, 2.0], pa.float64()))
    path = written(holed, tmp_path / "c.parquet")
    known = SavedRanker(fill_with_5, "f", 2, ("price", "age"), missing_in_training=(1,))
    assert rank_table(known, path, tmp_path / "r.parquet", strict=True).filled == {}
    assert pq.read_table(tmp_path / "r.parquet")["document"].to_pylist()[0] == 9  # a price of 3, and 5
    new = SavedRanker(fill_with_5, "f", 2, ("price", "age"), missing_in_training=())
    assert rank_table(new, path, tmp_path / "r.parquet").filled == {"age": 2}
    with pytest.raises(ValueError, match="column 'age' has missing values, but had none in training"):
        rank_table(new, path, tmp_path / "r.parquet", strict=True)


def test_categories_are_ranked_as_they_are(tmp_path):
    table = TABLE.set_column(2, "age", pa.array(["old", "new", None, "old", "unheard of"]).dictionary_encode())
    ranker = SavedRanker(fill_with_5, "f", 2, ("price", "age"), {"age": ("new", "old")})
    parts = open_candidates(written(table, tmp_path / "c.parquet"), ranker).parts()
    assert_array_equal(np.concatenate([part.features[:, 1] for part in parts]), [1, 0, np.nan, 1, -1])


def test_scores_that_are_not_finite_are_refused_by_document(tmp_path):
    broken = SavedRanker(lambda features, _: features[..., 0].log(), "log", 2, ("price", "age"))
    minus = changed("price", [1.0, 1.0, 1.0, -1.0, 1.0])
    with pytest.raises(ValueError, match="is nan: scores must be finite"):
        rank_table(broken, written(minus, tmp_path / "c.parquet"), tmp_path / "r.parquet")


def test_a_truncated_file_is_refused(tmp_path):
    path = written(TABLE, tmp_path / "candidates.parquet")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"candidates\.parquet cannot be read as parquet .* truncated or damaged"):
        rank_table(SUM, path, tmp_path / "ranking.parquet")


def test_a_damaged_page_is_refused_by_file_and_leaves_nothing(tmp_path):
    table = pa.table({"query": np.repeat(np.arange(50), 40), "document": np.arange(2000)})
    noise = np.random.default_rng(0).standard_normal((2, 2000))
    path = tmp_path / "candidates.parquet"
    pq.write_table(table.append_column("price", pa.array(noise[0])).append_column("age", pa.array(noise[1])), path)
    column = pq.read_metadata(path).row_group(0).column(2)
    content = bytearray(path.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    content[start : start + 200] = b"\xff" * 200
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"candidates\.parquet cannot be read .* damaged"):
        rank_table(SUM, path, tmp_path / "ranking.parquet")
    assert [entry.name for entry in tmp_path.iterdir()] == ["candidates.parquet"]


def test_a_model_without_feature_names_takes_all_numbers_in_order(tmp_path):
    nameless = SavedRanker(lambda features, _: features[..., 1], "second", 2)
    path = written(TABLE, tmp_path / "candidates.parquet")
    assert open_candidates(path, nameless).features == ("age", "price")
    wider = SavedRanker(nameless.score, "wider", 3)
    with pytest.raises(ValueError, match=r"has 2 numeric columns besides the ids, .* 3 features without names"):
        open_candidates(path, wider)


def test_a_click_log_is_no_table_of_candidates(log, tmp_path):
    unskew.write_log(log, tmp_path / "log")
    with pytest.raises(ValueError, match="is a click log: rank a table of candidates"):
        open_candidates(tmp_path / "log", SUM)


def test_torch_and_onnxruntime_rank_a_file_alike(tmp_path):
    rng = np.random.default_rng(0)
    ids = {"query": np.repeat([f"q{number}" for number in range(12)], 5), "document": [f"d{n}" for n in range(60)]}
    features = {name: rng.random(60) for name in ("bm25", "age", "stock")}
    shown = {"session": ids["query"], "position": np.tile(np.arange(5), 12), "click": rng.integers(0, 2, 60)}
    log = unskew.ClickLog.from_table(pa.table(ids | shown | features))
    model = unskew.fit(unskew.Recipe.of("naive", steps=3, hidden=(4,)), log)
    assert model.feature_names == ("bm25", "age", "stock")
    unskew.save_model(model, tmp_path / "model")
    export_model(model, tmp_path / "model.onnx")
    shuffled = pa.table(ids | {name: features[name] for name in ("stock", "bm25", "age")})
    written(shuffled, tmp_path / "candidates.parquet")
    for name in ("model", "model.onnx"):
        arguments = ["rank", str(tmp_path / name), str(tmp_path / "candidates.parquet"), "--json"]
        done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / f"{name}.parquet")], catch_exceptions=False)
        assert json.loads(done.output)["documents"] == 60
    one, other = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("model", "model.onnx"))
    np.testing.assert_allclose(one["score"].to_numpy(), other["score"].to_numpy(), atol=1e-5)
    assert one["query"].equals(other["query"])
    best = one["document"][0].as_py()
    matrix = torch.tensor([[features[name][int(best[1:])] for name in model.feature_names]]).float()
    alone = open_ranker(tmp_path / "model").score(matrix[None], torch.ones(1, 1, dtype=torch.bool)).detach()
    assert float(alone) == pytest.approx(one["score"][0].as_py(), abs=1e-5)


COLOURS = SavedRanker(
    lambda features, mask: features[..., 0].nan_to_num(9), "colour", 1, ("colour",), {"colour": ("blue", "red")}
)


def test_columns_that_the_model_does_not_know_are_named(tmp_path):
    done, _ = rank(TABLE, tmp_path)
    assert done.ignored == ("title",)
    said = repr(unskew.rank(SUM, TABLE, progress=False))
    assert "Ignored, because the model does not use them: column 'title'" in said
    assert not rank_table(SUM, written(TABLE.drop("title"), tmp_path / "few.parquet"), tmp_path / "r.csv").ignored


def test_values_of_a_category_that_training_never_saw_are_counted_by_column():
    table = pa.table({"query": [1] * 4, "document": range(4), "colour": ["red", "green", "pink", None]})
    found = unskew.rank(COLOURS, table, progress=False)
    assert found.unseen == {"colour": 2}
    assert "'colour' has 2 values that training never saw" in repr(found)
    assert found.to_table()["score"].to_pylist() == [9, 1, -1, -1]


@pytest.mark.parametrize(
    ("colour", "message"),
    [
        (pa.array([1, 2]), "holds int64, but the model was trained on text \\('blue', 'red'\\)"),
        (pa.array([1.5, 2]), "holds double"),
        (pa.array([True, False]), "holds bool"),
        (pa.array([0, 1], pa.timestamp("us")), "holds timestamp"),
    ],
)
def test_a_category_of_another_type_is_refused_by_name(colour, message, tmp_path):
    table = pa.table({"query": [1, 1], "document": [1, 2], "colour": colour})
    with pytest.raises(ValueError, match=f"column 'colour' {message}"):
        open_candidates(written(table, tmp_path / "c.parquet"), COLOURS)


def test_numbers_match_a_category_whose_values_were_numbers():
    sizes = SavedRanker(lambda features, mask: features[..., 0], "size", 1, ("size",), {"size": ("38", "40")})
    table = pa.table({"query": [1, 1], "document": [1, 2], "size": [40, 38]})
    assert unskew.rank(sizes, table, progress=False).to_table()["score"].to_pylist() == [1, 0]


def test_an_empty_column_is_missing():
    empty = TABLE.set_column(2, "age", pa.nulls(5))
    known = SavedRanker(lambda f, m: f.nan_to_num().sum(-1), "sum", 2, ("price", "age"), missing_in_training=())
    found = unskew.rank(known, empty, progress=False)
    assert found.filled == {"age": 5}
    assert "'age' has 5 missing values, which were filled: it had none in training" in repr(found)


def test_the_types_of_every_file_are_looked_at(tmp_path):
    written(TABLE.slice(0, 3), tmp_path / "0.parquet")
    written(TABLE.slice(3).set_column(2, "age", pa.array(["1", "2"])), tmp_path / "1.parquet")
    with pytest.raises(ValueError, match=r"1\.parquet: column 'age' holds string"):
        open_candidates(tmp_path, SUM)
