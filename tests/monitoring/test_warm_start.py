"""Tomorrow's training begins where today's ended."""

import json
from dataclasses import replace

import numpy as np
import pytest

from unskew import Recipe, fit, open_log, write_log
from unskew.data.clicks.row_fields import BiasColumn
from unskew.data.clicks.windows import DAY, window
from unskew.evaluation.evaluate import score_documents
from unskew.training.settings import Settings

FAST = {"hidden": (8,), "validate_every": 20, "average": 0.0}


@pytest.fixture(scope="module")
def named(log):
    names = tuple(f"f{number}" for number in range(log.n_features))
    device = BiasColumn(np.arange(log.n_lists) % 2, ("desktop", "phone"))
    return replace(log, feature_names=names, bias={"device": device})


@pytest.fixture(scope="module")
def model(named):
    return fit(Recipe.of("dla", steps=40, **FAST), named)


def test_a_start_without_a_step_that_moves_gives_the_model_again(named, model, world):
    again = fit(Recipe.of("dla", steps=1, learning_rate=1e-12, **FAST), named, start=model)
    np.testing.assert_allclose(
        score_documents(again.ranker(), world.test), score_documents(model.ranker(), world.test), atol=1e-5
    )
    np.testing.assert_allclose(again.examination(), model.examination(), atol=1e-5)
    lineage = {"model": model.digest, "logs": [model.trained_on["log"]["digest"]]}
    assert again.trained_on["started_from"] == {"method": "dla", "steps": 40, "extended": [], **lineage}


def test_a_start_trains_slower_and_keeps_the_rate_for_those_after_it():
    settings = Settings(learning_rate=0.2, restart=0.5)
    again = settings.restarted()
    assert (again.learning_rate, again.average) == (0.1, 0.5)
    assert Settings(average=0.0).restarted().average == 0.0
    assert Settings().restarted().learning_rate == pytest.approx(0.3 * 0.005)


def test_columns_are_matched_by_name_whatever_their_order(named, model, world):
    turned = replace(named, features=named.features[:, ::-1].copy(), feature_names=named.feature_names[::-1])
    again = fit(Recipe.of("dla", steps=1, learning_rate=1e-12, **FAST), turned, start=model)
    assert again.feature_names == model.feature_names
    np.testing.assert_allclose(
        score_documents(again.ranker(), world.test), score_documents(model.ranker(), world.test), atol=1e-5
    )


def test_new_levels_and_positions_start_at_the_average_and_the_last_place(named, model):
    levels = ("tablet", "phone", "desktop")
    positions = np.where(named.positions == named.n_positions - 1, named.n_positions, named.positions)
    log = replace(
        named,
        positions=positions.astype(np.int16),
        bias={"device": BiasColumn(np.arange(named.n_lists) % 3, levels)},
    )
    again = fit(Recipe.of("dla", steps=1, learning_rate=1e-12, **FAST), log, start=model)
    assert again.problem.bias["device"] == ("desktop", "phone", "tablet")
    assert again.trained_on["started_from"]["extended"] == ["positions 11 to 11", "device=tablet"]
    np.testing.assert_allclose(again.examination("phone")[:10], model.examination("device=phone"), rtol=1e-4)
    np.testing.assert_allclose(again.examination("tablet")[:10], model.examination(), rtol=1e-4)
    assert again.examination("phone")[10] == pytest.approx(again.examination("phone")[9], rel=1e-4)


def test_the_average_curve_is_the_geometric_mean_of_those_of_the_levels(model):
    curves = model.examinations()
    assert list(curves) == ["device=desktop", "device=phone"]
    np.testing.assert_allclose(
        model.examination(), np.sqrt(curves["device=desktop"] * curves["device=phone"]), rtol=1e-5
    )
    with pytest.raises(ValueError, match=r"'watch' matches 0 levels .* device=desktop, device=phone"):
        model.examination("watch")


def test_other_features_methods_and_columns_are_refused_by_name(named, model):
    other = replace(named, feature_names=("price", *named.feature_names[1:]))
    recipe = Recipe.of("dla", steps=1, **FAST)
    with pytest.raises(ValueError, match="lacks f0 and has price, which the model never saw"):
        fit(recipe, other, start=model)
    with pytest.raises(ValueError, match="lacks the bias column 'device'"):
        fit(recipe, replace(named, bias={}), start=model)
    with pytest.raises(ValueError, match="has method dla, the recipe two_tower"):
        fit(Recipe.of("two_tower", steps=1, **FAST), named, start=model)


def test_a_window_keeps_its_days_and_a_half_life_halves_the_day_before(log):
    days = replace(log, periods=(np.arange(log.n_lists) % 3) * DAY)
    last = window(days, since="1970-01-03")
    assert set(last.periods) == {2 * DAY}
    faded = window(days, since="1970-01-02", half_life=1)
    yesterday = faded.periods == DAY
    np.testing.assert_array_equal(faded.sessions[yesterday], 0.5 * days.sessions[days.periods == DAY])
    np.testing.assert_array_equal(faded.sessions[~yesterday], last.sessions)
    with pytest.raises(ValueError, match=r"no clicks .* 1970-01-01 00:00.* to 1970-01-03"):
        window(days, since="1980-01-01")
    with pytest.raises(ValueError, match="is not a day: write 2026-11-17"):
        window(days, since="Tuesday")


def test_a_window_of_a_log_on_disk_holds_what_that_of_the_log_in_memory_holds(named, tmp_path):
    days = replace(named, periods=(np.arange(named.n_lists) % 3) * DAY)
    write_log(days, tmp_path / "log", n_shards=2)
    cut = {"since": "1970-01-02", "half_life": 2}
    whole, folder = window(days, **cut), window(open_log(tmp_path / "log"), **cut)
    parts = list(folder.shards())
    assert folder.counts("lists") == [part.n_lists for part in parts]
    assert folder.n_sessions == pytest.approx(whole.n_sessions)
    assert sum(part.n_clicks for part in parts) == pytest.approx(whole.n_clicks)
    assert folder.digest != open_log(tmp_path / "log").digest


def test_train_goes_on_from_a_model_on_the_command_line(named, tmp_path, run):
    write_log(replace(named, periods=(np.arange(named.n_lists) % 3) * DAY), tmp_path / "log", n_shards=2)
    steps = ("--set", "steps=20", "--set", "hidden=8", "--json")
    run("train", tmp_path / "log", "--method", "two_tower", "--out", tmp_path / "a", *steps, "--until", "1970-01-03")
    again = ("train", tmp_path / "log", "--from", tmp_path / "a", "--set", "steps=5", "--json")
    said = json.loads(run(*again, "--out", tmp_path / "b", "--since", "1970-01-02", "--half-life", 2))
    assert said["method"] == "two_tower"
    assert said["started_from"]["steps"] == 20
    assert list(said["examination_by_level"]) == ["device=desktop", "device=phone"]
    run(*again, "--out", tmp_path / "c", "--stream")
    cut = ("--stream", "--since", "1970-01-02", "--half-life", 2)
    streamed = json.loads(run(*again, "--out", tmp_path / "d", *cut))
    assert streamed["examination"] == pytest.approx(said["examination"], rel=0.2)  # batches come in another order
    assert "there are no clicks from" in run(
        *again, "--out", tmp_path / "f", "--stream", "--since", "1980-01-01", code=2
    )
    assert "is two_tower, not naive" in run(*again, "--out", tmp_path / "e", "--method", "naive", code=2)
