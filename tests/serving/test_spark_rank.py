"""Ranking on Spark: the same rows as on one machine."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.serving import spark_rank
from unskew.serving.candidates import Candidates
from unskew.serving.rankings import rank_table
from unskew.serving.saved_ranker import open_ranker

NAMES = tuple(f"f{number}" for number in range(3))


@pytest.fixture(scope="module")
def model():
    """A ranker whose features have names, and one of them a category."""
    rng = np.random.default_rng(0)
    rows = {
        "session": np.repeat(np.arange(60), 4),
        "query": np.repeat(np.arange(60) % 6, 4),
        "document": np.tile(np.arange(4), 60),
        "position": np.tile(np.arange(4), 60),
        "click": rng.integers(0, 2, 240),
        **{name: np.tile(rng.normal(size=4), 60) for name in NAMES},
        "brand": np.tile(["a", "b", "a", "c"], 60),
    }
    log = unskew.ClickLog.from_table(pa.table(rows), features=[*NAMES, "brand"])
    return unskew.fit("naive", log, steps=5, progress=False)


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    pytest.importorskip("onnxruntime")
    return unskew.export(model, tmp_path_factory.mktemp("exported") / "model.onnx").path


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Candidates of 40 queries in two files, those of a query apart, with values that are missing or new, and ties."""
    folder, rng = tmp_path_factory.mktemp("candidates"), np.random.default_rng(1)
    for number in range(2):
        queries = rng.permutation(np.repeat(np.arange(40), 5))
        columns = {name: rng.integers(0, 2, 200).astype(np.float64) for name in NAMES}
        columns["f1"][::7] = np.nan
        documents = np.arange(200) + 1000 * number
        brands = rng.choice(["a", "c", "new"], 200)
        names = {"query": [f"q{query}" for query in queries], "document": documents, "brand": brands, "title": brands}
        pq.write_table(pa.table({**names, **columns}), folder / f"part-{number}.parquet")
    return folder


def in_order(table):
    return table.sort_by([("query", "ascending"), ("rank", "ascending")])


def assert_same_rows(found, expected):
    found, expected = in_order(found), in_order(expected)
    assert found.drop(["score"]).cast(expected.drop(["score"]).schema).equals(expected.drop(["score"]))
    np.testing.assert_allclose(found["score"].to_numpy(), expected["score"].to_numpy(), rtol=1e-5, atol=1e-6)


def test_an_executor_ranks_whole_queries_as_one_machine_does(exported, table, tmp_path):
    here = rank_table(open_ranker(exported), table, tmp_path / "here.parquet", sort=True)
    shipped = spark_rank.ship(exported)
    ranker = spark_rank.opened(shipped)
    candidates = Candidates((), "query", "document", *[ranker.feature_names] * 2, ranker.categories, sorted=True)
    rows = pq.read_table(table, columns=candidates.columns)
    rows = rows.append_column("row", pa.array(range(rows.num_rows))).sort_by(
        [("query", "ascending"), ("row", "ascending")]
    )
    (tmp_path / "there").mkdir()
    batches = rows.drop(["row"]).to_batches(max_chunksize=7)  # queries of ten documents go on from batch to batch
    found = spark_rank._rank(batches, shipped, candidates, str(tmp_path / "there"), 3, strict=False)
    assert (found["documents"], found["queries"]) == (here.n_documents, here.n_queries) == (400, 40)
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["part-00003.parquet"]
    assert_same_rows(pq.read_table(tmp_path / "there"), pq.read_table(tmp_path / "here.parquet"))
    assert sum(found["missing"]) == sum(here.filled.values())
    assert sum(found["new"]) == sum(here.unseen.values()) > 0


def test_an_executor_that_does_not_see_the_folder_says_what_to_do(exported, table, tmp_path):
    shipped = spark_rank.ship(exported)
    ranker = spark_rank.opened(shipped)
    candidates = Candidates((), "query", "document", *[ranker.feature_names] * 2, ranker.categories, sorted=True)
    with pytest.raises(ValueError, match=r"cannot see .*: write to a folder that all machines share"):
        spark_rank._rank([], shipped, candidates, str(tmp_path / "elsewhere"), 0, strict=False)


def test_spark_writes_a_folder_of_parquet_files(tmp_path):
    with pytest.raises(ValueError, match=r"a folder of parquet files: use a name that ends in \.parquet"):
        unskew.rank("model", "table.parquet", tmp_path / "ranking.csv", engine="spark")
    with pytest.raises(ValueError, match="Spark ranks files: pass a model"):
        unskew.rank("model", pa.table({}), tmp_path / "ranking.parquet", engine="spark")
    with pytest.raises(ValueError, match="no engine 'flink': choose duckdb or spark"):
        unskew.rank("model", "table.parquet", tmp_path / "ranking.parquet", engine="flink")


@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore")  # of Spark, about its own future
def test_spark_ranks_row_for_row_as_one_machine(spark, model, exported, table, tmp_path):
    unskew.save_model(model, tmp_path / "model")
    here = unskew.rank(exported, table, tmp_path / "here.parquet", sort=True, progress=False)
    for ranker in (exported, tmp_path / "model"):
        there = unskew.rank(ranker, table, tmp_path / "there.parquet", engine="spark", overwrite=True)
        assert_same_rows(there.to_table(), here.to_table())
        told = [(done.n_documents, done.n_queries, done.filled, done.unseen, done.ignored) for done in (here, there)]
        assert told[0] == told[1]
    names = [path.name for path in (tmp_path / "there.parquet").iterdir()]
    assert "_SUCCESS" in names
    assert {name[:5] for name in names} == {"_SUCC", "part-"}
    with pytest.raises(FileExistsError, match="exists: choose another path"):
        unskew.rank(exported, table, tmp_path / "there.parquet", engine="spark")
    with pytest.raises(ValueError, match="has missing values, but had none in training"):
        unskew.rank(exported, table, tmp_path / "strict.parquet", engine="spark", strict=True)
    assert not (tmp_path / "strict.parquet").exists()
