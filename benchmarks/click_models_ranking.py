"""Does ranking by the click model of the users who clicked beat `dla` and `ipw`?

    python benchmarks/click_models_ranking.py world:small:100 world:small:101 --out runs/ranking.jsonl

The worlds of docs/selection.md: 128 sessions per query shown by a ranking SVM that learned from 1 % of the labels, the
first document swapped with another in a tenth of them. Every method is trained once in a world, to the last step, with
the same network. Prints nDCG@10 on test queries; a run that was cut off goes on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unskew.data.judged.catalogue import load_split
from unskew.evaluation.evaluate import evaluate
from unskew.fitting import fit
from unskew.model import Model
from unskew.recipe import Recipe
from unskew.simulation.policies import make_policy
from unskew.simulation.simulate import simulate
from unskew.simulation.users import make_user

# Satisfaction of the best documents: .3 hardly ever ends a search, .9 mostly does.
USERS: dict[str, tuple[str, dict[str, Any]]] = {
    "dbn, satisfaction .3": ("dbn", {"satisfaction": 0.3}),
    "dbn, satisfaction .9": ("dbn", {"satisfaction": 0.9}),
    "ubm": ("ubm", {}),
    "dcm": ("dcm", {}),
    "cascade": ("cascade", {}),
}
METRIC = "ndcg@10"


def measure(world: str, user: str, steps: int) -> dict[str, float]:
    """nDCG@10 of the right model, of `dla` and of `ipw` in a world; of `dbn` in both of its orders."""
    train, test = (load_split(world, split) for split in ("train", "test"))
    model, options = USERS[user]
    policy = make_policy("svm", fraction=0.01)
    log = simulate(train, policy, make_user(model, **options), sessions=128, interventions={"swap_top": 0.1}).log

    def quality(fitted: Model) -> float:
        return evaluate(fitted.ranker(), test, metrics=[METRIC]).mean(METRIC)

    found = {}
    for name in (model, "dla", "ipw"):
        fitted = fit(Recipe.of(name, steps=steps, hidden=[64, 32]), log)
        found[name] = quality(fitted)
        if name == "dbn":
            fitted.method.rank_by = "relevance"
            found["dbn by attraction x satisfaction"] = quality(fitted)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worlds", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=500)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [json.loads(line) for line in arguments.out.read_text().splitlines()] if arguments.out.exists() else []
    for world in arguments.worlds:
        for user in USERS:
            if any(row["world"] == world and row["user"] == user for row in rows):
                continue
            rows.append({"world": world, "user": user, **measure(world, user, arguments.steps)})
            with arguments.out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(rows[-1], flush=True)
    for user in USERS:
        own = [row for row in rows if row["user"] == user]
        names = [name for name in own[0] if name not in ("world", "user")]
        means = "  ".join(f"{name} {np.mean([row[name] for row in own]):.4f}" for name in names)
        print(f"{user} ({len(own)} worlds): {means}")


if __name__ == "__main__":
    main()
