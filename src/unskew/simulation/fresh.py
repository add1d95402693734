"""FreshClicks: new clicks at every step of training, as in ULTRA's protocol.

A step draws queries with replacement, shows each by the policy and lets the user click once. Its expected gradient is
that of a log with infinitely many sessions: a fixed log of n sessions per query approaches it as n grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.shard_batches import ClickSource
from unskew.data.files import array_digest
from unskew.data.judged.judged_set import JudgedSet
from unskew.simulation.browsing import User
from unskew.simulation.policies import Policy
from unskew.simulation.simulate import Design, assemble, draw_all, new_world

FRESH = 3  # purpose of its random streams, different from those of `simulate`
PROBE = 8  # sessions per query to estimate the share with a click


class FreshClicks(ClickSource):
    """Simulated clicks, new in every step, with the arguments of `simulate`.

    Args:
        drop_clickless: reject sessions without a click, and draw more, so that a step has about the requested number.
        seed: seed of queries, orders and clicks.

    >>> import unskew
    >>> world = unskew.load("world:tiny")
    >>> source = FreshClicks(world.train, "svm", "position_based", seed=1)
    >>> source.lists(step=0, n_sessions=32).n_sessions
    32.0
    """

    def __init__(
        self,
        judged: JudgedSet,
        policy: str | Policy | type[Policy] | Mapping[str, Any],
        user: str | User | type[User] | Mapping[str, Any],
        *,
        n_shown: int = 10,
        joint: bool = False,
        drop_clickless: bool = False,
        seed: int = 0,
        train: JudgedSet | None = None,
    ):
        design = Design(n_shown, joint=joint, drop_clickless=drop_clickless, seed=seed)
        self.world = new_world(judged, policy, user, 1, design, train)
        everything = replace(self.world, design=replace(design, drop_clickless=False))
        self.documents = assemble(everything, list(draw_all(everything))).log
        about = repr((everything.about(), drop_clickless, self.world.joint)).encode()
        self.digest = array_digest([judged.features, judged.grades, judged.offsets, np.frombuffer(about, np.uint8)])
        self.kept = self._share_with_click() if drop_clickless else 1.0

    def lists(self, step: int, n_sessions: int) -> ClickLog:
        world, judged = self.world, self.world.judged
        rng = np.random.default_rng((world.design.seed, FRESH, step))
        drawn = rng.integers(0, judged.n_queries, max(1, round(n_sessions / self.kept)))
        queries, sessions = np.unique(drawn, return_counts=True)
        rows = np.concatenate([np.arange(judged.offsets[q], judged.offsets[q + 1]) for q in queries])
        part = replace(
            world,
            judged=judged.select(queries),
            scores=world.scores[rows],
            traits=None if world.traits is None else world.traits[rows],
            sessions=sessions,
            key=(world.design.seed, FRESH, step),
        )
        return assemble(part, list(draw_all(part))).log

    def _share_with_click(self) -> float:
        """Share of the sessions with a click, estimated from a few sessions per query."""
        probe = replace(
            self.world, sessions=np.full(self.world.judged.n_queries, PROBE), key=(self.world.design.seed, FRESH)
        )
        kept = assemble(probe, list(draw_all(probe))).log.n_sessions
        return kept / (PROBE * self.world.judged.n_queries)
