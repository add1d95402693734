"""Data sets by name: what is there, what is missing, what is wrong, and what a user may write."""

import gzip
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unskew.data.judged import catalogue
from unskew.data.judged.catalogue import MissingDataError, UnknownDataError, load, load_split
from unskew.data.judged.catalogue_entries import CATALOGUE, SPLITS, Split, infinite_as_zero, reciprocal_ranks
from unskew.data.judged.judged_set import JudgedSet

DATA = os.environ.get("UNSKEW_DATA") or "no-such-folder"
# Queries and documents of train, valid and test.
REAL_SETS = {
    "mq2008/1": ((471, 9_630), (157, 2_707), (156, 2_874)),
    "mq2008/2": ((471, 9_404), (156, 2_874), (157, 2_933)),
    "mq2008/5": ((470, 9_442), (157, 3_062), (157, 2_707)),
    "mq2007-agg": ((1_017, 42_158), (339, 13_813), (336, 13_652)),
    "mslr-sample": ((32, 3_356), (10, 1_599), (42, 4_974)),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder of data, and a cache of its own."""
    monkeypatch.setenv("UNSKEW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def put(folder: Path, file: str, text: str) -> None:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if file.endswith(".gz") else text.encode())


def shrink(monkeypatch, name: str, queries: int, documents: int) -> None:
    """Expect these counts of every split, so that a small file of the same form passes."""
    entry = CATALOGUE[name]
    splits = {split: replace(entry.splits[split], queries=queries, documents=documents) for split in SPLITS}
    monkeypatch.setitem(CATALOGUE, name, replace(entry, splits=splits))


@pytest.mark.parametrize(("name", "counts"), REAL_SETS.items())
def test_real_sets_have_the_counts_of_their_publishers(monkeypatch, name, counts):
    monkeypatch.setenv("UNSKEW_DATA", DATA)
    if not catalogue.is_present(name):
        pytest.skip(f"{name} is not in UNSKEW_DATA")
    data = load(name)
    for judged, expected in zip((data.train, data.valid, data.test), counts, strict=True):
        assert (judged.n_queries, judged.n_documents) == expected
        assert judged.n_features == CATALOGUE[name].features
        assert np.isfinite(judged.features).all()


def test_ranks_become_reciprocals_and_missing_ones_zero(folder, monkeypatch):
    shrink(monkeypatch, "mq2007-agg", 1, 2)
    entry = CATALOGUE["mq2007-agg"]
    splits = {**entry.splits, "train": Split(("A1.txt",), 1, 2)}
    monkeypatch.setitem(CATALOGUE, "mq2007-agg", replace(entry, splits=splits, features=2))
    for part in ("A1", "A4", "A5"):
        put(folder, f"mq2007-agg/{part}.txt", "0 qid:10 1:NULL 2:10 #docid = a\n1 qid:10 1:90 2:NULL #docid = b\n")
    expected = np.float32([[0, 1 / 20], [1 / 100, 0]])
    np.testing.assert_allclose(load("mq2007-agg").train.features, expected, rtol=1e-6)


def test_yahoo_form_is_sparse_and_has_all_700_columns(folder, monkeypatch):
    shrink(monkeypatch, "yahoo-set1", 2, 3)
    text = "1 qid:1 10:0.89028 11:0.75088 699:0.5\n0 qid:1 10:0.1\n2 qid:2 1:0.25\n"
    for split in SPLITS:
        put(folder, f"yahoo/set1.{split}.txt", text)
    train = load("yahoo-set1").train
    assert train.n_features == 700
    assert np.count_nonzero(train.features) == 5
    assert train.features[0, [9, 10, 698]].tolist() == np.float32([0.89028, 0.75088, 0.5]).tolist()


def test_istella_form_loses_the_largest_double(folder, monkeypatch):
    shrink(monkeypatch, "istella-s", 1, 2)
    for file in ("train", "vali", "test"):
        put(folder, f"istella-s/sample/{file}.txt", "0 qid:1 1:1.79769313486231E308 220:4\n4 qid:1 1:7 2:-3.5\n")
    valid = load("istella-s").valid
    expected = np.zeros((2, 220), dtype=np.float32)
    expected[0, 219], expected[1, 0], expected[1, 1] = 4, 7, -3.5
    np.testing.assert_array_equal(valid.features, expected)


def test_web_form_has_a_folder_for_each_fold(folder, monkeypatch):
    shrink(monkeypatch, "mslr-web10k/3", 1, 1)
    line = " ".join(f"{i}:{i / 2}" for i in range(1, 137))
    for number, file in enumerate(("train", "vali", "test")):
        put(folder, f"MSLR-WEB10K/Fold3/{file}.txt.gz", f"{number} qid:{number} {line} \r\n")
    data = load("mslr-web10k/3")
    assert (data.train.grades[0], data.valid.grades[0], data.test.grades[0]) == (0, 1, 2)
    np.testing.assert_array_equal(data.test.features, np.arange(1, 137, dtype=np.float32)[None] / 2)


def test_ohsumed_form_has_document_ids(folder, monkeypatch):
    shrink(monkeypatch, "ohsumed/1", 1, 1)
    for file in ("trainingset", "validationset", "testset"):
        put(folder, f"OHSUMED/QueryLevelNorm/Fold1/{file}.txt", "0 qid:1 1:1.0 45:0.5 #docid = 40626\n")
    assert load("ohsumed/1").test.document_ids.tolist() == [40626]


def test_folds_go_around_the_circle(folder, monkeypatch):
    for fold, (train, valid, test) in {1: ("123", "4", "5"), 2: ("234", "5", "1"), 4: ("451", "2", "3")}.items():
        splits = CATALOGUE[f"mq2008/{fold}"].splits
        assert splits["train"].files == tuple(f"S{part}.txt" for part in train)
        assert splits["valid"].files == (f"S{valid}.txt",)
        assert splits["test"].files == (f"S{test}.txt",)


@pytest.mark.parametrize("name", [name for name in CATALOGUE if not name.startswith("ohsumed")])
def test_the_splits_add_up_to_the_whole(name):
    entry = CATALOGUE[name]
    assert sum(entry.splits[split].queries for split in SPLITS) == entry.queries
    documents = [entry.splits[split].documents for split in SPLITS]
    if None not in documents:
        assert sum(documents) == entry.documents


def test_documents_of_a_split_follow_from_the_others_where_they_can():
    assert CATALOGUE["mslr-web10k/1"].splits["train"].documents == 1_200_192 - 235_259 - 241_521
    assert CATALOGUE["mslr-web30k/2"].splits["valid"].documents == 753_611
    assert CATALOGUE["mslr-web10k/2"].splits["train"].documents is None


def test_other_counts_than_expected_are_refused(folder):
    for part in range(1, 6):
        put(folder, f"mq2008/S{part}.txt", f"0 qid:{part} 1:1\n")
    with pytest.raises(ValueError, match=r"mq2008/1@valid must have 157 queries, but .*S4\.txt has 1: download the"):
        _ = load("mq2008/1").valid


def test_missing_files_are_named_with_place_and_publisher(folder):
    put(folder, "mq2008/S1.txt.gz", "0 qid:1 1:1\n")
    with pytest.raises(MissingDataError) as error:
        load("mq2008/2")
    message = str(error.value)
    assert "lacks S2.txt, S3.txt, S4.txt, S5.txt" in message
    assert str(folder / "mq2008") in message
    assert "Microsoft Research" in message
    assert "UNSKEW_DATA" in message


def test_one_split_needs_only_its_own_files(folder, monkeypatch):
    shrink(monkeypatch, "mq2008/1", 1, 1)
    put(folder, "mq2008/S5.txt", "2 qid:1 46:1\n")
    assert load_split("mq2008/1@test", default="train").grades.tolist() == [2]
    with pytest.raises(MissingDataError, match=r"S4\.txt"):
        load_split("mq2008/1", default="valid")


def test_splits_are_read_when_asked_for_and_kept(folder, monkeypatch):
    shrink(monkeypatch, "mq2008/1", 1, 1)
    for part in range(1, 6):
        put(folder, f"mq2008/S{part}.txt", f"0 qid:{part} 46:1\n")
    data = load("mq2008/1")
    (folder / "mq2008/S5.txt").unlink()
    assert data.valid is data.valid
    with pytest.raises(MissingDataError):
        _ = data.test


def test_an_unknown_name_gets_the_nearest_and_all_others():
    with pytest.raises(UnknownDataError, match=r"did you mean 'mq2008/1'\? .*yahoo-set1.*mslr-sample"):
        load("mq208/1")
    with pytest.raises(UnknownDataError, match="neither a data set nor a file"):
        load_split("nowhere.txt", default="train")


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="no split 'dev'; choose one of train, valid, test"):
        load_split("world:tiny@dev", default="train")


def test_worlds_are_built_in():
    data = load("world:tiny")
    assert data.train.n_queries == 200
    assert (data.name, data.transform) == ("world:tiny", "automatic")
    np.testing.assert_array_equal(load_split("world:tiny@valid", "train").features, data.valid.features)


def test_a_world_may_have_a_seed():
    plain, zero, seven = (load_split(name, "test").features for name in ("world:tiny", "world:tiny:0", "world:tiny:7"))
    np.testing.assert_array_equal(plain, zero)
    assert plain.shape != seven.shape or (plain != seven).any()


@pytest.mark.parametrize("name", ["world", "world:", "world:big", "world:tiny:x", "world:tiny:1:2"])
def test_an_unknown_world_is_refused(name):
    with pytest.raises(UnknownDataError, match="choose world:tiny, world:small, world:large"):
        load(name)


def test_a_file_may_stand_for_a_split(tmp_path):
    put(tmp_path, "own@home.txt", "3 qid:a 2:1\n")
    judged = load_split(str(tmp_path / "own@home.txt"), default="train")
    assert (judged.name, judged.grades.tolist()) == ("own@home.txt", [3])


def test_the_folder_is_the_users_unless_the_environment_names_one(folder, monkeypatch):
    assert catalogue.data_folder() == folder
    monkeypatch.setenv("UNSKEW_DATA", "")
    assert catalogue.data_folder().name == "unskew"


def test_the_listing_says_what_is_here(folder):
    for part in range(1, 6):
        put(folder, f"mq2008/S{part}.txt", "0 qid:1 1:1\n")
    rows = {row.name: row for row in catalogue.data_sets().rows}
    assert rows["mq2008/3"].present
    assert rows["world:small"].present
    assert not rows["istella-s"].present
    assert rows["istella-s"][:5] == ("istella-s", 33_018, 3_408_630, 220, "0-4")
    assert set(rows) == {"world:tiny", "world:small", "world:large", *CATALOGUE}


def test_preparing_leaves_nothing_infinite_and_nothing_missing():
    judged = JudgedSet.from_arrays([[np.inf, 1], [-np.inf, 2]], [0, 1], [2])
    np.testing.assert_array_equal(infinite_as_zero(judged).features, [[0, 1], [0, 2]])
    judged = JudgedSet.from_arrays([[np.nan, 0]], [0], [1])
    np.testing.assert_allclose(reciprocal_ranks(judged).features, [[0, 0.1]])
    assert reciprocal_ranks(judged).features.dtype == np.float32


def test_files_of_ones_own_are_a_data_set(tmp_path):
    line = "{} qid:{} 1:0.5 2:{}\n"
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("".join(line.format(grade, 1, grade) for grade in (0, 1, 2)))
    files = {split: str(tmp_path / f"{split}.txt") for split in ("train", "valid", "test")}
    named = ",".join(f"{split}={file}" for split, file in files.items())
    for data in (files, named, str(tmp_path)):
        assert load(data).test.n_documents == 3
    (tmp_path / "valid.txt").rename(tmp_path / "validation.txt")
    with pytest.raises(FileNotFoundError, match=r"must hold one file called valid\.\*.*found none"):
        load(str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"valid\.txt does not exist"):
        load(files)
    with pytest.raises(ValueError, match="your own data need the files train, valid, test, got train"):
        load({"train": "x"})
