r"""Agreement of scores with clicks, and of two orders with each other.

**Pair agreement**: of two documents shown at one position, is the clicked one scored higher?
At one position examination is the same for all documents if it depends on the position alone, for any curve and with or
without trust bias. So no propensities are needed. The agreement of random scores is one half.

* `same_query`: two documents of one query that were at one position in different sessions. Needs orders that vary.
* `at_the_top`: the same at the top position only. Nearly everybody examines it, whatever is there, so other causes of
  examination (the document, its neighbors, earlier clicks) matter least.
* `across_queries`: documents of different queries at one position. Needs no variation, but also compares queries:
  scores are taken relative to the mean of their list, because rankers do not determine the level of a query.

**Score likelihood**: of clicks, given the scores and one free parameter per position. A method's own click likelihood
rewards its model of examination as much as its ranker, and a model that can explain clicks by examination alone can fit
them best and rank worst. Here only the scores count: the place of a click in its list is predicted by the softmax of
$a\,s_d + b_k$, with $a \ge 0$ and $b$ fitted to the held-out clicks themselves, for every ranker. A ranker whose scores
add nothing to the position gets $a = 0$.

**Kendall's τ**: how similarly two rankers order the documents of each query.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.held_out import HeldOut, Impressions, NotMeasured, Vector, of_ratio

LEAST_PAIRS = 30  # fewest pairs of a click and a skip
PAIRS_AT_ONCE = 2**22


def same_query(scores: Vector, held_out: HeldOut, *, top_only: bool = False) -> Vector:
    r"""Share of pairs (a clicked, b not) at one position with $s_a > s_b$; a tie counts one half.

    Documents a and b shown $n_a$ and $n_b$ times there, and clicked $c_a$ and $c_b$ times, count
    $c_a (n_b - c_b) / (n_a + n_b)$ for a and likewise for b: the number of pairs grows with the square of the traffic,
    their information only in proportion to it.

    Args:
        top_only: count pairs at the top position only.
    """
    rows = _checked(held_out)
    one, other = _pairs_at_one_position(rows)
    if top_only:
        on_top = rows.positions[one] == rows.positions.min(initial=0)
        one, other = one[on_top], other[on_top]
    if not len(one):
        raise NotMeasured("no query shows two documents at one position: orders never vary")
    shown = rows.sessions[one] + rows.sessions[other]
    for_one = rows.clicks[one] * (rows.sessions[other] - rows.clicks[other]) / shown
    for_other = rows.clicks[other] * (rows.sessions[one] - rows.clicks[one]) / shown
    above = _above(scores[rows.documents[one]], scores[rows.documents[other]])
    n_pairs = (for_one + for_other).sum()
    if (above == 0.5).all():
        raise NotMeasured("it gives all documents at one position the same score")
    if n_pairs < LEAST_PAIRS:
        raise NotMeasured(f"only {n_pairs:.0f} pairs of a click and a skip at one position")
    agreeing = above * for_one + (1 - above) * for_other
    queries = rows.queries[one]
    return of_ratio(held_out.sum_by_query(queries, agreeing), held_out.sum_by_query(queries, for_one + for_other))


def at_the_top(scores: Vector, held_out: HeldOut) -> Vector:
    """Pair agreement at the top position alone."""
    return same_query(scores, held_out, top_only=True)


def across_queries(scores: Vector, held_out: HeldOut) -> Vector:
    r"""Area under the ROC curve of clicks at one position, averaged over positions.

    At position k with C clicks and S skips a click at score s counts the share of skips below it (ties one half). The
    positions are weighted by $C S / (C + S)$, as in `same_query`.
    """
    rows = _checked(held_out)
    relative = _relative_to_query(scores, held_out, rows)
    agreeing, counted = np.zeros(held_out.n_queries), np.zeros(held_out.n_queries)
    varied = False
    for position in np.unique(rows.positions):
        here = np.flatnonzero(rows.positions == position)
        clicks, skips = rows.clicks[here], rows.sessions[here] - rows.clicks[here]
        if not (clicks.sum() and skips.sum()):
            continue
        below, above = _shares(relative[here], skips), _shares(-relative[here], clicks)
        varied |= bool(np.ptp(relative[here]) > 0)
        weight = clicks.sum() * skips.sum() / (clicks.sum() + skips.sum())
        # Half of a pair's weight goes to the query of the click and half to that of the skip, so that the variance
        # between queries includes both sides.
        own = weight * np.stack([clicks / clicks.sum(), skips / skips.sum()]) / 2
        agreeing += held_out.sum_by_query(rows.queries[here], own[0] * below + own[1] * above)
        counted += held_out.sum_by_query(rows.queries[here], own.sum(axis=0))
    if not varied:
        raise NotMeasured("it gives all documents at one position the same score")
    # The influence of a query on an area under the curve is twice that of its half of the pairs.
    values = of_ratio(agreeing, counted)
    return np.nanmean(values) + 2 * (values - np.nanmean(values))


def _checked(held_out: HeldOut) -> Impressions:
    if held_out.log.graded:
        raise NotMeasured("feedback is graded: there are no pairs of a click and a skip")
    return held_out.impressions


def _pairs_at_one_position(rows: Impressions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of all pairs of documents of a query that share a position."""
    order = np.lexsort((rows.positions, rows.queries))
    place = np.stack([rows.queries[order], rows.positions[order]])
    ones, others = [], []
    for distance in range(1, len(order)):
        together = (place[:, distance:] == place[:, :-distance]).all(axis=0)
        if not together.any():
            break
        first = np.flatnonzero(together)
        ones.append(order[first])
        others.append(order[first + distance])
    empty = np.zeros(0, dtype=np.int64)
    return np.concatenate([empty, *ones]), np.concatenate([empty, *others])


