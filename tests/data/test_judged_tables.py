"""Judged data from tables: features alongside the grades or joined, numbers, truths and text, missing values."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from unskew.data.judged.catalogue import load_split
from unskew.data.judged.tables import read_judged_table

ROWS = {
    "query": ["hats", "shoes", "hats"],
    "product_id": ["a", "a", "b"],
    "rating": [2, 1, 0],
    "price": [10.0, 20.0, None],
    "in_stock": [True, False, True],
    "brand": ["Cira", None, "Alto"],
}


def check(judged):
    """Queries in the order of their ids: hats with a and b, then shoes."""
    assert judged.query_ids.tolist() == ["hats", "shoes"]
    assert judged.document_ids.tolist() == ["a", "b", "a"]
    assert judged.grades.tolist() == [2, 0, 1]
    assert judged.feature_names == ("price", "in_stock", "brand")
    assert judged.categories == {"brand": ("Alto", "Cira")}
    np.testing.assert_array_equal(judged.features, [[10, 1, 1], [np.nan, 1, 0], [20, 0, np.nan]])


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_table_goes_where_a_letor_file_goes(tmp_path, ending):
    place = tmp_path / f"judged.{ending}"
    (pq.write_table if ending == "parquet" else pyarrow.csv.write_csv)(pa.table(ROWS), place)
    check(load_split(str(place), "test"))


def test_features_may_stand_in_a_second_table(tmp_path):
    table = pa.table(ROWS)
    pyarrow.csv.write_csv(table.select(["query", "product_id", "rating"]), tmp_path / "judged.csv")
    others = pa.table({"query": ["socks"], "product_id": ["c"], "price": [1.0], "in_stock": [True], "brand": ["Dorn"]})
    features = pa.concat_tables([table.drop_columns(["rating"]), others])
    pq.write_table(features, tmp_path / "features.parquet")
    judged = load_split(f"{tmp_path}/judged.csv+{tmp_path}/features.parquet", "test")
    check(judged.with_features(judged.feature_names, {"brand": ("Alto", "Cira")}))
    pq.write_table(features.slice(1), tmp_path / "features.parquet")
    with pytest.raises(ValueError, match=r"lacks 1 documents of .*judged\.csv; the first is query hats, product_id a"):
        load_split(f"{tmp_path}/judged.csv+{tmp_path}/features.parquet", "test")


def test_features_are_put_in_the_order_of_a_model_and_categories_in_its_numbers(tmp_path):
    pq.write_table(pa.table(ROWS), tmp_path / "judged.parquet")
    judged = load_split(str(tmp_path / "judged.parquet"), "test")
    moved = judged.with_features(["brand", "price"], {"brand": ("Bergen", "Cira")})
    np.testing.assert_array_equal(moved.features, [[1, 10], [-1, np.nan], [np.nan, 20]])  # Alto is not known
    with pytest.raises(ValueError, match=r"judged\.parquet lacks the feature 'bm25'.*Found: price, in_stock, brand"):
        judged.with_features(["bm25"])
    with pytest.raises(ValueError, match=r"feature 'brand' is text in judged\.parquet, but numbers in the log"):
        judged.with_features(["brand"])


def test_what_is_missing_is_named(tmp_path):
    pq.write_table(pa.table(ROWS).drop_columns(["rating"]), tmp_path / "judged.parquet")
    with pytest.raises(ValueError, match=r"no column looks like the grade: call it 'grade'\. Found: query, product_id"):
        load_split(str(tmp_path / "judged.parquet"), "test")
    pq.write_table(pa.table(ROWS | {"rating": [1, None, 2]}), tmp_path / "judged.parquet")
    with pytest.raises(ValueError, match=r"column 'rating', row 1: no grade"):
        load_split(str(tmp_path / "judged.parquet"), "test")


@pytest.mark.parametrize("name", ["judged.parquet", "judged.csv"])
def test_a_damaged_table_is_refused_by_name(name, tmp_path):
    table = pa.table({"query": ["a", "a"], "document": ["x", "y"], "grade": ["1", " "], "bm25": [0.5, 0.25]})
    path = tmp_path / name
    pq.write_table(table, path) if name.endswith("parquet") else pyarrow.csv.write_csv(table, path)
    for content in (path.read_bytes(), path.read_bytes()[:-40], b"\xff" * 60):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=name):
            read_judged_table(path)
