"""Ranking SVM: a linear ranker trained on pairs of documents with different grades (Joachims 2002)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from sklearn.svm import LinearSVC

from unskew.data.checks import check_features
from unskew.data.judged.judged_set import JudgedSet

# More pairs than this are sampled: they would take minutes and hardly change the weights.
MAX_PAIRS = 100_000


@dataclass(frozen=True, eq=False)
class LinearScorer:
    """Scores documents by a weighted sum of their features scaled to [-1, 1]."""

    weights: NDArray[np.float64]  # [features], divided by the half width of each feature
    offset: float

    def __call__(self, judged: JudgedSet) -> NDArray[np.float64]:
        if judged.n_features != len(self.weights):
            raise ValueError(
                f"the ranker was trained on {len(self.weights)} features, {judged.name or 'this set'} has "
                f"{judged.n_features}"
            )
        # einsum, not BLAS: it computes in float64, and its sums do not depend on the number of threads.
        return np.einsum("df,f->d", judged.features, self.weights) + self.offset


def train_ranking_svm(train: JudgedSet, fraction: float, cost: float, rng: Generator) -> LinearScorer:
    r"""Minimize $\frac12 |w|^2 + \frac{C}{|Q|} \sum \max(0, 1 - w \cdot (x_i - x_j))^2$ over pairs with $y_i > y_j$.

    Args:
        fraction: share of the queries whose judgements are used; further queries are added until there is a pair.
    """
    check_features(train.features, missing=False)
    n_queries = max(1, round(fraction * train.n_queries))
    better, worse, n_used = _pairs_of_queries(train, rng.permutation(train.n_queries), n_queries)
    if len(better) > MAX_PAIRS:
        kept = rng.choice(len(better), MAX_PAIRS, replace=False)
        better, worse = better[kept], worse[kept]
    low, high = train.features.min(axis=0).astype(np.float64), train.features.max(axis=0).astype(np.float64)
    width = np.where(high > low, (high - low) / 2, 1.0)
    differences = (train.features[better].astype(np.float64) - train.features[worse]) / width
    if len(differences) == 1:
        differences = np.repeat(differences, 2, axis=0)
    # The classifier needs two classes: every second pair is reversed.
    sign = np.where(np.arange(len(differences)) % 2 == 0, 1.0, -1.0)
    machine = LinearSVC(C=cost / n_used, fit_intercept=False, dual=False, tol=1e-3, max_iter=10_000)
    machine.fit(differences * sign[:, None], sign)
    weights = machine.coef_[0] / width
    return LinearScorer(weights=weights, offset=float(-weights @ (low + high) / 2))


def _pairs_of_queries(
    train: JudgedSet, order: NDArray[np.int64], n_queries: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Rows of better and worse documents of the first queries in this order, and the number of queries used."""
    better: list[NDArray[np.int64]] = []
    worse: list[NDArray[np.int64]] = []
    for n_used, query in enumerate(order, start=1):
        start, end = train.offsets[query], train.offsets[query + 1]
        grades = train.grades[start:end]
        high, low = np.nonzero(grades[:, None] > grades[None, :])
        better.append(high + start)
        worse.append(low + start)
        if n_used >= n_queries and any(len(rows) for rows in better):
            return np.concatenate(better), np.concatenate(worse), n_used
    raise ValueError("no training query has documents of different grades: a ranking SVM has nothing to learn from")
