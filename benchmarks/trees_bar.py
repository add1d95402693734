"""Trees that are trained through us against LightGBM with its own `position`, on worlds and on made-up shops.

    python benchmarks/trees_bar.py OUT --worlds 911,912,913 --shops 61
    python benchmarks/trees_bar.py OUT --worlds 921,922,923,924,925,926,927,928,929,930 --shops 71,72,73,74,75

Worlds are `world:small`, sorted by `svm`, with position-based users and 128 sessions per query; the shops are those of
`benchmarks/shop.py`. Ours are `unskew train --method two_tower --ranker trees` with its defaults, by either kind of
targets. LightGBM has `position` and the number of trees that held-out clicks choose; on a shop it gets the raw table
and a grid. Finished rows are kept in OUT, and not measured again.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import unskew
from intervals import mean_text
from row_file import append_row, mend, read_rows
from shop import LIGHTGBM, log_of, measure
from unskew.comparison.outside import train_lightgbm
from unskew.simulation.shop_log import JUDGED

METHOD, SESSIONS, SHOP_SESSIONS = "two_tower", 128, 5_000
TARGETS = ("clicks", "scores")


def of_world(seed: int, size: str, steps: dict[str, Any]) -> dict[str, float]:
    """nDCG@10 of LightGBM, of the network and of trees by either kind of targets."""
    world = unskew.load(f"world:{size}:{seed}")
    log = unskew.simulate(world.train, "svm", "position_based", sessions=SESSIONS, seed=seed, joint=True).log
    rankers: dict[str, Any] = {LIGHTGBM: train_lightgbm(log, position=True)}
    rankers |= {name: model.ranker() for name, model in models(log, steps).items()}
    return {name: ndcg(ranker, world.test) for name, ranker in rankers.items()}


def of_shop(seed: int, out: Path, sessions: int, steps: dict[str, Any]) -> dict[str, float]:
    """The same on a shop, with LightGBM on its raw table."""
    values = {LIGHTGBM: measure(out, sessions, seed, LIGHTGBM)}
    folder = out / f"{sessions}-{seed}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # judged queries know no members
        found = models(log_of(folder), steps)
        return values | {name: ndcg(model, folder / JUDGED) for name, model in found.items()}


def models(log: unskew.ClickLog, steps: dict[str, Any]) -> dict[str, Any]:
    """The network and the trees, of one training: the second one resumes where the first has ended."""
    with tempfile.TemporaryDirectory() as scratch:
        steps = {**steps, "checkpoint": Path(scratch) / "checkpoint", "ranker": "trees"}
        trees = {name: unskew.fit(METHOD, log, tree_targets=name, **steps) for name in TARGETS}
    return {"network": replace(trees["clicks"], trees=None), **trees}


def ndcg(ranker: Any, judged: Any) -> float:
    return unskew.evaluate(ranker, judged, ["ndcg@10"]).mean("ndcg@10")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--worlds", default="")
    parser.add_argument("--shops", default="")
    parser.add_argument("--size", default="small", help="of the worlds")
    parser.add_argument("--sessions", type=int, default=SHOP_SESSIONS, help="of a shop")
    parser.add_argument("--steps", type=int, default=None)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    place = given.out / "rows.jsonl"
    mend(place)
    steps: dict[str, Any] = {"progress": False} | ({} if given.steps is None else {"steps": given.steps})
    asked = [(kind, int(seed)) for kind in ("worlds", "shops") for seed in getattr(given, kind).split(",") if seed]
    for kind, seed in asked:
        if any((row["kind"], row["seed"]) == (kind, seed) for row in read_rows(place)):
            continue
        started = time.process_time()
        values = (
            of_world(seed, given.size, steps) if kind == "worlds" else of_shop(seed, given.out, given.sessions, steps)
        )
        append_row(place, {"kind": kind, "seed": seed, **values, "seconds": time.process_time() - started})
    rows = [row for row in read_rows(place) if (row["kind"], row["seed"]) in asked]
    for kind in ("worlds", "shops"):
        for name in (LIGHTGBM, "network", *TARGETS):
            own = [row for row in rows if row["kind"] == kind]
            means = sum(row[name] for row in own) / max(len(own), 1)
            gain = mean_text([row[name] - row[LIGHTGBM] for row in own]) if len(own) > 1 else ""
            print(f"{kind}: {name} {means:.4f}, over LightGBM {gain}")


if __name__ == "__main__":
    main()
