import numpy as np
import pytest
from tests.simulation.test_simulate import fixed_user, judged_set, same

from unskew.data.clicks.storage import read_log
from unskew.simulation.policies import NoisyOracle
from unskew.simulation.simulate import simulate
from unskew.simulation.truth import read_truth
from unskew.simulation.users import USERS


def logged(name="position_based", **options):
    return simulate(judged_set(), NoisyOracle(), fixed_user(name), sessions=2_000, **options)


@pytest.mark.parametrize("name", USERS)
def test_a_faultless_record_is_the_truth_and_changes_nothing_else(name):
    result = logged(name, record={})
    np.testing.assert_array_equal(result.log.seen, result.truth.seen)
    np.testing.assert_array_equal(result.log.seen_sessions, result.log.sessions)
    same(result, logged(name))


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_looks_are_recorded_as_often_as_the_arguments_say(share):
    result = logged(record={"share": share, "misses": 0.2, "false_alarms": 0.1, "interest": 0.5})
    log, truth = result.log, result.truth
    kept = 0.8 * (0.5 + 0.5 * truth.attraction)
    rate = truth.examination * kept + (1 - truth.examination) * 0.1
    recorded = log.seen_sessions[:, None] * log.mask
    expected, spread = recorded * rate, np.sqrt(recorded * rate * (1 - rate))
    z = ((log.seen - expected) / np.maximum(spread, 1e-9))[log.mask]
    assert abs((z**2).mean() - 1) < 5 * np.sqrt(2 / len(z))
    assert abs(z.mean()) < 5 / np.sqrt(len(z))
    assert abs(log.seen_sessions.sum() / log.sessions.sum() - share) < 5 * np.sqrt(0.25 / log.sessions.sum())
    assert not log.seen[~log.mask].any()


def test_with_on_click_every_click_is_a_look():
    log = logged(record={"misses": 1.0, "on_click": True}).log
    np.testing.assert_array_equal(log.seen, log.clicks)


def test_record_and_truth_come_back_from_disk(tmp_path):
    result = logged(record={"share": 0.5, "misses": 0.2}, out=tmp_path / "log")
    log, truth = read_log(tmp_path / "log"), read_truth(tmp_path / "log")
    np.testing.assert_array_equal(log.seen, result.log.seen)
    np.testing.assert_array_equal(log.seen_sessions, result.log.seen_sessions)
    np.testing.assert_array_equal(truth.seen, result.truth.seen)
    assert truth.about["record"]["misses"] == 0.2


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"misses": 1.2}, "misses"),
        ({"share": 0}, "share of record .* above 0"),
        ({"mises": 0.1}, "misses"),
    ],
)
def test_impossible_records_are_refused(record, message):
    with pytest.raises(ValueError, match=message):
        logged(record=record)
