"""What changed between two logs, and nothing else."""

import json
from dataclasses import replace

import numpy as np
import pytest

from unskew import drift, open_log, simulate, write_log
from unskew.data.clicks.row_fields import BiasColumn
from unskew.monitoring.estimates import of_difference, of_ratio
from unskew.simulation.policies import NoisyOracle, PlackettLuce
from unskew.simulation.users import make_user

NOTHING = set()


def day(world, seed, *, policy=None, user="position_based", sessions=64, features=None):
    judged = world.train if features is None else replace(world.train, features=features)
    policy = PlackettLuce(logger=NoisyOracle(strength=0.5), temperature=0.5) if policy is None else policy
    log = simulate(judged, policy, user, sessions=sessions, seed=seed).log
    device = np.random.default_rng(seed).integers(0, 2, log.n_lists)
    return replace(
        log,
        feature_names=tuple(f"f{number}" for number in range(log.n_features)),
        bias={"device": BiasColumn(device, ("desktop", "phone"))},
    )


@pytest.fixture(scope="module")
def first(world):
    return day(world, 1)


def kinds(found):
    return {row.kind for row in found.changed}


def test_a_ratio_of_two_queries_has_the_interval_of_their_two_means():
    found = of_ratio(np.array([1.0, 3.0]), np.array([1.0, 1.0])).ratio()
    assert found.value == 2.0
    assert found.high - found.value == pytest.approx(
        12.706 * 1.0, rel=1e-3
    )  # t of 1 degree of freedom, error sqrt(2/2)


def test_queries_on_both_sides_are_pairs():
    weights = np.ones(3)
    found = of_difference(np.array([1.0, 5.0, 9.0]), weights, np.array([2.0, 6.0, 10.0]), weights).ratio_difference()
    assert (found.value, found.low, found.high, found.p) == (1.0, 1.0, 1.0, 0.0)


def test_another_day_of_the_same_is_no_change(world, first):
    found = drift(first, day(world, 2))
    assert kinds(found) == NOTHING
    assert found.coverage["queries_shared"] == 200
    common = dict(found.screen().more[0].rows)
    assert (common["queries shared"], common["sessions b of known queries"]) == ("200", "100.0%")


def test_a_column_that_rose_is_named_with_how_much(world, first):
    features = world.train.features.copy()
    features[:, 3] += 0.25
    found = drift(first, day(world, 2, features=features))
    assert [(row.kind, row.name) for row in found.changed] == [("feature", "f3")]
    assert found.changed[0].difference == pytest.approx(0.25, abs=1e-5)


def test_missing_values_are_named(world, first):
    features = world.train.features.copy()
    features[::2, 1] = np.nan
    found = drift(first, day(world, 2, features=features))
    assert [(row.kind, row.name) for row in found.changed] == [("missing", "f1")]


def test_other_traffic_is_traffic_only(world, first):
    busy = np.where(np.arange(world.train.n_queries) % 2, 32, 96)
    assert kinds(drift(first, day(world, 2, sessions=busy))) == {"traffic"}


def test_another_ranker_is_another_order_only(world, first):
    other = PlackettLuce(logger=NoisyOracle(strength=0.5, seed=9), temperature=0.5)
    assert kinds(drift(first, day(world, 2, policy=other))) == {"order"}


def test_other_eyes_are_other_clicks_only(world, first):
    found = drift(first, day(world, 2, user=make_user("position_based", power=2.0)))
    assert kinds(found) == {"clicks"}
    assert all(row.difference < 0 for row in found.changed)


def test_other_devices_are_named(first, world):
    later = day(world, 2)
    phones = replace(later, bias={"device": BiasColumn(np.ones(later.n_lists, int), ("desktop", "phone"))})
    found = drift(first, phones)
    assert {row.name for row in found.changed} == {"device=desktop", "device=phone"}


def test_logs_that_share_nothing_are_refused(first):
    other = replace(first, query_ids=np.array([f"other {entry}" for entry in first.query_ids], dtype=object))
    with pytest.raises(ValueError, match="share no query"):
        drift(first, other)
    with pytest.raises(ValueError, match="but no document"):
        drift(first, replace(first, document_ids=first.document_ids.astype(str).astype(object) + "x"))


def test_drift_prints_what_changed(world, first, tmp_path, run):
    features = world.train.features.copy()
    features[:, 3] += 0.25
    write_log(first, tmp_path / "a")
    write_log(day(world, 2, features=features), tmp_path / "b")
    said = json.loads(run("drift", tmp_path / "a", tmp_path / "b", "--json"))
    assert [row["name"] for row in said["changes"] if row["changed"]] == ["f3"]
    assert "feature f3" in run("drift", tmp_path / "a", tmp_path / "b")


def with_context(log, seed, share):
    """The log with the category of the visitor: new or known, or not recorded in a tenth of the lists."""
    rng = np.random.default_rng(seed)
    visitor = np.where(rng.random(log.n_lists) < 0.1, np.nan, rng.random(log.n_lists) < share)
    return replace(
        log,
        context=np.stack([visitor, rng.random(log.n_lists)], axis=1).astype(np.float32),
        context_names=("visitor", "hour"),
        categories={"visitor": ("known", "new")},
    )


def test_categories_of_the_context_are_compared_by_the_share_of_each_value(world, first):
    before, later = with_context(first, 1, 0.5), with_context(day(world, 2), 2, 0.3)
    found = {row.name: row for row in drift(before, later).rows if row.kind == "context"}
    assert list(found) == ["visitor=known", "visitor=new", "hour"]
    new = found["visitor=new"]
    assert new.changed
    assert not found["hour"].changed
    assert new.low < -0.2 < new.high
    assert new.after == pytest.approx(0.3, abs=0.02)
    turned = replace(later, categories={"visitor": ("new", "known")})  # the same codes, other words
    assert {row.name: row.after for row in drift(before, turned).rows}["visitor=known"] == pytest.approx(new.after)


def test_a_share_of_missing_context_that_rose_is_named(world, first):
    before, later = with_context(first, 1, 0.5), with_context(day(world, 2), 2, 0.5)
    context = later.context.copy()
    context[::2, 0] = np.nan
    found = drift(before, replace(later, context=context))
    assert [(row.kind, row.name) for row in found.changed] == [("missing", "visitor")]


def test_logs_in_shards_give_the_comparisons_of_whole_ones(world, first, tmp_path, run):
    later = with_context(day(world, 2, user=make_user("position_based", power=2.0)), 2, 0.3)
    write_log(with_context(first, 1, 0.5), tmp_path / "a", n_shards=3)
    write_log(later, tmp_path / "b", n_shards=2)
    whole, parts = (
        json.loads(run("drift", tmp_path / "a", tmp_path / "b", "--json", *words)) for words in ([], ["--stream"])
    )
    assert whole["coverage"] == parts["coverage"]
    for one, other in zip(whole["changes"], parts["changes"], strict=True):
        assert one["name"] == other["name"]
        assert one["low"] == pytest.approx(other["low"], rel=1e-6, abs=1e-9)
        assert one["p_holm"] == pytest.approx(other["p_holm"], rel=1e-6, abs=1e-12)
    folders = [open_log(tmp_path / name) for name in ("a", "b")]
    with pytest.raises(ValueError, match="share no query"):
        drift(folders[0], replace(first, query_ids=first.query_ids.astype(str).astype(object) + "x"))
