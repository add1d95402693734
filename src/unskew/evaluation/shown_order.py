r"""Whether a ranker learned from clicks reverses the shown order.

Production usually ranks better than chance. A method that assumes that examination depends on the position alone
attributes clicks on low documents to relevance that are due to their visual attraction; if attraction and relevance
disagree, it may reverse the order. Likelihood does not detect this: it fits clicks better than plain clicks do. But the
reversal itself can be detected.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.evaluation.evaluate import Scorer
from unskew.evaluation.held_out import HeldOut
from unskew.evaluation.order_agreement import kendall
from unskew.evaluation.production import production_of_log

MOST_QUERIES = 500  # sample size: enough for a standard error of about .01
LEAST_QUERIES = 30
STANDARD_ERRORS = 3.0


def shown_order_agreement(ranker: Scorer, log: ClickLog) -> NDArray[np.float64]:
    r"""Kendall's $\tau_b$ of the scores with the shown order, in each query, without queries that have no order.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> model = unskew.fit("naive", log, steps=20, progress=False)
    >>> bool(shown_order_agreement(model.ranker(), log).mean() > 0)
    True
    """
    queries = np.unique(log.queries)
    if len(queries) > MOST_QUERIES:
        chosen = queries[np.linspace(0, len(queries) - 1, MOST_QUERIES).astype(np.int64)]
        log = log.select(np.flatnonzero(np.isin(log.queries, chosen)))
    shown = HeldOut(log)
    documents, query_of = shown.candidates()
    offsets = np.concatenate([[0], np.cumsum(np.bincount(query_of, minlength=shown.n_queries))])
    taus = kendall(shown.score(ranker)[documents], production_of_log(shown.log).scores[documents], offsets)
    return taus[~np.isnan(taus)]


def reversal(agreement: NDArray[np.float64]) -> str | None:
    """A warning if the ranker's agreement with the shown order is significantly below 0; otherwise None."""
    if len(agreement) < LEAST_QUERIES:
        return None
    mean, error = agreement.mean(), agreement.std(ddof=1) / np.sqrt(len(agreement))
    if mean >= -STANDARD_ERRORS * error:
        return None
    return (
        f"the learned order reverses the shown one (Kendall's tau {mean:.2f} on {len(agreement)} queries): either "
        "production ranks worse than chance, or examination depends on how documents look, not only on their position, "
        "and this method mistakes visual attraction for relevance. Check the ranker before you ship it: run unskew "
        "diagnose, and compare with naive"
    )
