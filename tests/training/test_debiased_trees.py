"""Trees as the ranker: they learn debiased targets, and are saved, ranked and exported like any other model."""

import lightgbm
import numpy as np
import pyarrow as pa
import pytest
import torch

from unskew import ClickLog, Recipe, evaluate, fit, load_model, save_model
from unskew.data.clicks.storage import write_log
from unskew.serving.card import model_card
from unskew.serving.distillation import export_trees
from unskew.serving.exports import export_model
from unskew.serving.onnx_file import OnnxRanker
from unskew.training.boosting import boost_debiased, examined_documents

FAST = {"steps": 20, "hidden": (4,), "ranker": "trees", "tree_targets": "clicks"}


@pytest.fixture(scope="module")
def trees(log):
    return fit(Recipe.of("dla", **FAST), log)


def test_a_document_counts_its_clicks_and_how_often_it_was_examined():
    features = np.array([[1.0], [2.0], [2.0], [1.0]])  # the same two documents in both orders
    log = ClickLog.from_table(
        pa.table(
            {
                "session": [0, 0, 1, 1],
                "query": ["q"] * 4,
                "document": ["a", "b", "b", "a"],
                "position": [0, 1, 0, 1],
                "click": [1, 0, 1, 1],
                "size": features[:, 0],
            }
        )
    )
    rows, clicks, examined = examined_documents(log, np.array([1.0, 0.5]))
    # Each was shown once at either position, 1 + .5; a was clicked at both, b at the top only.
    assert rows[:, 0].tolist() == [1.0, 2.0]
    assert (clicks.tolist(), examined.tolist()) == ([2.0, 1.0], [1.5, 1.5])


def test_scores_are_logarithms_of_clicks_per_examination():
    """One kind of document at the top, one below it, where it is examined half as often."""
    features = np.tile([[0.0], [1.0]], (200, 1))
    log = ClickLog.from_arrays(features, np.tile([4, 6], 200), group=[2] * 200, sessions=[10] * 200)
    booster = lightgbm.Booster(model_str=boost_debiased(log, np.array([1.0, 0.5]), ("f0",)))
    top, below = booster.predict([[0.0], [1.0]])
    assert below - top == pytest.approx(np.log((6 / 5) / (4 / 10)), abs=1e-3)


def test_a_log_without_clicks_is_refused():
    log = ClickLog.from_arrays([[0.0], [1.0]], [0, 0], group=[2])
    with pytest.raises(ValueError, match="nothing was clicked"):
        boost_debiased(log, np.ones(2), ())


def test_trees_rank_better_than_chance_and_predict_as_lightgbm_does(trees, world):
    value = evaluate(trees.ranker(), world.test, ["ndcg@10"]).mean("ndcg@10")
    assert value > evaluate(np.zeros(world.test.n_documents), world.test, ["ndcg@10"]).mean("ndcg@10") + 0.05
    features = torch.from_numpy(world.test.features[:40]).unsqueeze(0)
    scores = trees.ranker()(features, torch.ones(1, 40, dtype=torch.bool))[0].numpy()
    np.testing.assert_allclose(scores, lightgbm.Booster(model_str=trees.trees).predict(features[0].numpy()), atol=1e-5)


def test_saved_trees_are_text_and_rank_the_same(trees, tmp_path):
    save_model(trees, tmp_path / "model")
    assert (tmp_path / "model" / "trees.txt").read_text().startswith("tree\n")
    loaded = load_model(tmp_path / "model")
    assert (loaded.trees, loaded.recipe.ranker) == (trees.trees, "trees")
    (tmp_path / "model" / "trees.txt").write_text("import os")
    with pytest.raises(ValueError, match=r"trees\.txt cannot be read"):
        load_model(tmp_path / "model")


