"""What a record of looks is worth under coupling: plain clicks, true observation, and `attention` on faulty records.

    python benchmarks/attention.py world:small:100 world:small:101 --coupling 0.3 --steps 400

Prints nDCG@10 on the test queries, one line for each world, form, record and method.
"""

from __future__ import annotations

import argparse

import torch

from unskew.comparison.tasks import ORACLES
from unskew.data.judged.catalogue import load_split
from unskew.evaluation.evaluate import evaluate
from unskew.fitting import fit
from unskew.recipe import Recipe
from unskew.simulation.simulate import simulate
from unskew.simulation.users import make_user
from unskew.training.settings import Settings

# Name -> record of looks, and the arguments of attention. An unknown rate needs documents that moved: some are swapped.
RECORDS = {
    "misses .2": ({"misses": 0.2}, {}),
    "misses .2, by weights": ({"misses": 0.2}, {"learn": "weights"}),
    "false alarms .2, given": ({"false_alarms": 0.2}, {"false_alarms": 0.2}),
    "false alarms .2, estimated": ({"false_alarms": 0.2}, {"false_alarms": None}),
    "false alarms .2, ignored": ({"false_alarms": 0.2}, {}),
    "grows with interest": ({"interest": 1.0}, {}),
    "a tenth of the sessions": ({"share": 0.1}, {}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("worlds", nargs="+")
    parser.add_argument("--coupling", type=float, default=0.3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--sessions", type=int, default=128)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for world in arguments.worlds:
        for form in ("logistic", "power"):
            compare(world, form, arguments)


def compare(world: str, form: str, arguments: argparse.Namespace) -> None:
    train, test = (load_split(world, split) for split in ("train", "test"))
    settings = Settings(steps=arguments.steps)
    user = make_user("coupled", coupling=arguments.coupling, form=form, crux_scale="standard").fit(train)

    def show(name: str, method: str, log: object, **hyper: object) -> None:
        model = fit(Recipe(method, hyper, settings), log)
        value = evaluate(model.ranker(), test, metrics=["ndcg@10"]).mean("ndcg@10")
        print(f"{world} {form} {arguments.coupling}: {name:32} {value:.4f} {model.method.findings() or ''}", flush=True)

    def simulated(**options: object) -> object:
        return simulate(train, "svm", user, sessions=arguments.sessions, **options)

    plain = simulated()
    show("plain clicks", "naive", plain.log)
    show("true observation", "naive", ORACLES["observation"](plain))
    for name, (record, hyper) in RECORDS.items():
        swaps = {"swap_neighbours": 0.1} if hyper.get("false_alarms", 0.0) is None else {}
        show(f"attention, {name}", "attention", simulated(record=record, interventions=swaps).log, **hyper)


if __name__ == "__main__":
    main()
