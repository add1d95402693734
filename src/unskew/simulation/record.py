"""The record of looks: what a site logs of what simulated users saw, with its faults."""

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
    r"""How looks are recorded: of each session with probability `share`, then document by document.

    Attributes:
        share: of the sessions, those in which looks are recorded.
        misses: probability that a look is not recorded.
        false_alarms: probability that a document that was not looked at is recorded all the same.
        interest: $\iota$, how much the record grows with interest: a look at a document that is wanted with
            probability $a$ is recorded $1 - \iota + \iota a$ times as often. 0: not at all; 1: in proportion.
        on_click: a click is always recorded, as a mouse that clicks also hovers.
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
            raise ValueError("share is 0, nothing would be recorded: leave the record out")

    def draw(
        self, counted: Counted, attraction: NDArray[np.float64], mask: NDArray[np.bool_], rng: Generator
    ) -> tuple[Index, Index]:
        """Recorded looks `[lists, docs]`, and the sessions `[lists]` in which looks were recorded."""
        recorded = rng.binomial(counted.sessions, self.share)
        shown, unseen = recorded[:, None], counted.sessions[:, None] - counted.seen
        clicked = rng.hypergeometric(counted.clicks, counted.sessions[:, None] - counted.clicks, shown)
        looked = rng.hypergeometric(counted.seen - counted.clicks, unseen, shown - clicked)
        noticed = (1 - self.misses) * (1 - self.interest + self.interest * attraction)
        looks = clicked if self.on_click else rng.binomial(clicked, noticed)
        looks = looks + rng.binomial(looked, noticed) + rng.binomial(shown - clicked - looked, self.false_alarms)
        return np.where(mask, looks, 0), recorded
