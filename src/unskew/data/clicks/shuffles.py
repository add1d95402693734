"""Interventions that show documents in random order, under any name, and how many positions they shuffle."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unskew.data.checks import LAST_POSITION
from unskew.data.clicks.click_log import ClickLog

WORDS = ("shuffle", "random")  # in names of interventions that were not declared with --shuffled
TOP = re.compile(r"top[ _-]?(\d+)")
WHOLE_LIST = LAST_POSITION + 1


def parse_shuffled(names: Sequence[str]) -> dict[str, int]:
    """How many of the top positions each intervention shuffles, from `NAME` or `NAME=TOP`.

    >>> parse_shuffled(["shuffle_top10", "mix=5", "explore"])
    {'shuffle_top10': 10, 'mix': 5, 'explore': 32767}
    """
    reach = {}
    for entry in names:
        name, _, top = entry.rpartition("=") if "=" in entry else (entry, "", "")
        if not name or (top and (not top.isdecimal() or int(top) < 2)):
            raise ValueError(f"'{entry}' is not an intervention: write NAME, or NAME=10 if the top 10 are shuffled")
        reach[name] = int(top) if top else _reach(name)
    return reach


def shuffled_positions(log: ClickLog, intervention: str | None = None) -> NDArray[np.int64]:
    """How many of the top positions of each list were shuffled, `[lists]`; 0: none.

    Args:
        intervention: name of the intervention in the log; None: those declared at ingestion (`--shuffled`), otherwise
            every name that contains "shuffle" or "random".
    """
    levels = () if log.interventions is None else log.interventions.levels or ()
    if intervention is not None:
        told = {intervention: log.shuffled.get(intervention, _reach(intervention))}
    else:
        told = dict(log.shuffled) or {n: _reach(n) for n in levels if any(word in n.lower() for word in WORDS)}
    if log.interventions is None:
        return np.zeros(log.n_lists, dtype=np.int64)
    reach = np.array([told.get(name, 0) for name in levels], dtype=np.int64)
    return reach[log.interventions.values]


def _reach(name: str) -> int:
    match = TOP.search(name.lower())
    return int(match[1]) if match else WHOLE_LIST
