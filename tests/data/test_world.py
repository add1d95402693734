"""The built-in world: its shape, its repeatability, and that there is room to learn in it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from unskew.data.fitted_transforms import fit_transform
from unskew.data.judged.catalogue import load
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.judged.world import COLUMNS, N_FEATURES, SIZES, World, make_world
from unskew.evaluation.evaluate import evaluate_scorer
from unskew.methods.bias.labelled import Labelled
from unskew.networks.registry import Network, Problem
from unskew.simulation.policies import RankingSVM
from unskew.training.settings import Settings
from unskew.training.train import train


@pytest.fixture(scope="module")
def tiny() -> World:
    return make_world("tiny")


@pytest.fixture(scope="module")
def small() -> World:
    return make_world("small")


def columns_of(kind: str) -> slice:
    kinds = list(COLUMNS)
    start = sum(COLUMNS[before] for before in kinds[: kinds.index(kind)])
    return slice(start, start + COLUMNS[kind])


def test_the_same_seed_gives_the_same_world(tiny: World):
    again = make_world("tiny", seed=0)
    for split in ("train", "valid", "test"):
        assert_array_equal(getattr(again, split).features, getattr(tiny, split).features)
        assert_array_equal(getattr(again, split).grades, getattr(tiny, split).grades)


def test_the_world_is_still_the_one_of_earlier_results(tiny: World):
    """Results that were written down belong to these numbers: change the generator only with new results."""
    assert tiny.train.n_documents == 4993
    assert_array_equal(np.bincount(tiny.train.grades.astype(int)), [2665, 1570, 520, 177, 61])
    first = [0.0145874, -0.885897, -6.88432, -4.698, 0.0, 29.0, 0.0, 1.37449, -0.576326, 0.637818]
    assert_allclose(tiny.train.features[0, ::12], first, rtol=1e-5)


@pytest.mark.parametrize("features", [1, 2, 5, 20, 700])
def test_a_world_can_have_any_number_of_features(features: int):
    world = make_world("tiny", features=features)
    assert world.name == f"world:tiny:features={features}"
    assert world.train.features.shape[1] == features
    assert_array_equal(world.train.grades, make_world("tiny").train.grades)  # the same documents, otherwise measured


def test_the_one_feature_of_a_world_says_something():
    train = make_world("tiny", features=1).train
    assert abs(np.corrcoef(train.features[:, 0], train.grades)[0, 1]) > 0.1


def test_every_query_of_a_world_can_have_a_hundred_candidates():
    train = load("world:tiny:documents=100").train
    assert train.sizes.tolist() == [100] * 200
    assert train.name == "world:tiny:documents=100@train"
    assert abs(train.grades.mean() - make_world("tiny").train.grades.mean()) < 0.1  # the same law, more documents


def test_another_seed_gives_another_world(tiny: World):
    other = make_world("tiny", seed=1)
    assert other.name == "world:tiny:1"
    assert not np.array_equal(other.train.offsets, tiny.train.offsets)


def test_splits_differ(tiny: World):
    assert not np.array_equal(tiny.valid.features[:10], tiny.test.features[:10])


def test_sets_are_named_after_world_and_split(tiny: World):
    assert (tiny.name, tiny.train.name, tiny.test.name) == ("world:tiny", "world:tiny@train", "world:tiny@test")


def test_an_unknown_size_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown size 'huge'.*tiny, small, large"):
        make_world("huge")


def test_small_has_the_promised_queries_and_documents(small: World):
    assert (small.train.n_queries, small.valid.n_queries, small.test.n_queries) == (3_000, 500, 1_000)
    assert SIZES["small"] == {"train": 3_000, "valid": 500, "test": 1_000}
    assert small.train.n_features == N_FEATURES > 100
    assert small.train.sizes.min() == 10
    assert small.train.sizes.max() == 40
    assert np.isfinite(small.train.features).all()


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_grades_have_the_promised_shares(small: World, split: str):
    grades = getattr(small, split).grades
    shares = np.bincount(grades.astype(int), minlength=5) / len(grades)
    assert_allclose(shares, [0.52, 0.32, 0.11, 0.035, 0.015], atol=0.012)


def test_file_order_says_nothing_about_grades(small: World):
    """A stable sort on constant scores must not find anything: the first half is as good as the second."""
    judged = small.train
    place = np.arange(judged.n_documents) - np.repeat(judged.offsets[:-1], judged.sizes)
    correlation = np.corrcoef(place / np.repeat(judged.sizes, judged.sizes), judged.grades)[0, 1]
    assert abs(correlation) < 3 / np.sqrt(judged.n_documents)


def test_columns_are_of_the_kinds_that_they_claim(small: World):
    judged = small.train
    heavy = judged.features[:, columns_of("heavy")]
    assert (heavy >= 0).all()
    assert (heavy == np.floor(heavy)).all()
    assert (heavy.max(axis=0) > 8 * heavy.std(axis=0)).all()
    assert ((judged.features[:, columns_of("sparse")] == 0).mean(axis=0) > 0.6).all()
    assert (judged.features[:, columns_of("constant")] == 1).all()
    query = judged.features[:, columns_of("query")]
    assert_array_equal(query, np.repeat(query[judged.offsets[:-1]], judged.sizes, axis=0))
    noise = np.corrcoef(judged.features[:, columns_of("noise")], judged.grades, rowvar=False)[-1, :-1]
    assert (np.abs(noise) < 4 / np.sqrt(judged.n_documents)).all()
    dense = np.corrcoef(judged.features[:, columns_of("dense")], judged.grades, rowvar=False)[-1, :-1]
    assert np.abs(dense).max() > 0.25


def test_mixtures_repeat_what_dense_columns_say(small: World):
    judged = small.valid
    dense = judged.features[:, columns_of("dense")].astype(np.float64)
    dense = np.column_stack([np.ones(len(dense)), dense / dense.std(axis=0)])
    mixtures = judged.features[:, columns_of("mixture")]
    unexplained = mixtures - dense @ np.linalg.lstsq(dense, mixtures, rcond=None)[0]
    assert (unexplained.var(axis=0) < 0.02 * mixtures.var(axis=0)).all()


def test_chance_gives_ndcg_of_about_37_percent(small: World):
    chance = evaluate_scorer(np.zeros(small.test.n_documents), small.test, ["ndcg@10"])
    assert 0.345 < chance.mean("ndcg@10") < 0.385


def labelled_ndcg(world: World, network: Network) -> float:
    """nDCG@10 on test of a ranker taught by all labels, the best of its states on validation."""
    transform = fit_transform("automatic", world.train.features)

    def transformed(judged: JudgedSet) -> JudgedSet:
        return JudgedSet(transform.apply_to(judged.features), judged.grades, judged.offsets)

    valid = transformed(world.valid)
    method = Labelled(Problem(world.train.n_features, 10, network=network), gain="exponential")
    train(
        method,
        {"judgements": transformed(world.train)},
        Settings(steps=600),
        validate=lambda method: evaluate_scorer(method.ranker(), valid, ["ndcg@10"]).mean("ndcg@10"),
    )
    return evaluate_scorer(method.ranker(), transformed(world.test), ["ndcg@10"]).mean("ndcg@10")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_there_is_room_to_learn(seed: int):
    world = make_world("small", seed)
    linear = labelled_ndcg(world, Network("linear"))
    network = labelled_ndcg(world, Network("mlp", (128, 64), norm=False))
    assert 0.81 < network < 0.84
    assert 0.78 < linear < network - 0.02


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_ranking_svm_on_one_percent_of_the_queries_is_a_middling_logger(seed: int):
    world = make_world("small", seed)
    loggers = [RankingSVM(seed=draw).fit(world.train) for draw in range(4)]
    values = [evaluate_scorer(logger.scores(world.test), world.test, ["ndcg@10"]).mean("ndcg@10") for logger in loggers]
    assert 0.72 < np.mean(values) < 0.76
