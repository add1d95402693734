"""Logs larger than the memory limit: commands read a random sample of their queries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import unskew
from unskew.comparison import automatic
from unskew.data.clicks import within_memory
from unskew.data.clicks.storage import LogFolder, open_log, read_log, write_log, write_shards
from unskew.data.clicks.windows import window
from unskew.data.clicks.within_memory import bytes_in_memory, part_within, read_within
from unskew.serving.ratings import debiased_rows, scale_of
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe

N_SHARDS = 8
FAST = {"steps": 5, "hidden": [4], "progress": False}


@pytest.fixture(scope="module")
def place(log, tmp_path_factory):
    return write_log(log, tmp_path_factory.mktemp("parts") / "log", n_shards=N_SHARDS)


@pytest.fixture
def small(place, monkeypatch):
    """A limit that holds two of the eight shards."""
    monkeypatch.setattr(within_memory, "FIXED", 0)
    folder = open_log(place)
    needed = bytes_in_memory(folder, range(N_SHARDS), 10)[-1] / N_SHARDS
    monkeypatch.setattr(within_memory, "PER_SHOWN", within_memory.PER_SHOWN * 100e6 / (2.5 * needed))
    monkeypatch.setattr(within_memory, "FEATURE_COPIES", within_memory.FEATURE_COPIES * 100e6 / (2.5 * needed))
    return "100MB"


@pytest.fixture
def reads(monkeypatch):
    """Numbers of the shards that are read, and lists of the logs that are held."""
    found = []
    original = LogFolder.shard

    def shard(self, number):
        found.append(number)
        return original(self, number)

    monkeypatch.setattr(LogFolder, "shard", shard)
    return found


def test_a_log_within_the_limit_is_read_whole(place):
    clicks, part = read_within(place, "4GB")
    assert part is None
    assert clicks.digest == read_log(place).digest
    assert read_within(place, None)[1] is None


def test_the_part_is_a_function_of_the_log_and_holds_no_more_than_the_limit(place, small):
    parts = [part_within(open_log(place), small) for _ in range(2)]
    assert parts[0].numbers == parts[1].numbers
    assert len(parts[0].numbers) == 2
    n_docs = parts[0].whole().n_docs
    assert bytes_in_memory(open_log(place), parts[0].numbers, n_docs)[-1] <= 100e6
    assert bytes_in_memory(open_log(place), range(3), n_docs)[-1] > 100e6


def test_the_part_has_the_queries_of_its_shards(place, small):
    folder = open_log(place)
    clicks, part = read_within(folder, small)
    shards = [folder.shard(number) for number in part.numbers]
    assert clicks.n_lists == sum(shard.n_lists for shard in shards) == part.n_lists
    assert set(clicks.query_ids) == {query for shard in shards for query in shard.query_ids}


def test_a_larger_log_is_held_with_as_many_lists(log, tmp_path, monkeypatch):
    """Twice the log, in twice the shards, gives the lists of the same number of shards."""
    monkeypatch.setattr(within_memory, "FIXED", 0)
    monkeypatch.setattr(within_memory, "PER_SHOWN", 100e6 / (2.5 * log.n_docs * log.n_lists / N_SHARDS))
    monkeypatch.setattr(within_memory, "FEATURE_COPIES", 0)
    names = np.array([f"{name} again" for name in log.query_ids])
    twice = [log, replace(log, query_ids=names)]
    shards = [part.of_queries(np.arange(len(log.query_ids)) % N_SHARDS == k) for part in twice for k in range(N_SHARDS)]
    once = write_log(log, tmp_path / "once", n_shards=N_SHARDS)
    write_shards(shards, tmp_path / "twice")
    held = [read_within(folder, "100MB")[0].n_lists for folder in (once, tmp_path / "twice")]
    assert held[0] < log.n_lists / 2
    assert held[1] == pytest.approx(held[0], rel=0.5)


def test_at_least_one_shard_is_read(place, monkeypatch):
    monkeypatch.setattr(within_memory, "FIXED", 1e12)
    assert len(part_within(open_log(place), "1GB").numbers) == 1


def test_the_note_says_what_was_read_and_how_to_read_more(place, small):
    part = part_within(open_log(place), small)
    assert f"Read 2 of {N_SHARDS} shards" in part.note
    assert f"{part.n_lists:,} of {part.source.n_lists:,} lists" in part.note
    assert "only if its order is random" in part.note  # it was not ingested
    assert "--memory 200MB" in part.note
    ingested = replace(part, about={**part.about, "notes": {"source": "events.parquet"}})
    assert "a random sample of the queries" in ingested.note


def test_diagnose_says_that_it_read_a_part(place, small, reads, tmp_path):
    with pytest.warns(RuntimeWarning, match=f"Read 2 of {N_SHARDS} shards"):
        found = unskew.diagnose(place, tmp_path / "report.html", quick=True, memory=small, progress=False)
    assert len(set(reads)) == 2
    assert found.part in (tmp_path / "report.html").read_text()
    clicks, _ = read_within(place, small)
    assert found.to_table().equals(unskew.diagnose(clicks, quick=True, progress=False).to_table())


def test_the_curve_of_a_part_is_within_its_interval(place, small):
    with pytest.warns(RuntimeWarning, match="shards"):
        curve = unskew.estimate_propensities(place, "all_pairs", n_bootstrap=100, memory=small)
    whole = unskew.estimate_propensities(place, "all_pairs", n_bootstrap=100)
    assert (np.isclose(curve.values, whole.values) | ((curve.low <= whole.high) & (whole.low <= curve.high))).all()


def test_auto_decides_on_a_part_and_trains_on_every_shard(place, small, reads, monkeypatch):
    decide, decided = automatic._verdict, []
    monkeypatch.setattr(automatic, "_verdict", lambda log, *rest: decided.append(log) or decide(log, *rest))
    with pytest.warns(RuntimeWarning, match="The last training reads every shard"):
        chosen = automatic.auto(place, memory=small, steps=3, hidden=[4])
    assert chosen.verdict.part
    assert set(reads) == set(range(N_SHARDS))
    clicks, part = read_within(place, small)
    assert decided[0].digest == clicks.digest
    assert chosen.model.trained_on["lists"] == part.source.n_lists > clicks.n_lists


def test_compare_works_on_a_part_that_is_a_log(place, small, tmp_path):
    given = {"options": {"steps": 3}, "seeds": 1, "jobs": 1, "progress": False}
    with pytest.warns(RuntimeWarning, match="shards"):
        done = unskew.compare(place, ["naive", "dla"], out=tmp_path / "part", memory=small, **given)
    assert read_log(tmp_path / "part" / "log").digest == read_within(place, small)[0].digest
    assert f"Read 2 of {N_SHARDS} shards" in done.report.read_text()


def test_weights_of_a_larger_log_have_the_rows_of_a_whole_one(place, small, tmp_path):
    with pytest.warns(RuntimeWarning, match="shards"), pytest.raises(ValueError, match="pass out"):
        unskew.weights(place, memory=small, **FAST)
    with pytest.warns(RuntimeWarning, match="shards"):
        done = unskew.weights(place, tmp_path / "rows.parquet", memory=small, **FAST)
    rows, clicks = pq.read_table(tmp_path / "rows.parquet"), read_log(place)
    whole = debiased_rows(clicks, done.model, scale_of(read_within(place, small)[0], done.model))
    assert done.title.startswith(f"{len(whole):,} rows")
    assert rows.equals(whole)


@pytest.mark.parametrize("method", ["ipw", "low_rank"])
def test_what_a_method_needs_in_advance_comes_from_the_part(place, small, method):
    with pytest.warns(RuntimeWarning, match="Training reads every shard"):
        model = unskew.fit(method, open_log(place), memory=small, **FAST)
    assert model.trained_on["lists"] == read_log(place).n_lists
    if method == "ipw":
        clicks, _ = read_within(place, small)
        curve = unskew.estimate_propensities(clicks, n_bootstrap=0).propensities(clicks.n_positions)
        assert model.recipe.hyper_parameters["propensities"] == curve.tolist()


def test_from_a_whole_log_a_streamed_fit_is_the_usual_one(place):
    folder, recipe = open_log(place), Recipe.of("ipw", steps=3, hidden=[4])
    models = [fit_recipe(recipe, folder.sampled(read_log(place))), unskew.fit(recipe, folder, progress=False)]
    for name, value in models[0].method.state_dict().items():
        assert torch.equal(models[1].method.state_dict()[name], value)


def test_a_window_on_disk_is_the_window_of_the_log_in_memory(log, tmp_path):
    days = np.arange(log.n_lists) % 4 * 86_400_000_000
    place = write_log(replace(log, periods=days), tmp_path / "days", n_shards=3)
    streamed, whole = (window(each, since="1970-01-02", half_life=2) for each in (open_log(place), read_log(place)))
    assert whole.n_lists < log.n_lists
    assert streamed.whole().digest == whole.digest


@pytest.mark.filterwarnings("always")
def test_the_command_prints_what_it_read(place, small, run, tmp_path):
    said = run("diagnose", place, "--quick", "--memory", small, "--out", tmp_path / "report.html", "--quiet")
    assert f"warning: Read 2 of {N_SHARDS} shards" in said
    assert "is not a valid size" in run("diagnose", place, "--memory", "lots", code=2)


@pytest.mark.filterwarnings("always")
def test_training_without_a_method_runs_auto_within_the_limit(place, small, run, tmp_path, reads):
    said = run(
        "train", place, "--out", tmp_path / "model", "--memory", small, "--set", "steps=3", "--quiet", "--stream"
    )
    assert "The last training reads every shard" in said
    assert set(reads) == set(range(N_SHARDS))
    assert "verdict" in unskew.load_model(tmp_path / "model").trained_on
