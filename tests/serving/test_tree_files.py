"""Rankers as boosted trees: files that score as their library does, in the forms that engines document."""

import json
from dataclasses import replace

import lightgbm
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import xgboost

from unskew import ClickLog, Recipe, fit, save_model, write_log
from unskew.evaluation.agreement import grades_of, kendall
from unskew.networks.trees import Forest, Split, TreesRanker, from_lightgbm
from unskew.serving.distillation import ENOUGH_ROWS, documents_by_query, export_trees, with_recombined
from unskew.serving.saved_ranker import open_ranker
from unskew.serving.tree_files import FORMS, read_trees
from unskew.training.boosting import Boosting, boost_lightgbm

NAMES = ("bm25", "price", "views")
SMALL = Boosting(trees=20, leaves=8)


@pytest.fixture(scope="module")
def small_log():
    """60 queries of 8 documents."""
    rng = np.random.default_rng(3)
    features = (rng.standard_normal((480, 3)) * [1, 100, 3] + [0, 50, 7]).astype(np.float32)
    table = pa.table({name: features[:, column] for column, name in enumerate(NAMES)})
    clicks = rng.binomial(10, 1 / (1 + np.exp(-features[:, 0])))
    return ClickLog.from_arrays(table, clicks, group=[8] * 60, sessions=[10] * 60)


@pytest.fixture(scope="module")
def linear(small_log):
    return fit(Recipe.of("naive", steps=60, network="linear", transform="standard"), small_log)


def scores_of(ranker, features):
    with torch.inference_mode():
        rows = torch.from_numpy(features).unsqueeze(0)
        return ranker(rows, torch.ones(1, len(features), dtype=torch.bool))[0].numpy()


def walk(node, row):
    """A small evaluator of XGBoost's dump, by its documented rule: yes where the value is below the condition."""
    if "leaf" in node:
        return node["leaf"]
    value = row[node["split"]]
    chosen = node["missing"] if value is None else node["yes" if np.float32(value) < node["split_condition"] else "no"]
    return walk(next(child for child in node["children"] if child["nodeid"] == chosen), row)


def nodes(node):
    return [node, *(below for child in node.get("children", []) for below in nodes(child))]


def test_trees_give_the_sum_of_the_leaves_that_a_document_falls_into():
    colours = Split(1, 0.0, False, 10.0, 20.0, frozenset({0, 2}))
    forest = Forest((Split(0, 0.5, True, 1.0, colours), 100.0), ("size", "colour"))
    features = np.array([[0.5, 0], [0.6, 2], [0.6, 1], [0.6, 7], [np.nan, 0], [0.6, np.nan]], np.float32)
    assert scores_of(TreesRanker(forest), features).tolist() == [101, 110, 120, 120, 101, 120]
    assert forest.categorical == ["colour"]


def test_lightgbms_text_is_read_to_the_last_digit_with_missing_values_and_categories():
    rng = np.random.default_rng(0)
    features = rng.standard_normal((600, 4)).astype(np.float32)
    features[:, 2] = rng.integers(0, 40, 600)  # more than one word of LightGBM's bit sets
    features[rng.random(600) < 0.2, 1] = np.nan
    targets = features[:, 0] + np.isnan(features[:, 1]) + np.sin(features[:, 2])
    booster = boost_lightgbm(features, targets, "abcd", Boosting(trees=30, leaves=12), categorical=["c"])
    forest = from_lightgbm(booster.model_to_string())
    assert (forest.feature_names, forest.categorical) == (tuple("abcd"), ["c"])
    new = rng.standard_normal((300, 4)).astype(np.float32)
    new[:, 2] = rng.integers(-1, 60, 300)  # categories that training never saw
    new[rng.random(new.shape) < 0.3] = np.nan
    np.testing.assert_allclose(scores_of(TreesRanker(forest), new), booster.predict(new), atol=1e-5)


