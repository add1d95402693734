"""Feedback: clicks, or weighted events of several types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import Log

CLICK = "click"  # the event type that every log counts


@dataclass(frozen=True)
class Feedback:
    """Weights by event type; none: clicks as they are."""

    weights: Mapping[str, float] = field(default_factory=dict)
    add_up: bool = False  # add the weights of all events on an impression; otherwise the strongest counts
    why: str = ""  # the reason for using clicks although there are weights

    def of(self, log: ClickLog) -> ClickLog:
        """The log with this feedback in place of its clicks."""
        return log.with_grades(self.weights, "sum" if self.add_up else "strongest") if self.weights else log

    def __str__(self) -> str:
        if not self.weights:
            return f"clicks: {self.why}" if self.why else "clicks"
        listed = ", ".join(f"{kind} {weight:g}" for kind, weight in self.weights.items())
        return f"events by weight: {listed}; {'weights are summed' if self.add_up else 'the strongest event counts'}"


def feedback_of(
    log: Log,
    weights: Mapping[str, float] | None = None,
    *,
    add_up: bool = False,
    only_clicks: str = "",
) -> Feedback:
    """The feedback of a log by these weights, or by the weights set at ingestion.

    Args:
        weights: by event type; None: those of the log. A weight for clicks alone means clicks as they are.
        only_clicks: the reason why only clicks of 0 and 1 can be used; empty: graded feedback can.
    """
    kinds = (CLICK, *log.events)
    chosen = log.grades if weights is None else weights
    unknown = [kind for kind in chosen if kind not in kinds]
    if unknown:
        raise ValueError(
            f"the log has no events of type '{unknown[0]}', only {', '.join(kinds)}. Use unskew ingest --grade to keep "
            "more types"
        )
    if set(chosen) <= {CLICK}:
        return Feedback()
    return Feedback(why=only_clicks) if only_clicks else Feedback(dict(chosen), add_up)
