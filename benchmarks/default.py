"""Is `auto` a default that can be trusted? Regret to the best method, and losses to plain clicks and production.

    python benchmarks/default.py train runs/default --set seen     # resumable; --worlds 0 5 runs only these
    python benchmarks/default.py show runs/default --set seen

Every method is trained once in each simulated world (`default_worlds.py`) and seed, on the queries that
`auto` learns from; held-out clicks measure what the rule sees, judgements what is true. Everything is kept, so that a
rule is tried without new training; `show` applies the rule of `auto` itself.
"""

from __future__ import annotations

import argparse
import pickle
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from unskew.comparison.imitation import ordered_as_production

from default_report import IMITATED, KeptCase, KeptMethod, imitates, show
from default_worlds import SEEDS, SETS, Scene, World, open_scene, worlds_of
from unskew.comparison.automatic import HELD_OUT
from unskew.comparison.choice import PLAIN
from unskew.comparison.held_out import Case, contender_of, make_case
from unskew.diagnosis.advice import facts
from unskew.diagnosis.page import diagnose
from unskew.evaluation.criteria import Contender
from unskew.evaluation.evaluate import score_documents
from unskew.evaluation.production import production_of_log
from unskew.propensities.curve import NotIdentified
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe

METHODS = ("naive", "dla", "two_tower", "low_rank", "ipw", "lbd")
OPTIONS = {"steps": 150, "hidden": (64, 32)}
METRIC = "ndcg@10"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "show"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--set", choices=SETS, default=SETS[0])
    parser.add_argument("--worlds", type=int, nargs="+", help="numbers of worlds; default: all of the set")
    parser.add_argument("--methods", nargs="+", help="default: those that can work")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--without", nargs="+", default=[], help="methods to leave out")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if arguments.what == "show":
        show(worlds_of(arguments.set), arguments.folder)
        return
    for world in worlds_of(arguments.set):
        if arguments.worlds is None or world.number in arguments.worlds:
            methods = arguments.methods or usual_methods(world)
            train_world(
                world, arguments.folder, [name for name in methods if name not in arguments.without], arguments.seeds
            )


def usual_methods(world: World) -> list[str]:
    """Those that can work in a world. hte takes as long as all others and was best in none of the first 64."""
    return [*METHODS, IMITATED, *([] if world.person.record is None else ["attention"])]


def train_world(world: World, folder: Path, methods: list[str], seeds: list[int]) -> None:
    """Train what is missing of a world."""
    scene = None
    for seed in seeds:
        place = folder / f"{world.number:02d}-{seed}"
        missing = [name for name in methods if not (place / f"{name}.pickle").exists()]
        if missing == [IMITATED] and (place / "case.pickle").exists() and not imitates(place):
            continue
        if not missing:
            continue
        place.mkdir(parents=True, exist_ok=True)
        scene = scene or kept_scene(world, folder)
        start = time.process_time()
        train_unit(scene, seed, place, missing)
        print(f"{world.name}, seed {seed}: {time.process_time() - start:.1f} s", flush=True)


def kept_scene(world: World, folder: Path) -> Scene:
    """The fitted world, from the folder where it is: a strong logger takes longer than all methods."""
    place = folder / f"{world.number:02d}-scene.pickle"
    if not place.exists():
        write(place, open_scene(world))
    found: Scene = pickle.loads(place.read_bytes())
    return found


def train_unit(scene: Scene, seed: int, place: Path, methods: list[str]) -> None:
    """All missing methods on one log."""
    log = scene.log(100 * scene.world.number + seed).log
    case = make_case(log, HELD_OUT, choosing=True)
    assert case.choosing is not None
    kept = place / "case.pickle"
    if not kept.exists():
        parts = (case.choosing, case.evidence)
        production = tuple(Contender(production_of_log(part.held_out.log, scene.which).scores) for part in parts)
        found = diagnose(log, quick=True, progress=False)
        told = {name: getattr(found, name) for name in ("looks", "coupling", "trust", "rank", "strength", "order")}
        own = scene.production.scores(scene.test)
        write(kept, KeptCase(facts(found), *parts, production, own, scene.which, told))  # type: ignore[arg-type]
    for name in methods:
        write(place / f"{name}.pickle", train_method(name, scene, case, seed))


def train_method(name: str, scene: Scene, case: Case, seed: int) -> KeptMethod | None:
    """One method; None if it cannot work."""
    start = time.process_time()
    try:
        if name == IMITATED:
            shown = ordered_as_production(case.learning, scene.which)
            model = fit_recipe(Recipe.of(PLAIN, **OPTIONS, seed=seed), shown)
        else:
            model = fit_recipe(Recipe.of(name, **OPTIONS, seed=seed), case.learning)
    except (ValueError, NotIdentified) as error:
        print(f"{name}: {error}"[:100], flush=True)
        return None
    seconds = time.process_time() - start
    assert case.choosing is not None
    contenders = (contender_of(model, part.held_out) for part in (case.choosing, case.evidence))
    return KeptMethod(*contenders, score_documents(model.ranker(), scene.test).astype(np.float32), seconds)


def write(place: Path, value: Any) -> None:
    part = place.with_suffix(".part")
    part.write_bytes(pickle.dumps(value))
    part.rename(place)


if __name__ == "__main__":
    main()
