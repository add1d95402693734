"""Feedback: clicks, or weighted events of several types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import LogFolder

CLICK = "click"  # the kind of event that every log counts


@dataclass(frozen=True)
class Feedback:
    """Weights of the kinds of events; none: clicks as they are."""

    weights: Mapping[str, float] = field(default_factory=dict)
    add_up: bool = False  # the weights of all events on an impression; else the strongest of them counts
    why: str = ""  # clicks are taken although there are weights

    def of(self, log: ClickLog) -> ClickLog:
        """The log with this feedback in place of its clicks."""
        return log.with_grades(self.weights, "sum" if self.add_up else "strongest") if self.weights else log

    def __str__(self) -> str:
        if not self.weights:
            return f"clicks: {self.why}" if self.why else "clicks"
        listed = ", ".join(f"{kind} {weight:g}" for kind, weight in self.weights.items())
        return f"events by weight: {listed}; {'weights add up' if self.add_up else 'the strongest counts'}"


def feedback_of(
    log: ClickLog | LogFolder,
    weights: Mapping[str, float] | None = None,
    *,
    add_up: bool = False,
    only_clicks: str = "",
) -> Feedback:
    """The feedback of a log by these weights, or by those that it was made with.

    Args:
        weights: by kind of event; None: those of the log. A weight of clicks alone means clicks as they are.
        only_clicks: why nothing but clicks of 0 and 1 will do; empty: graded feedback will.
    """
    noted = log.about.get("grades", {}) if isinstance(log, LogFolder) else log.grades
    kinds = (CLICK, *(log.about["events"] if isinstance(log, LogFolder) else log.events))
    chosen = noted if weights is None else weights
    unknown = [kind for kind in chosen if kind not in kinds]
    if unknown:
        raise ValueError(
            f"no events of kind '{unknown[0]}' are in the log: it has {', '.join(kinds)}. unskew ingest --grade keeps "
            "more kinds"
        )
    if set(chosen) <= {CLICK}:
        return Feedback()
    return Feedback(why=only_clicks) if only_clicks else Feedback(dict(chosen), add_up)
