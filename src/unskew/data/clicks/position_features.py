"""Features that are the position: a ranker does not know it when it ranks, so `train` refuses them."""

from __future__ import annotations

import numpy as np

from unskew.data.clicks.click_log import ClickLog

LEAST_ROWS = 5  # different rows of documents at a position, so that one value is no coincidence


def position_features(log: ClickLog) -> list[str]:
    """Names of features that have one value per position in all lists, and different ones at different positions."""
    positions, rows = log.positions[log.mask], log.versions[log.mask]
    if not len(rows):
        return []
    pairs = np.unique(np.column_stack([positions, rows]), axis=0)
    _, places = np.unique(pairs[:, 0], return_inverse=True)
    counts = np.bincount(places)
    if len(counts) < 3 or np.median(counts) < LEAST_ROWS:
        return []
    values = log.features[pairs[:, 1]]
    low, high = (np.full((len(counts), log.n_features), end, dtype=np.float32) for end in (np.inf, -np.inf))
    np.minimum.at(low, places, values)
    np.maximum.at(high, places, values)
    one_value = (low == high).all(0) & ((low != low[:1]).sum(0) > 1)
    names = log.feature_names or tuple(f"feature_{number}" for number in range(log.n_features))
    return [name for name, is_it in zip(names, one_value, strict=True) if is_it]


def refuse_positions(log: ClickLog) -> None:
    """An error if a feature is the position."""
    found = position_features(log)
    if found:
        raise ValueError(
            f"feature '{found[0]}' is the position, or a function of it: a ranker does not know it when it ranks. "
            "Ingest again without it, or pass --allow-position"
        )
