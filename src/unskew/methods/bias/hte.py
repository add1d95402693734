r"""Heterogeneous treatment effects (HTE; Tian et al., 2020, arXiv:2007.09798), as the LBD paper compares with it.

Position is a treatment whose effect depends on the document: $\tau_k(x) = E[c \mid 1, x] - E[c \mid k, x]$ is the loss
of click probability at position $k$ compared with the top. It is estimated from an intervention log, in which documents
were randomly swapped with the top one, and added to the clicks logged at $k$: then every document has approximately the
clicks that it would have had at the top, and a plain ranker is trained on them. (The LBD paper describes it this way.
The original redraws clicks from the corrected rates, which has the same mean and more noise.)

It treats clicks at the top as relevance, which is right only if all documents are examined equally at the top.

$E[c \mid k, x]$ comes from gradient-boosted trees with the position as one more feature and a Poisson loss, in whose
log link $r(x)\,\theta_k$ is a sum. Effects of a query come from trees that were not trained on it (cross-fitting): a
click must not correct itself. Corrected clicks are fractions and may exceed the sessions, because clipping them would
bias the mean; a log of them is `graded`, without click patterns.

`correct_clicks` works with any method: with the true effects of a simulation (`Truth.position_effects`) it makes of
`naive` the paper's HTE-oracle, of `lbd` its LBD-HTE-oracle.

Relation to others: `naive` on clicks that were corrected first. `ipw` can use the same interventions, but has one
effect per position; here the effect depends on the document. `lbd` also lets examination depend on the document, and
needs no interventions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.shard_batches import ShardBatches
from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.method import Method, Terms
from unskew.networks.registry import Problem
from unskew.options import Count, Limits

Matrix = NDArray[np.float64]
Several = Annotated[int, Limits(2)]

QUANTILES = np.linspace(0, 1, 255)[1:-1]  # of a feature; the trees use no more levels

HOW_TO_INTERVENE = (
    "create a log in which documents are swapped with the top one: unskew simulate ... --intervene swap_top=0.2 "
    "(in Python simulate(..., interventions={'swap_top': 0.2})), or record such swaps in your own logs"
)


class HTE(Method):
    """Listwise softmax on clicks corrected to what they would have been at the top.

    Args:
        folds: parts of the queries; the effects of each come from the others.
        trees: rounds of boosting.
        max_leaves: leaves of a tree.
    """

    paper = "Tian et al., 2020"
    assumes = (
        "at the top, examination is the same for all documents; an intervention log shows the effect of other positions"
    )

    def __init__(self, problem: Problem, *, folds: Several = 3, trees: Count = 100, max_leaves: Several = 31):
        super().__init__()
        self.relevance = problem.new_ranker()
        self.folds = folds
        self.trees = trees
        self.max_leaves = max_leaves

    def prepare(self, logs: Mapping[str, Any]) -> dict[str, Any]:
        """The logs with corrected clicks."""
        if logs.get("interventions") is None:
            raise ValueError(
                f"hte learns the effects of positions from interventions, and the log has none: {HOW_TO_INTERVENE}"
            )
        clicks, interventions = logs["clicks"], logs["interventions"]
        streams = isinstance(clicks, ShardBatches)
        shown = [log.query_ids[np.unique(log.queries)] for log in (clicks.logs() if streams else [clicks])]
        effects = Effects(interventions, np.concatenate(shown), self.folds, self.trees, self.max_leaves)

        def corrected(log: ClickLog) -> ClickLog:
            return correct_clicks(log, effects.of(log))

        return {**logs, "clicks": clicks.changed(corrected) if streams else corrected(clicks)}

    def loss(self, lists: ClickedLists) -> Terms:
        scores = lists.apply(self.relevance)
        return {"clicks": losses.softmax(scores, lists.clicks, lists.mask)}


def correct_clicks(log: ClickLog, effects: NDArray) -> ClickLog:
    """The log with clicks as they would have been at the top, for any method that takes counts.

    Args:
        effects: loss of each document's click probability due to its position, `[lists, docs]`.
    """
    if effects.shape != log.mask.shape:
        raise ValueError(
            f"effects have shape {effects.shape}, but the log's lists {log.mask.shape}: pass one effect per shown "
            "document, in the log's order"
        )
    if not np.isfinite(effects[log.mask]).all():
        raise ValueError("effects must be finite, but a document of the log has none")
    added = log.sessions[:, None] * np.where(log.mask, effects, 0.0)
    corrected = np.maximum(log.clicks + added, 0.0)  # negative clicks come from estimation errors
    return replace(log.marginal(), clicks=corrected, graded=True)


class Effects:
    """Effects of positions on clicks, learned from interventions; for logs, or shards, that share no query.

    Args:
        query_ids: all queries whose clicks will be corrected.
    """

    def __init__(self, interventions: ClickLog, query_ids: NDArray, folds: int, trees: int, max_leaves: int):
        _check_interventions(interventions)
        self.interventions = interventions
        self.trees, self.max_leaves = trees, max_leaves
        self.folds = folds
        changed = interventions.query_ids[np.unique(interventions.queries)]
        if len(changed) < folds:
            raise ValueError(
                f"the intervention log has {len(changed)} queries, too few for {folds} folds: collect more, or lower "
                "folds"
            )
        # Query ids are sorted and often grouped by source: neighbors go into different folds.
        self.distinct = np.unique(np.concatenate([query_ids, changed]))
        self._rates: dict[int, _Rates] = {}

    def of(self, log: ClickLog) -> Matrix:
        """Effects on every shown document, `[lists, docs]`; 0 on top and in padding."""
        if self.interventions.n_features != log.n_features:
            raise ValueError(
                f"the intervention log has {self.interventions.n_features} features, but the click log has "
                f"{log.n_features}: both must have the same features"
            )
        fold_of_list = self._fold(log)
        effects = np.zeros(log.mask.shape)
        for fold in range(self.folds):
            chosen = (log.mask & (log.positions > 0)) & (fold_of_list == fold)[:, None]
            if not chosen.any():
                continue
            rates = self._rates_outside(fold)
            documents, places, member = _distinct_showings(log, chosen)
            most = np.inf if log.graded else 1.0
            on_top, in_place = (
                np.minimum(rates(log.features[documents], at), most) for at in (np.zeros_like(places), places)
            )
            effects[chosen] = (on_top - in_place)[member]
        return effects

    def _fold(self, log: ClickLog) -> NDArray[np.int64]:
        """The fold of each list; a query, known by its id, is in one fold everywhere."""
        return np.searchsorted(self.distinct, log.query_ids[log.queries]) % self.folds

    def _rates_outside(self, fold: int) -> _Rates:
        if fold not in self._rates:
            part = self.interventions.select(self._fold(self.interventions) != fold)
            self._rates[fold] = _learn_rates(part, self.trees, self.max_leaves)
        return self._rates[fold]


def _check_interventions(interventions: ClickLog) -> None:
    shown = interventions.positions[interventions.mask]
    if not (shown == 0).any() or not (shown > 0).any():
        raise ValueError(f"the intervention log does not show documents at the top and below: {HOW_TO_INTERVENE}")
    if not interventions.n_clicks:
        raise ValueError("the intervention log has no clicks: the effects of positions cannot be learned from it")


@dataclass(frozen=True, eq=False)
class _Rates:
    """Click rates by features and position."""

    edges: Sequence[NDArray[np.float32]]  # between the levels of each feature
    trees: HistGradientBoostingRegressor

    def __call__(self, features: NDArray, places: NDArray) -> Matrix:
        return self.trees.predict(_inputs(features, places, self.edges))


def _learn_rates(log: ClickLog, trees: int, max_leaves: int) -> _Rates:
    documents, places, member = _distinct_showings(log, log.mask)
    sessions = np.bincount(member, weights=np.repeat(log.sessions, log.mask.sum(axis=1)))
    rates = np.bincount(member, weights=log.clicks[log.mask]) / sessions
    if not rates.any():
        raise ValueError("a part of the intervention log has no clicks: collect more interventions, or lower folds")
    learner = HistGradientBoostingRegressor(
        loss="poisson", max_iter=trees, max_leaf_nodes=max_leaves, early_stopping=False, random_state=0
    )
    features = log.features[documents]
    edges = [np.unique(column) for column in np.quantile(features, QUANTILES, axis=0).astype(np.float32).T]
    return _Rates(edges, learner.fit(_inputs(features, places, edges), rates, sample_weight=sessions))


def _inputs(features: NDArray, places: NDArray, edges: Sequence[NDArray]) -> NDArray[np.float32]:
    """Quantile levels of the features, and the position; scikit-learn takes minutes to find levels of weighted rows."""
    levels = [np.searchsorted(edge, column) for edge, column in zip(edges, features.T, strict=True)]
    return np.column_stack([*levels, places]).astype(np.float32)


def _distinct_showings(
    log: ClickLog, chosen: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Distinct pairs of document and position, and the pair of each chosen showing; a swap changes only two."""
    codes = log.versions[chosen].astype(np.int64) * log.n_positions + log.positions[chosen]
    distinct, member = np.unique(codes, return_inverse=True)
    documents, places = np.divmod(distinct, log.n_positions)
    return documents, places, member
