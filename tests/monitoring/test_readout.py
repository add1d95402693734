"""What an online test says of the new ranker."""

import json
from dataclasses import replace

import numpy as np
import pytest

from unskew import ClickLog, open_log, readout, simulate, write_log
from unskew.data.clicks.row_fields import BiasColumn
from unskew.simulation.policies import Mixed, NoisyOracle, TeamDraft

WEAK, STRONG = NoisyOracle(strength=0.3), NoisyOracle(strength=0.7)


def by_name(found):
    return {each.name: each for each in found.outcomes}


def test_arms_are_compared_by_clicks_per_session_by_hand():
    log = ClickLog(
        features=np.zeros((4, 1), np.float32),
        versions=np.array([[0, 1], [1, 0], [2, 3], [3, 2]], np.int32),
        mask=np.ones((4, 2), bool),
        clicks=np.array([[2.0, 0], [4.0, 1.0], [1.0, 1.0], [2.0, 0]]),
        sessions=np.array([10.0, 10.0, 10.0, 10.0]),
        bias={"arm": BiasColumn(np.array([0, 1, 0, 1]), ("old", "new"))},
    )
    found = by_name(readout(log, curve=[1.0, 0.5]))
    clicks = found["clicks per session"]
    assert (clicks.before, clicks.after, clicks.ranker) == (4 / 20, 7 / 20, "new")
    assert clicks.difference == pytest.approx(3 / 20)
    corrected = found["clicks, corrected DCG"]
    assert corrected.before == pytest.approx((3 + 1 / (0.5 * np.log2(3))) / 20)


def test_the_better_arm_and_the_better_team_are_found(world):
    for policy in (Mixed(loggers=[WEAK, STRONG], arms=True), TeamDraft(loggers=[WEAK, STRONG])):
        log = simulate(world.train, policy, "position_based", sessions=64, joint=True, seed=1).log
        found = readout(log)
        assert all(each.low > 0 for each in found.outcomes), found.kind
        assert found.not_corrected is None


def test_an_interleaving_is_more_sensitive_than_splitting_the_same_sessions(world):
    def statistic(policy):
        log = simulate(world.train, policy, "position_based", sessions=64, seed=2).log
        clicks = by_name(readout(log, curve=np.ones(10)))["clicks per session"]
        return clicks.difference / (clicks.high - clicks.low)

    assert statistic(TeamDraft(loggers=[WEAK, STRONG])) > statistic(Mixed(loggers=[WEAK, STRONG], arms=True))


@pytest.mark.parametrize("kind", [Mixed, TeamDraft])
def test_equal_rankers_are_told_apart_about_as_often_as_p_says(world, kind):
    options = {"arms": True} if kind is Mixed else {}
    policy = kind(loggers=[WEAK, WEAK], **options)
    judged = world.train.select(np.arange(100))
    p = []
    for seed in range(60):
        log = simulate(judged, policy, "position_based", sessions=8, seed=seed).log
        p.append(by_name(readout(log, curve=np.ones(10)))["clicks per session"].p)
    # 60 tests at a level of 0.1: 6 are expected, and 15 or more come up once in two thousand.
    assert np.sum(np.array(p) < 0.1) < 15


def test_a_team_draft_shows_each_document_once_and_gives_both_teams_half_of_it(world):
    log = simulate(world.train, TeamDraft(loggers=[WEAK, STRONG]), "position_based", sessions=4, seed=1).log
    teams = log.bias["team"].values
    full = log.mask.all(axis=1)
    assert (np.diff(np.sort(log.versions[full], axis=1)) > 0).all()
    assert (teams[full].sum(axis=1) == 5).all()
    assert (teams[full][:, 0::2] + teams[full][:, 1::2] == 1).all()  # one pick each in every round


def test_what_is_no_test_is_refused_with_the_reason(log):
    with pytest.raises(ValueError, match="pass the column with the arm of each list"):
        readout(log)
    one = replace(log, bias={"arm": BiasColumn(np.zeros(log.n_lists, int), ("old", "new"))})
    with pytest.raises(ValueError, match="has the levels old: at least two"):
        readout(one)
    with pytest.raises(ValueError, match=r"no bias column 'bucket'\. Found: arm"):
        readout(one, arm="bucket")


def test_readout_on_the_command_line_with_graded_outcomes(world, tmp_path, run):
    log = simulate(world.train, Mixed(loggers=[WEAK, STRONG], arms=True), "position_based", sessions=16, seed=1).log
    write_log(replace(log, events={"cart": np.floor(log.clicks / 2)}), tmp_path / "log")
    said = json.loads(run("readout", tmp_path / "log", "--grade", "click=1", "--grade", "cart=3", "--json"))
    names = [each["name"] for each in said["outcomes"]]
    assert {"clicks per session", "cart per session", "graded feedback per session"} <= set(names)
    assert sum(said["sessions"].values()) == log.n_sessions
    assert "A/B test" in run("readout", tmp_path / "log", "--baseline", "noisy_oracle 2")


@pytest.mark.parametrize("policy", [Mixed(loggers=[WEAK, STRONG], arms=True), TeamDraft(loggers=[WEAK, STRONG])])
@pytest.mark.parametrize("given", [True, False], ids=["curve given", "curve estimated"])
def test_a_log_in_shards_is_read_as_the_whole_is(world, policy, given, tmp_path):
    log = simulate(world.train, policy, "position_based", sessions=16, joint=True, seed=1).log
    write_log(log, tmp_path / "log", n_shards=3)
    curve = np.linspace(1, 0.1, 10) if given else None
    whole, parts = readout(log, curve=curve), readout(open_log(tmp_path / "log"), curve=curve)
    assert any("corrected" in outcome.name for outcome in whole.outcomes)
    assert whole.sessions == parts.sessions
    for one, other in zip(whole.outcomes, parts.outcomes, strict=True):
        assert (one.name, one.ranker, one.n_queries) == (other.name, other.ranker, other.n_queries)
        numbers = [[each.before, each.after, each.difference, each.low, each.p] for each in (one, other)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-9)
    assert whole.not_corrected == parts.not_corrected
