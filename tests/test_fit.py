"""The one assembly: recipes, estimates, validation, streams."""

from dataclasses import replace

import numpy as np
import pytest

from unskew import ClickLog, Recipe, fit, open_log, write_log
from unskew.evaluation.evaluate import score_documents
from unskew.methods import METHODS, hyper_parameters
from unskew.training.recipe import NETWORK_NAMES, SETTING_NAMES

FAST = {"steps": 20, "hidden": (8,)}


def test_options_find_their_place():
    recipe = Recipe.of("dla", max_weight=5.0, steps=7, hidden=[16, 8], network="mlp", transform="standard", seed=2)
    assert recipe.hyper_parameters == {"max_weight": 5.0}
    assert (recipe.settings.steps, recipe.settings.seed) == (7, 2)
    assert (recipe.network.kind, recipe.network.hidden) == ("mlp", (16, 8))
    assert recipe.transform == "standard"


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown method 'dlaa' \(did you mean 'dla'\?\): choose one of naive"):
        Recipe.of("dlaa")
    with pytest.raises(ValueError, match="unknown feature transform 'none'"):
        Recipe.of("dla", transform="none")
    with pytest.raises(ValueError, match="unknown optimizer 'lion': choose from adagrad"):
        Recipe.of("dla", optimizer="lion")


def test_the_ranker_takes_raw_features(log, world):
    model = fit(Recipe.of("naive", **FAST), log)
    raw = score_documents(model.ranker(), world.test)
    transformed = model.transform.apply_to(world.test.features)
    assert not np.allclose(transformed, world.test.features)
    assert np.isfinite(raw).all()


def test_ipw_estimates_its_propensities_from_a_shuffled_log(log):
    model = fit(Recipe.of("ipw", **FAST), log)
    curve = np.asarray(model.recipe.hyper_parameters["propensities"])
    truth = np.array([0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06]) / 0.68
    assert curve[0] == pytest.approx(1)
    assert np.abs(curve - truth).max() < 0.35  # 1,280 shuffled sessions: a few clicks per position


def test_a_log_without_any_click_is_refused():
    silent = ClickLog.from_arrays(np.eye(4), [0, 0, 0, 0], group=[2, 2])
    with pytest.raises(ValueError, match="the log has no clicks: there is nothing to learn from"):
        fit(Recipe.of("naive", **FAST), silent)


def test_lists_of_one_document_are_warned_of():
    log = ClickLog.from_arrays(np.eye(4), [1, 0, 0, 1], group=[1, 1, 1, 1])
    with pytest.warns(RuntimeWarning, match="every list has only one document"):
        fit(Recipe.of("naive", **FAST), log)


@pytest.mark.parametrize(
    ("features", "clicks", "message"),
    [
        (np.eye(4), [1, 1, 1, 1], "every document was clicked whenever it was shown"),
        ([[3.0], [3.0], [5.0], [5.0]], [1, 0, 0, 1], "all documents of a query have the same features"),
        ([[np.nan]] * 4, [1, 0, 0, 1], "all documents of a query have the same features"),
    ],
)
def test_a_log_that_teaches_nothing_is_warned_of(features, clicks, message):
    with pytest.warns(RuntimeWarning, match=message):
        fit(Recipe.of("naive", **FAST), ClickLog.from_arrays(np.asarray(features), clicks, group=[2, 2]))


def test_held_out_clicks_validate_without_labels(log):
    model = fit(Recipe.of("two_tower", **FAST, validate_every=5), log, validate=0.2)
    assert model.trained_on["validation"] == "click likelihood"
    assert model.history.best_value == max(value for _, value in model.history.column("validation"))


def test_a_method_that_predicts_no_clicks_is_validated_by_its_order(log):
    model = fit(Recipe.of("pair_debias", **FAST, validate_every=5), log, validate=0.2)
    assert model.trained_on["validation"] == "likelihood of clicks given the order"
    values = [value for _, value in model.history.column("validation")]
    assert model.history.best_value == max(values)
    assert max(values) < 0  # a mean logarithm of probabilities


def test_pairs_need_a_joint_log(log):
    with pytest.raises(ValueError, match="joint"):
        fit(Recipe.of("pair_debias", **FAST), log.marginal())


def test_labelled_needs_judgements_and_others_need_clicks(log, world):
    with pytest.raises(ValueError, match="--judged"):
        fit(Recipe.of("labelled", **FAST), log)
    with pytest.raises(ValueError, match="naive learns from clicks"):
        fit(Recipe.of("naive", **FAST), judged=world.train)
    fit(Recipe.of("labelled", **FAST), judged=world.train)


