"""The worlds that the default is measured on: 16 users x 4 kinds of traffic, with loggers, documents and sizes in turn.

`seen`: the 256 worlds of the first four turns. Rules are found there, and earlier rules were measured there.
`unseen`: the 64 worlds of the fifth turn, with other documents and the loggers and sizes in other combinations. They
were set aside, by this sentence, before any was run, and are looked at once, with a finished rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.judged.catalogue import load_split
from unskew.data.judged.judged_set import JudgedSet
from unskew.simulation.browsing import User
from unskew.simulation.coupled import N_CRUX
from unskew.simulation.independent import RealClick
from unskew.simulation.policies import Fixed, Mixed, Policy, RankingSVM
from unskew.simulation.simulate import simulate
from unskew.simulation.truth import Simulation
from unskew.simulation.users import make_user

SETS = ("seen", "unseen")
SEEDS = (0, 1, 2)  # of clicks and training
N_TRAIN, N_TEST = 400, 400  # queries, at most
STANDARD = {"crux_scale": "standard"}
RANDOM = {"direction": "random"}
RANKS = np.arange(1, 11)


@dataclass(frozen=True)
class Person:
    """A user, and how looks are recorded."""

    name: str
    user: str
    options: Mapping[str, Any] = field(default_factory=dict)
    record: Mapping[str, float] | None = None
    coupled: bool = False  # examination depends on the document, and nothing in the log says how


PEOPLE = (
    Person("position, power .5", "position_based", {"power": 0.5}),
    Person("position, power 1", "position_based"),
    Person("position, power 2", "position_based", {"power": 2.0}),
    Person("trust .4", "trust", {"clicks_if_not": tuple(0.4 / RANKS)}),
    Person("trust .65", "trust"),
    Person("dbn .3", "dbn", {"satisfaction": 0.3}),
    Person("dbn .9", "dbn", {"satisfaction": 0.9}),
    Person("query context .3", "query_context", {"coupling": 0.3}),
    Person("page context 2", "page_context", {"influence": 2.0}),
    Person("real clicks", "real_click"),
    Person("coupled .1", "coupled", {"coupling": 0.1}, coupled=True),
    Person("coupled .3 standard", "coupled", {"coupling": 0.3, **STANDARD}, coupled=True),
    Person("coupled .6 random", "coupled", {"coupling": 0.6, **RANDOM}, coupled=True),
    Person("coupled .3 logistic", "coupled", {"coupling": 0.3, "form": "logistic", **STANDARD, **RANDOM}, coupled=True),
    Person("coupled .3, looks", "coupled", {"coupling": 0.3, **STANDARD}, record={"misses": 0.2}),
    Person("coupled .6, looks", "coupled", {"coupling": 0.6, **STANDARD, **RANDOM}, record={}),
)
TRAFFIC: dict[str, Mapping[str, float] | None] = {
    "one order": None,
    "swaps": {"swap_top": 0.1},
    "shuffles": {"shuffle": 0.05},
    "two loggers": None,
}
LOGGERS = ("weak", "strong", "random direction")
DOCUMENTS = ("world", "world", "mq2008", "world", "mq2007-agg")
SESSIONS = (32, 128)  # per query


@dataclass(frozen=True)
class World:
    """One of them."""

    number: int
    person: Person
    traffic: str
    logger: str
    documents: str
    sessions: int

    @property
    def name(self) -> str:
        return f"{self.number:02d} {self.person.name}; {self.traffic}; {self.logger}; {self.documents}; {self.sessions}"


def all_worlds(turn: int = 0) -> list[World]:
    """All of them, in order.

    Args:
        turn: 0 for the first 64; 1 to 4 for 64 others each.
    """
    found = []
    for case in range(len(PEOPLE) * len(TRAFFIC)):
        number = case + turn * len(PEOPLE) * len(TRAFFIC)
        person, traffic = divmod(case, len(TRAFFIC))
        kind = DOCUMENTS[(case + 2 * turn) % len(DOCUMENTS)]
        fold = 1 + (person + turn) % 5
        documents = {"world": f"world:small:{400 + number}", "mq2008": f"mq2008/{fold}"}.get(kind, kind)
        logger = LOGGERS[(person + traffic + turn) % len(LOGGERS)]
        sessions = SESSIONS[(person + traffic // 2 + turn) % len(SESSIONS)]
        found.append(World(number, PEOPLE[person], list(TRAFFIC)[traffic], logger, documents, sessions))
    return found


def worlds_of(name: str) -> list[World]:
    """The worlds of a set."""
    turns = {"seen": (0, 1, 2, 3), "unseen": (4,)}[name]
    return [world for turn in turns for world in all_worlds(turn)]


@dataclass(frozen=True, eq=False)
class Scene:
    """A world with everything fitted: only clicks remain to be drawn."""

    world: World
    train: JudgedSet
    test: JudgedSet
    production: Policy
    shown_by: Policy
    user: User

    @property
    def which(self) -> str | None:
        """The flag that says which ranker production is."""
        return None if self.shown_by is self.production else f"logger=arm:{_arm(self.production)}"

    def log(self, seed: int) -> Simulation:
        options = {"interventions": TRAFFIC[self.world.traffic], "record": self.world.person.record}
        return simulate(
            self.train, self.shown_by, self.user, sessions=self.world.sessions, seed=seed, threads=1, **options
        )


def open_scene(world: World) -> Scene:
    """Load the documents and fit logger and user."""
    train, test = _sets(world)
    production = _logger(world, train)
    other = RankingSVM(fraction=0.02, seed=500 + world.number)
    shown_by = Mixed(loggers=[production, other], shares=[0.7, 0.3], arms=True).fit(train)
    return Scene(
        world,
        train,
        test,
        production,
        shown_by if world.traffic == "two loggers" else production,
        user_of(world.person, train, world.number),
    )


def _sets(world: World) -> tuple[JudgedSet, JudgedSet]:
    rng = np.random.default_rng(1_000 + world.number)
    train = load_split(world.documents, "train")
    test = _joined([load_split(world.documents, split) for split in ("valid", "test")])
    train = train.select(np.sort(rng.permutation(train.n_queries)[:N_TRAIN]))
    return train, test.select(np.sort(rng.permutation(test.n_queries)[:N_TEST]))


def _logger(world: World, train: JudgedSet) -> Policy:
    if world.logger == "random direction":
        return Fixed(ranker=RandomDirection(train, world.number))
    if world.logger == "weak":
        return RankingSVM(fraction=0.01, seed=world.number).fit(train)
    return RankingSVM(fraction=1.0, cost=2.0, seed=world.number).fit(train)  # as good as the usual cost, and faster


@dataclass(frozen=True, eq=False)
class RandomDirection:
    """Ranks by a random direction of the standardized features: it knows nothing, and features predict its order."""

    train: JudgedSet
    seed: int

    def __call__(self, judged: JudgedSet) -> NDArray[np.float64]:
        known = self.train.features.astype(np.float64)
        spread = known.std(axis=0)
        scaled = (judged.features - known.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        return np.clip(scaled, -3, 3) @ np.random.default_rng(self.seed).normal(size=known.shape[1])


def user_of(person: Person, train: JudgedSet, seed: int) -> User:
    """The user, fitted; the seed draws a random direction."""
    options = dict(person.options)
    if "coupling" in options:
        options["crux"] = _crux(train)
    if options.get("direction") == "random":
        options["direction_seed"] = seed
    if person.user == "real_click" and train.max_grade < 3:
        return RealClick(rows=(0, 2, 4))
    scale = {} if person.user == "real_click" else {"max_grade": int(train.max_grade)}
    return make_user(person.user, **options, **scale).fit(train)


def _crux(train: JudgedSet) -> tuple[int, ...]:
    """The ten features with the strongest correlation with the grades: a forest would take longer than all the rest."""
    spread = train.features.std(axis=0) > 0
    found = np.zeros(train.n_features)
    found[spread] = [abs(np.corrcoef(column, train.grades)[0, 1]) for column in train.features.T[spread]]
    return tuple(int(column) for column in np.argsort(-found, kind="stable")[:N_CRUX])


def _arm(production: Policy) -> str:
    return "fixed" if isinstance(production, Fixed) else "svm 1"


def _joined(sets: list[JudgedSet]) -> JudgedSet:
    return JudgedSet.from_arrays(
        np.concatenate([one.features for one in sets]),
        np.concatenate([one.grades for one in sets]),
        np.concatenate([one.sizes for one in sets]),
    )
