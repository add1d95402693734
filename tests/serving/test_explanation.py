"""Explanations find the features that decide, and the card says what is in the model."""

import doctest
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from unskew import ClickLog, JudgedSet, Recipe, fit, save_model
from unskew.serving import explanation
from unskew.serving.explanation import decide, explain

RNG = np.random.default_rng(0)
FEATURES = RNG.standard_normal((200, 3)).astype(np.float32)
JUDGED = JudgedSet.from_arrays(FEATURES, (FEATURES[:, 1] > 0).astype(np.float32), group=[10] * 20)


def second_feature(features, mask):
    return features[..., 1]


def test_the_example_in_the_docstring_runs():
    assert doctest.testmod(explanation).failed == 0


def test_only_the_feature_that_the_ranker_uses_is_important():
    found = explain(second_feature, JUDGED, ("a", "b", "c"))
    assert found.features[0].feature == "b"
    assert found.features[0].low > 0.1
    assert [(row.mean, row.low, row.high) for row in found.features[1:]] == [(0, 0, 0)] * 2
    assert found.n_queries == 20


def test_without_labels_importance_is_the_change_of_order():
    found = explain(second_feature, JUDGED, ("a", "b", "c"), metric=None)
    assert found.features[0].mean == pytest.approx(1, abs=0.2)  # a shuffled order has a τ of about 0
    assert found.features[1].mean == 0


def test_shares_of_a_linear_ranker_are_weights_times_differences():
    weights = torch.tensor([1.0, -2.0, 0.0])
    found = decide(lambda features, mask: features @ weights, FEATURES[:10], 0, 3, ("a", "b", "c"))
    shares = {name: share for name, share, *_ in found.features}
    difference = FEATURES[0] - FEATURES[3]
    assert shares == {
        "a": pytest.approx(difference[0], abs=1e-5),
        "b": pytest.approx(-2 * difference[1], abs=1e-5),
        "c": pytest.approx(0, abs=1e-5),
    }
    assert sum(shares.values()) == pytest.approx(found.scores[0] - found.scores[1], abs=1e-5)


def test_shares_of_any_ranker_add_up_to_the_difference_of_the_scores():
    product = decide(lambda features, mask: features[..., 0] * features[..., 1], FEATURES[:5], 1, 2)
    total = sum(share for _, share, *_ in product.features)
    assert total == pytest.approx(product.scores[0] - product.scores[1], abs=1e-5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A saved model and candidates."""
    place = tmp_path_factory.mktemp("explain")
    table = pa.table({name: FEATURES[:, number] for number, name in enumerate(("bm25", "price", "same"))})
    table = table.set_column(2, "same", pa.array(np.ones(200, np.float32)))
    clicks = (FEATURES[:, 1] > 0).astype(int)
    log = ClickLog.from_arrays(table, clicks, group=[10] * 20)
    save_model(fit(Recipe.of("dla", steps=40, network="linear"), log), place / "model")
    ids = {"query": np.repeat(np.arange(20), 10), "document": np.arange(200)}
    pq.write_table(pa.table({**ids, **{name: table[name] for name in table.column_names}}), place / "c.parquet")
    return place


def test_the_command_explains_a_table_by_order_and_writes_figure_and_numbers(run, folder):
    said = run("explain", folder / "model", folder / "c.parquet", "--repeats", "1", "--out", folder / "out")
    assert "change of order" in said
    numbers = json.loads((folder / "out" / "importance.json").read_text())
    assert {row["feature"] for row in numbers["features"]} == {"bm25", "price", "same"}
    assert numbers["features"][-1]["mean"] == 0  # constant
    assert (folder / "out" / "importance.svg").exists()


def test_the_command_tells_two_documents_apart(run, folder):
    words = ["explain", folder / "model", folder / "c.parquet", "--query", "3"]
    found = json.loads(run(*words, "--documents", "30,31", "--json"))
    total = sum(row[1] for row in found["features"])
    assert total == pytest.approx(found["scores"][0] - found["scores"][1], abs=1e-4)
    assert "no document '5'" in run(*words, "--documents", "30,5", code=2)
    assert "--documents FIRST,SECOND" in run(*words, code=2)


def test_the_card_says_what_became_of_each_feature_and_how_to_train_again(folder):
    card = json.loads((folder / "model" / "card.json").read_text())
    assert card["features"]["same"] == "constant in training, so 0"
    assert card["features"]["price"] == "standardized, clipped to ±10"
    assert card["command"] == "unskew train LOG --method dla --seed 0 --set steps=40 --set network=linear --out MODEL"
    assert card["trained_on"]["clicks"] == int((FEATURES[:, 1] > 0).sum())
    assert any("It was not validated" in text for text in card["limits"])
    page = (folder / "model" / "README.md").read_text()
    assert page.startswith('---\nlibrary_name: unskew\ntags:\n- "learning-to-rank"\n')
    assert "| same | constant in training, so 0 |" in page
