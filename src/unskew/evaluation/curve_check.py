"""Whether a learned examination curve can be right, given the click rates of the log.

If examination depends on the position alone, a position's click rate is examination times the mean relevance of what is
shown there. A method that runs away trades one for the other without limit: its curve rises a thousandfold where clicks
fall, so documents there would have to be a millionth as relevant as those at the top.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog

MOST_RELEVANCE = 30.0  # times the mean relevance of one position can be that of another
FEWEST_CLICKS = 30  # of a position


def runaway(curve: NDArray[np.float64], log: ClickLog) -> str | None:
    """A warning if the curve implies an impossible relevance at some position; otherwise None.

    >>> import numpy as np, unskew
    >>> log = unskew.simulate("world:tiny", sessions=64, seed=1, progress=False).log
    >>> runaway(1 / np.arange(1, 11), log) is None, runaway(np.arange(1, 11.0) ** 4, log) is None
    (True, False)
    """
    n = min(len(curve), log.n_positions)
    shown = log.mask & (log.positions < n)
    positions = log.positions[shown]
    clicks = np.bincount(positions, log.clicks[shown], n)
    showings = np.bincount(positions, np.broadcast_to(log.sessions[:, None], log.mask.shape)[shown], n)
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