@pytest.mark.parametrize(("kind", "ending"), [(kind, ending) for kind, endings in FORMS.items() for ending in endings])
def test_every_form_scores_in_its_library_as_unskew_reads_it(kind, ending, linear, small_log, tmp_path):
    exported = export_trees(
        linear, tmp_path / f"model{ending}", small_log, kind=kind, boosting=SMALL, least_agreement=0
    )
    assert exported.agreement.n_queries == 12  # a fifth of 60
    features = small_log.features[:50]
    if ending == ".ubj":
        booster = xgboost.Booster(model_file=exported.path)
        assert booster.feature_names == list(NAMES)
        assert booster.predict(xgboost.DMatrix(features, feature_names=list(NAMES))).std() > 0
        return
    ranker = open_ranker(exported.path)
    assert set(ranker.feature_names) <= set(NAMES)  # a dump of XGBoost names those of its splits only
    order = [NAMES.index(name) for name in ranker.feature_names]
    scores = scores_of(ranker.score, features[:, order])
    if kind == "xgboost":
        trees = json.loads(exported.path.read_text())
        rows = [dict(zip(NAMES, row, strict=True)) for row in features.tolist()]
        expected = [sum(walk(tree, row) for tree in trees) for row in rows]
    elif ending == ".txt":
        expected = lightgbm.Booster(model_file=exported.path).predict(features)
    else:
        expected = scores_of(TreesRanker(read_trees(exported.path)), features)
        assert json.loads(exported.path.read_text())["feature_names"] == list(NAMES)
    np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_the_dump_keeps_the_rules_of_the_plugins_parser(linear, small_log, tmp_path):
    exported = export_trees(
        linear, tmp_path / "model.json", small_log, kind="xgboost", boosting=SMALL, least_agreement=0
    )
    trees = json.loads(exported.path.read_text())
    assert isinstance(trees, list)
    for node in (node for tree in trees for node in nodes(tree)):
        if "leaf" in node:
            assert set(node) == {"nodeid", "leaf"}
            continue
        assert set(node) == {"nodeid", "depth", "split", "split_condition", "yes", "no", "missing", "children"}
        assert node["split"] in NAMES
        assert isinstance(node["split_condition"], float)  # no sets of categories
        assert [child["nodeid"] for child in node["children"]] == [node["yes"], node["no"]]
        assert node["missing"] == (node["yes"] if node["split_condition"] > 0 else node["no"])  # as 0 is sent


def test_missing_values_are_learnt_as_the_engine_sends_them(linear, small_log, tmp_path):
    features = small_log.features.copy()
    features[::3, 1] = np.nan
    holes = replace(small_log, features=features)
    model = fit(Recipe.of("naive", steps=30, network="linear", transform="reciprocal"), holes)
    export_trees(model, tmp_path / "m.json", holes, kind="xgboost", missing=-7, boosting=SMALL, least_agreement=0)
    trees = json.loads((tmp_path / "m.json").read_text())
    absent = sum(walk(tree, {"bm25": 0.3, "price": None, "views": 5}) for tree in trees)
    assert absent == sum(walk(tree, {"bm25": 0.3, "price": -7, "views": 5}) for tree in trees)


def test_trees_that_rank_otherwise_are_not_written_unless_told_so(run, linear, small_log, tmp_path):
    write_log(small_log, tmp_path / "log")
    save_model(linear, tmp_path / "model")
    place = tmp_path / "model.txt"
    words = ["export", tmp_path / "model", "--to", place, "--as", "lightgbm", "--trees", "1", "--leaves", "2"]
    assert "pass --log LOG" in run(*words, code=2)
    said = run(*words, "--log", tmp_path / "log", code=2)
    assert "would not rank as the model does: on 12 held-out queries Kendall's τ" in said
    assert not place.exists()
    assert "a missing value is sent as NaN" in run(*words, "--log", tmp_path / "log", "--least-agreement", "-1")
    table = pa.table(
        {"query": [1] * 4, "document": range(4), **dict(zip(NAMES, small_log.features[:4].T, strict=True))}
    )
    pq.write_table(table, tmp_path / "candidates.parquet")
    run("rank", place, tmp_path / "candidates.parquet", "--out", tmp_path / "ranking.parquet")
    ranking = pq.read_table(tmp_path / "ranking.parquet").sort_by("document")
    expected = lightgbm.Booster(model_file=place).predict(small_log.features[:4])
    np.testing.assert_allclose(ranking["score"].to_numpy(), expected, atol=1e-5)


