"""Graded feedback: counts per kind in the log, weights in training."""

from dataclasses import replace

import numpy as np
import pytest

import unskew
from unskew.data.clicks.click_log import ClickLog
from unskew.evaluation.evaluate import score_documents
from unskew.serving.ratings import debiased_rows
from unskew.training.fitting import feedback_for
from unskew.training.recipe import Recipe

WEIGHTS = {"click": 1.0, "cart": 3.0, "purchase": 5.0}


def bought(n_lists=60, **changes):
    """Two documents, both clicked alike; the first is bought whenever it is clicked."""
    clicks = np.tile([[2.0, 2.0], [1.0, 1.0]], (n_lists // 2, 1))
    return ClickLog(
        features=np.tile(np.array([[1.0], [0.0]], np.float32), (n_lists, 1)),
        versions=np.arange(2 * n_lists, dtype=np.int32).reshape(n_lists, 2),
        mask=np.ones((n_lists, 2), dtype=bool),
        clicks=clicks,
        sessions=np.full(n_lists, 4.0),
        feature_names=("good",),
        events={"cart": clicks * [1, 0], "purchase": clicks * [1, 0]},
        **changes,
    )


def prefers_what_is_bought(model):
    high, low = score_documents(model.ranker(), unskew.JudgedSet.from_arrays([[1.0], [0.0]], [1, 0], [2]))
    return high - low > 0.1


class TestWeights:
    def test_the_strongest_event_counts(self):
        log = bought(2).with_grades(WEIGHTS)
        assert log.clicks.tolist() == [[10, 2], [5, 1]]  # two purchases; two clicks; …
        assert log.graded

    def test_weights_add_up_on_request(self):
        assert bought(2).with_grades(WEIGHTS, "sum").clicks.tolist() == [[18, 2], [9, 1]]

    def test_a_purchase_without_a_click_is_still_the_strongest(self):
        log = replace(bought(2), clicks=np.zeros((2, 2)), events={"purchase": np.array([[1.0, 0], [0, 1]])})
        assert log.with_grades({"click": 1, "purchase": 5}).clicks.tolist() == [[5, 0], [0, 5]]

    def test_kinds_that_the_log_does_not_count_are_refused(self):
        with pytest.raises(ValueError, match=r"the log has no events of type 'rent', only click, cart, purchase"):
            unskew.fit("naive", bought(), grade={"rent": 1}, progress=False)
        with pytest.raises(ValueError, match=r"grades name 'rent', but the log has no such events"):
            bought(2, grades={"rent": 1})


class TestTraining:
    def test_weights_apply_without_a_new_log(self):
        log = bought()
        plain = unskew.fit("naive", log, steps=30, progress=False)
        graded = unskew.fit("naive", log, steps=30, grade=WEIGHTS, progress=False)
        assert not prefers_what_is_bought(plain)
        assert prefers_what_is_bought(graded)
        assert plain.trained_on["feedback"] == "clicks"
        expected = "events by weight: click 1, cart 3, purchase 5; the strongest event counts"
        assert graded.trained_on["feedback"] == expected

    def test_weights_of_the_log_are_the_default_and_clicks_can_be_asked_for(self):
        log = bought(grades=WEIGHTS)
        assert prefers_what_is_bought(unskew.fit("naive", log, steps=30, progress=False))
        assert not prefers_what_is_bought(unskew.fit("naive", log, steps=30, grade={"click": 1}, progress=False))

    def test_methods_for_clicks_learn_from_clicks_and_say_so(self):
        log = bought(grades=WEIGHTS)
        model = unskew.fit("regression_em", log, steps=5, progress=False)
        assert model.trained_on["feedback"] == "clicks: regression_em needs binary clicks"

    def test_a_log_on_disk_and_a_stream_of_it_have_the_weights(self, tmp_path):
        unskew.write_log(bought(grades=WEIGHTS), tmp_path / "log")
        assert unskew.read_log(tmp_path / "log").grades == WEIGHTS
        folder = unskew.open_log(tmp_path / "log")
        assert prefers_what_is_bought(unskew.fit("naive", folder, steps=30, progress=False))

    def test_without_any_of_the_events_there_is_nothing_to_learn(self):
        log = replace(bought(), events={"purchase": np.zeros((60, 2))})
        with pytest.raises(ValueError, match="the log has no such event"):
            unskew.fit("naive", log, grade={"purchase": 5}, progress=False)

    def test_debiased_rows_hold_the_graded_target(self):
        log = bought(grades=WEIGHTS)
        model = unskew.fit("two_tower", log, steps=2, progress=False)
        assert feedback_for(model.recipe, log).weights == WEIGHTS
        rows = debiased_rows(log, model).slice(0, 1).to_pylist()[0]
        assert rows["target"] == pytest.approx(2 * 5 / 4)  # two purchases in four sessions, at the top

    def test_recipes_keep_the_weights(self):
        recipe = Recipe.of("dla", grade=WEIGHTS, sum_grades=True)
        assert recipe.settings.to_json()["grade"] == WEIGHTS
        assert "grade" not in Recipe.of("dla").settings.to_json()
        with pytest.raises(ValueError, match="grade must be a table of numbers or none"):
            Recipe.of("dla", grade="click")
