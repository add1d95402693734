"""Windows: the part of a log that was shown between two days, and lower weights for old clicks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import numpy as np

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.shards import log_counts
from unskew.data.clicks.storage import LogFolder

DAY = 86_400_000_000  # microseconds


L = TypeVar("L", ClickLog, LogFolder, ClickLog | LogFolder)


@dataclass(frozen=True)
class Window:
    """A part of a log by time, and the weights of its lists."""

    since: int | None  # microseconds since 1970
    until: int | None
    half_life: float | None = None  # days
    latest: int = 0  # the latest time, whose lists have full weight

    def __call__(self, log: ClickLog) -> ClickLog:
        cut = log.between(self.since, self.until)
        if self.half_life is None:
            return cut
        return cut.weighted(0.5 ** ((self.latest - cut.times) / (self.half_life * DAY)))


def window(log: L, since: str | None = None, until: str | None = None, half_life: float | None = None) -> L:
    """The lists shown from one day (or time) to before another; with a half-life, older lists have lower weights.

    A log from `open_log` is read once more, shard by shard, to count the lists in the window.

    Args:
        since: a day or time such as 2026-11-17 or 2026-11-17T12:00, in UTC unless it has a time zone.
        until: the same; lists shown from then on are left out.
        half_life: days after which a list has half the weight of one of the latest day.
    """
    if half_life is not None and not (np.isfinite(half_life) and half_life > 0):
        raise ValueError(f"half_life must be a number of days above 0, got {half_life}")
    if since is None and until is None and half_life is None:
        return log
    cut, n_clicks, ends = Window(microseconds(since, "since"), microseconds(until, "until")), 0.0, []
    latest = []
    for shard in log.shards():
        part = cut(shard)
        n_clicks += part.n_clicks
        ends += _ends(shard)
        latest += _ends(part)[1:]
    if not n_clicks:
        raise ValueError(
            f"there are no clicks from {since or 'the beginning'} to {until or 'the end'}; the log covers "
            f"{_range(ends)}: choose another window"
        )
    whole = replace(cut, half_life=half_life, latest=max(latest))
    how = {"since": since, "until": until, "half_life": half_life}
    lineage = log.lineage.then("window", **how)
    if isinstance(log, ClickLog):
        inside: Any = replace(whole(log), origin=lineage)
        return inside
    view = log.view(change=whole)
    counted = [log_counts(shard) for shard in view.shards()]
    shards = [{**shard, **counts} for shard, counts in zip(log.about["shards"], counted, strict=True)]
    about = {**log.about, "window": how, "shards": shards}
    return replace(view, about=about, made_by=lineage)


def _ends(log: ClickLog) -> list[int]:
    return [int(log.times.min()), int(log.times.max())] if log.n_lists else []


def microseconds(text: str | None, name: str) -> int | None:
    """A day or time as microseconds since 1970."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{name} '{text}' is not a day: write 2026-11-17, or 2026-11-17T12:00 for a time") from error
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 1_000_000


def _range(ends: Sequence[int]) -> str:
    if not ends:
        return "nowhere"
    first, last = (datetime.fromtimestamp(at / 1e6, UTC).isoformat(" ", "minutes") for at in (min(ends), max(ends)))
    return f"{first} to {last}"
