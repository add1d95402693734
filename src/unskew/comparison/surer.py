"""What would make `auto` surer of its choice: what to log or randomize, on how much traffic, and what it costs."""

from __future__ import annotations

import numpy as np

from unskew.comparison.against_production import TO_RANK_PRODUCTION, Standing
from unskew.data.clicks.click_log import ClickLog
from unskew.evaluation.criteria import CRITERIA

SWAPPED = 0.1  # share of the sessions in which the first document changes places with another: a usual start


def surer_lines(
    log: ClickLog, standings: dict[str, Standing], *, open_number: bool, criteria: bool, varied: bool
) -> list[str]:
    """Advice, the most useful first.

    Args:
        standings: of the choice against production, by criterion.
        open_number: the choice rests on a number that clicks leave open.
        criteria: some criterion could rank production.
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
    if open_number:
        lines.append(
            "Clicks cannot separate a relevant document from one that catches the eye: judge 20 to 50 queries "
            "(low_rank, choose=judged), or record which documents were examined (attention)."
        )
    return lines


def swapping(log: ClickLog) -> str:
    """How much traffic to swap, and what that costs at most.

    A swap moves the top document down and another one up: no session can lose more than its click on top.
    """
    shown = np.broadcast_to(log.sessions[:, None], log.mask.shape)[log.mask]
    places = log.positions[log.mask]
    clicks = np.bincount(places, log.clicks[log.mask])
    rates = clicks / np.maximum(np.bincount(places, shown, minlength=len(clicks)), 1)
    cost = SWAPPED * rates[0] / max(float(rates.sum()), 1e-12)
    return (
        f"Swap the first document with one at a random position in {SWAPPED:.0%} of the sessions, "
        f"{SWAPPED * log.n_sessions:,.0f} of the {log.n_sessions:,.0f} of a log like this, and mark them: it costs at "
        f"most {cost:.1%} of the clicks (every click on top in those sessions), and makes propensities, agreement of "
        "pairs and a verdict on production possible."
    )
