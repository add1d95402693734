r"""Trees as the ranker: boosted trees that use a method's examination curve, but not its network.

A document that was clicked $c_k$ times in $n_k$ showings at position $k$ has the debiased target
$\frac{\sum_k c_k p_k}{\sum_k n_k p_k^2}$ with the weight $\sum_k n_k p_k^2$, where $p_k$ is the examination of the
position relative to the top: the weighted mean of the targets $\frac{c_k}{n_k p_k}$ of single positions. Trees handle
missing values and categories directly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.evaluation.held_out import HeldOut
from unskew.training.boosting import Boosting, boost_lightgbm, check_names

# Clicks are noisy, so these trees are smaller than those distilled from a ranker.
SETTINGS = Boosting(trees=150, leaves=31, learning_rate=0.1, rows_in_leaf=20)


def debiased_targets(log: ClickLog, curve: NDArray[np.float64]) -> tuple[NDArray, NDArray, NDArray]:
    """Features, target and weight of each shown document; weights have mean 1."""
    shown = HeldOut(log)
    rows, n = shown.impressions, len(shown.log.features)
    examined = curve[np.minimum(rows.positions, len(curve) - 1)]
    weights = np.bincount(rows.documents, rows.sessions * examined**2, n)
    documents = np.flatnonzero(weights > 0)
    targets = np.bincount(rows.documents, rows.clicks * examined, n)[documents] / weights[documents]
    return shown.log.features[documents], targets, weights[documents] / weights[documents].mean()


def boost_debiased(
    log: ClickLog,
    curve: NDArray[np.float64],
    names: Sequence[str],
    categorical: Sequence[str] = (),
    settings: Boosting = SETTINGS,
    seed: int = 0,
) -> str:
    """Trees trained on debiased targets, in LightGBM's text format."""
    features, targets, weights = debiased_targets(log, curve)
    names = names or [f"f{number}" for number in range(features.shape[1])]
    check_names(names)
    booster = boost_lightgbm(features, targets, names, settings, weights=weights, categorical=categorical, seed=seed)
    return str(booster.model_to_string(num_iteration=-1))
