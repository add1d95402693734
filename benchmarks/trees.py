"""What a practitioner would pick instead: LightGBM and XGBoost on the same simulated log."""

from __future__ import annotations

import time
from collections.abc import Callable

import lightgbm
import numpy as np
import xgboost
from numpy.typing import NDArray

import unskew
from timing import Row
from unskew.comparison.outside import click_grades, train_lightgbm
from unskew.data.clicks.click_log import ClickLog
from unskew.serving.ratings import debiased_rows

WORLD, SESSIONS = "world:small", 128
ROUNDS = 150
TRAINING: dict[str, object] = {}  # settings: the defaults


def run() -> list[Row]:
    world = unskew.load(WORLD)
    log = unskew.simulate(world.train, "svm", "position_based", sessions=SESSIONS, seed=1, joint=True).log
    X, sizes, grades = _rows(log)
    rows = []

    def measure(name: str, scorer: Callable[[], Callable[[NDArray], NDArray] | object]) -> None:
        started = time.perf_counter()
        ranker = scorer()
        seconds = time.perf_counter() - started
        scores = ranker(world.test.features) if not hasattr(ranker, "parameters") else ranker
        value = unskew.evaluate(scores, world.test, ["ndcg@10"]).mean("ndcg@10")
        rows.append((name, f"nDCG@10 {value:.4f}, {seconds:.1f} s", ""))

    for method in ("naive", "two_tower", "dla"):
        measure(f"unskew {method}", lambda method=method: _ours(method, log, world.valid))
    measure("LightGBM lambdarank on clicks", lambda: train_lightgbm(log, position=False))
    measure("LightGBM lambdarank with position", lambda: train_lightgbm(log, position=True))
    measure("LightGBM on the clicks and the curve of two_tower", lambda: _ours("two_tower", log, ranker="trees"))
    measure("XGBoost rank:ndcg on clicks", lambda: _xgboost(X, grades, sizes))
    measure("XGBoost rank:ndcg, lambdarank_unbiased", lambda: _xgboost(X, grades, sizes, lambdarank_unbiased=True))
    measure("LightGBM on `unskew weights`, two_tower", lambda: _lightgbm_on_weights(log))
    return rows


def _rows(log: ClickLog) -> tuple[NDArray, NDArray, NDArray]:
    """Rows in shown order; clicks as whole grades, which ranking objectives want."""
    return log.features[log.versions[log.mask]], log.mask.sum(1), click_grades(log)[log.mask]


def _ours(method: str, log: ClickLog, valid: unskew.JudgedSet | None = None, **options: str) -> object:
    return unskew.fit(unskew.Recipe.of(method, **TRAINING, **options), log, validate=valid).ranker()


def _xgboost(X: NDArray, grades: NDArray, sizes: NDArray, **settings: object) -> Callable[[NDArray], NDArray]:
    data = xgboost.DMatrix(X, grades)
    data.set_group(sizes)
    options = {"objective": "rank:ndcg", "nthread": 2, "ndcg_exp_gain": False, **settings}
    booster = xgboost.train(options, data, ROUNDS)
    return lambda features: booster.predict(xgboost.DMatrix(features))


def _lightgbm_on_weights(log: ClickLog) -> Callable[[NDArray], NDArray]:
    model = unskew.fit(unskew.Recipe.of("two_tower", **TRAINING), log, validate=0.1)
    rows = debiased_rows(log, model)
    X = np.column_stack([rows[name].to_numpy() for name in rows.column_names[7:]])
    group = rows["group"].to_numpy()
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    sizes = np.diff(np.append(starts, len(group)))
    trees = lightgbm.LGBMRanker(n_estimators=ROUNDS, verbose=-1, n_jobs=2)
    trees.fit(X, rows["grade"].to_numpy(), group=sizes, sample_weight=rows["weight"].to_numpy())
    return lambda features: trees.predict(features)
