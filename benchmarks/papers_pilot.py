"""The pilot of the papers' results: how much do the three primary differences vary between worlds?

    python benchmarks/papers_pilot.py              run what is missing; rows go to docs/results/pilot.jsonl
    python benchmarks/papers_pilot.py --plan       what is missing, and its core minutes
    python benchmarks/papers_pilot.py --table      means, standard deviations, and how many worlds decide

Primary claims, one per paper: LBD against the best baseline where examination depends on the document (eta = .1,
crux features scaled to [-1, 1] as in the paper); Vectorization against the best method that assumes a product of
scalars, on the click matrix; CDLA-LD against DLA under page context. Every world has its own documents, logging policy,
direction of attention and clicks; one training of each method with the package's defaults, ended by held-out clicks;
4,000 test queries of the same law. Nothing was tuned on these worlds. The pilot sets the number of worlds of the main
run; its means are no results.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from scipy.stats import norm

import unskew
from quality_runs import state_of_code
from row_file import append_row, mend, read_rows
from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.catalogue import load_split
from unskew.data.judged.judged_set import JudgedSet
from unskew.simulation.policies import make_policy
from unskew.simulation.simulate import simulate
from unskew.simulation.users import make_user

ROWS = Path(__file__).parents[1] / "docs" / "results" / "pilot.jsonl"
METRIC = "ndcg@10"
WORLDS = range(9_701, 9_709)
POWER, LEVEL = 0.8, 0.05
SECONDS = {"cdla_ld": 90.0, "vectorization": 20.0, "lbd": 20.0}
USUAL_SECONDS = 8.0


@dataclass(frozen=True)
class Claim:
    """A primary claim: who shows what to whom, the rows, and which are compared."""

    name: str
    policy: Mapping[str, Any]
    user: Mapping[str, Any]
    sessions: int
    rows: Mapping[str, tuple[str, Mapping[str, Any]]]  # label -> method, options
    own: str
    against: tuple[str, ...]  # the best of them by the mean of the pilot


SVM = {"name": "svm", "fraction": 0.01}
COUPLED = {"name": "coupled", "coupling": 0.1, "noise": 0.1, "direction": "random"}
SCALARS = ("dla", "two_tower", "regression_em", "affine_softmax")
CLAIMS = (
    Claim(
        "LBD, eta .1",
        SVM,
        COUPLED,
        128,
        {
            "naive": ("naive", {}),
            "dla": ("dla", {}),
            "two_tower": ("two_tower", {}),
            "regression_em": ("regression_em", {}),
            "lbd": ("lbd", {}),
            "Lips": ("lbd", {"cancel": 0.0}),
            "Ber": ("lbd", {"penalty": 0.0}),
        },
        "lbd",
        ("naive", "dla", "two_tower", "regression_em"),
    ),
    Claim(
        "Vectorization, matrix",
        SVM,
        {"name": "real_click"},
        128,
        {"vectorization": ("vectorization", {}), "naive": ("naive", {}), **{name: (name, {}) for name in SCALARS}},
        "vectorization",
        SCALARS,
    ),
    Claim(
        "CDLA-LD, page context",
        {"name": "plackett_luce", "orders_per_query": 4},
        {"name": "page_context", "influence": 2.0},
        128,
        {"cdla_ld": ("cdla_ld", {}), "dla": ("dla", {}), "naive": ("naive", {})},
        "cdla_ld",
        ("dla",),
    ),
)


@lru_cache(maxsize=1)
def case_of(claim: str, world: int) -> tuple[ClickLog, JudgedSet]:
    """The log of a world, and its test queries."""
    about = next(entry for entry in CLAIMS if entry.name == claim)
    train, test = load_split(f"world:small:{world}", "train"), load_split(f"world:large:{world}", "test")
    more = {"direction_seed": world} if about.user["name"] == "coupled" else {}
    policy = make_policy(**about.policy, seed=world) if about.policy is SVM else make_policy(**about.policy)
    user = make_user(**about.user, **more).fit(train)
    made = simulate(train, policy.fit(train), user, sessions=about.sessions, seed=world, threads=1, progress=False)
    return made.log, test


def missing(claims: Sequence[Claim] = CLAIMS) -> list[tuple[int, Claim, str]]:
    """World by world, so that every row of a claim has the same worlds wherever time ends."""
    done = {(row["world"], row["claim"], row["row"]) for row in read_rows(ROWS)}
    every = [(world, claim, label) for world in WORLDS for claim in claims for label in claim.rows]
    return [entry for entry in every if (entry[0], entry[1].name, entry[2]) not in done]


def run_missing(claims: Sequence[Claim]) -> None:
    mend(ROWS)
    for world, claim, label in missing(claims):
        log, test = case_of(claim.name, world)
        method, options = claim.rows[label]
        started = time.process_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = unskew.fit(method, log, seed=world, progress=False, **options)
        seconds = time.process_time() - started
        value = unskew.evaluate(model, test, [METRIC]).mean(METRIC)
        append_row(
            ROWS,
            {
                "world": world,
                "claim": claim.name,
                "row": label,
                METRIC: round(float(value), 5),
                "cpu_seconds": round(seconds, 1),
                "code": state_of_code(),
                "steps": model.history.rows[-1]["step"],
                "warnings": sorted({str(entry.message)[:80] for entry in caught}),
            },
        )
        print(f"{world} {claim.name} {label}: {value:.4f}, {seconds:.0f} s", flush=True)


def differences(claim: Claim, one: str, other: str) -> list[float]:
    """Paired over worlds that have both."""
    values = {(row["world"], row["row"]): row[METRIC] for row in read_rows(ROWS) if row["claim"] == claim.name}
    return [values[w, one] - values[w, other] for w in WORLDS if (w, one) in values and (w, other) in values]


def table() -> str:
    lines = [f"{'':<24}{'rival':<16}{'worlds':>7}{'mean':>9}{'sd':>8}{'for its mean':>14}{'for +-.005':>12}"]
    for claim in CLAIMS:
        for other in (label for label in claim.rows if label != claim.own):
            found = differences(claim, claim.own, other)
            if len(found) < 2:
                continue
            mean, sd = statistics.mean(found), statistics.stdev(found)
            star = "*" if other in claim.against else " "
            size, margin = worlds_needed(mean, sd), worlds_needed(0.005, sd)
            lines.append(
                f"{claim.name:<24}{other + star:<16}{len(found):>7}{mean:>+9.4f}{sd:>8.4f}{size:>14}{margin:>12}"
            )
    return "\n".join([*lines, "* a baseline of the primary claim, which names the best of them by validation"])


def worlds_needed(difference: float, sd: float) -> int:
    """Worlds for 80% power at .05, two-sided, to tell this difference from 0."""
    if not difference:
        return 10**6
    return max(3, round(((norm.ppf(1 - LEVEL / 2) + norm.ppf(POWER)) * sd / abs(difference)) ** 2 + 1))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--claims", type=int, nargs="*", default=[1, 2, 3], help="numbers of the claims to run")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args(arguments)
    if asked.table:
        print(table())
        return
    claims = [CLAIMS[number - 1] for number in asked.claims]
    left = missing(claims)
    minutes = sum(SECONDS.get(claim.rows[label][0], USUAL_SECONDS) for _, claim, label in left) / 60
    print(f"{len(left)} trainings are missing, about {minutes:.0f} core minutes")
    if not asked.plan:
        run_missing(claims)


if __name__ == "__main__":
    main()
