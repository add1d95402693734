"""What holds of every method, whatever it does: run over all of METHODS, exceptions named with their reason."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from unskew.data.fitted_transforms import fit_transform
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.evaluate import evaluate_scorer
from unskew.methods import METHODS, hyper_parameters
from unskew.networks.registry import Network, Problem
from unskew.testing import CHECKS
from unskew.testing.method_checks import SETTINGS, assert_equal_states, maker, state
from unskew.testing.samples import N_DOCS, N_FEATURES, SOURCES, joint_log
from unskew.training.settings import Settings
from unskew.training.train import train

CURVE = (1.0, 0.7, 0.5, 0.4, 0.3)

# What a method cannot do without, and the options that change what it does.
NEEDED = {"ipw": {"propensities": CURVE}, "doubly_robust": {"propensities": CURVE}}
OPTIONS = {
    "ipw by device": ("ipw", {"propensities": [CURVE, CURVE[::-1]], "by": "device", "max_weight": 2.0}),
    "ipw squared": ("ipw", {"propensities": CURVE, "loss": "squared"}),
    "dla with bounded weights": ("dla", {"max_weight": 1.2}),
    "affine as given": ("affine", {"alpha": CURVE, "beta": [0.3, 0.2, 0.1, 0.1, 0.1]}),
    "affine softmax": ("affine", {"loss": "softmax"}),
    "regression_em sampled": ("regression_em", {"sample": True}),
    "labelled exponential": ("labelled", {"gain": "exponential"}),
    "pair_debias unregulated": ("pair_debias", {"regulation": 0.0}),
    "lbd exact, nothing cancelled": ("lbd", {"exact": True, "cancel": 0.0}),
    "lbd shared": ("lbd", {"exact": True, "cancel": 0.0, "shared": True}),
    "attention with false alarms": ("attention", {"false_alarms": 0.2}),
    "attention by weights": ("attention", {"learn": "weights"}),
    "low_rank free": ("low_rank", {"choose": "free", "rank": 2}),
    "low_rank judged": ("low_rank", {"choose": "judged", "rank": 2}),
    "low_rank examination": ("low_rank", {"choose": "examination", "top_examination": 0.7}),
    "vectorization, network": ("vectorization", {"base": "network", "dimensions": 3}),
    "vectorization, mean": ("vectorization", {"base": "mean"}),
    "vectorization, position": ("vectorization", {"base": "position"}),
    "vectorization, principal direction": ("vectorization", {"base": "pca"}),
    "cdla_ld serving the teacher": ("cdla_ld", {"serve": "teacher"}),
    "cdla_ld debiasing the student": ("cdla_ld", {"debias": "student"}),
    "upe with bounded weights": ("upe", {"max_weight": 3.0}),
    "xpa of displayed bias columns": ("xpa", {"displayed": "bias"}),
    "xpa without attention": ("xpa", {"attention": False}),
    "iobm of positions alone": ("iobm", {"use_clicks": False, "use_context": False}),
    "dbn with patience by position": ("dbn", {"by_position": True}),
    "sdbn by relevance": ("sdbn", {"rank_by": "relevance"}),
    "lbd certified": ("lbd", {"lipschitz": "certified", "beta": 0.5, "cancel": 0.0}),
}
RANKERS = [name for name, method in METHODS.items() if method.has_ranker]  # the others: see test_click_models
CASES = {**{name: (name, NEEDED.get(name, {})) for name in RANKERS}, **OPTIONS}

every_case = pytest.mark.parametrize("case", CASES)
every_method = pytest.mark.parametrize("case", RANKERS)


def new_method(case, seed=0, hidden=(6,), n_features=N_FEATURES, n_positions=N_DOCS, dropout=0.0, categories=()):
    name, hyper = CASES[case]
    network = Network(hidden=hidden, dropout=dropout) if hidden else Network(kind="linear")
    problem = Problem(n_features, n_positions, {"device": ("desk", "phone")}, network, categories=categories)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return METHODS[name](problem, **hyper)


@pytest.fixture(autouse=True)
def one_thread():
    """Such small tensors only lose by being shared out, and most on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# -- what holds of every one


