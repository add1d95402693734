"""The worlds that `auto` is judged by: 16 users x 4 numbers of sessions; loggers, orders and sizes in turn.

`tuning`: worlds on which rules are tried. `aside`: 64 other worlds, with documents, loggers and directions of their
own, set aside by this sentence before any rule or method was run on them; looked at once, by the finished rule.
`letor`: three LETOR sets and `shops`: five made-up shops, looked at once as well.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from default_worlds import Person as Who
from default_worlds import RandomDirection, user_of
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.row_fields import BiasColumn
from unskew.data.clicks.shards import join_logs
from unskew.data.fitted_transforms import fit_transform
from unskew.data.judged.catalogue import load_split
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.judged.tables import read_judged_table
from unskew.data.transformed import transform_judged
from unskew.simulation.policies import Fixed, Mixed, Policy, RankingSVM
from unskew.simulation.shop_log import JUDGED, shop
from unskew.simulation.simulate import simulate

SESSIONS = (4, 8, 32, 128)  # per query
QUERIES = (3_000, 1_000, 2_000)
LOGGERS = ("weak", "strong", "random")
ORDERS: tuple[Mapping[str, Any], ...] = (
    {},
    {"interventions": {"swap_top": 0.1}},
    {},
    {"two loggers": True},
)
FEATURES = ("identity", "log+minmax")
RANKS = np.arange(1, 11)
STANDARD: Mapping[str, Any] = {"crux_scale": "standard"}
RANDOM: Mapping[str, Any] = {"direction": "random"}
DEVICES = {"mobile": 2.0, "desktop": 0.5}  # power of the examination curve
N_TEST = 1_000
POSITION, TRUST, MATRIX, COUPLED, CONTEXT, DEVICE = "position", "trust", "matrix", "coupled", "contextual", "device"

PEOPLE: tuple[tuple[str, Who], ...] = (
    (POSITION, Who("position, power .5", "position_based", {"power": 0.5})),
    (POSITION, Who("position, power 1", "position_based")),
    (POSITION, Who("position, power 2", "position_based", {"power": 2.0})),
    (TRUST, Who("trust .4", "trust", {"clicks_if_not": tuple(0.4 / RANKS)})),
    (TRUST, Who("trust .65", "trust")),
    (MATRIX, Who("click matrix", "real_click")),
    (MATRIX, Who("click matrix, again", "real_click")),
    (COUPLED, Who("coupled .1", "coupled", {"coupling": 0.1, **STANDARD})),
    (COUPLED, Who("coupled .3", "coupled", {"coupling": 0.3, **STANDARD, **RANDOM})),
    (COUPLED, Who("coupled .6", "coupled", {"coupling": 0.6, **RANDOM})),
    (COUPLED, Who("logistic .1", "coupled", {"coupling": 0.1, "form": "logistic", **STANDARD, **RANDOM})),
    (COUPLED, Who("logistic .3", "coupled", {"coupling": 0.3, "form": "logistic", **STANDARD, **RANDOM})),
    (CONTEXT, Who("query context .3", "query_context", {"coupling": 0.3})),
    (CONTEXT, Who("page context 2", "page_context", {"influence": 2.0})),
    (DEVICE, Who("two devices", "position_based")),
    (DEVICE, Who("two devices, again", "position_based")),
)


@dataclass(frozen=True)
class World:
    """One of them."""

    number: int
    family: str
    who: Who
    documents: str
    sessions: int
    queries: int
    logger: str
    order: Mapping[str, Any]
    features: str

    @property
    def name(self) -> str:
        orders = "two loggers" if "two loggers" in self.order else "swaps" if self.order else "one order"
        return f"{self.number} {self.who.name}; {self.sessions} x {self.queries}; {self.logger}; {orders}"


def _worlds(first: int, turn: int) -> list[World]:
    found = []
    for index, (family, who) in enumerate(PEOPLE):
        for size, sessions in enumerate(SESSIONS):
            number = first + len(SESSIONS) * index + size
            found.append(
                World(
                    number,
                    family,
                    who,
                    f"world:small:{number}",
                    sessions,
                    QUERIES[(index + size + turn) % len(QUERIES)],
                    LOGGERS[(index + 2 * size + turn) % len(LOGGERS)],
                    ORDERS[(index + size // 2 + size + turn) % len(ORDERS)],
                    FEATURES[(index + size + turn) % len(FEATURES)],
                )
            )
    return found


ASIDE = _worlds(9_301, 1)
TUNING = [world for world in _worlds(9_101, 0) if world.number % 3 == 0 or world.family == COUPLED]
LETOR = [
    replace(ASIDE[4], number=9_371, documents="mq2008/2", sessions=64, queries=3_000, logger="weak"),
    replace(ASIDE[16], number=9_372, documents="mq2007-agg", sessions=64, queries=3_000, logger="weak"),
    replace(ASIDE[32], number=9_373, documents="clueweb09", sessions=64, queries=3_000, logger="weak"),
]
SHOPS = tuple(range(9_381, 9_386))  # seeds
SETS = {"tuning": TUNING, "aside": ASIDE, "letor": LETOR}


@dataclass(frozen=True, eq=False)
class Case:
    """A log, who is asked, and what is true."""

    log: ClickLog
    test: JudgedSet
    production: Any | None  # a ranker of judged queries; None: unknown
    which: str | None = None  # the flag that says which ranker production is


def open_world(world: World, seed: int = 0) -> Case:
    """Load the documents, fit logger and user, and draw the clicks."""
    train, test = (load_split(world.documents, split) for split in ("train", "test"))
    train = train.select(np.arange(train.n_queries)[: world.queries])
    test = test.select(np.arange(test.n_queries)[:N_TEST])
    transform = fit_transform(world.features, train.features)
    train, test = transform_judged(train, transform), transform_judged(test, transform)
    production = _logger(world, train)
    shown_by: Policy = production
    if "two loggers" in world.order:
        other = RankingSVM(fraction=0.02, seed=world.number + 1)
        shown_by = Mixed(loggers=[production, other], shares=[0.7, 0.3], arms=True).fit(train)
    options = {"interventions": world.order.get("interventions"), "sessions": world.sessions, "threads": 1}

    def drawn(judged: JudgedSet, who: Who, draw: int) -> ClickLog:
        user = user_of(who, train, world.number)
        return simulate(judged, shown_by, user, seed=draw, train=train, **options).log

    draw = 100 * world.number + seed
    log = _by_device(train, drawn, draw) if world.family == DEVICE else drawn(train, world.who, draw)
    arm = "fixed" if isinstance(production, Fixed) else "svm 1"
    return Case(log, test, production, f"logger=arm:{arm}" if shown_by is not production else None)


def _by_device(train: JudgedSet, drawn: Any, draw: int) -> ClickLog:
    """Every second query comes from a phone; the device is a bias column."""
    parts = []
    for number, (device, power) in enumerate(DEVICES.items()):
        some = train.select(np.arange(number, train.n_queries, len(DEVICES)))
        log = drawn(some, Who(device, "position_based", {"power": power}), draw + 50 * number)
        column = BiasColumn(np.zeros(log.n_lists, np.int64), (device,))
        parts.append(replace(log, bias={**log.bias, "device": column}))
    return join_logs(parts)


def open_shop(seed: int, sessions: int = 5_000) -> Case:
    """A made-up shop; production is what its log shows."""
    from shop import log_of  # it needs LightGBM and pandas, which no other world does

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "shop"
        shop(folder, sessions=sessions, seed=seed)
        return Case(log_of(folder), read_judged_table(folder / JUDGED), None)


def _logger(world: World, train: JudgedSet) -> Policy:
    if world.logger == "random":
        return Fixed(ranker=RandomDirection(train, world.number))
    if world.logger == "weak":
        return RankingSVM(fraction=0.01, seed=world.number).fit(train)
    return RankingSVM(fraction=1.0, cost=2.0, seed=world.number).fit(train)  # as good as the usual cost, and faster
