"""How to make the choice of `auto` more certain: what to log or randomize, on how much traffic, and at what cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unskew.comparison.against_production import TO_RANK_PRODUCTION, Standing
from unskew.comparison.choice import MEMBERS, Step
from unskew.data.clicks.click_log import ClickLog
from unskew.evaluation.criteria import CRITERIA

SWAPPED = 0.1  # share of the sessions in which the first document is swapped with another: a usual start


def surer_lines(
    log: ClickLog,
    standings: dict[str, Standing],
    steps: Sequence[Step],
    *,
    open_number: bool,
    criteria: bool,
    varied: bool,
) -> list[str]:
    """Advice, the most useful first.

    Args:
        standings: the choice against production, by criterion.
        steps: models that were compared by held-out clicks.
        open_number: the choice depends on a parameter that clicks do not identify.
        criteria: some criterion could rank production, or none may be used.
        varied: documents were shown at several positions.
    """
    lines = []
    if not criteria:
        lines.append(f"{TO_RANK_PRODUCTION}.")
    if not varied:
        lines.append(swapping(log))
    for name, entry in standings.items():
        if entry.verdict == "no clear difference" and entry.difference and entry.least is not None:
            more = ((entry.difference - entry.least) / entry.difference) ** 2
            lines.append(
                f"If the difference in {CRITERIA[name].title} is real, about {more:,.1f} times as many held-out "
                "queries would show it."
            )
    for step in steps:
        if not step.accepted and step.gain > 0:
            more = ((step.gain - step.low) / step.gain) ** 2
            lines.append(
                f"If the gain by {MEMBERS[step.method].part} is real, about {more:,.1f} times as many queries would "
                "show it."
            )
    if open_number:
        lines.append(
            "Clicks cannot separate a relevant document from one that attracts attention: judge 20 to 50 queries "
            "(low_rank, choose=judged), or record which documents were examined (attention)."
        )
    return lines


def swapping(log: ClickLog) -> str:
    """How much traffic to swap, and an upper bound on its cost.

    A swap moves the top document down and another one up: no session can lose more than its click at the top.
    """
    shown = np.broadcast_to(log.sessions[:, None], log.mask.shape)[log.mask]
    places = log.positions[log.mask]
    clicks = np.bincount(places, log.clicks[log.mask])
    rates = clicks / np.maximum(np.bincount(places, shown, minlength=len(clicks)), 1)
    cost = SWAPPED * rates[0] / max(float(rates.sum()), 1e-12)
    return (
        f"Swap the first document with one at a random position in {SWAPPED:.0%} of the sessions "
        f"({SWAPPED * log.n_sessions:,.0f} of {log.n_sessions:,.0f} in a log like this), and mark them. This costs at "
        f"most {cost:.1%} of the clicks (every click at the top in those sessions), and makes propensities, pair "
        "agreement and a verdict on production possible."
    )
