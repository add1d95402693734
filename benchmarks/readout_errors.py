"""How often `readout` is wrong: simulated A/A and A/B tests, split and interleaved, with new queries each time.

Every repetition draws 100 queries of `world:small` and runs one test on them. In an A/A test both rankers are the same:
p should fall below 0.05 in 5% of the tests. In an A/B test the second ranker is better: the 95% interval should hold
the true difference, that of all queries with many sessions, in 95% of the tests; how often p finds the better one is
the power. Position-corrected outcomes use the true examination curve. Carts are events on clicked documents.

Resumable: finished repetitions are kept in UNSKEW_BENCH (default: a folder of its own, thrown away).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import stats

import unskew
from timing import Row, kept_folder
from unskew.simulation.policies import Mixed, NoisyOracle, Policy, TeamDraft

WORLD, REPETITIONS = "world:small", 400
QUERIES, SESSIONS, OF_TRUTH = 100, 8, 400
GRADES = {"click": 1.0, "cart": 3.0}
WEAK, STRONG = NoisyOracle(strength=0.3), NoisyOracle(strength=0.5)
TESTS: dict[str, Policy] = {
    "A/A split": Mixed(loggers=[WEAK, WEAK], arms=True),
    "A/A interleaved": TeamDraft(loggers=[WEAK, WEAK]),
    "A/B split": Mixed(loggers=[WEAK, STRONG], arms=True),
    "A/B interleaved": TeamDraft(loggers=[WEAK, STRONG]),
}


def run() -> list[Row]:
    judged = unskew.load(WORLD).train
    with kept_folder() as folder:
        return [row for name in TESTS for row in _rows(name, judged, folder)]


def _rows(name: str, judged: unskew.JudgedSet, folder: Path) -> list[Row]:
    place = folder / f"readout_{name.replace('/', '').replace(' ', '_')}.jsonl"
    done = [json.loads(line) for line in place.read_text().splitlines()] if place.is_file() else []
    with place.open("a") as file:
        for seed in range(len(done), REPETITIONS):
            chosen = np.sort(np.random.default_rng(seed).choice(judged.n_queries, QUERIES, replace=False))
            done.append(_test(TESTS[name], judged.select(chosen), SESSIONS, seed))
            file.write(json.dumps(done[-1]) + "\n")
    same = name.startswith("A/A")
    truth = {} if same else _test(TESTS[name], judged, OF_TRUTH, REPETITIONS)
    rows = []
    for outcome in done[0]:
        p, low, high = np.array([each[outcome][1:] for each in done]).T
        true = 0.0 if same else truth[outcome][0]
        found, held = int((p < 0.05).sum()), int(((low <= true) & (true <= high)).sum())
        rows.append((f"{name}, {outcome}: p < 0.05", _share(found), "5%" if same else ""))
        rows.append((f"{name}, {outcome}: interval holds the truth", _share(held), "95%"))
    return rows


def _test(policy: Policy, judged: unskew.JudgedSet, sessions: int, seed: int) -> dict[str, tuple[float, ...]]:
    """Difference, p and interval of each outcome."""
    simulation = unskew.simulate(judged, policy, "position_based", sessions=sessions, seed=seed, progress=False)
    log, curve = simulation.log, simulation.truth.position_curve
    carts = np.random.default_rng(seed).binomial(log.clicks.astype(int), 0.3).astype(np.float64)
    found = unskew.readout(replace(log, events={"cart": carts}), curve=curve / curve[0], grades=GRADES)
    return {each.name: (each.difference, each.p, each.low, each.high) for each in found.outcomes}


def _share(count: int) -> str:
    """A share of the repetitions with its exact 95% interval."""
    low, high = stats.binomtest(count, REPETITIONS).proportion_ci()
    return f"{count / REPETITIONS:.1%} ({low:.1%} to {high:.1%})"
