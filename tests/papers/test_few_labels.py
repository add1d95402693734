"""What few labels are worth, by what they are used for."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from unskew.evaluation.evaluate import evaluate_scorer, score_documents
from unskew.papers import few_labels
from unskew.papers.few_labels import CHOSEN, TAUGHT, TUNED, UNLABELLED, USES, Learnt, choose_number, move, teach
from unskew.papers.reproduce import reproduce
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe

FAST = {"steps": 40, "hidden": [8], "validate_every": 40, "average": 0.2}


@pytest.fixture(scope="module")
def learnt(log):
    plain, low_rank, lbd = (fit_recipe(Recipe.of(name, **FAST), log) for name in ("naive", "low_rank", "lbd"))
    return Learnt(plain, low_rank, lbd, "ndcg@10")


def test_choosing_the_number_afterwards_is_what_low_rank_does_with_judged_queries(learnt, log, world):
    judged = world.valid.select(np.arange(20))
    at_once = fit_recipe(Recipe.of("low_rank", choose="judged", **FAST), log, validate=judged)
    afterwards = choose_number(learnt, judged)
    np.testing.assert_allclose(
        score_documents(afterwards, world.test), score_documents(at_once.ranker(), world.test), atol=1e-5
    )


def test_choosing_leaves_the_model_without_labels_as_it_is(learnt, world):
    before = learnt.low_rank.method.numbers.clone()
    choose_number(learnt, world.valid)
    assert torch.equal(learnt.low_rank.method.numbers, before)
    assert learnt.low_rank.method.choose == "uncorrelated"


def test_scores_are_moved_along_what_tells_relevance_and_left_alone_by_what_tells_nothing(learnt, world):
    valid = world.valid
    scores = learnt.plain.ranker()
    known = replace(valid, grades=_ranks_of(score_documents(lambda f, m: -scores(f, m), valid), valid.offsets))

    def own(features, mask):
        return learnt.plain.method.relevance(features, mask).unsqueeze(-1)

    turned = move(learnt, known, learnt.plain, own)
    assert evaluate_scorer(turned, known, ["ndcg@10"]).mean("ndcg@10") == pytest.approx(1.0)
    nothing = move(learnt, known, learnt.plain, lambda features, _: torch.zeros(*features.shape[:2], 1))
    np.testing.assert_allclose(score_documents(nothing, valid), score_documents(scores, valid))


def _ranks_of(scores, offsets):
    """Grades 0 to 4 in the order of the scores of each list."""
    grades = np.empty(len(scores), np.float32)
    for first, last in pairwise(offsets):
        order = scores[first:last].argsort().argsort()
        grades[first:last] = np.floor(5 * order / (last - first))
    return grades


def test_plain_clicks_stay_where_training_on_labels_does_not_help(learnt, world):
    ranker = learnt.plain.ranker()
    agreed = replace(world.valid, grades=_ranks_of(score_documents(ranker, world.valid), world.valid.offsets))
    taught = teach(learnt, agreed.select(np.arange(12)), ranker)
    np.testing.assert_array_equal(score_documents(taught, world.test), score_documents(ranker, world.test))


def test_low_rank_goes_on_from_its_chosen_number(learnt, world):
    judged = world.valid.select(np.arange(30))
    ranker = choose_number(learnt, judged)
    agreed = replace(world.valid, grades=_ranks_of(score_documents(ranker, world.valid), world.valid.offsets))
    stayed = teach(learnt, agreed.select(np.arange(12)), ranker)
    np.testing.assert_array_equal(score_documents(stayed, world.test), score_documents(ranker, world.test))
    turned = replace(world.valid, grades=_ranks_of(-score_documents(ranker, world.valid), world.valid.offsets))
    moved = teach(learnt, turned, ranker)
    gained = [evaluate_scorer(one, turned, ["ndcg@10"]).mean("ndcg@10") for one in (ranker, moved)]
    assert gained[1] > gained[0] + 0.05


def test_labels_alone_teach_a_ranker(learnt, world):
    taught = teach(learnt, world.valid, None)
    chance = evaluate_scorer(np.zeros(world.test.n_documents), world.test, ["ndcg@10"]).mean("ndcg@10")
    assert evaluate_scorer(taught, world.test, ["ndcg@10"]).mean("ndcg@10") > chance + 0.05


EXPERIMENT = """
title = "Few labels"
paper = "test"
question = "?"
task = "few_labels"
metrics = ["ndcg@10"]
seeds = 2

[task_options]
judged = [3]
draws = 3
taught_draws = 1

[training]
steps = 20
hidden = [8]

[[settings]]
name = "power, η = 0.3"
simulation = { user = { name = "coupled", coupling = 0.3 } }

[[methods]]
label = "Low rank"
method = "low_rank"

[[figures]]
kind = "few_labels"
file = "few-labels"
title = "Few labels"
options = { setting = "power, η = 0.3" }
"""


def test_every_use_meets_the_same_draws_and_all_queries_at_last(tmp_path, monkeypatch):
    monkeypatch.setattr(few_labels, "STEPS", 10)
    file = tmp_path / "few.toml"
    file.write_text(EXPERIMENT, encoding="utf-8")
    done = reproduce(str(file), data="world:tiny", jobs=1, out=tmp_path / "out")
    assert not done.results.failed
    for result in done.results.results:
        for use, by_number in result.outcome.about["uses"].items():
            assert [len(values) for values in by_number.values()] == [1 if use in TAUGHT else 3, 1]
    uses, tests = done.shown.sheets
    assert [row[0] for row in uses.rows] == [*USES, *UNLABELLED]
    assert uses.columns[1:] == ("3 judged queries", "60 judged queries")
    assert [row[1] for row in tests.rows] == [CHOSEN, CHOSEN, TUNED, TUNED]
    assert all(row[2] not in (CHOSEN, TUNED) for row in tests.rows)
    assert (tmp_path / "out" / "few-labels.svg").stat().st_size > 0