def _above(one: Vector, other: Vector) -> Vector:
    """1 if the first is higher, 0 if it is lower, one half if they are equal."""
    return (1 + np.sign(one - other)) / 2


def _relative_to_query(scores: Vector, held_out: HeldOut, rows: Impressions) -> Vector:
    """Scores minus the mean over the candidates of their query."""
    documents, queries = held_out.candidates("shown")
    mean = held_out.sum_by_query(queries, scores[documents]) / held_out.sum_by_query(queries, np.ones(len(queries)))
    return scores[rows.documents] - mean[rows.queries]


def _shares(scores: Vector, weights: Vector) -> Vector:
    """Share of the weight below each score; equal scores count one half."""
    levels, level = np.unique(scores, return_inverse=True)
    at = np.bincount(level, weights, len(levels))
    below = np.concatenate([[0.0], np.cumsum(at)[:-1]])
    return (below + at / 2)[level] / weights.sum()


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

    def negative_log_likelihood(weights: Vector) -> tuple[float, Vector]:
        logits = weights[0] * scores + np.append(0.0, weights[1:])[positions]
        log_shares = _log_shares(logits, log.mask)
        value = -np.where(log.mask, clicks * log_shares, 0.0).sum()
        residual = np.where(log.mask, per_list * np.exp(log_shares) - clicks, 0.0)
        by_position = np.bincount(positions.reshape(-1), residual.reshape(-1), n_positions)
        return value / total, np.append((residual * scores).sum(), by_position[1:]) / total

    start = np.append(0.1, np.zeros(n_positions - 1))
    bounds = [(0.0, 50.0)] + [(-30.0, 30.0)] * (n_positions - 1)
    optimum = optimize.minimize(
        negative_log_likelihood, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500}
    )
    return optimum.x[0] * scores + np.append(0.0, optimum.x[1:])[positions]


def _log_shares(logits: Vector, mask: np.ndarray) -> Vector:
    """Log of the softmax over each list; 0 in padding."""
    masked = np.where(mask, logits, -np.inf)
    highest = masked.max(axis=1, keepdims=True)
    shifted = np.where(mask, logits - highest, -np.inf)
    return np.where(mask, shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)), 0.0)


def grades_of(scores: NDArray[np.float64], documents: JudgedSet) -> NDArray[np.float32]:
    """Scores as grades, from 0 for the lowest of a query to 4 for its highest."""
    low = np.repeat(np.minimum.reduceat(scores, documents.offsets[:-1]), documents.sizes)
    high = np.repeat(np.maximum.reduceat(scores, documents.offsets[:-1]), documents.sizes)
    return (4 * (scores - low) / np.where(high > low, high - low, 1.0)).astype(np.float32)


def kendall(first: NDArray, second: NDArray, offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    r"""Kendall's $\tau_b$ of two scorings within each query `[queries]`; NaN if one of them has no order."""
    sizes = np.diff(offsets)
    taus = np.full(len(sizes), np.nan)
    for size in np.unique(sizes[sizes > 1]):
        queries = np.flatnonzero(sizes == size)
        rows, columns = np.triu_indices(size, 1)
        for part in np.array_split(queries, -(-len(queries) * len(rows) // PAIRS_AT_ONCE)):
            places = offsets[part][:, None] + np.arange(size)
            signs = [np.sign(scores[places][:, rows] - scores[places][:, columns]) for scores in (first, second)]
            counted = np.sqrt(np.prod([(sign != 0).sum(1) for sign in signs], axis=0, dtype=np.float64))
            together = (signs[0] * signs[1]).sum(1)
            taus[part] = np.divide(together, counted, out=np.full(len(part), np.nan), where=counted > 0)
    return taus
