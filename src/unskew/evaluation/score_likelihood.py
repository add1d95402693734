r"""Click likelihood of a ranker's scores with one free parameter per position.

A method's own click likelihood rewards its model of examination as much as its ranker, and a model that can explain
clicks by examination alone can fit them best and rank worst. Here only the scores count: the place of a click in its
list is predicted by the softmax of $a\,s_d + b_k$, with $a \ge 0$ and $b$ fitted to the held-out clicks themselves, for
every ranker. A ranker whose scores add nothing to the position gets $a = 0$.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize

from unskew.evaluation.held_out import HeldOut, NotMeasured, Vector, of_ratio


def score_likelihood(scores: Vector, held_out: HeldOut) -> Vector:
    """Mean log-likelihood of a click's place in its list, one value per query; NaN if a query has no click."""
    log = held_out.log
    clicks = np.where(log.mask, log.clicks, 0.0).astype(np.float64)
    if not clicks.sum():
        raise NotMeasured("no held-out query has a click")
    shares = _log_shares(_best_logits(_standard(scores, held_out), clicks, held_out), log.mask)
    per_list = np.where(log.mask, clicks * shares, 0.0).sum(axis=1)
    return of_ratio(
        held_out.sum_by_query(held_out.query_of_list, per_list),
        held_out.sum_by_query(held_out.query_of_list, clicks.sum(axis=1)),
    )


def _standard(scores: Vector, held_out: HeldOut) -> Vector:
    """Scores of shown documents `[lists, docs]`, minus the mean of their list, in standard deviations."""
    log = held_out.log
    shown = np.where(log.mask, scores[log.versions], 0.0)
    n_docs = np.maximum(log.mask.sum(axis=1, keepdims=True), 1)
    centred = np.where(log.mask, shown - shown.sum(axis=1, keepdims=True) / n_docs, 0.0)
    spread = np.sqrt((centred**2).sum() / max(log.mask.sum(), 1))
    if not spread > 0:
        raise NotMeasured("it gives all documents of a list the same score")
    return centred / spread


def _best_logits(scores: Vector, clicks: Vector, held_out: HeldOut) -> Vector:
    """$a s + b_k$ with the maximum-likelihood a and b; the likelihood is concave in both."""
    log = held_out.log
    positions = np.where(log.mask, log.positions, 0).astype(np.int64)
    n_positions, total = log.n_positions, clicks.sum()
    per_list = clicks.sum(axis=1, keepdims=True)

    def surprise(weights: Vector) -> tuple[float, Vector]:
        logits = weights[0] * scores + np.append(0.0, weights[1:])[positions]
        log_shares = _log_shares(logits, log.mask)
        value = -np.where(log.mask, clicks * log_shares, 0.0).sum()
        residual = np.where(log.mask, per_list * np.exp(log_shares) - clicks, 0.0)
        by_position = np.bincount(positions.reshape(-1), residual.reshape(-1), n_positions)
        return value / total, np.append((residual * scores).sum(), by_position[1:]) / total

    start = np.append(0.1, np.zeros(n_positions - 1))
    bounds = [(0.0, 50.0)] + [(-30.0, 30.0)] * (n_positions - 1)
    found = optimize.minimize(surprise, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500})
    return found.x[0] * scores + np.append(0.0, found.x[1:])[positions]


def _log_shares(logits: Vector, mask: np.ndarray) -> Vector:
    """Log of the softmax over each list; 0 in padding."""
    masked = np.where(mask, logits, -np.inf)
    highest = masked.max(axis=1, keepdims=True)
    shifted = np.where(mask, logits - highest, -np.inf)
    return np.where(mask, shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)), 0.0)
