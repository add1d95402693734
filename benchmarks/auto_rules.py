"""Rules of `auto`, tried without training again: what a rule may see of every model, and how well it ranks, is kept.

python benchmarks/auto_rules.py train runs/auto-rules --sessions 8 128    # resumable, on the worlds `TUNING`
python benchmarks/auto_rules.py show runs/auto-rules                      # rules, as a table
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from auto_study import FAILURE, METRIC, NOTABLE
from auto_worlds import TUNING, Case, World, open_world
from unskew.comparison.held_out import contender_of
from unskew.data.clicks.click_log import ClickLog
from unskew.evaluation.criteria import Evidence, click_likelihood
from unskew.evaluation.differences import paired
from unskew.evaluation.evaluate import evaluate_scorer, score_documents
from unskew.evaluation.held_out import HeldOut
from unskew.training.ending import part_held_out
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe

METHODS = ("naive", "two_tower", "affine_softmax", "low_rank", "dla")
PLAIN = METHODS[0]
# Models that each extends, by the method of the position.
CHAIN = {"position": (PLAIN,), "affine_softmax": (PLAIN, "position"), "low_rank": (PLAIN, "position")}
Kept = dict[str, Any]


@dataclass(frozen=True)
class Rule:
    """A rule: which members, whether a step may be skipped, and how much of raw clicks is held back."""

    held_back: float = 0.1
    skips: bool = True
    trust: bool = False
    position: str = "two_tower"

    @property
    def name(self) -> str:
        more = [] if self.skips else ["no step skipped"]
        more += ["with trust"] if self.trust else []
        more += [] if self.position == "two_tower" else [f"`{self.position}`"]
        return ", ".join([f"{self.held_back:.2f} held back", *more])

    def members(self) -> dict[str, tuple[str, ...]]:
        """Method -> the smaller ones that it is compared with."""
        chosen = {name: CHAIN[name] for name in CHAIN if name != "affine_softmax" or self.trust}
        return {
            self._named(name): tuple(self._named(one) for one in smaller[0 if self.skips else -1 :])
            for name, smaller in chosen.items()
        }

    def _named(self, name: str) -> str:
        return self.position if name == "position" else name

    def choose(self, kept: Mapping[str, Kept]) -> str:
        at = PLAIN
        while True:
            rivals = [name for name, smaller in self.members().items() if at in smaller]
            gains = {name: paired(kept[name]["likelihood"], kept[at]["likelihood"]) for name in rivals}
            accepted = [name for name, each in gains.items() if each.interval(1 - 0.05 / len(rivals))[0] > 0]
            if not accepted:
                return at
            simplest = self.position in accepted
            at = self.position if simplest else max(accepted, key=lambda name: gains[name].mean)


RULES = (
    Rule(),
    Rule(held_back=0.0),
    Rule(held_back=0.05),
    Rule(held_back=0.2),
    Rule(skips=False),
    Rule(trust=True),
    Rule(position="dla"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "show"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sessions", type=int, nargs="+")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if arguments.what == "show":
        show(arguments.folder)
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for world in TUNING:
        if not arguments.sessions or world.sessions in arguments.sessions:
            train(world, arguments.folder)


def train(world: World, folder: Path) -> None:
    """What is missing of a world."""
    missing = [name for name in METHODS if not place_of(folder, world, name).exists()]
    if not missing:
        return
    case = open_world(world)
    production = None if case.production is None else quality_of(case.production.scores(case.test), case)
    write(place_of(folder, world, "case"), (case.test, production))
    held_out = part_held_out(case.log, 0)[1]
    assert held_out is not None
    for name in missing:
        write(place_of(folder, world, name), kept_of(name, case, held_out))
        print(f"{world.name}: {name}", flush=True)


def kept_of(name: str, case: Case, held_out: ClickLog) -> Kept:
    start = time.process_time()
    model = fit_recipe(Recipe.of(name), case.log)
    seconds = time.process_time() - start
    part = HeldOut(held_out.of_queries(np.unique(held_out.queries)))
    scores = score_documents(model.ranker(), case.test).astype(np.float32)
    likelihood = click_likelihood(contender_of(model, part), Evidence(part))
    return {"likelihood": likelihood, "scores": scores, "ndcg": quality_of(scores, case), "seconds": seconds}


def quality_of(scores: Any, case: Case) -> float:
    return evaluate_scorer(scores, case.test, (METRIC,)).mean(METRIC)


def place_of(folder: Path, world: World, name: str) -> Path:
    return folder / f"{world.number}-{name}.pickle"


def write(place: Path, value: Any) -> None:
    part = place.with_suffix(".part")
    part.write_bytes(pickle.dumps(value))
    part.rename(place)


def show(folder: Path) -> None:
    """All rules on the worlds that are trained."""
    worlds = [world for world in TUNING if all(place_of(folder, world, name).exists() for name in METHODS)]
    print("| rule | mean nDCG@10 | failures | mean regret | share of the gain |\n|---|---:|---:|---:|---:|")
    for rule in RULES:
        rows = [row_of(rule, world, folder) for world in worlds]
        failures = sum(own < (1 - FAILURE) * max(plain, production) for own, plain, production, _ in rows)
        regret = statistics.mean(1 - own / best for own, _, _, best in rows)
        notable = [(own - plain, best - plain) for own, plain, _, best in rows if best - plain > NOTABLE]
        share = sum(own for own, _ in notable) / sum(best for _, best in notable)
        mean = statistics.mean(own for own, *_ in rows)
        print(f"| {rule.name} | {mean:.3f} | {failures} of {len(rows)} | {regret:.1%} | {share:.0%} |")
    kept = [kept_world(folder, world)[2] for world in worlds]
    cost = [sum(each[name]["seconds"] for name in Rule().members()) + each[PLAIN]["seconds"] for each in kept]
    ratios = [own / each["dla"]["seconds"] for own, each in zip(cost, kept, strict=True)]
    print(f"CPU seconds of dla: {statistics.median(ratios):.1f} in the median")


def kept_world(folder: Path, world: Any) -> tuple[Any, float, dict[str, Kept]]:
    test, production = pickle.loads(place_of(folder, world, "case").read_bytes())
    return test, production or 0.0, {name: pickle.loads(place_of(folder, world, name).read_bytes()) for name in METHODS}


def row_of(rule: Rule, world: World, folder: Path) -> tuple[float, float, float, float]:
    """NDCG of the rule, of raw clicks, of production and of the best model."""
    test, production, kept = kept_world(folder, world)
    chosen, plain = rule.choose(kept), kept[PLAIN]
    own = plain["ndcg"]
    if chosen != PLAIN:
        scores = (1 - rule.held_back) * kept[chosen]["scores"] + rule.held_back * plain["scores"]
        own = evaluate_scorer(scores, test, (METRIC,)).mean(METRIC)
    return own, plain["ndcg"], production, max(each["ndcg"] for each in kept.values())


if __name__ == "__main__":
    main()
