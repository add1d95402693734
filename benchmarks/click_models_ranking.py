"""Does ranking by the click model of the users who clicked beat `dla` and `ipw`?

    python benchmarks/click_models_ranking.py --worlds 300 301 302 --out runs/ranking.jsonl

The worlds of docs/selection.md: 128 sessions per query shown by a ranking SVM that learned from 1% of the labels, the
first document swapped with another in a tenth of them. The number of a world is also the seed of its logging policy,
its clicks and every training. All methods have the same network and train to the last step. Prints nDCG@10 on test
queries and paired differences, with t-intervals over worlds. A run that was interrupted continues.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from intervals import mean_text
from unskew.data.judged.catalogue import load_split
from unskew.evaluation.evaluate import evaluate_scorer
from unskew.simulation.policies import make_policy
from unskew.simulation.simulate import simulate
from unskew.simulation.users import make_user
from unskew.training.fitting import fit_recipe
from unskew.training.model import Model
from unskew.training.recipe import Recipe

# Satisfaction of the best documents: .3 hardly ever ends a search, .9 mostly does.
USERS: dict[str, tuple[str, dict[str, Any]]] = {
    "dbn, satisfaction .3": ("dbn", {"satisfaction": 0.3}),
    "dbn, satisfaction .9": ("dbn", {"satisfaction": 0.9}),
    "ubm": ("ubm", {}),
    "dcm": ("dcm", {}),
    "cascade": ("cascade", {}),
}
METRIC = "ndcg@10"
BY_RELEVANCE = "dbn by attraction x satisfaction"
REFERENCES = ("dla", "ipw")


def measure(size: str, seed: int, user: str, steps: int) -> dict[str, float]:
    """nDCG@10 of the right model, of `dla` and of `ipw` in a world; of `dbn` in both of its orders."""
    train, test = (load_split(f"world:{size}:{seed}", split) for split in ("train", "test"))
    model, options = USERS[user]
    log = simulate(
        train,
        make_policy("svm", fraction=0.01, seed=seed),
        make_user(model, **options),
        sessions=128,
        interventions={"swap_top": 0.1},
        seed=seed,
    ).log

    def quality(fitted: Model) -> float:
        return evaluate_scorer(fitted.ranker(), test, metrics=[METRIC]).mean(METRIC)

    found = {}
    for name in (model, *REFERENCES):
        fitted = fit_recipe(Recipe.of(name, steps=steps, hidden=[64, 32], seed=seed), log)
        found[name] = quality(fitted)
        if name == "dbn":
            fitted.method.rank_by = "relevance"
            found[BY_RELEVANCE] = quality(fitted)
    return found


def difference(rows: list[dict[str, Any]], one: str, other: str) -> str:
    """The mean paired difference over worlds with its 95% t-interval."""
    return f"{one} - {other}: {mean_text([row[one] - row[other] for row in rows])}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, nargs="+", required=True)
    parser.add_argument("--size", default="small", help="of the worlds")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=500)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [json.loads(line) for line in arguments.out.read_text().splitlines()] if arguments.out.exists() else []
    for seed in arguments.worlds:
        for user in USERS:
            key = {"size": arguments.size, "world": seed, "user": user, "steps": arguments.steps}
            if any(key.items() <= row.items() for row in rows):
                continue
            rows.append({**key, **measure(arguments.size, seed, user, arguments.steps)})
            with arguments.out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(rows[-1], flush=True)
    for user, (model, _) in USERS.items():
        same = {"size": arguments.size, "user": user, "steps": arguments.steps}
        own = [row for row in rows if same.items() <= row.items()]
        orders = [model, BY_RELEVANCE] if model == "dbn" else [model]
        means = "  ".join(f"{name} {np.mean([row[name] for row in own]):.4f}" for name in (*orders, *REFERENCES))
        print(f"{user} ({len(own)} worlds): {means}")
        for name in orders:
            print("  " + "; ".join(difference(own, name, other) for other in REFERENCES))


if __name__ == "__main__":
    main()
