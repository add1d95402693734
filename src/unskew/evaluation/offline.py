r"""Off-policy evaluation: the DCG that another ranking would have, from clicks on the shown ranking.

Assumes position-based clicks: $P(c) = p_k\,r_d$, with known propensities $p$. Document d of a query that was shown $N$
times was examined $e_d = \sum_i p_{k_i(d)}$ times in expectation, over the sessions $i$ that showed it, and was clicked
$c_d$ times; $\max(e_d, \tau N)$ bounds the weight of a click. $\lambda(j) = 1 / \log_2(1 + j)$ down to rank k,
otherwise 0, and $j_d$ is the rank by the scores among the candidates of the query; equal scores share their discounts.

* `ips`: $\sum_d \lambda(j_d)\,c_d / \max(e_d, \tau N)$. Unbiased without the bound, given the shown orders. It is the
  policy-aware form (Oosterhuis and de Rijke 2020), which uses expected examination instead of single sessions.
* `snips`: the same divided by $\sum_d c_d / \max(e_d, \tau N)$ of the query: the mean discount of its relevance. The
  scale of relevance cancels per query, as in nDCG. Consistent, not unbiased. (Divided by the sum over all queries it
  would order rankers exactly as `ips` does.)
* `dr`: $\sum_d \lambda(j_d)\,(m_d + (c_d - e_d m_d) / \max(e_d, \tau N))$ with a model $m$ of relevance (Oosterhuis
  2023). The model decides where the bound applies and for documents never shown; if $e_d > \tau N$, clicks alone
  decide, so its bound is higher than that of the others.

* `reweighted_clicks`: the click rate of a shown position under the ranking, $\sum_i w_i c_i / \sum_i w_i$ over
  impressions, with $w_i = 1 / \pi_i$ if the ranking puts the document where it was shown, otherwise 0; $\pi_i$ is the
  logged probability of showing the document there (the item-position estimator of Li et al., KDD 2018,
  self-normalized). It needs no propensities: a click may depend on document and position in any way, but not on
  neighboring documents.

With propensities relative to the top, relevance is the click rate at the top. Queries are weighted by their sessions.
Intervals treat the propensities as known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.ensemble import HistGradientBoostingRegressor

from unskew.data.clicks.click_log import ClickLog
from unskew.evaluation.held_out import HeldOut, NotMeasured, Numbers, Vector, of_ratio

CUTOFF = 10
# Expected examination of a document per session, below which a click's weight is bounded. Alone, a bound is a bias;
# with a model for what it cuts, it removes most of the variance for little bias.
LEAST_EXPOSURE = 0.01
LEAST_EXPOSURE_WITH_MODEL = 0.2
LEVELS = 63  # quantile bins per feature, for the model of relevance


@dataclass(frozen=True, eq=False)
class Exposed:
    """The candidates of all queries, query by query, with clicks and expected examination."""

    documents: Numbers  # [candidates]
    queries: Numbers  # [candidates]
    clicks: Vector  # [candidates]
    exposure: Vector  # [candidates], expected examination over all sessions
    bounded: Vector  # [candidates], the same, not below the bound; above 0


def exposed(
    held_out: HeldOut, propensities: ArrayLike, *, candidates: str = "shown", least_exposure: float = LEAST_EXPOSURE
) -> Exposed:
    """Clicks and expected examination of the candidates.

    Args:
        propensities: one per position, absolute or relative to the top.
    """
    curve = np.asarray(propensities, dtype=np.float64)
    if len(curve) < held_out.log.n_positions or not (np.isfinite(curve) & (curve > 0)).all():
        raise ValueError(f"propensities must be above 0, one for each of {held_out.log.n_positions} positions: {curve}")
    rows, n = held_out.impressions, len(held_out.log.features)
    clicks = np.bincount(rows.documents, rows.clicks, n)
    exposure = np.bincount(rows.documents, rows.sessions * curve[rows.positions], n)
    documents, queries = held_out.candidates(candidates)
    bound = np.maximum(least_exposure * held_out.sessions[queries], np.finfo(np.float64).tiny)
    return Exposed(
        documents=documents,
        queries=queries,
        clicks=clicks[documents],
        exposure=exposure[documents],
        bounded=np.maximum(exposure[documents], bound),
    )


def ips(
    scores: Vector, held_out: HeldOut, propensities: ArrayLike, *, least_exposure: float = LEAST_EXPOSURE
) -> Vector:
    """Inverse propensity scoring of DCG@k, one value per query."""
    shown = exposed(held_out, propensities, least_exposure=least_exposure)
    return _weighted(held_out, _dcg(scores, shown, shown.clicks / shown.bounded, held_out))


def snips(
    scores: Vector, held_out: HeldOut, propensities: ArrayLike, *, least_exposure: float = LEAST_EXPOSURE
) -> Vector:
    """Self-normalized inverse propensity scoring, one value per query; NaN for a query without a click."""
    shown = exposed(held_out, propensities, least_exposure=least_exposure)
    relevance = shown.clicks / shown.bounded
    total = held_out.sum_by_query(shown.queries, relevance)
    clicked = total > 0
    if not clicked.any():
        raise NotMeasured("no held-out query has a click")
    share = np.divide(_dcg(scores, shown, relevance, held_out), total, out=np.zeros_like(total), where=clicked)
    weights = np.where(clicked, held_out.sessions, 0.0)
    return of_ratio(weights * share, weights)


def dr(
    scores: Vector,
    held_out: HeldOut,
    propensities: ArrayLike,
    relevance: Vector,
    *,
    candidates: str = "shown",
    least_exposure: float = LEAST_EXPOSURE_WITH_MODEL,
) -> Vector:
    """Doubly robust estimate of DCG@k, one value per query.

    Args:
        relevance: predictions of a model, `[documents]` of the log, on the scale of the propensities.
    """
    shown = exposed(held_out, propensities, candidates=candidates, least_exposure=least_exposure)
    model = relevance[shown.documents]
    corrected = model + (shown.clicks - shown.exposure * model) / shown.bounded
    return _weighted(held_out, _dcg(scores, shown, corrected, held_out))


def reweighted_clicks(scores: Vector, held_out: HeldOut) -> Vector:
    """Clicks per shown position down to rank k, from logged display probabilities; one value per query."""
    log = held_out.log
    if log.display_probabilities is None:
        raise NotMeasured("no display probabilities are logged")
    if log.features_change:
        raise NotMeasured("features or context change between showings, so other possible rankings are not known")
    documents, queries = held_out.candidates()
    first, size = rank_ranges(scores[documents], queries)
    place = np.zeros(len(log.features), dtype=np.int64)
    place[documents] = np.arange(len(documents))
    counted = log.mask & ~np.isnan(log.display_probabilities) & (log.positions < CUTOFF)
    lists, columns = np.nonzero(counted)
    here, position = place[log.versions[lists, columns]], log.positions[lists, columns]
    there = (first[here] <= position) & (position < first[here] + size[here])
    weight = there / size[here] / log.display_probabilities[lists, columns].astype(np.float64)
    query = held_out.query_of_list[lists]
    clicks = held_out.sum_by_query(query, weight * log.clicks[lists, columns])
    return of_ratio(clicks, held_out.sum_by_query(query, weight * log.sessions[lists]))


def rank_discounts(scores: Vector, queries: Numbers, cutoff: int = CUTOFF) -> Vector:
    """The discount of each document's rank in its query; documents with equal scores share theirs evenly."""
    first, size = rank_ranges(scores, queries)
    rank = np.arange(int((first + size).max(initial=0)))
    discount = np.where(rank < cutoff, 1 / np.log2(2.0 + rank), 0.0)
    total = np.concatenate([[0.0], np.cumsum(discount)])
    return np.where(size == 1, discount[first], (total[first + size] - total[first]) / size)


