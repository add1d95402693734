"""Files from others: limits hold before anything is allocated, and what they say is checked."""

import gzip
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.data.files import json_digest, new_file, new_folder
from unskew.data.judged.letor import read_letor
from unskew.data.untrusted import DEEPEST, LARGEST, parse_json, parse_toml, read_json, read_parquet
from unskew.ingestion.settings import read_columns
from unskew.networks.trees import from_lightgbm
from unskew.papers.experiment_files import load_experiment
from unskew.serving.onnx_file import OnnxRanker
from unskew.serving.tree_files import read_trees


def nested(levels):
    return "[" * levels + "]" * levels


@pytest.mark.parametrize("levels", [DEEPEST + 1, 1_000, 200_000])
def test_deep_documents_are_refused_by_name(tmp_path, levels):
    deep = nested(levels)
    refusals = {
        "log/log.json": (deep, unskew.open_log, lambda file: file.parent),
        "model/model.json": (deep, unskew.load_model, lambda file: file.parent),
        "columns.toml": (f"bias = {deep}", read_columns, lambda file: file),
        "mine.toml": (f"title = {deep}", load_experiment, str),
        "trees.json": ('{"feature_names": ' + nested(levels + 400) + "}", read_trees, lambda file: file),
        "dotted.toml": (".".join("a" * (levels + 1)) + " = 1", read_columns, lambda file: file),
    }
    for name, (text, read, place) in refusals.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        with pytest.raises(ValueError, match=rf"{file.name}.*deep"):
            read(place(file))
    assert parse_json(nested(DEEPEST)) is not None
    assert parse_json(json.dumps({"text": deep})) == {"text": deep}, "brackets in a string are text"
    with pytest.raises(ValueError, match="deep"):
        parse_toml("\n".join(f"[{'.'.join('a' * number)}]" for number in range(1, 100)))


def test_a_file_of_any_size_is_measured_before_it_is_read(tmp_path):
    with (tmp_path / "big.json").open("wb") as file:
        file.truncate(LARGEST + 1)  # a hole: it takes no room
    with pytest.raises(ValueError, match="more than 268,435,456"):
        read_json(tmp_path / "big.json")


def test_a_table_that_unpacks_to_more_than_memory_is_refused_by_its_footer(tmp_path, monkeypatch):
    file = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"n": pa.array(np.zeros(1_000_000, np.int64))}), file)
    assert file.stat().st_size < 10_000
    assert read_parquet(file, 1_000_000).num_rows == 1_000_000
    with pytest.raises(ValueError, match="1,000,000 rows instead of 7"):
        read_parquet(file, 7)
    monkeypatch.setattr(os, "sysconf", lambda _: 999)
    with pytest.raises(ValueError, match="unpacks to 1,000,000 values"):
        read_parquet(file)


def test_a_gzip_file_of_one_endless_line_is_refused(tmp_path):
    file = tmp_path / "zeros.txt.gz"
    file.write_bytes(gzip.compress(b"0" * 80_000_000, compresslevel=1))
    with pytest.raises(ValueError, match="line 1: more than"):
        read_letor(file, cache=False)


def test_counts_that_a_log_claims_are_compared_before_its_tables_are_read(tmp_path):
    log = unskew.simulate("world:tiny", sessions=2, seed=0, progress=False).log
    place = unskew.write_log(log, tmp_path / "log")
    about = json.loads((place / "log.json").read_text())
    about["shards"][0]["lists"] = 10**15
    del about["digest"]
    (place / "log.json").write_text(json.dumps({**about, "digest": json_digest(about)}))
    with pytest.raises(ValueError, match=r"lists.parquet .*rows instead of 1,000,000,000,000,000"):
        unskew.read_log(place)


TREE = "tree\nfeature_names=a b\n\nTree=0\nnum_leaves=3\nsplit_feature=0 1\ndecision_type=2 2\nthreshold=0.5 0.5\n"


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        ("1 -1", "-2 -3", None),
        ("0 -1", "-2 -3", "twice, or never"),
        ("1 -1", "-2 -1", "twice, or never"),
        ("1 1", "-2 -3", "twice, or never"),
    ],
)
def test_a_tree_is_a_tree(left, right, words):
    text = f"{TREE}left_child={left}\nright_child={right}\nleaf_value=0.1 0.2 0.3\n\nend of trees\n"
    if words is None:
        assert from_lightgbm(text) is not None
    else:
        with pytest.raises(ValueError, match=words):
            from_lightgbm(text)


@pytest.mark.long
def test_onnx_with_data_in_other_files_is_refused(tmp_path):
    onnx = pytest.importorskip("onnx")
    log = unskew.simulate("world:tiny", sessions=2, seed=0, progress=False).log
    unskew.export(unskew.fit("naive", log, steps=2, progress=False), tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    weights = model.graph.initializer[0]
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.ClearField("raw_data")
    weights.external_data.add(key="location", value="../../etc/passwd")
    (tmp_path / "other.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match="keeps data in other files"):
        OnnxRanker(tmp_path / "other.onnx")


def test_what_is_being_written_is_private_and_a_link_is_replaced_not_followed(tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    with new_file(tmp_path / "link") as scratch:
        assert scratch.stat().st_mode & 0o077 == 0
        scratch.write_text("new")
    assert (tmp_path / "victim").read_text() == "mine"
    assert (tmp_path / "link").read_text() == "new"
    with new_folder(tmp_path / "log", "log.json", overwrite=False) as folder:
        assert folder.parent.stat().st_mode & 0o077 == 0
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "link").stat().st_mode & 0o777 == 0o666 & ~mask
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o777 & ~mask