def test_a_streamed_log_of_one_shard_gives_the_same_ranker(log, world, tmp_path):
    recipe = Recipe.of("two_tower", **FAST, batch_size=10_000)
    folder = open_log(write_log(log, tmp_path / "log"))
    streamed = fit(recipe, folder)
    whole = fit(recipe, log)
    expected = score_documents(whole.ranker(), world.test)
    np.testing.assert_allclose(score_documents(streamed.ranker(), world.test), expected, atol=1e-3)


def test_a_streamed_log_of_many_shards_is_learnt_from(log, world, tmp_path):
    folder = open_log(write_log(log, tmp_path / "log", n_shards=5))
    model = fit(Recipe.of("two_tower", **FAST, batch_size=16), folder, validate=world.valid)
    assert model.trained_on["lists"] == log.n_lists


@pytest.mark.parametrize("name", ["regression_em", "affine"])
def test_methods_of_clicks_refuse_dwell_times(name):
    log = ClickLog.from_arrays(np.eye(4), [30.0, 0.0, 2.5, 0.0], group=[2, 2], graded=True)
    with pytest.raises(ValueError, match=f"{name} needs binary clicks, but the log holds graded feedback"):
        fit(Recipe.of(name, **FAST), log)
    fit(Recipe.of("two_tower", **FAST), log)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("dla", {"max_weight": "ten"}, "max_weight must be a number above 0, or none, got 'ten'"),
        ("dla", {"max_weight": float("nan")}, "max_weight must be a number above 0, or none, got nan"),
        ("regression_em", {"sample": 1}, "sample must be true or false, got 1"),
        ("affine", {"estimation_steps": 2.5}, "estimation_steps must be a whole number from 1, got 2.5"),
        ("labelled", {"gain": None}, "gain must be one of grade, exponential, got None"),
    ],
)
def test_a_value_of_another_kind_is_refused_with_the_recipe(method, options, message):
    with pytest.raises(ValueError, match=message):
        Recipe.of(method, **options)


def test_a_share_to_hold_out_may_be_a_number_of_numpy(log):
    assert fit(Recipe.of("naive", **FAST), log, validate=np.float32(0.25)).trained_on["validation"] is not None


def test_no_hyper_parameter_hides_a_setting_of_training_or_network():
    shared = {*SETTING_NAMES, *NETWORK_NAMES, "transform", "method"}
    assert {name: set(hyper_parameters(method)) & shared for name, method in METHODS.items()} == {
        name: set() for name in METHODS
    }


def test_a_run_with_other_hyper_parameters_does_not_go_on_from_a_checkpoint(log, tmp_path):
    def stop(report):
        raise KeyboardInterrupt

    options = {**FAST, "validate_every": 5}
    with pytest.raises(KeyboardInterrupt):
        fit(Recipe.of("dla", **options, max_weight=5.0), log, checkpoint=tmp_path / "run", progress=_after(2, stop))
    with pytest.raises(ValueError, match="belongs to another run: hyper_parameters"):
        fit(Recipe.of("dla", **options, max_weight=6.0), log, checkpoint=tmp_path / "run")
    fit(Recipe.of("dla", **options, max_weight=5.0), log, checkpoint=tmp_path / "run")


def _after(n, function):
    calls = iter(range(n))
    return lambda report: next(calls, None) is None and function(report)


def test_positions_that_were_never_shown_are_told(log):
    moved = replace(log, positions=np.where(log.positions > 2, log.positions + 4, log.positions))
    assert fit(Recipe.of("dla", **FAST), moved).trained_on["never_shown"] == [3, 4, 5, 6]
    assert fit(Recipe.of("dla", **FAST), log).trained_on["never_shown"] == []


@pytest.mark.parametrize("method", ["naive", "dla", "pair_debias", "vectorization", "pbm", "low_rank"])
def test_lists_shown_more_than_2_to_the_24_times_train_the_same_ranker(method, log, world):
    few = log.of_queries(np.arange(40))
    many = few.weighted(np.full(few.n_lists, 2.0**24 + 1))  # no count is one of float32 any more
    assert many.sessions.min() > 2**24
    # AdamW divides by the size of a gradient, and would amplify what is rounding alone.
    options = {"steps": 15, "hidden": (8,), "optimizer": "adagrad"}
    rankers = [fit(Recipe.of(method, **options), each).ranker() for each in (few, many)]
    scores = [score_documents(ranker, world.test) for ranker in rankers]
    centred = [each - each.mean() for each in scores]  # losses of whole lists leave one number open
    np.testing.assert_allclose(*centred, atol=2e-4 * np.abs(centred[0]).max())