def test_more_trees_agree_better_with_their_teacher(linear, small_log, tmp_path):
    few, many = (
        export_trees(linear, tmp_path / f"{n}.txt", small_log, boosting=Boosting(n, 8), least_agreement=0).agreement.tau
        for n in (2, 100)
    )
    assert few < many
    assert many > 0.9  # a linear function of three columns, of which one decides


def test_documents_are_recombined_from_the_log_until_there_are_enough(small_log):
    documents = documents_by_query(small_log)
    more = with_recombined(documents, np.random.default_rng(0))
    assert more.n_documents == ENOUGH_ROWS
    np.testing.assert_array_equal(more.features[:480], documents.features)
    made_up = more.features[480:]
    for column in range(3):
        assert np.isin(made_up[:, column], documents.features[:, column]).all()
    rows = {tuple(row) for row in documents.features.tolist()}
    unchanged = np.mean([tuple(row) in rows for row in made_up.tolist()])
    assert abs(unchanged - (0.7**3 + 0.3**3)) < 0.02  # all three features of one document, or all of the other


def test_trees_take_text_by_the_codes_that_stand_beside_them(run, tmp_path):
    rng = np.random.default_rng(5)
    colours = rng.choice(["blue", "green", "red"], 240)
    table = pa.table({"size": rng.standard_normal(240), "colour": colours})
    log = ClickLog.from_arrays(table, (colours == "red").astype(int), group=[8] * 30, sessions=[1] * 30)
    model = fit(Recipe.of("naive", steps=60, hidden=(8,)), log)
    place = tmp_path / "trees.txt"
    written = export_trees(model, place, log, boosting=SMALL, least_agreement=-1)
    assert "trees.txt.categories.json holds the codes" in written.note
    assert json.loads((tmp_path / "trees.txt.categories.json").read_text()) == {"colour": ["blue", "green", "red"]}
    ids = {"query": [1] * 3, "document": [1, 2, 3], "size": [0.0] * 3}
    pq.write_table(pa.table({**ids, "colour": ["blue", "red", "green"]}), tmp_path / "candidates.parquet")
    run("rank", place, tmp_path / "candidates.parquet", "--out", tmp_path / "ranking.csv")
    assert (tmp_path / "ranking.csv").read_text().splitlines()[1].startswith("1,2,")  # the red one


def test_names_and_logs_that_do_not_fit_are_refused(linear, small_log, tmp_path):
    other = replace(small_log, feature_names=("bm25", "price", "sales"))
    with pytest.raises(ValueError, match="pass the training log"):
        export_trees(linear, tmp_path / "model.txt", other)
    strange = replace(linear, feature_names=("a b", "price", "views"))
    with pytest.raises(ValueError, match="cannot hold the feature name 'a b'"):
        export_trees(strange, tmp_path / "model.txt", replace(small_log, feature_names=strange.feature_names))
    with pytest.raises(ValueError, match=r"extension of a lightgbm file must be \.txt or \.json"):
        export_trees(linear, tmp_path / "model.ubj", small_log)
    (tmp_path / "bad.json").write_text('[{"nodeid": 0}]')
    with pytest.raises(ValueError, match="cannot be read as trees"):
        read_trees(tmp_path / "bad.json")


def test_kendall_counts_pairs_within_queries():
    first, offsets = np.array([3.0, 2, 1, 1, 2, 5]), np.array([0, 3, 5, 6])
    second = np.array([3.0, 1, 2, 0, 0, 5])
    taus = kendall(first, second, offsets)
    assert taus[0] == pytest.approx(1 / 3)  # two of three pairs alike, one turned round
    assert np.isnan(taus[1:]).all()  # equal scores; one document
    tied = kendall(np.array([1.0, 2, 2]), np.array([1.0, 2, 3]), np.array([0, 3]))
    assert tied[0] == pytest.approx(2 / np.sqrt(2 * 3))


def test_scores_become_grades_from_0_to_4_within_a_query(small_log):
    documents = documents_by_query(small_log).select([0, 1])
    grades = grades_of(np.concatenate([np.arange(8.0), np.ones(8)]), documents)
    np.testing.assert_allclose(grades, [*(4 / 7 * np.arange(8)), *([0] * 8)], rtol=1e-6)
