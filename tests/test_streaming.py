"""Every part takes a log that is read shard by shard, with the numbers of one in memory."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import unskew
from unskew.comparison.sources import own_log
from unskew.data.clicks.storage import LogFolder, open_log, read_log, write_log
from unskew.data.memory import is_mapped
from unskew.data.transformed import transform_for, transform_log


@pytest.fixture(scope="module")
def place(log, tmp_path_factory):
    return write_log(log, tmp_path_factory.mktemp("streamed") / "log", n_shards=4)


@pytest.fixture(scope="module")
def mapped(place):
    return open_log(place).whole(mapped_beyond=0)


def test_a_large_log_has_its_features_in_a_file(place, mapped):
    whole = read_log(place)
    assert is_mapped(mapped.features)
    assert not is_mapped(whole.features)
    assert mapped.digest == whole.digest
    assert is_mapped(mapped.split(0.5)[0].features)


def test_features_in_a_file_stay_there_when_they_are_transformed(place, mapped):
    whole = read_log(place)
    transform = transform_for("automatic", mapped)
    changed = transform_log(mapped, transform)
    assert is_mapped(changed.features)
    assert np.array_equal(changed.features, transform_log(whole, transform).features)


def test_lists_without_features_give_the_same_curve(place):
    folder = open_log(place)
    assert folder.without_features().n_features == 0
    for estimator in ("all_pairs", "randomization"):
        whole = unskew.estimate_propensities(read_log(place), estimator, n_bootstrap=20)
        curve = unskew.estimate_propensities(folder.without_features(), estimator, n_bootstrap=20)
        assert np.array_equal(curve.values, whole.values)
        assert np.array_equal(curve.low, whole.low)


def test_ipw_estimates_propensities_of_a_streamed_log(place):
    options = {"steps": 4, "progress": False}
    streamed = unskew.fit("ipw", open_log(place), **options)
    whole = unskew.fit("ipw", read_log(place), **options)
    assert streamed.recipe.hyper_parameters == whole.recipe.hyper_parameters


@pytest.mark.parametrize("options", [{}, {"choose": "uncorrelated"}])
def test_low_rank_and_upe_train_on_a_streamed_log(place, options):
    name = "low_rank" if options else "upe"
    model = unskew.fit(name, open_log(place), steps=6, progress=False, **options)
    assert np.isfinite(model.examination()).all()


def test_clicks_can_be_held_out_of_a_streamed_log(place):
    options = {"steps": 4, "validate": 0.25, "progress": False}
    streamed = unskew.fit("dla", open_log(place), **options)
    assert streamed.history.best_value == unskew.fit("dla", read_log(place), **options).history.best_value


def test_hte_corrects_a_streamed_log_as_one_in_memory(world, tmp_path):
    log = unskew.simulate(world.train, "svm", "position_based", sessions=16, interventions={"swap_top": 0.3}).log
    folder = open_log(write_log(log, tmp_path / "log", n_shards=3))
    effects = unskew.methods.bias.hte.Effects(log.intervened(), log.query_ids[np.unique(log.queries)], 3, 5, 8)
    whole = effects.of(log)
    rows = 0
    for shard in folder.shards():
        part = effects.of(shard)
        assert np.array_equal(part, whole[rows : rows + shard.n_lists, : shard.n_docs])
        rows += shard.n_lists
    model = unskew.fit("hte", folder, steps=3, trees=5, max_leaves=8, progress=False)
    assert model.history.rows


def test_ids_beside_features_are_fitted_to_a_streamed_log(place):
    options = {"attraction": "both", "steps": 3, "progress": False}
    streamed, whole = (unskew.fit("dctr", log, **options) for log in (open_log(place), read_log(place)))
    assert streamed.method.uses_ids
    assert whole.method.fitted.objective == pytest.approx(streamed.method.fitted.objective, rel=0.05)


def test_what_reads_a_whole_log_takes_an_opened_one(place):
    opened, whole = open_log(place), read_log(place)
    rows = [unskew.weights(log, steps=3, progress=False).table for log in (opened, whole)]
    assert rows[0].equals(rows[1])
    found = [unskew.diagnose(log, quick=True, progress=False).to_table() for log in (opened, whole)]
    assert found[0].equals(found[1])


@pytest.mark.slow
def test_diagnose_trains_on_features_in_a_file(place, mapped):
    found = [unskew.diagnose(log, progress=False).to_table() for log in (mapped, read_log(place))]
    assert found[0].equals(found[1])


def test_auto_chooses_the_same_from_features_in_a_file(place, mapped):
    options = {"steps": 5, "hidden": [4], "progress": False}
    streamed, whole = (unskew.auto(log, **options) for log in (mapped, read_log(place)))
    assert streamed.verdict == whole.verdict
    for entry, value in whole.model.ranker().state_dict().items():
        assert torch.equal(streamed.model.ranker().state_dict()[entry], value), entry


def test_compare_has_the_numbers_of_every_criterion_of_a_log_in_memory(place, tmp_path, monkeypatch):
    def outcomes(log):
        options = {"options": {"steps": 5}, "seeds": 1, "jobs": 1, "progress": False}
        done = unskew.compare(log, ["naive", "dla"], out=tmp_path / f"{log.name} compared", **options)
        assert not done.results.failed
        return {result.run.label: result.outcome.per_query for result in done.results.results}

    whole = outcomes(place)
    copy = Path(shutil.copytree(place, tmp_path / "copy"))
    monkeypatch.setattr(LogFolder.whole, "__defaults__", (0,))  # every log that is read now has its features in a file
    streamed = outcomes(copy)
    assert is_mapped(own_log(str(copy)).features)
    assert streamed.keys() == whole.keys() == {"production", "naive", "dla"}
    for label, criteria in whole.items():
        assert streamed[label].keys() == criteria.keys()
        for criterion, values in criteria.items():
            assert np.array_equal(streamed[label][criterion], values, equal_nan=True), (label, criterion)