@pytest.mark.parametrize("check", CHECKS)
@every_case
def test_every_method_passes_the_common_checks(case, check):
    make = maker(METHODS[CASES[case][0]], **CASES[case][1])
    if check in make().exempt:
        pytest.skip(make().exempt[check])
    CHECKS[check](make)


REFUSED = [  # method, hyper-parameters, and what the error names
    *[("lbd", {name: value}, f"{name} must be .*{value}") for name, value in {"penalty": -1.0, "cancel": 1.5}.items()],
    *[("lbd", {name: value}, f"{name} must be .*{value}") for name, value in {"share": 0.0, "top_seen": 1.0}.items()],
    ("lbd", {"penalty": float("inf")}, "penalty must be .*inf"),
    ("lbd", {"cancel_to": "none"}, "cancel_to must be one of average, sure, got 'none'"),
    ("lbd", {"lipschitz": "yes"}, "lipschitz must be one of penalty, certified"),
    ("lbd", {"lipschitz": "certified"}, "needs beta"),
    ("lbd", {"lipschitz": "certified", "beta": -1.0}, "beta must be .*-1"),
    ("lbd", {"lipschitz": "certified", "beta": 1.0, "shared": True}, "leave out shared=True"),
    ("lbd", {"beta": 1.0}, "lipschitz='certified'"),
    ("lbd", {"shared": True, "observation_hidden": (4,)}, "leave out observation_hidden"),
    ("dla", {"max_weight": 0.0}, "max_weight must be a number above 0, or none, got 0"),
    ("dla", {"observed_by": "likelihod"}, r"likelihood, weights, got .*did you mean 'likelihood'"),
    ("affine", {"alpha": [1] * 5}, "pass both alpha and beta, or neither"),
    ("affine", {"alpha": [1, 0, 1, 1, 1], "beta": [0] * 5}, "alpha must be a list of numbers above 0"),
    ("affine", {"alpha": [1, 1], "beta": [0, 0, 0]}, "alpha must be 5 numbers"),
    ("affine", {"loss": "hinge"}, "loss must be one of squared, softmax"),
    ("iobm", {"max_weight": 0.5}, "max_weight must be a number from 1, got 0.5"),
    ("xpa", {"displayed": "thumbnails"}, "displayed must be one of features, bias, nothing"),
    ("xpa", {"width": 10, "attention_heads": 4}, "4 heads do not divide a width of 10"),
    ("low_rank", {"rank": 0}, "rank must be a whole number from 1, got 0"),
    ("low_rank", {"choose": "best"}, "choose must be one of uncorrelated, free"),
    ("low_rank", {"choose": "examination"}, "needs top_examination"),
    ("low_rank", {"choose": "examination", "top_examination": 1.5}, "top_examination must be .*1.5"),
    ("low_rank", {"top_examination": 0.5}, "choose='examination'"),
    ("low_rank", {"caution": -1.0}, "caution must be .*-1"),
    ("cdla_ld", {"serve": "both"}, "serve must be one of student, teacher"),
    ("cdla_ld", {"debias": "nobody"}, "debias must be one of teacher, student"),
    ("labelled", {"gain": "double"}, "gain must be one of grade, exponential"),
    ("hte", {"folds": 1}, "folds must be a whole number from 2, got 1"),
    ("vectorization", {"dimensions": 0}, "dimensions must be a whole number from 1, got 0"),
    ("vectorization", {"base": "best"}, "base must be one of head, network, position, mean, pca"),
    ("ubm", {"user_types": 0}, "user_types must be a whole number from 1, got 0"),
    ("dbn", {"rank_by": "clicks"}, "rank_by must be one of relevance, attraction"),
    ("pbm", {"attraction": "words"}, "attraction must be one of auto, features, ids, both"),
    ("attention", {"false_alarms": 1.0}, "false_alarms must be a number from 0 and below 1, or none, got 1"),
    ("regression_em", {"start": 0.0}, "start must be a number above 0 and below 1, got 0"),
]


