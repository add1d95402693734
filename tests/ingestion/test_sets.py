"""Lists of text as features: one number per common value, in the log, in a model and in what is ranked."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew

TAGS = [["red", "new"], ["red"], None, [], ["new"]]
TAGS_OF = [TAGS[number % 5] for number in range(40)]
COMMON = ["tags=new", "tags=red"]
MEMBERS = {  # of five documents in a row
    "tags=new": [1, 0, np.nan, 0, 1],
    "tags=red": [1, 1, np.nan, 0, 0],
}


def described(**columns):
    return pa.table({"document": range(40), "price": np.arange(40.0), "tags": TAGS_OF, **columns})


@pytest.fixture
def shown():
    sessions = np.repeat(np.arange(80), 5)
    documents = (np.tile(np.arange(5), 80) + 5 * sessions) % 40
    position = np.tile(np.arange(1, 6), 80)
    rows = {"session": sessions, "query": sessions % 20, "document": documents, "position": position}
    return pa.table(rows | {"click": (position == 1 + sessions % 5).astype(int)})


@pytest.mark.parametrize("where", ["features", "events"])
@pytest.mark.parametrize("feature", [None, ["price", "tags"]])
def test_each_common_value_of_a_set_is_a_feature(shown, where, feature):
    tables = {"features": described()}
    if where == "events":
        shown, tables = shown.append_column("tags", pa.array([TAGS_OF[n] for n in shown["document"].to_pylist()])), {}
        shown = shown.append_column("price", shown["document"].cast("float64"))
    done = unskew.ingest(shown, **tables, feature=feature, progress=False)
    assert sorted(done.log.feature_names) == ["price", *COMMON]
    assert any("Set 'tags': 2 of 2 values" in remark for remark in done.report.remarks)
    documents = done.log.document_ids[done.log.version_documents]
    for name, expected in MEMBERS.items():
        values = done.log.features[:, done.log.feature_names.index(name)]
        np.testing.assert_array_equal(values, np.array(expected)[documents % 5])


def test_rare_values_are_left_out(shown):
    rare = [[*(tags or []), "rare"] if number < 4 else tags for number, tags in enumerate(TAGS_OF)]
    done = unskew.ingest(shown, features=described().set_column(2, "tags", pa.array(rare)), progress=False)
    assert sorted(done.log.feature_names) == ["price", *COMMON]


def test_a_model_ranks_lists_of_text_as_it_ranks_their_values_as_numbers(shown, tmp_path):
    log = unskew.ingest(shown, features=described(), progress=False).log
    model = unskew.fit("naive", log, steps=5)
    as_text = described(query=[1] * 40)
    as_numbers = as_text.drop_columns(["tags"])
    for name, values in MEMBERS.items():
        as_numbers = as_numbers.append_column(name, pa.array(values * 8, from_pandas=True))
    ranked = []
    for number, table in enumerate((as_text, as_numbers)):
        pq.write_table(table, tmp_path / f"{number}.parquet")
        ranked.append(unskew.rank(model, tmp_path / f"{number}.parquet", progress=False).to_table())
    assert ranked[0].equals(ranked[1])
    with pytest.raises(ValueError, match=r"2 of the 3 features .* are missing: tags="):
        unskew.rank(model, as_numbers.drop_columns(COMMON), progress=False)
