"""Display probabilities: exact in the simulation, kept in the log, used by the estimators that can."""

from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose

import unskew
from unskew.data.clicks.click_log import ClickLog
from unskew.evaluation.held_out import HeldOut, NotMeasured
from unskew.evaluation.offline import reweighted_clicks
from unskew.propensities.curve import NotIdentified
from unskew.simulation.display import after_interventions, plackett_luce
from unskew.simulation.policies import Mixed, PlackettLuce, make_policy


def test_plackett_luce_is_the_sum_over_all_orders() -> None:
    scores = np.array([3.0, -2.0, 0.0, 1.0, -6.0])
    rates, expected = np.exp(scores), np.zeros((5, 5))
    for order in permutations(range(5)):
        chance, left = 1.0, rates.sum()
        for document in order:
            chance *= rates[document] / left
            left -= rates[document]
        expected[list(order), range(5)] += chance
    assert_allclose(plackett_luce(scores, 5), expected, atol=1e-12)
    assert_allclose(plackett_luce(scores, 2), expected[:, :2], atol=1e-12)


def test_interventions_move_probability() -> None:
    one_order = np.eye(3)[None]  # document i is at position i
    swapped = after_interventions(one_order, np.array([3]), {"swap_top": 0.3})[0]
    assert_allclose(swapped, [[0.8, 0.1, 0.1], [0.1, 0.9, 0.0], [0.1, 0.0, 0.9]])
    assert_allclose(after_interventions(one_order, np.array([3]), {"shuffle": 1.0})[0], np.full((3, 3), 1 / 3))


@pytest.mark.parametrize(
    "policy",
    [PlackettLuce(logger="noisy_oracle", temperature=1.0), Mixed(loggers=("svm", "random"), shares=(0.6, 0.4))],
)
def test_logged_probabilities_are_the_frequencies_of_the_simulation(policy: object) -> None:
    log = unskew.simulate(
        "world:tiny",
        policy,  # type: ignore[arg-type]
        sessions=300,
        n_shown=3,
        interventions={"swap_top": 0.2},
        display_probabilities=True,
        progress=False,
    ).log
    assert log.display_probabilities is not None
    codes = log.versions.astype(np.int64) * 3 + log.positions
    weights = np.broadcast_to(log.sessions[:, None], codes.shape)
    shown = np.bincount(codes[log.mask], weights[log.mask])
    chance = np.zeros(len(shown))
    chance[codes[log.mask]] = log.display_probabilities[log.mask]
    spread = (shown - 300 * chance) / np.sqrt(300 * np.maximum(chance * (1 - chance), 1e-9))
    often = chance > 0.1
    assert often.sum() > 200
    assert_allclose(np.mean(spread[often]), 0.0, atol=0.2)
    assert_allclose(np.std(spread[often]), 1.0, atol=0.15)


def test_a_policy_that_cannot_tell_refuses() -> None:
    with pytest.raises(ValueError, match="does not know their probabilities"):
        unskew.simulate("world:tiny", "team_draft", sessions=2, display_probabilities=True, progress=False)


def test_the_curve_is_found_where_no_document_is_shown_twice() -> None:
    made = unskew.simulate(
        "world:tiny", PlackettLuce(temperature=2.0), sessions=300, display_probabilities=True, progress=False, seed=3
    )
    log, truth = made.log, made.truth.position_curve
    assert truth is not None
    rows = log.to_table()
    query = np.asarray(rows["list"])  # every showing a query of its own: nothing is shown twice
    table = pa.table(
        {"query": query, "session": query, **{n: rows[n] for n in rows.column_names if n not in ("query",)}}
    )
    apart = ClickLog.from_table(
        table, click="clicks", sessions="sessions", features=[], display_probability="display_probability"
    )
    with pytest.raises(NotIdentified):
        unskew.estimate_propensities(apart, "all_pairs", n_bootstrap=0)
    curve = unskew.estimate_propensities(apart, n_bootstrap=0)
    assert curve.estimator == "display"
    assert_allclose(curve.values, truth / truth[0], atol=0.06)
    naive = log.click_rates() / log.click_rates()[0]
    assert np.abs(curve.values - truth / truth[0]).sum() < np.abs(naive - truth / truth[0]).sum()


