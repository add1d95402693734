"""A model trained further on judged queries."""

import json
from dataclasses import replace

import numpy as np
import pytest

from unskew import fit, load_model, save_model, tune
from unskew.evaluation.evaluate import evaluate_scorer, score_documents
from unskew.monitoring.tuning import train_further

FAST = {"progress": False, "steps": 40, "hidden": (8,), "validate_every": 40, "average": 0.0}
SHORT = {"progress": False, "steps": 20, "every": 10, "rates": (0.1,)}
HARDLY = {"progress": False, "steps": 1, "every": 1, "rates": (1e-9,)}


@pytest.fixture(scope="module")
def model(log):
    return fit("naive", log, **FAST)


def graded_by(judged, scores):
    """Grades of 1 for the better half of each list by these scores."""
    median = np.repeat([np.median(part) for part in np.split(scores, judged.offsets[1:-1])], judged.sizes)
    return replace(judged, grades=(scores > median).astype(np.float32))


def test_a_model_that_judges_agree_with_stays_as_it_is(model, world):
    agreed = graded_by(world.valid, score_documents(model.ranker(), world.valid))
    found = tune(model, agreed, **SHORT)
    assert found.choice.steps == 0
    np.testing.assert_array_equal(
        score_documents(found.model.ranker(), world.test), score_documents(model.ranker(), world.test)
    )
    assert found.difference[0] == 0


def test_a_model_that_judges_turn_round_learns_and_the_estimate_says_so(model, world, tmp_path):
    turned = [graded_by(part, -score_documents(model.ranker(), part)) for part in (world.valid, world.test)]
    found = tune(model, turned[0], **SHORT)
    assert found.choice.steps > 0
    rankers = [each.ranker() for each in (model, found.model)]
    before, after = (evaluate_scorer(ranker, turned[1], ["ndcg@10"]).mean("ndcg@10") for ranker in rankers)
    assert after > before + 0.1
    assert found.difference[1] > 0
    save_model(found.model, tmp_path / "tuned")
    np.testing.assert_allclose(
        score_documents(load_model(tmp_path / "tuned").ranker(), world.test),
        score_documents(found.model.ranker(), world.test),
        atol=1e-6,
    )


def test_the_number_of_low_rank_can_be_chosen(log, world, tmp_path):
    low_rank = fit("low_rank", log, **FAST)
    method = low_rank.method
    toward = replace(low_rank, method=method)
    scores = score_documents(
        lambda features, mask: method.relevance(features, mask) + 4 * method.traits(features).sum(-1),
        replace(world.valid, features=low_rank.transform.apply_to(world.valid.features)),
    )
    found = tune(toward, graded_by(world.valid, scores), **HARDLY)
    assert found.choice.number
    save_model(found.model, tmp_path / "tuned")
    assert load_model(tmp_path / "tuned").method.choose == "judged"


def test_queries_without_a_relevant_document_are_left_out_and_refused_when_few_are_left(model, world):
    grades = world.valid.grades.copy()
    grades[: world.valid.offsets[5]] = 0
    found = tune(model, replace(world.valid, grades=grades), **HARDLY)
    assert found.left_out >= 5
    with pytest.raises(ValueError, match=r"0 of .* judged queries have a relevant document"):
        tune(model, replace(world.valid, grades=np.zeros_like(grades)))


def test_tune_on_the_command_line(model, world, tmp_path, run):
    save_model(model, tmp_path / "model")
    arguments = ("tune", tmp_path / "model", "--judged", "world:tiny", "--steps", 10, "--json")
    said = json.loads(run(*arguments, "--out", tmp_path / "tuned"))
    assert said["queries"] + said["left_out"] == world.valid.n_queries
    assert said["difference"][1] <= said["difference"][0] <= said["difference"][2]
    about = load_model(tmp_path / "tuned").trained_on["tuned"]
    start = {"model": load_model(tmp_path / "model").digest}
    assert about == {"metric": "ndcg@10", "queries": said["queries"], **said["choice"], **start}


def test_a_tuning_that_was_cut_off_goes_on_and_comes_to_the_same(model, world, tmp_path, monkeypatch):
    turned = graded_by(world.valid, -score_documents(model.ranker(), world.valid))
    options = {**SHORT, "folds": 2}
    whole = tune(model, turned, **options)
    trained = []

    def counted(*arguments, **more):
        trained.append(len(trained))
        if len(trained) == 4:
            raise KeyboardInterrupt
        return train_further(*arguments, **more)

    monkeypatch.setattr("unskew.monitoring.tuning.train_further", counted)
    place, seen = tmp_path / "tuning", []
    with pytest.raises(KeyboardInterrupt):
        tune(model, turned, checkpoint=place, **options)
    again = tune(
        model, turned, checkpoint=place, **{**options, "progress": lambda done, total: seen.append((done, total))}
    )
    assert seen[-1] == (6, 6)  # two outer folds and the last choice, two folds each
    assert again.difference == whole.difference
    assert again.choice == whole.choice
    before = len(trained)
    tune(model, turned, checkpoint=place, **options)
    assert len(trained) - before <= 3  # the chosen ones, not the candidates
    place.write_text("damaged")
    assert tune(model, turned, checkpoint=place, **options).choice == whole.choice
