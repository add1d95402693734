from dataclasses import replace

import numpy as np
import pytest

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.examination_record import examination_rates, false_alarms
from unskew.data.judged.judged_set import JudgedSet
from unskew.methods.bias.attention import UNSURE
from unskew.propensities.estimate import estimate_propensities
from unskew.simulation.policies import Random
from unskew.simulation.simulate import simulate
from unskew.simulation.users import make_user
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe
from unskew.training.settings import Settings

# Document a at positions 1 and 2, seen .8 and .4 of 1,000 times, wanted by half; recorded at .1 + .9 · seen.
MOVED = {
    "features": np.zeros((2, 1), dtype=np.float32),
    "versions": np.array([[0, 1], [1, 0]], dtype=np.int32),
    "mask": np.ones((2, 2), dtype=bool),
    "document_queries": np.zeros(2, dtype=np.int64),
    "clicks": np.array([[400, 200], [400, 200]]),
    "sessions": np.array([1000, 1000]),
    "seen": np.array([[820, 460], [820, 460]]),
    "seen_sessions": np.array([1000, 1000]),
}


def moved(**changes):
    return ClickLog(**{**MOVED, **changes})


def simulated(sessions=2_000, **record):
    rng = np.random.default_rng(0)
    judged = JudgedSet.from_arrays(rng.normal(size=(400, 3)), rng.integers(0, 5, 400), group=[10] * 40)
    user = make_user("coupled", coupling=0.3, form="logistic", crux_scale="standard", crux=(0, 1, 2))
    return simulate(judged, Random(), user, sessions=sessions, record=record)


def of_queries(n):
    """The moved documents once for each query."""
    counts = {name: np.concatenate([MOVED[name]] * n) for name in MOVED if name not in ("versions", "document_queries")}
    versions = np.concatenate([MOVED["versions"] + 2 * query for query in range(n)])
    return ClickLog(**counts, versions=versions, document_queries=np.repeat(np.arange(n), 2))


def test_false_alarms_follow_from_documents_that_moved():
    # .4 · .46 - .2 · .82 = .1 · (.4 - .2)
    assert false_alarms(of_queries(6)).rate == pytest.approx(0.1)


def test_simulated_false_alarms_are_found_despite_coupling_and_misses():
    found = false_alarms(simulated(false_alarms=0.2, misses=0.1, share=0.5).log)
    assert abs(found.rate - 0.2) < 4 * found.error
    assert found.error < 0.02


def test_where_nothing_moved_false_alarms_are_refused():
    with pytest.raises(ValueError, match="no document was shown at two positions"):
        false_alarms(moved(versions=np.array([[0, 1], [0, 1]], dtype=np.int32)))


def test_more_false_alarms_than_looks_at_some_position_are_refused():
    # Moved documents say (.4 · .41 - .04 · .82) / (.4 - .04) = .364; a third document is looked at in .05 at its place.
    rows = {"clicks": [[400, 40, 9]] * 12, "seen": [[820, 410, 50]] * 12, "mask": [[True] * 3] * 12}
    versions = np.concatenate([np.array([[0, 1, 2], [1, 0, 2]]) + 3 * query for query in range(6)]).astype(np.int32)
    log = ClickLog(
        features=np.zeros((18, 1), dtype=np.float32),
        versions=versions,
        document_queries=np.repeat(np.arange(6), 3),
        sessions=np.full(12, 1000),
        seen_sessions=np.full(12, 1000),
        **{name: np.array(values) for name, values in rows.items()},
    )
    with pytest.raises(
        ValueError, match=r"is 0\.36 ± 0\.00, but one position was recorded as examined in only 0\.05 of"
    ):
        false_alarms(log)


def test_a_log_without_looks_is_refused():
    log = replace(simulated().log, seen=None, seen_sessions=None)
    with pytest.raises(ValueError, match="no recorded examination"):
        fit_recipe(Recipe("attention", settings=Settings(steps=1)), log)


def test_propensities_of_the_record_are_the_shares_of_looks():
    curve = estimate_propensities(moved(), "seen", n_bootstrap=0)
    np.testing.assert_allclose(curve.values, [1, 460 / 820])
    np.testing.assert_allclose(examination_rates(moved()), [0.82, 0.46])


def test_ipw_takes_its_propensities_from_the_record():
    log = simulated().log
    model = fit_recipe(Recipe("ipw", {"estimator": "seen"}, Settings(steps=2)), log)
    rates = examination_rates(log)
    np.testing.assert_allclose(model.method.examination(), rates / rates[0], rtol=1e-5)


def test_observation_is_learnt_from_the_record():
    result = simulated(misses=0.2)
    model = fit_recipe(Recipe("attention", settings=Settings(steps=150)), result.log)
    truth = result.truth.mean_examination(result.log)
    assert np.abs(model.method.examination().numpy() - truth / truth[0]).max() < 0.1


def test_an_unsure_rate_of_false_alarms_is_warned_of_and_never_above_the_least_seen_position(caplog):
    log = simulated(sessions=15, false_alarms=0.2).log
    assert false_alarms(log).error > UNSURE
    model = fit_recipe(Recipe("attention", {"false_alarms": None}, Settings(steps=1)), log)
    assert "too uncertain to correct for" in caplog.text
    assert model.method.findings()["false_alarms"]["rate"] <= np.nanmin(examination_rates(log)) + 1e-6
