"""Sources of a run, made from its definition: data, fitted policies and users, simulated logs, recipes.

The process keeps the latest ones in memory, because neighboring runs share them. Logs are not stored on disk:
simulating one takes a fraction of a second, less than reading it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

from unskew.comparison.plan import as_json
from unskew.comparison.settings import OptionTable
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import read_log
from unskew.data.judged.catalogue import Dataset, load, load_split
from unskew.data.judged.judged_set import JudgedSet
from unskew.extensions import name_of
from unskew.methods import METHODS
from unskew.networks.registry import Network
from unskew.simulation.browsing import User
from unskew.simulation.fresh import FreshClicks
from unskew.simulation.policies import Policy, make_policy
from unskew.simulation.simulate import simulate
from unskew.simulation.truth import Simulation
from unskew.simulation.users import make_user
from unskew.training.recipe import TREE_NAMES, Recipe, find_method, old_tree_targets
from unskew.training.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")
Definition = dict[str, Any]
dataset: Callable[[str], Dataset] = lru_cache(maxsize=2)(load)
named_split: Callable[[str, str], JudgedSet] = lru_cache(maxsize=4)(load_split)
own_log: Callable[[str], ClickLog] = lru_cache(maxsize=2)(read_log)
INTERVENTION_SEED = 1_000_000  # far from the seeds of ordinary logs


def remembered(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Cache the last results of a function, even if its arguments are tables."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        kept: OrderedDict[str, T] = OrderedDict()

        @wraps(function)
        def found(*args: P.args, **kwargs: P.kwargs) -> T:
            key = as_json([args, kwargs])
            if key not in kept:
                kept[key] = function(*args, **kwargs)
            kept.move_to_end(key)
            while len(kept) > most:
                kept.popitem(last=False)
            return kept[key]

        return found

    return decorate


def recipe_of(data: Definition) -> Recipe:
    settings, network = Settings.from_json(data["settings"]), Network.from_json(data["network"])
    name, outside = name_of(METHODS, data["method"]), find_method(data["method"])
    trees = Recipe.of("dla", **{key: value for key, value in data.items() if key in TREE_NAMES})
    ranker = data.get("ranker", "network")
    targets = data.get("tree_targets", old_tree_targets(ranker))
    own, transform = data["hyper_parameters"], data["transform"]
    return Recipe(name, own, settings, network, transform, ranker, trees.boosting, targets, outside)


def as_method(definition: Definition, method: str) -> Definition:
    """The same definition with another method at its defaults."""
    recipe = {**definition["recipe"], "method": method, "hyper_parameters": {}}
    return {**definition, "recipe": recipe}


def judged_split(definition: Definition, split: str) -> JudgedSet:
    """Judged queries of a split: of the named data set, or of the file that the definition names for it."""
    if "log" in definition:
        found = named_split(definition[split], {"valid": "valid", "test": "test", "judged": "train"}[split])
        log = own_log(definition["log"]["path"])
        return found.with_features(log.input_names, log.categories, log.context_names)
    return getattr(dataset(definition["data"]), split)


@remembered(4)
def policy_of(data: str, policy: OptionTable) -> Policy:
    return make_policy(policy).fit(dataset(data).train)


@remembered(16)
def user_of(data: str, user: OptionTable) -> User:
    return make_user(user).fit(dataset(data).train)


def simulation_of(definition: Definition) -> Simulation:
    settings = definition["simulation"]
    return simulated(definition["data"], settings, definition["simulation_seed"])


def fresh_clicks(definition: Definition) -> FreshClicks:
    """The same users and lists, with new clicks at every step."""
    entry, data = definition["simulation"], definition["data"]
    return FreshClicks(
        dataset(data).train,
        policy_of(data, entry["policy"]),
        user_of(data, entry["user"]),
        n_shown=entry["n_shown"],
        joint=entry["joint"],
        drop_clickless=entry["drop_clickless"],
        seed=definition["simulation_seed"],
    )


def intervention_log(definition: Definition) -> ClickLog:
    settings = {**definition["simulation"], "interventions": definition["interventions"]}
    seed = definition["simulation_seed"] + INTERVENTION_SEED
    return simulated(definition["data"], settings, seed).log


@remembered(4)
def simulated(data: str, entry: OptionTable, seed: int) -> Simulation:
    return simulate(
        dataset(data).train,
        policy_of(data, entry["policy"]),
        user_of(data, entry["user"]),
        sessions=entry["sessions"],
        n_shown=entry["n_shown"],
        interventions=entry["interventions"],
        joint=entry["joint"],
        drop_clickless=entry["drop_clickless"],
        seed=seed,
    )
