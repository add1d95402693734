"""Recorded examination: what a site logs about the examination of simulated users, with errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from unskew.simulation.browsing import check_probability
from unskew.simulation.patterns import Counted
from unskew.simulation.showings import Index


@dataclass(frozen=True, kw_only=True)
class Record:
    r"""How examination is recorded: for each session with probability `share`, then for each document.

    Attributes:
        share: share of the sessions in which examination is recorded.
        misses: probability that the examination of a document is not recorded.
        false_alarms: probability that a document that was not examined is recorded as examined.
        interest: $\iota$, how much the record grows with interest: examination of a document that is relevant with
            probability $a$ is recorded $1 - \iota + \iota a$ times as often. 0: not at all; 1: in proportion.
        on_click: a click is always recorded, because a mouse that clicks also hovers.
    """

    share: float = 1.0
    misses: float = 0.0
    false_alarms: float = 0.0
    interest: float = 0.0
    on_click: bool = False

    def __post_init__(self) -> None:
        for name in ("share", "misses", "false_alarms", "interest"):
            check_probability(name, getattr(self, name))
        if self.share == 0:
            raise ValueError("share is 0, so nothing would be recorded: leave out the record")

    def draw(
        self, counted: Counted, attraction: NDArray[np.float64], mask: NDArray[np.bool_], rng: Generator
    ) -> tuple[Index, Index]:
        """Recorded examination `[lists, docs]`, and the sessions `[lists]` that recorded it."""
        recorded = rng.binomial(counted.sessions, self.share)
        shown, unseen = recorded[:, None], counted.sessions[:, None] - counted.seen
        clicked = rng.hypergeometric(counted.clicks, counted.sessions[:, None] - counted.clicks, shown)
        looked = rng.hypergeometric(counted.seen - counted.clicks, unseen, shown - clicked)
        noticed = (1 - self.misses) * (1 - self.interest + self.interest * attraction)
        looks = clicked if self.on_click else rng.binomial(clicked, noticed)
        looks = looks + rng.binomial(looked, noticed) + rng.binomial(shown - clicked - looked, self.false_alarms)
        return np.where(mask, looks, 0), recorded
