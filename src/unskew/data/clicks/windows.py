"""Windows: the part of a log that was shown between two days, and old clicks that count less."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from unskew.data.clicks.click_log import ClickLog

DAY = 86_400_000_000  # microseconds


def window(
    log: ClickLog, since: str | None = None, until: str | None = None, half_life: float | None = None
) -> ClickLog:
    """The lists shown from one day (or time) to before another; with a half-life, older lists count less.

    Args:
        since: a day or time such as 2026-11-17 or 2026-11-17T12:00, UTC unless it names a zone.
        until: the same; what was shown from then on is left out.
        half_life: days after which a list counts half as much as one of the latest day.
    """
    if half_life is not None and not (np.isfinite(half_life) and half_life > 0):
        raise ValueError(f"half_life is {half_life}: give a number of days above 0")
    if since is None and until is None and half_life is None:
        return log
    cut = log.between(microseconds(since, "since"), microseconds(until, "until"))
    if not cut.n_clicks:
        raise ValueError(
            f"no click was logged from {since or 'the beginning'} to {until or 'the end'}; the log goes from "
            f"{_range(log)}: choose another window"
        )
    if half_life is None:
        return cut
    times = cut.periods if cut.periods is not None else cut.first_shown
    if times is None:
        raise ValueError("the log has no times: ingest it with --time and --period day, or time= and period=")
    return cut.weighted(0.5 ** ((times.max() - times) / (half_life * DAY)))


def microseconds(text: str | None, name: str) -> int | None:
    """A day or time as microseconds since 1970."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{name} is '{text}': give a day such as 2026-11-17, or a time (2026-11-17T12:00)") from error
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 1_000_000


def _range(log: ClickLog) -> str:
    times = log.periods if log.periods is not None else log.first_shown
    if times is None or not len(times):
        return "nowhere"
    first, last = (
        datetime.fromtimestamp(float(at) / 1e6, UTC).isoformat(" ", "minutes") for at in (times.min(), times.max())
    )
    return f"{first} to {last}"
