"""The group-level methods on position-based clicks, five seeds: the claims of docs/methods.md, from its experiments.

Runs are kept in `runs/` and go on where they were cut off.
"""

from pathlib import Path

import numpy as np
import pytest

import unskew
from unskew.comparison.statistics import Table, summarize
from unskew.papers.reproduce import reproduce
from unskew.propensities.harvesting import all_pairs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

RUNS = Path(__file__).parents[2] / "runs"
TRUTH = np.array([0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06]) / 0.68


@pytest.fixture(scope="module")
def group_level():
    return Table(reproduce("group-level", out=RUNS / "group-level-world-small").results.results)


@pytest.mark.parametrize("label", ["ipw, true curve", "dla", "two_tower"])
def test_debiased_rankers_beat_plain_clicks(group_level, label):
    cells = {cell.label: cell for cell in summarize(group_level, group_level.settings[0], "ndcg@10", "naive")}
    assert cells[label].n_repetitions >= 5
    assert cells[label].difference > 0
    assert cells[label].p < 0.05


@pytest.mark.parametrize("label", ["dla", "two_tower", "regression_em"])
def test_the_learnt_curve_is_within_a_tenth_of_the_truth(group_level, label):
    curves = [result.outcome.about["examination"] for result in group_level.of(group_level.settings[0], label)]
    assert len(curves) >= 5
    assert np.abs(np.array(curves) - TRUTH).max() < 0.1


def test_all_pairs_is_within_a_tenth_of_the_truth_where_a_tenth_of_the_sessions_is_shuffled():
    world = unskew.load("world:small")
    for seed in range(5):
        log = unskew.simulate(world.train, "svm", "position_based", interventions={"shuffle": 0.1}, seed=seed).log
        assert np.abs(all_pairs(log, n_bootstrap=0).values - TRUTH).max() < 0.1
