"""Trees that are trained through us against LightGBM with its own `position`, on worlds and on made-up shops.

    python benchmarks/trees_bar.py OUT --worlds 911,912,913 --shops 61
    python benchmarks/trees_bar.py OUT --worlds 921,922,923,924,925,926,927,928,929,930 --shops 71,72,73,74,75 \\
        --rows docs/results/trees_bar.jsonl --page docs/serving.md

Worlds are `world:small`, sorted by `svm`, with position-based users and 128 sessions per query; the shops are those of
`benchmarks/shop.py`. Ours are `unskew train --method two_tower --ranker trees` with its defaults, by either kind of
targets. LightGBM has `position` and the number of trees that held-out clicks choose; on a shop it gets the raw table
and a grid. Finished rows are kept, and not measured again; `--page` writes the table of all of them.
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
NAMES = {
    LIGHTGBM: "LightGBM with `position`",
    "clicks": "trees, `tree_targets=clicks`",
    "scores": "trees that imitate the network, the default",
    "network": "the network of `two_tower`",
}
START, END = "<!-- trees: written by benchmarks/trees_bar.py -->", "<!-- end of trees -->"


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
    parser.add_argument("--rows", type=Path, help="file of finished rows; default: in OUT")
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    place = given.rows or given.out / "rows.jsonl"
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
    print(table_of(rows))
    if given.page is not None:
        text = given.page.read_text(encoding="utf-8")
        before, after = text.split(START)[0], text.split(END)[1]
        given.page.write_text(f"{before}{START}\n{table_of(rows)}\n{END}{after}", encoding="utf-8")


def table_of(rows: list[dict[str, Any]]) -> str:
    """Mean nDCG@10 of each ranker, and its paired difference from LightGBM."""
    parts = {kind: [row for row in rows if row["kind"] == kind] for kind in ("worlds", "shops")}
    parts = {kind: own for kind, own in parts.items() if own}
    lines = ["| ranker | " + " | ".join(f"{len(own)} {kind} | less LightGBM" for kind, own in parts.items()) + " |"]
    lines.append("|---" + "|---:|---" * len(parts) + "|")
    for name, words in NAMES.items():
        cells = [words]
        for own in parts.values():
            gains = [row[name] - row[LIGHTGBM] for row in own]
            mean = f"{sum(row[name] for row in own) / len(own):.4f}"
            cells += [mean, "" if name == LIGHTGBM or len(own) < 2 else mean_text(gains)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