def test_a_ranker_that_never_draws_tells_nothing() -> None:
    log = unskew.simulate("world:tiny", sessions=20, display_probabilities=True, progress=False).log
    with pytest.raises(NotIdentified, match="almost deterministic"):
        unskew.estimate_propensities(log, "display", n_bootstrap=0)
    with pytest.raises(NotIdentified, match="--display-probability"):
        unskew.estimate_propensities(unskew.simulate("world:tiny", sessions=2, progress=False).log, "display")


def two_orders(chance: float, clicks: list[int]) -> ClickLog:
    """Two documents: a on top with this probability, else b; 100 sessions, as many of each order as expected."""
    first = round(100 * chance)
    columns = {
        "session": ["x", "x", "y", "y"],
        "query": ["q"] * 4,
        "document": ["a", "b", "b", "a"],
        "position": [0, 1, 0, 1],
        "click": clicks,
        "n": [first, first, 100 - first, 100 - first],
        "display_probability": [chance, chance, 1 - chance, 1 - chance],
        "f": [1.0, 2.0, 2.0, 1.0],
    }
    return ClickLog.from_table(
        pa.table(columns), sessions="n", features=["f"], display_probability="display_probability"
    )


def test_clicks_are_reweighted_to_another_ranking() -> None:
    # a: 40 of 80 on top, 2 of 20 below; b: 6 of 20 on top, 8 of 80 below.
    held_out = HeldOut(two_orders(0.8, [40, 8, 6, 2]))
    a_first, b_first = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert_allclose(reweighted_clicks(a_first, held_out), [(0.5 + 0.1) / 2], rtol=1e-6)
    assert_allclose(reweighted_clicks(b_first, held_out), [(0.3 + 0.1) / 2], rtol=1e-6)
    assert_allclose(reweighted_clicks(np.zeros(2), held_out), [(0.5 + 0.1 + 0.3 + 0.1) / 4], rtol=1e-6)


def test_reweighting_needs_probabilities() -> None:
    log = unskew.simulate("world:tiny", sessions=2, progress=False).log
    with pytest.raises(NotMeasured, match="no display probabilities"):
        reweighted_clicks(np.zeros(len(log.features)), HeldOut(log))


def test_sessions_of_a_list_have_the_harmonic_mean_and_unrecorded_ones_stay_apart() -> None:
    columns = {
        "session": [0, 1, 2],
        "query": ["q"] * 3,
        "document": ["a"] * 3,
        "position": [0] * 3,
        "click": [0, 1, 0],
        "chance": [0.5, 0.25, None],
    }
    log = ClickLog.from_table(pa.table(columns), display_probability="chance", features=[])
    assert sorted(zip(log.sessions.tolist(), log.display_probabilities[:, 0].tolist(), strict=True))[1] == (  # type: ignore[index]
        2.0,
        pytest.approx(2 / (2 + 4)),
    )
    assert np.isnan(log.display_probabilities).sum() == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("impossible", [0.0, -0.2, 1.5])
def test_impossible_probabilities_are_refused_by_row(impossible: float) -> None:
    columns = {"session": [0, 1], "query": ["q"] * 2, "document": ["a"] * 2, "position": [0] * 2, "click": [0, 1]}
    with pytest.raises(ValueError, match=r"row 1: .* above 0 and at most 1"):
        ClickLog.from_table(pa.table({**columns, "p": [0.5, impossible]}), display_probability="p", features=[])


def test_a_simulated_log_is_the_same_with_and_without_probabilities() -> None:
    plain, with_chances = (
        unskew.simulate(
            "world:tiny", make_policy("plackett_luce"), sessions=4, progress=False, display_probabilities=asked
        ).log
        for asked in (False, True)
    )
    assert_allclose(plain.clicks, with_chances.clicks)
    assert plain.display_probabilities is None
