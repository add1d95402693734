"""Sources of a run: data, fitted policies and users, simulated logs, recipes, from its definition.

They are kept by the process, since neighbouring runs share them: simulating a log again takes a fraction of a second,
less than reading it from disk would save.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from unskew.comparison.plan import as_json
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import read_log
from unskew.data.judged.catalogue import Dataset, load, load_split
from unskew.data.judged.judged_set import JudgedSet
from unskew.networks.registry import Network
from unskew.recipe import Recipe
from unskew.simulation.browsing import User
from unskew.simulation.policies import Policy, make_policy
from unskew.simulation.simulate import simulate
from unskew.simulation.truth import Simulation
from unskew.simulation.users import make_user
from unskew.training.settings import Settings

Definition = dict[str, Any]
INTERVENTION_SEED = 1_000_000  # far from the seeds of ordinary logs


def recipe_of(data: Definition) -> Recipe:
    settings, network = Settings(**data["settings"]), Network(**data["network"])
    return Recipe(data["method"], data["hyper_parameters"], settings, network, data["transform"])


def as_method(definition: Definition, method: str) -> Definition:
    """The same definition with another method in its default form."""
    recipe = {**definition["recipe"], "method": method, "hyper_parameters": {}}
    return {**definition, "recipe": recipe}


def judged_split(definition: Definition, split: str) -> JudgedSet:
    """Judged queries of a split: of the named data set, or as the definition names them one by one."""
    if "log" in definition:
        return named_split(definition[split], {"valid": "valid", "test": "test", "judged": "train"}[split])
    return getattr(dataset(definition["data"]), split)


@lru_cache(maxsize=2)
def dataset(name: str) -> Dataset:
    return load(name)


@lru_cache(maxsize=4)
def named_split(spec: str, split: str) -> JudgedSet:
    return load_split(spec, split)


@lru_cache(maxsize=2)
def own_log(path: str) -> ClickLog:
    return read_log(path)


@lru_cache(maxsize=4)
def policy_of(data: str, policy: str) -> Policy:
    return make_policy(**json.loads(policy)).fit(dataset(data).train)


@lru_cache(maxsize=16)
def user_of(data: str, user: str) -> User:
    return make_user(**json.loads(user)).fit(dataset(data).train)


def simulation_of(definition: Definition) -> Simulation:
    settings = definition["simulation"]
    return simulated(definition["data"], as_json(settings), definition["simulation_seed"])


def intervention_log(definition: Definition) -> ClickLog:
    settings = {**definition["simulation"], "interventions": definition["interventions"]}
    seed = definition["simulation_seed"] + INTERVENTION_SEED
    return simulated(definition["data"], as_json(settings), seed).log


@lru_cache(maxsize=4)
def simulated(data: str, settings: str, seed: int) -> Simulation:
    entry = json.loads(settings)
    return simulate(
        dataset(data).train,
        policy_of(data, as_json(entry["policy"])),
        user_of(data, as_json(entry["user"])),
        sessions=entry["sessions"],
        n_shown=entry["n_shown"],
        interventions=entry["interventions"],
        joint=entry["joint"],
        drop_clickless=entry["drop_clickless"],
        seed=seed,
    )
