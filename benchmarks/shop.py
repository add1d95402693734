"""The made-up shop through the documented commands, against LightGBM with `position` on the same raw table.

    python benchmarks/shop.py --sessions 5000 --seeds 5 --method dla

LightGBM gets the table as it is: missing values and categories by its own means, grades of clicks, carts and purchases,
the position through all pages, and the best of a small grid by nDCG of held-out searches. What a robot did, and what
was sold, is in it, since nobody prepared it. Ours is what `unskew ingest` makes of the table by flags like those of
docs/guide.md.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import pyarrow.parquet as pq

import unskew
from unskew.data.judged.tables import read_judged_table
from unskew.ingestion.columns import Columns
from unskew.ingestion.opening import Options, Tables
from unskew.ingestion.run import ingest
from unskew.options import parse_grades
from unskew.simulation.shop_log import EVENTS, JUDGED, make_shop, write_shop

FEATURES = [
    *("bm25", "semantic", "price", "discount", "in_stock", "rating", "n_reviews", "age_months", "image_score"),
    *("margin", "delivery_days", "free_shipping", "brand", "colour"),
]
GRID = [{"num_leaves": leaves, "learning_rate": rate} for leaves in (15, 31) for rate in (0.05, 0.1)]


def columns() -> Columns:
    """The flags of the guide."""
    return Columns(
        page="page",
        page_size=10,
        where="not is_sponsored",
        user="user_id",
        intervention="experiment",
        policy_score="score",
        bias=["device"],
        grades=parse_grades("click=1,add_to_cart=3,purchase=5"),
    )


def ours(folder: Path, method: str, seed: int) -> float:
    """nDCG@10 of a method on the log that is made of the events."""
    ingest(Tables(folder / EVENTS), folder / "log", columns(), Options(sessions_a_user=20))
    model = unskew.fit(unskew.Recipe.of(method, seed=seed), unskew.read_log(folder / "log"))
    judged = read_judged_table(folder / JUDGED).with_features(model.feature_names, model.categories)
    return unskew.evaluate(model.ranker(), judged, ["ndcg@10"]).mean("ndcg@10")


def theirs(folder: Path) -> float:
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
    return unskew.evaluate(in_order.score.to_numpy(), read_judged_table(folder / JUDGED), ["ndcg@10"]).mean("ndcg@10")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=5_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--method", default="dla")
    chosen = parser.parse_args()
    differences = []
    for seed in range(chosen.seeds):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "shop"
            write_shop(make_shop(chosen.sessions, seed), folder)
            mine, other = ours(folder, chosen.method, seed), theirs(folder)
        differences.append(mine - other)
        print(f"seed {seed}: {chosen.method} {mine:.4f}, LightGBM position {other:.4f}", flush=True)
    mean, error = np.mean(differences), np.std(differences, ddof=1) / np.sqrt(len(differences))
    print(f"difference {mean:+.4f}, standard error {error:.4f} over {len(differences)} shops")


if __name__ == "__main__":
    main()