@pytest.mark.parametrize(("name", "hyper", "words"), REFUSED)
def test_hyper_parameters_that_mean_nothing_are_refused(name, hyper, words):
    with pytest.raises(ValueError, match=words):
        METHODS[name](Problem(N_FEATURES, N_DOCS), **hyper)


def test_ranges_and_choices_of_every_method_are_read_from_its_signature():
    kinds = [entry.kind for method in METHODS.values() for entry in hyper_parameters(method).values()]
    assert Any not in kinds  # an annotation that cannot be resolved checks nothing


# -- training


@every_case
def test_what_is_given_is_not_learnt(case):
    method = new_method(case)
    given = {name: value for name, value in state(method).items() if name in {"propensities", "alpha", "beta"}}
    train(method, SOURCES, SETTINGS)
    assert_equal_states(given, {name: value for name, value in state(method).items() if name in given})


# -- nothing is learned from nothing

WIDE = 32
CHANCE_SEEDS = 24
BRISK = {"optimizer": "adagrad", "learning_rate": 0.1, "warm_up": 0}  # learns in a few steps
STEPS = {"affine": 40}  # its estimate must settle first


def graded_documents(rng, taste, n_queries=60):
    """Queries with the same grades each, or pointwise methods would rightly learn from lists with more clicks."""
    grades = rng.permuted(np.tile([0.0, 0.0, 1.0, 1.0, 2.0], (n_queries, 1)), axis=1)
    centred = grades - grades.mean()  # or the taste could be learned as an intercept, from how many clicks there are
    features = rng.normal(size=(n_queries, N_DOCS, WIDE)) + centred[..., None] * taste
    return JudgedSet.from_arrays(features.reshape(-1, WIDE), grades.reshape(-1), group=[N_DOCS] * n_queries)


def worlds(seed, *, permuted):
    """A log of lists in random order, judged queries like it, and judged queries to test on.

    Users see everything alike: else a list with its best document at the top would get more clicks, wherever they end
    up, and `ipw`, which lets clicks further down weigh more, would rightly learn to prefer the other documents.
    """
    rng = np.random.default_rng([seed, 7])
    taste = rng.normal(size=WIDE)
    taste /= np.linalg.norm(taste)
    train_set, test_set = graded_documents(rng, taste), graded_documents(rng, taste)
    grades = train_set.grades.reshape(-1, N_DOCS)
    attraction = np.array([0.05, 0.4, 0.9])[grades.astype(int)]
    clicks = rng.random((len(grades), 20, N_DOCS)) < attraction[:, None, :]
    if permuted:
        clicks, grades = rng.permuted(clicks, axis=2), rng.permuted(grades, axis=1)
    mask, device = np.ones(grades.shape, dtype=bool), np.arange(len(grades)) % 2
    log = joint_log(train_set.features, mask, list(clicks), device)
    return {"clicks": log, "judgements": replace(train_set, grades=grades.reshape(-1))}, test_set


def gain_over_chance(case, seed, *, permuted):
    """nDCG of a trained ranker less that of a random order, on queries of which it has seen nothing."""
    sources, test_set = worlds(seed, permuted=permuted)
    method = new_method(case, seed, hidden=(), n_features=WIDE)
    train(method, sources, Settings(steps=STEPS.get(case, 12), batch_size=60, seed=seed, **BRISK))
    chance = evaluate_scorer(np.zeros(test_set.n_documents), test_set, ("ndcg@5",)).mean("ndcg@5")
    return evaluate_scorer(method.ranker(), test_set, ("ndcg@5",)).mean("ndcg@5") - chance


@pytest.mark.slow
@every_method
def test_clicks_permuted_within_lists_teach_nothing(case):
    gains = np.array([gain_over_chance(case, seed, permuted=True) for seed in range(CHANCE_SEEDS)])
    assert abs(gains.mean()) < 3 * gains.std(ddof=1) / np.sqrt(CHANCE_SEEDS)


@every_method
def test_the_same_clicks_in_their_place_do_teach(case):
    gains = np.array([gain_over_chance(case, seed, permuted=False) for seed in range(4)])
    assert gains.mean() > 0.1


