"""Whether examination depends on a context feature, such as the device, which should then be a bias column too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from unskew.data.clicks.click_log import ClickLog
from unskew.diagnosis.estimators.curve import Curve, NotIdentified
from unskew.diagnosis.estimators.harvesting import all_pairs

MOST_LEVELS = 8  # features with more levels are not compared
LEAST_SHARE = 0.05  # share of the sessions that a level needs to be compared
N_BOOTSTRAP = 100


@dataclass(frozen=True)
class LevelCurves:
    """Examination curves by level of a context feature, and where two of them differ most."""

    curves: Mapping[str, Curve]
    apart: tuple[str, str, int] | None  # two levels, and a position where their intervals do not overlap


def curves_by_level(log: ClickLog, name: str, *, seed: int = 0) -> LevelCurves:
    """Curves by level of a context feature; an error if it has too many levels, or the log does not identify them."""
    values = log.context[:, log.context_names.index(name)]
    found, number = np.unique(values, return_inverse=True)
    if len(found) > MOST_LEVELS:
        raise ValueError(f"'{name}' has {len(found):,} values, but curves are compared only for up to {MOST_LEVELS}")
    sessions = np.bincount(number, weights=log.sessions)
    curves = {}
    for level in np.flatnonzero(sessions >= LEAST_SHARE * sessions.sum()):
        counted = np.broadcast_to((number == level)[:, None], log.mask.shape)
        try:
            curves[_level_name(log, name, found[level])] = all_pairs(
                log, n_bootstrap=N_BOOTSTRAP, seed=seed, counted=counted
            )
        except NotIdentified:
            continue
    if len(curves) < 2:
        raise NotIdentified(f"fewer than two levels of '{name}' have an identified curve")
    return LevelCurves(curves, _farthest(curves))


def _farthest(curves: Mapping[str, Curve]) -> tuple[str, str, int] | None:
    names, best, gap = list(curves), None, 0.0
    for number, one in enumerate(names):
        for other in names[number + 1 :]:
            a, b = curves[one], curves[other]
            common, here, there = np.intersect1d(a.positions, b.positions, return_indices=True)
            with np.errstate(divide="ignore", invalid="ignore"):
                gaps = np.maximum(np.log(a.low[here] / b.high[there]), np.log(b.low[there] / a.high[here]))
            gaps = np.nan_to_num(gaps, nan=-1.0, posinf=-1.0, neginf=-1.0)
            if len(gaps) and gaps.max() > gap:
                gap, best = float(gaps.max()), (one, other, int(common[np.argmax(gaps)]))
    return best


def _level_name(log: ClickLog, name: str, value: float) -> str:
    if np.isnan(value):
        return "missing"
    return log.categories[name][int(value)] if name in log.categories else f"{value:g}"
