"""The logs on which the quality of the defaults is measured, as data.

`REFERENCE`: eight logs for tuning and for the guard (`quality.py`): raw and log and min-max features, 1 to 192 sessions
per list, position, trust, matrix and coupled users.
`ASIDE`: twelve logs with other worlds and loggers of their own, among them two of single sessions, two each of trust
and matrix users, one coupled, one LETOR set and one shop.
`FURTHER`: twenty worlds of position bias with log and min-max features, a linear production ranker trained on 1% of the
labels, one order per query and 128 sessions.

`ASIDE` and `FURTHER` were set aside, by this sentence, before any method was trained on them. They are looked at once,
with finished defaults: nothing is tuned on them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.linear_model import Ridge

from default_worlds import PEOPLE, Person, user_of
from unskew.data.clicks.click_log import ClickLog
from unskew.data.fitted_transforms import fit_transform
from unskew.data.judged.catalogue import load_split
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.judged.tables import read_judged_table
from unskew.data.transformed import transform_judged
from unskew.simulation.policies import PlackettLuce, Policy, RankingSVM
from unskew.simulation.ranking_svm import LinearScorer
from unskew.simulation.shop_log import JUDGED, shop
from unskew.simulation.simulate import simulate
from unskew.simulation.truth import Simulation

SHOP = "shop"
N_TEST = 1_000  # queries, at most
USER = {person.name: person for person in PEOPLE}
POSITION, TRUST, MATRIX = USER["position, power 1"], USER["trust .65"], USER["real clicks"]
COUPLED = Person("coupled .6", "coupled", {"coupling": 0.6, "crux_scale": "standard", "direction": "random"})
SCALED = "log+minmax"


@dataclass(kw_only=True, eq=False)
class LinearRegression(Policy):
    """A ridge regression of the grades of a few queries on standardized features.

    Attributes:
        fraction: share of the training queries it is trained on, at least one query.
        penalty: of the squared weights.
        seed: seed of the choice of queries.
    """

    fraction: float = 0.01
    penalty: float = 1.0
    seed: int = 0
    _scorer: LinearScorer | None = field(default=None, init=False, repr=False)

    @property
    def fitted(self) -> bool:
        return self._scorer is not None

    def fit(self, train: JudgedSet) -> Self:
        n_queries = max(1, round(self.fraction * train.n_queries))
        judged = train.select(np.random.default_rng(self.seed).permutation(train.n_queries)[:n_queries])
        mean, spread = train.features.mean(axis=0, dtype=np.float64), train.features.std(axis=0, dtype=np.float64)
        spread[spread == 0] = 1.0
        fitted = Ridge(alpha=self.penalty).fit((judged.features - mean) / spread, judged.grades)
        weights = fitted.coef_.astype(np.float64) / spread
        trained = copy(self)
        trained._scorer = LinearScorer(weights, float(fitted.intercept_ - weights @ mean))
        return trained

    def scores(self, judged: JudgedSet) -> np.ndarray:
        if self._scorer is None:
            raise ValueError("the regression is not trained yet: call fit(train) first")
        return self._scorer(judged)


LOGGERS: dict[str, Callable[[int], Policy]] = {
    "svm": lambda seed: RankingSVM(fraction=0.01, seed=seed),
    "ridge": lambda seed: LinearRegression(fraction=0.01, seed=seed),
    "strong": lambda seed: RankingSVM(fraction=1.0, cost=2.0, seed=seed),
    "plackett_luce": lambda seed: PlackettLuce(logger=RankingSVM(fraction=0.01, seed=seed)),
}


@dataclass(frozen=True)
class QualityLog:
    """A log: who was shown what, and who clicked."""

    name: str
    documents: str  # a name of the catalogue, or `SHOP`
    sessions: int  # per query; of a shop, in all
    logger: str = "svm"
    person: Person = field(default=POSITION, hash=False)
    number: int = 0  # seed of its logger and of a random direction
    features: str = "identity"  # the transform of the features that loggers, users and methods see
    queries: int | None = None  # at most; None: all
    joint: bool = False  # it keeps which documents were clicked together, for methods that need it


@dataclass(frozen=True, eq=False)
class Case:
    """What a training gets, and the judged queries that it is measured on."""

    log: ClickLog
    train: JudgedSet | None  # for a method that learns from labels
    test: JudgedSet
    curve: tuple[float, ...] | None  # true examination, if it depends on the position alone


@dataclass(frozen=True, eq=False)
class Scene:
    """A log with everything fitted: only clicks remain to be drawn."""

    entry: QualityLog

    @cached_property
    def sets(self) -> tuple[JudgedSet, JudgedSet]:
        train, test = (load_split(self.entry.documents, split) for split in ("train", "test"))
        train, test = (
            train.select(np.arange(train.n_queries)[: self.entry.queries]),
            test.select(np.arange(test.n_queries)[:N_TEST]),
        )
        transform = fit_transform(self.entry.features, train.features)
        return transform_judged(train, transform), transform_judged(test, transform)

    @cached_property
    def policy(self) -> Policy:
        return LOGGERS[self.entry.logger](self.entry.number).fit(self.sets[0])

    def simulation(self, seed: int, **options: Any) -> Simulation:
        """Clicks of this seed.

        Args:
            options: interventions or a record of looks, for methods that need them, and other sessions per query.
        """
        user = user_of(self.entry.person, self.sets[0], self.entry.number)
        usual: dict[str, Any] = {"sessions": self.entry.sessions, "joint": self.entry.joint, "threads": 1}
        return simulate(self.sets[0], self.policy, user, seed=100 * self.entry.number + seed, **(usual | options))

    def case(self, seed: int) -> Case:
        made = self.simulation(seed)
        curve = made.truth.position_curve
        return Case(made.log, *self.sets, None if curve is None else tuple(curve.tolist()))


@dataclass(frozen=True, eq=False)
class ShopScene:
    """The made-up shop: every seed is a shop of its own."""

    entry: QualityLog

    def case(self, seed: int) -> Case:
        from shop import log_of  # it needs LightGBM and pandas, which no other log does

        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "shop"
            shop(folder, sessions=self.entry.sessions, seed=100 * self.entry.number + seed)
            return Case(log_of(folder), None, read_judged_table(folder / JUDGED), None)


@lru_cache(maxsize=1)
def open_scene(entry: QualityLog) -> Scene | ShopScene:
    """The scene of a log; the last one is kept."""
    return ShopScene(entry) if entry.documents == SHOP else Scene(entry)


def _small(number: int, **more: int) -> str:
    return f"world:small:{number}" + "".join(f":{name}={value}" for name, value in more.items())


RIDGE: Mapping[str, Any] = {"logger": "ridge", "features": SCALED}
REFERENCE = (
    QualityLog("raw, 60 features", _small(8001, features=60), 128, number=8001, queries=2_500, joint=True),
    QualityLog("lists of ten", _small(8002, features=136, documents=10), 192, number=8002, queries=2_000),
    QualityLog("single sessions", "world:large:8003:features=60", 1, number=8003),
    QualityLog("linear, 128 sessions", _small(8004), 128, number=8004, **RIDGE),
    QualityLog("linear, 8 sessions", _small(8004), 8, number=8004, joint=True, **RIDGE),
    QualityLog("trust", _small(8005), 128, person=TRUST, number=8005, **RIDGE),
    QualityLog("matrix", _small(8006), 128, person=MATRIX, number=8006),
    QualityLog("coupled", _small(8007), 128, person=COUPLED, number=8007),
)
WITH_OTHERS = ("raw, 60 features", "linear, 8 sessions")  # logs on which all other methods are trained

ASIDE = (
    QualityLog("8101 position, svm, 8 sessions", _small(8101), 8, number=8101),
    QualityLog("8102 position, strong logger", _small(8102, features=20), 128, "strong", number=8102, queries=2_000),
    QualityLog("8103 position, Plackett-Luce", _small(8103), 16, "plackett_luce", number=8103),
    QualityLog("8104 single sessions, ridge", "world:large:8104:features=60", 1, "ridge", number=8104),
    QualityLog("8105 single sessions, Plackett-Luce", _small(8105), 8, "plackett_luce", number=8105),
    QualityLog("8106 trust, ridge", _small(8106), 128, person=TRUST, number=8106, **RIDGE),
    QualityLog("8107 trust, svm", _small(8107), 256, person=TRUST, number=8107),
    QualityLog("8108 matrix, svm", _small(8108, documents=10), 128, person=MATRIX, number=8108),
    QualityLog("8109 matrix, ridge", _small(8109), 32, person=MATRIX, number=8109, **RIDGE),
    QualityLog("8110 coupled, ridge", _small(8110), 128, person=COUPLED, number=8110, **RIDGE),
    QualityLog("8111 mq2008, ridge", "mq2008/1", 128, "ridge", number=8111),
    QualityLog("8112 shop", SHOP, 5_000, number=8112),
)
FURTHER = tuple(
    replace(QualityLog("", _small(number), 128, number=number, **RIDGE), name=f"{number} linear")
    for number in range(8201, 8221)
)
SETS = {"reference": REFERENCE, "aside": ASIDE, "further": FURTHER}
