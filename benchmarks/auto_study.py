"""Is `auto` a default that can be trusted? Regret to its rivals, and losses to raw clicks and production.

    python benchmarks/auto_study.py plan docs/quality/auto.jsonl --set aside    # the minutes that are left
    python benchmarks/auto_study.py run docs/quality/auto.jsonl --set aside     # resumable, one line per world
    python benchmarks/auto_study.py show docs/quality/auto.jsonl --set aside

Rivals train once on the whole log, at their defaults. `auto` takes their models where it would train the same; where it
holds queries out to certify, it trains on its own part of the log. Its CPU seconds count all of its trainings.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from auto_worlds import DEVICE, PEOPLE, POSITION, SESSIONS, SETS, SHOPS, Case, World, open_shop, open_world
from row_file import Row, append_row, mend, read_rows
from unskew.comparison import automatic
from unskew.comparison.code_digest import code_digest
from unskew.data.clicks.click_log import ClickLog
from unskew.evaluation.evaluate import evaluate_scorer
from unskew.training.fitting import fit_recipe
from unskew.training.model import Model
from unskew.training.recipe import Recipe

RIVALS = ("naive", "dla", "two_tower", "affine_softmax", "low_rank", "lbd")
METRIC = "ndcg@10"
WORLD_SECONDS = 45.0  # of one core, where no row is known
NOTABLE = 0.02  # a gain that can be missed
FAILURE = 0.01  # share of the better of raw clicks and production
IDENTIFIED = (POSITION, DEVICE)  # users who examine by position alone, where orders vary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "plan", "show"))
    parser.add_argument("rows", type=Path)
    parser.add_argument("--set", choices=(*SETS, "shops"), default="tuning")
    parser.add_argument("--worlds", type=int, nargs="+", help="numbers of worlds; default: all of the set")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    mend(arguments.rows)
    known = {row["world"]: row for row in read_rows(arguments.rows) if row["set"] == arguments.set}
    numbers = arguments.worlds or order_of(arguments.set)
    missing = [number for number in numbers if number not in known]
    if arguments.what == "show":
        show([known[number] for number in numbers if number in known], len(numbers))
        return
    each = statistics.mean([row["total_seconds"] for row in known.values()] or [WORLD_SECONDS])
    print(f"{len(missing)} of {len(numbers)} worlds are missing: about {each * len(missing) / 60:.0f} CPU minutes")
    for number in missing if arguments.what == "run" else ():
        append_row(arguments.rows, {"set": arguments.set, "code": code_digest(), **measure(arguments.set, number)})
        print(f"{arguments.set} {number} is done", flush=True)


def order_of(which: str) -> list[int]:
    """Numbers of the worlds, so that every sixteen have all users and four of each number of sessions."""
    if which == "shops":
        return list(SHOPS)
    worlds = SETS[which]
    if which != "aside":
        return [world.number for world in worlds]
    sizes = len(SESSIONS)
    return [worlds[sizes * user + (user + turn) % sizes].number for turn in range(sizes) for user in range(len(PEOPLE))]


def measure(which: str, number: int) -> Row:
    """Everything about one world."""
    start = time.process_time()
    world = None if which == "shops" else next(each for each in SETS[which] if each.number == number)
    case = open_shop(number) if world is None else open_world(world)
    models: dict[str, Model] = {}
    seconds = {}
    for name in RIVALS:
        begun = time.process_time()
        models[name] = fit_recipe(Recipe.of(name), case.log)
        seconds[name] = time.process_time() - begun
    found = measure_auto(case, models, seconds)
    quality = {name: quality_of(model, case) for name, model in models.items()}
    production = None if case.production is None else quality_of(case.production.scores(case.test), case)
    about = {"world": number} if world is None else about_world(world)
    return {
        **about,
        "production": production,
        "ndcg": quality,
        "seconds": seconds,
        "auto": found,
        "total_seconds": time.process_time() - start,
    }


def about_world(world: World) -> Row:
    return {"world": world.number, "name": world.name, "family": world.family, "varied": bool(world.order)}


def quality_of(ranker: Any, case: Case) -> float:
    scorer = ranker.ranker() if isinstance(ranker, Model) else ranker
    return evaluate_scorer(scorer, case.test, (METRIC,)).mean(METRIC)


def measure_auto(case: Case, models: Mapping[str, Model], seconds: Mapping[str, float]) -> Row:
    """`auto` on the log, with the trainings that rivals have done already."""
    taken = []

    def shared(recipe: Recipe, log: ClickLog, **more: Any) -> Model:
        if log.n_lists < case.log.n_lists or recipe.method not in models:
            return fit_recipe(recipe, log, **more)
        taken.append(recipe.method)
        return models[recipe.method]

    begun = time.process_time()
    with mock.patch.object(automatic, "fit_recipe", shared):
        chosen = automatic.auto(case.log, production=case.which, progress=False)
    own = time.process_time() - begun
    verdict = chosen.verdict
    return {
        "method": verdict.method,
        "ndcg": quality_of(chosen.model, case),
        "seconds": own + sum(seconds[name] for name in taken),
        "production": verdict.production,
        "sentence": verdict.reason,
        "steps": [[step.method, step.over, step.gain, step.low, step.high] for step in verdict.steps],
        "stakes": None if verdict.stakes is None else asdict(verdict.stakes),
    }


def show(rows: list[Row], planned: int) -> None:
    """The bars, from the rows."""
    print(f"{len(rows)} of {planned} worlds; code {', '.join(sorted({row['code'] for row in rows}))}")
    print("| ranker | mean nDCG@10 | more than 1% below raw clicks or production | share of the gain |")
    print("|---|---:|---:|---:|")
    for name in ("auto", *RIVALS):
        values = [value_of(row, name) for row in rows]
        failing = sum(is_failure(row, name) for row in rows)
        print(f"| `{name}` | {statistics.mean(values):.3f} | {failing} | {share_text(rows, name)} |")
    for family in dict.fromkeys(row.get("family", "") for row in rows):
        some = [row for row in rows if row.get("family", "") == family]
        regret = statistics.mean(regret_of(row) for row in some)
        print(
            f"{family or 'all'}: {len(some)} worlds, share of the gain {share_text(some, 'auto')}, regret {regret:.1%}"
        )
    sure = [row for row in rows if row.get("family") in IDENTIFIED and row.get("varied")]
    if sure:
        regrets = [regret_of(row) for row in sure]
        print(f"identified ({len(sure)}): mean regret {statistics.mean(regrets):.1%}, worst {max(regrets):.1%}")
    known = [row for row in rows if row["production"] is not None]
    said = [row for row in known if row["auto"]["production"] == automatic.BETTER]
    true = [row for row in sure if row["auto"]["ndcg"] > row["production"]]
    right = sum(row["auto"]["ndcg"] > row["production"] for row in said)
    print(f"better than production: said {len(said)} times, right {right}; refused {refused(known)}")
    print(f"said in {sum(row in said for row in true)} of {len(true)} worlds where it is true and identified")
    cost = [row["auto"]["seconds"] / row["seconds"]["dla"] for row in rows]
    print(f"CPU seconds of dla: median {statistics.median(cost):.1f}, most {max(cost):.1f}")
    for row in rows:
        if is_failure(row, "auto") or regret_of(row) > 0.04:
            print(f"- {line_of(row)}")


def value_of(row: Row, name: str) -> float:
    found: float = row["auto"]["ndcg"] if name == "auto" else row["ndcg"][name]
    return found


def best_of(row: Row) -> float:
    return max(row["ndcg"].values())


def regret_of(row: Row) -> float:
    """To the best rival."""
    return 1 - value_of(row, "auto") / best_of(row)


def is_failure(row: Row, name: str) -> bool:
    better = max(row["ndcg"]["naive"], row["production"] or 0.0)
    return value_of(row, name) < (1 - FAILURE) * better


def share_text(rows: list[Row], name: str) -> str:
    """Of the gain over raw clicks that the best rival has: a ratio of means, over worlds in which it is notable."""
    notable = [row for row in rows if best_of(row) - row["ndcg"]["naive"] > NOTABLE]
    if not notable:
        return "–"
    gained = statistics.mean(value_of(row, name) - row["ndcg"]["naive"] for row in notable)
    possible = statistics.mean(best_of(row) - row["ndcg"]["naive"] for row in notable)
    return f"{gained / possible:.0%} ({len(notable)} worlds)"


def refused(rows: list[Row]) -> int:
    return sum(row["auto"]["production"] == automatic.NOT_BETTER for row in rows)


def line_of(row: Row) -> str:
    values = " ".join(f"{name} {value:.3f}" for name, value in row["ndcg"].items())
    production = "" if row["production"] is None else f"production {row['production']:.3f} "
    own = row["auto"]
    return f"{row.get('name', row['world'])}: {own['method']} {own['ndcg']:.3f}; {production}{values}"


if __name__ == "__main__":
    main()
