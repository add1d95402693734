r"""Boosted trees of LightGBM and XGBoost; the same rows and settings give the same trees.

Trees can be the ranker: they use a method's examination curve, but not its network. A document that was clicked $c$
times, in $n_k$ showings at each position $k$, has relevance $e^s$ up to a common factor if $c$ is Poisson with mean
$e^s \sum_k n_k p_k$, where $p_k$ is the examination of the position relative to the top. Trees learn $s$: a regression
of the clicks with the logarithm of the sum as a fixed first score. So a document that was rarely examined counts
little, and no rate is divided by a small number. Trees handle missing values and categories directly.

nDCG@10 in the mean of three worlds (`world:small`, seeds 901 to 903; `svm`, `position_based`, 128 sessions, with the
curve of `two_tower`, whose own network reaches .809): these trees .809, 300 trees that imitate the scores of the
network .804, 300 of its distillation .806, LightGBM's own `position` .796. On the first two worlds (these trees .811):
regression of corrected rates .794, `lambdarank` on their grades .793.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.evaluation.held_out import HeldOut
from unskew.networks.documents import Ranker

MODULES = {"lightgbm": "lightgbm", "xgboost": "xgboost"}
FORBIDDEN = set('[]{}<>,:"\\')  # characters that LightGBM, XGBoost or JSON cannot have in feature names


@dataclass(frozen=True)
class Boosting:
    """Sizes of an ensemble."""

    trees: int = 300
    leaves: int = 63
    learning_rate: float = 0.1
    rows_in_leaf: int = 5
    features: int | None = None  # number of features that a tree may use, drawn anew for each; None: all

    def __post_init__(self) -> None:
        for name in ("trees", "leaves", "rows_in_leaf"):
            if getattr(self, name) < (2 if name == "leaves" else 1):
                raise ValueError(f"{name} must be at least {2 if name == 'leaves' else 1}, got {getattr(self, name)}")

    def share_of_features(self, n_features: int) -> float:
        """The share of the features that a tree may use."""
        return 1.0 if self.features is None else min(1.0, self.features / max(n_features, 1))


def need_trees(kind: str) -> None:
    """Raise an error if the library of the extra is not installed."""
    if importlib.util.find_spec(MODULES[kind]) is None:
        raise ModuleNotFoundError(f"trees need {MODULES[kind]}: pip install 'unskew[trees]'")


def check_names(names: Sequence[str]) -> None:
    """Refuse names of features that tree files cannot hold."""
    for name in names:
        if any(letter in FORBIDDEN or letter.isspace() for letter in name) or not name:
            raise ValueError(f"tree files cannot hold the feature name '{name}': rename the column of the log")
        if list(names).count(name) > 1:
            raise ValueError(f"two features are named '{name}': a tree file needs distinct names; rename one")


def boost_lightgbm(
    features: NDArray,
    targets: NDArray,
    names: Sequence[str],
    settings: Boosting,
    *,
    objective: str = "regression",
    start: NDArray | None = None,
    categorical: Sequence[str] = (),
    seed: int = 0,
) -> Any:
    """LightGBM's booster; NaN is handled as missing, and categorical columns hold codes.

    Args:
        start: scores to which those of the trees are added in training.
    """
    need_trees("lightgbm")
    import lightgbm

    options = {
        "objective": objective,
        "num_leaves": settings.leaves,
        "learning_rate": settings.learning_rate,
        "min_data_in_leaf": settings.rows_in_leaf,
        "feature_fraction": settings.share_of_features(len(names)),
        "num_threads": torch.get_num_threads(),
        "deterministic": True,
        "force_col_wise": True,
        "seed": seed,
        "verbose": -1,
    }
    rows = lightgbm.Dataset(
        features,
        targets,
        init_score=start,
        feature_name=list(names),
        categorical_feature=list(categorical),
        params={"verbose": -1, "min_data_in_bin": 1},
    )
    return lightgbm.train(options, rows, settings.trees)


def boost_xgboost(
    features: NDArray, targets: NDArray, names: Sequence[str], settings: Boosting, *, seed: int = 0
) -> Any:
    """XGBoost's booster. Its base score is 0, because dumps do not store it; center the targets."""
    need_trees("xgboost")
    import xgboost

    options = {
        "objective": "reg:squarederror",
        "base_score": 0.0,
        "tree_method": "hist",
        "grow_policy": "lossguide",
        "max_depth": 0,
        "max_leaves": settings.leaves,
        "learning_rate": settings.learning_rate,
        "min_child_weight": settings.rows_in_leaf,
        "colsample_bytree": settings.share_of_features(len(names)),
        "reg_lambda": 0.0,
        "nthread": torch.get_num_threads(),
        "seed": seed,
    }
    rows = xgboost.DMatrix(features, np.asarray(targets), feature_names=list(names))
    return xgboost.train(options, rows, settings.trees)


# Clicks are noisy, so these trees are smaller than those distilled from a ranker.
SETTINGS = Boosting(trees=300, leaves=31, learning_rate=0.1, rows_in_leaf=20)


def examined_documents(log: ClickLog, curve: NDArray[np.float64]) -> tuple[NDArray, NDArray, NDArray]:
    """Features, clicks and expected number of examinations of each shown document."""
    shown = HeldOut(log)
    rows, n = shown.impressions, len(shown.log.features)
    examined = np.bincount(rows.documents, rows.sessions * curve[np.minimum(rows.positions, len(curve) - 1)], n)
    documents = np.flatnonzero(examined > 0)
    return shown.log.features[documents], np.bincount(rows.documents, rows.clicks, n)[documents], examined[documents]


def boost_debiased(
    log: ClickLog,
    curve: NDArray[np.float64],
    names: Sequence[str],
    categorical: Sequence[str] = (),
    settings: Boosting = SETTINGS,
    seed: int = 0,
) -> str:
    """Trees of the logarithm of relevance, in LightGBM's text format."""
    features, clicks, examined = examined_documents(log, curve)
    if not clicks.any():
        raise ValueError("nothing was clicked in this log, so trees have nothing to learn from")
    names = names or [f"f{number}" for number in range(features.shape[1])]
    check_names(names)
    start = np.log(examined * clicks.sum() / examined.sum())
    booster = boost_lightgbm(
        features, clicks, names, settings, objective="poisson", start=start, categorical=categorical, seed=seed
    )
    # A score is the sum of the leaves: engines would not read this objective, or would take an exponential of the sum.
    return str(booster.model_to_string(num_iteration=-1)).replace("\nobjective=poisson\n", "\nobjective=regression\n")


def boost_scores(
    log: ClickLog,
    ranker: Ranker,
    names: Sequence[str],
    categorical: Sequence[str] = (),
    settings: Boosting = SETTINGS,
    seed: int = 0,
) -> str:
    """Trees that imitate the scores of a ranker on the shown documents, in LightGBM's text format."""
    if not ranker.pointwise:
        raise ValueError(
            "trees see one document at a time, but this ranker scores it together with the others of its list: "
            "choose tree_targets=clicks, or another network"
        )
    features, *_ = examined_documents(log, np.ones(log.n_positions))
    names = names or [f"f{number}" for number in range(features.shape[1])]
    check_names(names)
    with torch.inference_mode():
        scores = ranker(torch.from_numpy(features)[None], torch.ones(1, len(features), dtype=torch.bool))[0].numpy()
    booster = boost_lightgbm(features, scores, names, settings, categorical=categorical, seed=seed)
    return str(booster.model_to_string(num_iteration=-1))