def test_trees_are_exported_as_they_are_and_to_onnx(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((90, 2)).astype(np.float32)
    small = ClickLog.from_arrays(rows, (rows[:, 0] > 0).astype(int), group=[3] * 30)
    trees = fit(Recipe.of("dla", **FAST), small)
    said = export_trees(trees, tmp_path / "trees.txt")
    assert "the same trees" in str(said)
    assert (tmp_path / "trees.txt").read_text().split("\nparameters")[0] == trees.trees.split("\nparameters")[0]
    assert export_model(trees, tmp_path / "flat.onnx", flat=True).agreement.holds
    features, mask = torch.from_numpy(rows).unsqueeze(0), torch.ones(1, 90, dtype=torch.bool)
    scores = OnnxRanker(tmp_path / "flat.onnx")(features, mask)
    np.testing.assert_allclose(scores.numpy(), trees.ranker()(features, mask).numpy(), atol=1e-5)


@pytest.mark.parametrize("method", ["naive", "vectorization", "labelled"])
def test_methods_without_a_curve_of_examination_are_refused_by_name(method):
    with pytest.raises(ValueError, match=f"{method} learns no examination curve and gives no debiased targets"):
        Recipe.of(method, ranker="trees", tree_targets="clicks")
    with pytest.raises(ValueError, match="unknown ranker 'forest': choose one of network, trees"):
        Recipe.of("dla", ranker="forest")


def test_a_changed_recipe_keeps_its_trees_unless_you_ask_for_the_network():
    recipe = Recipe.of("dla", ranker="trees")
    assert recipe.changed("dla", steps=7).ranker == "trees"
    assert recipe.changed("dla", ranker="network").ranker == "network"


def test_a_warm_start_on_the_command_line_keeps_the_trees_of_its_start(trees, log, tmp_path, run):
    save_model(trees, tmp_path / "start")
    write_log(log, tmp_path / "log")
    again = ("train", tmp_path / "log", "--from", tmp_path / "start", "--set", "steps=5", "--quiet")
    run(*again, "--out", tmp_path / "trees")
    run(*again, "--out", tmp_path / "network", "--ranker", "network")
    assert load_model(tmp_path / "trees").trees is not None
    assert load_model(tmp_path / "network").trees is None


def test_a_category_that_training_never_saw_goes_where_unknown_ones_go():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, 300).astype(np.float32)
    table = pa.table({"colour": codes, "price": rng.standard_normal(300).astype(np.float32)})
    clicks = np.where(codes == 1, 9, 1)
    log = ClickLog.from_arrays(table, clicks, group=[3] * 100, sessions=[10] * 100)
    text = boost_debiased(log, np.ones(3), ("colour", "price"), categorical=["colour"])
    booster = lightgbm.Booster(model_str=text)
    known, other, new = booster.predict([[1.0, 0.0], [0.0, 0.0], [9.0, 0.0]])
    assert known - other > np.log(5)
    assert other == pytest.approx(new, abs=0.05)


def test_trees_can_imitate_the_scores_of_the_network_and_keep_their_sizes(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((90, 2)).astype(np.float32)
    small = ClickLog.from_arrays(rows, (rows[:, 0] > 0).astype(int), group=[3] * 30)
    sizes = {"trees": 200, "leaves": 4, "rows_in_leaf": 1}
    recipe = Recipe.of("naive", network="trees", steps=20, **sizes)
    assert recipe.tree_options() == sizes
    assert recipe.tree_targets == "scores"
    model = fit(recipe, small)
    network = fit(Recipe.of("naive", steps=20), small).ranker()
    features, mask = torch.from_numpy(rows).unsqueeze(0), torch.ones(1, 90, dtype=torch.bool)
    scores = network(features, mask).detach()
    assert float((model.ranker()(features, mask) - scores).abs().max()) < 0.05 * float(scores.std())
    again = load_model(save_model(model, tmp_path / "model"))
    assert again.recipe.tree_options() == recipe.tree_options()
    assert "--ranker trees" in model_card(again)["command"]
    assert "--set trees=200" in model_card(again)["command"]
