"""Rules of `auto`, tried without training again: what a rule may see of every method is kept.

python benchmarks/choosing.py train FOLDER --set tuning [--share 1/2]     # resumable
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
from unskew.training.held_out import part_held_out

import unskew
from auto_worlds import SETS, SHOPS, Case, open_shop, open_world
from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.methods.losses import log_shares
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe

METHODS = ("naive", "two_tower", "affine_softmax", "low_rank", "dla", "lbd")
METRIC = "ndcg@10"
SEED = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train",))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--set", choices=(*SETS, "shops"), default="tuning")
    parser.add_argument("--share", default="1/1")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    which, of = (int(part) for part in arguments.share.split("/"))
    worlds: list[Any] = list(SHOPS) if arguments.set == "shops" else list(SETS[arguments.set])
    for world in worlds[which - 1 :: of]:
        keep(world, arguments.folder, arguments.methods)


def keep(world: Any, folder: Path, methods: list[str]) -> None:
    number = world if isinstance(world, int) else world.number
    missing = [name for name in methods if not (folder / f"{number}-{name}.pickle").exists()]
    if not missing:
        return
    folder.mkdir(parents=True, exist_ok=True)
    case = open_shop(world) if isinstance(world, int) else open_world(world)
    production = None
    if case.production is not None:
        production = unskew.evaluate(np.asarray(case.production.scores(case.test)), case.test, [METRIC]).values(METRIC)
    for name in missing:
        started = time.process_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            row: dict[str, Any] = {"world": world, "method": name, "production": production}
            try:
                model = fit_recipe(Recipe.of(name, seed=SEED), case.log)
                row |= seen_by_a_rule(model, case)
            except (ArithmeticError, ValueError, RuntimeError) as error:
                row["error"] = str(error)
        row["seconds"] = time.process_time() - started
        row["warnings"] = [str(each.message) for each in caught]
        (folder / f"{number}-{name}.pickle").write_bytes(pickle.dumps(row))
        print(
            number,
            name,
            f"{np.nanmean(row.get('ndcg', [np.nan])):.4f}",
            f"{row.get('likelihood', np.nan):.5f}",
            f"{row['seconds']:.1f} s",
            flush=True,
        )


def seen_by_a_rule(model: Any, case: Case) -> dict[str, Any]:
    values = unskew.evaluate(model, case.test, [METRIC]).values(METRIC)
    _, held_out = part_held_out(case.log, SEED)
    found: dict[str, Any] = {"ndcg": values, "steps": model.history.rows[-1]["step"]}
    curve = model.examination()
    found["curve"] = None if curve is None else curve.tolist()
    if held_out is None or model.method.click_model != "softmax":
        return found
    queries, likelihood, clicks = of_queries(model, held_out)
    return {
        **found,
        "queries": queries,
        "per_query": likelihood,
        "clicks": clicks,
        "likelihood": likelihood.sum() / max(clicks.sum(), 1),
    }


@torch.inference_mode()
def of_queries(model: Any, log: ClickLog) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-likelihood of clicks, and clicks, by query."""
    model.method.eval()
    likelihood, clicks = np.zeros(len(log.query_ids)), np.zeros(len(log.query_ids))
    batches = ClickBatches(model.encode(log), 1024)
    for rows, lists in batches.by_query():
        queries = log.queries[rows]
        logits = model.method.click_logits(lists)
        value = (lists.clicks * log_shares(logits, lists.mask)).sum(-1).double().numpy()
        np.add.at(likelihood, queries, value)
        np.add.at(clicks, queries, lists.clicks.sum(-1).double().numpy())
    return np.flatnonzero(clicks), likelihood[clicks > 0], clicks[clicks > 0]


if __name__ == "__main__":
    main()
