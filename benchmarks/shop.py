"""The made-up shop through the documented commands, against LightGBM with `position` on the same raw table.

    python benchmarks/shop.py --seeds 5 --methods dla,auto --out runs/shop

LightGBM gets the table as it is: missing values and categories by its own means, grades of clicks, carts and purchases,
the position through all pages, and the best of a small grid by nDCG of held-out searches. What a robot did, and what
was sold, is in it, since nobody prepared it. Ours is what `unskew ingest` makes of the table by the flags of
docs/guide.md, and `unskew train` with its defaults; `auto` chooses the method by held-out clicks. A finished number is
kept in OUT, and not measured again.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pyarrow.parquet as pq

import unskew
from intervals import mean_text
from unskew.data.judged.tables import read_judged_table
from unskew.ingestion.columns import Columns
from unskew.ingestion.run import ingest_tables
from unskew.ingestion.settings import Options, Tables
from unskew.options import parse_grades
from unskew.simulation.shop_log import EVENTS, JUDGED, shop

LIGHTGBM = "lightgbm"
FEATURES = [
    *("bm25", "semantic", "price", "discount", "in_stock", "rating", "n_reviews", "age_months", "image_score"),
    *("margin", "delivery_days", "free_shipping", "brand", "colour"),
]
GRID = [{"num_leaves": leaves, "learning_rate": rate} for leaves in (15, 31) for rate in (0.05, 0.1)]


def columns() -> Columns:
    """The flags of the guide."""
    return Columns(
        page="page",
        where="not is_sponsored",
        user="user_id",
        sessions_a_user=20,
        intervention="experiment",
        policy_score="score",
        bias=["device"],
        context=["member"],
        grades=parse_grades("click=1,add_to_cart=3,purchase=5"),
    )


def log_of(folder: Path) -> unskew.ClickLog:
    """The log that is made of the events."""
    if not (folder / "log").exists():
        ingest_tables(Tables(folder / EVENTS), folder / "log", columns(), Options())
    return unskew.read_log(folder / "log")


def ours(folder: Path, method: str, seed: int) -> dict[str, Any]:
    """nDCG@10 of a method on the log of a shop."""
    log = log_of(folder)
    if method == "auto":
        model = unskew.auto(log, seed=seed).model
    else:
        model = unskew.fit(method, log, seed=seed, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # judged queries know no members
        value = unskew.evaluate(model, folder / JUDGED, ["ndcg@10"]).mean("ndcg@10")
    return {"ndcg@10": value, "method": model.recipe.method, "feedback": model.trained_on["feedback"]}


def theirs(folder: Path) -> dict[str, Any]:
    """nDCG@10 of LightGBM with `position`, the best of the grid by held-out searches."""
    events, judged = (pq.read_table(folder / name).to_pandas() for name in (EVENTS, JUDGED))
    for name in ("brand", "colour"):
        kinds = pd.CategoricalDtype(sorted(events[name].dropna().unique()))
        events[name], judged[name] = events[name].astype(kinds), judged[name].astype(kinds)
    events["grade"] = events[["clicked", "add_to_cart", "purchase"]].mul([1, 3, 5]).max(axis=1)
    events["place"] = (events.page - 1) * 10 + events.position - 1
    held_out = events.search_id % 5 == 0
    train, valid = (
        lightgbm.Dataset(
            part[FEATURES],
            part.grade,
            group=part.groupby("search_id", sort=False).size(),
            position=part.place.to_numpy() if trains else None,
            free_raw_data=False,
        )
        for trains, part in ((True, events[~held_out]), (False, events[held_out]))
    )
    best = None
    for entry in GRID:
        settings = {"objective": "lambdarank", "metric": "ndcg", "eval_at": [10], "num_threads": 2, "verbose": -1}
        stop = lightgbm.early_stopping(30, verbose=False)
        booster = lightgbm.train(settings | entry, train, 400, [valid], callbacks=[stop])
        value = booster.best_score["valid_0"]["ndcg@10"]
        best = max(best or (value, booster), (value, booster), key=lambda pair: pair[0])
    judged["score"] = best[1].predict(judged[FEATURES])
    in_order = judged.iloc[np.argsort(pd.factorize(judged["query"])[0], kind="stable")]  # as the judged set has them
    result = unskew.evaluate(in_order.score.to_numpy(), read_judged_table(folder / JUDGED), ["ndcg@10"])
    return {"ndcg@10": result.mean("ndcg@10"), "trees": best[1].best_iteration}


def measure(out: Path, sessions: int, seed: int, name: str) -> float:
    """The number of a method, or of LightGBM, on a shop; what is there already is read."""
    folder = out / f"{sessions}-{seed}"
    place = folder.with_name(f"{folder.name}-{name}.json")
    if not place.exists():
        if not folder.exists():
            shop(folder, sessions=sessions, seed=seed)
        place.write_text(json.dumps(theirs(folder) if name == LIGHTGBM else ours(folder, name, seed)) + "\n")
    return json.loads(place.read_text())["ndcg@10"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=5_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", default="dla")
    parser.add_argument("--out", type=Path, default=Path("runs/shop"))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    names = chosen.methods.split(",")
    rows = []
    for seed in range(chosen.seeds):
        rows.append([measure(chosen.out, chosen.sessions, seed, name) for name in (LIGHTGBM, *names)])
        listed = ", ".join(f"{name} {value:.4f}" for name, value in zip((LIGHTGBM, *names), rows[-1], strict=True))
        print(f"seed {seed}: {listed}", flush=True)
    values = np.array(rows)
    for number, name in enumerate(names, start=1):
        print(f"{name} less LightGBM, 95% interval: {mean_text(values[:, number] - values[:, 0])}")


if __name__ == "__main__":
    main()