def rank_ranges(scores: Vector, queries: Numbers) -> tuple[Numbers, Numbers]:
    """The first rank of each document in its query, from 0, and the number of documents with the same score."""
    if not np.isfinite(scores).all():
        raise ValueError("a candidate has no finite score: score all candidates")
    order = np.lexsort((-scores, queries))
    starts = np.concatenate([[True], np.diff(queries[order]) != 0])
    rank = np.arange(len(order)) - np.flatnonzero(starts)[np.cumsum(starts) - 1]
    new = starts | np.concatenate([[True], np.diff(scores[order]) != 0])
    tie = np.cumsum(new) - 1
    first, size = np.empty_like(rank), np.empty_like(rank)
    first[order], size[order] = rank[new][tie], np.bincount(tie)[tie]
    return first, size


def fit_relevance(log: ClickLog, propensities: ArrayLike) -> Callable[[Vector], Vector]:
    """A model of relevance for `dr`: boosted trees that predict clicks per expected examination from features.

    Rows are weighted by expected examination. Train it on another log than the one that is evaluated.
    """
    learning = HeldOut(log)
    shown = exposed(learning, propensities, least_exposure=0.0)
    target = shown.clicks / shown.bounded
    trees = HistGradientBoostingRegressor(
        max_iter=100, max_leaf_nodes=15, max_bins=LEVELS, early_stopping=False, random_state=0
    )
    features = learning.log.features[shown.documents]
    inner = np.linspace(0, 1, LEVELS)[1:-1]
    edges = [np.unique(np.quantile(known, inner)) if len(known) else known for known in map(_known, features.T)]
    trees.fit(_levels(features, edges), target, sample_weight=shown.exposure)
    return lambda features: np.maximum(trees.predict(_levels(features, edges)), 0.0)


def _known(column: Vector) -> Vector:
    return column[~np.isnan(column)]


def _levels(features: Vector, edges: Sequence[Vector]) -> Vector:
    """The quantile bin of each value; scikit-learn is slow at finding bins of weighted rows."""
    found = [np.searchsorted(edge, column) for edge, column in zip(edges, features.T, strict=True)]
    return np.where(np.isnan(features), np.nan, np.column_stack(found))


def _dcg(scores: Vector, shown: Exposed, relevance: Vector, held_out: HeldOut) -> Vector:
    discounts = rank_discounts(scores[shown.documents], shown.queries)
    return held_out.sum_by_query(shown.queries, discounts * relevance)


def _weighted(held_out: HeldOut, values: Vector) -> Vector:
    """Values of queries, weighted by their sessions."""
    return of_ratio(held_out.sessions * values, held_out.sessions)