# -- whatever the features: one, two, a constant among them, scales far apart, seven hundred


def sole(signal, noise):
    return signal[:, None]


def beside_noise(signal, noise):
    return np.column_stack([noise, signal])


def beside_a_constant(signal, noise):
    return np.column_stack([np.full_like(signal, 7.0), signal])


def on_far_scales(signal, noise):
    return np.column_stack([1e6 * noise, 1e-4 * signal])


def clicked_by(signal, seed=3):
    """Sessions of users who click what has a high signal, at places that they examine less and less; random order."""
    rng = np.random.default_rng(seed)
    chance = np.array(CURVE) / (1 + np.exp(-2 * signal))
    return [rng.random((40, N_DOCS)) < row for row in chance]


def looked_at(signal, clicks, seed=4):
    """Sessions in which each document was examined: the clicked ones, and the share of the others that these users
    examine without clicking. Given the position, examination does not depend on the signal."""
    curve = np.array(CURVE)
    attraction = 1 / (1 + np.exp(-2 * signal))
    unclicked = curve * (1 - attraction) / (1 - curve * attraction)
    rng = np.random.default_rng(seed)
    looks = [each | (rng.random(each.shape) < row) for each, row in zip(clicks, unclicked, strict=True)]
    return np.array([each.sum(0) for each in looks], dtype=np.float32)


def agreement_with(signal, raw, case, **columns):
    """How well the order of a trained ranker follows the signal, 1 at best."""
    transform = fit_transform("automatic", raw.astype(np.float32), **columns)
    features = transform.apply_to(raw.astype(np.float32))
    clicks = clicked_by(signal)
    log = joint_log(features, np.ones(signal.shape, dtype=bool), clicks, np.arange(40) % 2)
    log = replace(log, seen=looked_at(signal, clicks))
    grades = np.digitize(signal.ravel(), [-0.5, 0.5, 1.5]).astype(np.float32)
    judged = JudgedSet.from_arrays(features, grades, group=[N_DOCS] * 40)
    method = new_method(case, hidden=(16,), n_features=features.shape[1], categories=transform.categories())
    train(method, {"clicks": log, "judgements": judged}, Settings(steps=40, batch_size=40, **BRISK))
    lists = judged.lists()
    with torch.inference_mode():
        scores = method.ranker()(lists.features, lists.mask).numpy()
    return np.mean([spearmanr(one, other).statistic for one, other in zip(scores, signal, strict=True)])


@pytest.mark.parametrize("features", [sole, beside_noise, beside_a_constant, on_far_scales])
@every_method
def test_the_learnt_order_follows_the_true_one(case, features):
    signal, noise = np.random.default_rng(5).normal(size=(2, 40, N_DOCS))
    assert agreement_with(signal, features(signal.ravel(), noise.ravel()), case) > 0.8


@every_method
def test_the_learnt_order_follows_the_true_one_on_seven_hundred_features(case):
    """As on few; each knows a little, so that all move a score together. Labels come to .95 here, raw clicks to .85.

    With one learning rate for any number of features `naive` came to .62, `dla` to .44 and `lbd` to .34.
    """
    rng = np.random.default_rng(5)
    signal = rng.normal(size=(40, N_DOCS))
    readings = signal.reshape(-1, 1) + rng.normal(scale=2.0, size=(signal.size, 700))
    assert agreement_with(signal, readings, case) > 0.8


WORTH = np.array([0.0, 2.0, -2.0, 1.0, -1.0])  # of brands: their codes say nothing of it


@every_method
def test_a_category_with_missing_numbers_beside_it_tells_documents_apart(case):
    rng = np.random.default_rng(6)
    brand = rng.permuted(np.tile(np.arange(5), (40, 1)), axis=1)
    price = np.where(rng.random(brand.size) < 0.3, np.nan, rng.normal(size=brand.size))
    raw = np.column_stack([brand.ravel(), price])
    named = {"columns": ["brand", "price"], "categories": {"brand": tuple("abcde")}}
    assert agreement_with(WORTH[brand], raw, case, **named) > 0.8
