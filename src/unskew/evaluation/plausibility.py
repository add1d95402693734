"""Whether what was learned from clicks can be right: the ranker, and the examination curve.

**A reversed order.** Production usually ranks better than chance. A method that assumes that examination depends on the
position alone attributes clicks on low documents to relevance that are due to their visual attraction; if attraction
and relevance disagree, it may reverse the order. Likelihood does not detect this: it fits clicks better than plain
clicks do. But the reversal itself can be detected, and so can an order that has little to do with production's.

**A runaway curve.** If examination depends on the position alone, a position's click rate is examination times the mean
relevance of what is shown there. A method that runs away trades one for the other without limit: its curve rises a
thousandfold where clicks fall, so documents there would have to be a millionth as relevant as those at the top.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.evaluation.agreement import kendall
from unskew.evaluation.differences import standard_error
from unskew.evaluation.evaluate import Scorer
from unskew.evaluation.held_out import HeldOut
from unskew.evaluation.production import production_of_log

MOST_QUERIES = 500  # sample size: enough for a standard error of about .01
LEAST_QUERIES = 30
STANDARD_ERRORS = 3.0
LEAST_AGREEMENT = 0.2  # tau; methods that went wrong on simulated clicks had .10 to .13, others .3 and more
MOST_RELEVANCE = 30.0  # times the mean relevance of one position can be that of another
FEWEST_CLICKS = 30  # of a position


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
    """A warning if the ranker hardly agrees with the shown order, or significantly reverses it; otherwise None."""
    if len(agreement) < LEAST_QUERIES:
        return None
    mean, error = agreement.mean(), standard_error(agreement)
    found = f"(Kendall's tau {mean:.2f} on {len(agreement)} queries)"
    check = "Check the ranker before you ship it: run unskew diagnose, and compare with naive"
    if mean < -STANDARD_ERRORS * error:
        return (
            f"the learned order reverses the shown one {found}: either production ranks worse than chance, or "
            "examination depends on how documents look, not only on their position, and this method mistakes visual "
            f"attraction for relevance. {check}"
        )
    if mean < LEAST_AGREEMENT - STANDARD_ERRORS * error:
        return (
            f"the learned order has little to do with the shown one {found}: unless production ranks hardly better "
            "than chance, or shuffles, this method's assumption about clicks does not hold, and it may rank worse than "
            f"raw clicks. {check}"
        )
    return None


def runaway(curve: NDArray[np.float64], log: ClickLog) -> str | None:
    """A warning if the curve implies an impossible relevance at some position; otherwise None.

    >>> import numpy as np, unskew
    >>> log = unskew.simulate("world:tiny", sessions=64, seed=1, progress=False).log
    >>> runaway(1 / np.arange(1, 11), log) is None, runaway(np.arange(1, 11.0) ** 4, log) is None
    (True, False)
    """
    n = min(len(curve), log.n_positions)
    showings, clicks = (values[:n] for values in log.by_position())
    known = np.flatnonzero((clicks >= FEWEST_CLICKS) & (curve[:n] > 0))
    if len(known) < 2:
        return None
    top, rest = known[0], known[1:]
    rates = clicks[known] / showings[known]
    relevance = (rates[1:] / rates[0]) / (curve[rest] / curve[top])  # that the curve implies, relative to the top
    worst = int(np.abs(np.log(relevance)).argmax())
    factor = max(relevance[worst], 1 / relevance[worst])
    if factor <= MOST_RELEVANCE:
        return None
    return (
        f"the learned examination cannot be right: it is {curve[rest[worst]] / curve[top]:,.3g} at position "
        f"{rest[worst] + 1} relative to position {top + 1}, so by the click rates the documents there would be "
        f"{factor:,.0f} times {'less' if relevance[worst] < 1 else 'more'} relevant. Training has run away, and the "
        "ranker has learned the positions: train two_tower, or compare with naive before you ship it"
    )
