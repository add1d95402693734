"""Candidates that were never shown: what a ranker taught by the ten that were makes of all the others.

    python benchmarks/never_shown.py runs/never-shown world:tiny:documents=100 mq2007-agg clueweb09

A logger (weak, strong, or weak and stochastic) shows ten candidates of each query; every way of using the others learns
from the same log. nDCG@10 is over the candidates of a test query that the logger would show, those that it would not,
and all. A case is a fold, or a world with its seed, and has a logger of its own; differences from `dla` are paired,
with 95% intervals over cases. One file per case is written to the folder; what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from intervals import mean_text
from rankers import SETS
from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.catalogue import load
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.evaluate import evaluate_scorer, score_documents
from unskew.networks.documents import PointwiseRanker, Ranker
from unskew.networks.registry import Network, Problem
from unskew.simulation.policies import Policy, make_policy
from unskew.simulation.simulate import simulate
from unskew.simulation.users import make_user
from unskew.training.fitting import fit_recipe
from unskew.training.model import Model
from unskew.training.recipe import Recipe
from unskew.training.settings import Settings

N_SHOWN = 10
MOST_QUERIES = 500  # that a logger shows: worlds have more
METRICS = ("ndcg@10:shown", "ndcg@10:never_shown", "ndcg@10")
LOGGERS = {"weak": 0.01, "strong": 0.3, "stochastic": 0.01}  # share of the training queries that taught the logger
NETWORK = Network(hidden=(32,))
Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Case:
    """A log, the judged queries behind it, and those on which rankers are measured."""

    train: JudgedSet
    test: JudgedSet
    policy: Policy
    log: ClickLog
    settings: Settings

    def fit(self, method: str, log: ClickLog | None = None, judged: JudgedSet | None = None, **hyper: Any) -> Model:
        network = hyper.pop("network", NETWORK)
        return fit_recipe(Recipe(method, hyper, self.settings, network), log, judged=judged)

    @cached_property
    def dla(self) -> Model:
        return self.fit("dla", self.log)

    @cached_property
    def production(self) -> Model:
        """A ranker that imitates the logger: what stood higher is better, what was not shown comes last."""
        looks = exposure(self.log, N_SHOWN - np.arange(N_SHOWN, dtype=np.float64))
        return self.fit("labelled", judged=replace(self.train, grades=looks.astype(np.float32)))

    def scores(self, model: Model) -> Vector:
        return score_documents(model.ranker(), self.test)


def exposure(log: ClickLog, curve: Vector) -> Vector:
    """What each document got of the attention of a session of its query, `[documents]`."""
    looks = np.where(log.mask, curve[log.positions], 0.0) * log.sessions[:, None]
    per_document = np.bincount(log.versions.ravel(), looks.ravel(), len(log.features))
    per_query = np.bincount(log.queries, log.sessions, len(log.query_ids))
    return per_document / np.maximum(per_query, 1)[log.version_queries]


def with_negatives(log: ClickLog, most: int | None) -> ClickLog:
    """The log with never-shown candidates below the lists, never clicked; `most` of them, drawn list by list."""
    unshown = np.ones(len(log.features), dtype=bool)
    unshown[log.versions[log.mask]] = False
    rng = np.random.default_rng(0)
    by_query = [np.flatnonzero(unshown & (log.version_queries == query)) for query in range(len(log.query_ids))]
    width = max((len(found) for found in by_query), default=0) if most is None else most
    added = np.zeros((log.n_lists, width), dtype=np.int32)
    real = np.zeros((log.n_lists, width), dtype=bool)
    for number, query in enumerate(log.queries):
        chosen = rng.permutation(by_query[query])[:width]
        added[number, : len(chosen)], real[number, : len(chosen)] = chosen, True
    place = np.where(real, N_SHOWN + np.arange(width), 0).astype(np.int16)  # more places, at which nobody clicks
    return replace(
        log,
        versions=np.concatenate([log.versions, added], axis=1),
        mask=np.concatenate([log.mask, real], axis=1),
        clicks=np.concatenate([log.clicks, np.zeros_like(added, dtype=log.clicks.dtype)], axis=1),
        positions=np.concatenate([log.positions, place], axis=1),
        policy_scores=None,
    )


class Corrected(PointwiseRanker):
    """A frozen ranker, and what is learned in addition."""

    def __init__(self, layers: torch.nn.Module, first: Ranker):
        super().__init__(layers)
        self.first = first.requires_grad_(False)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        with torch.no_grad():
            start = self.first(features, mask)
        return start + super().forward(features, mask)


def correction_of(model: Model) -> Network:
    """A network that learns the correction to a model."""

    def build(problem: Problem) -> Ranker:
        usual = replace(problem, network=NETWORK).new_ranker()
        assert isinstance(usual, PointwiseRanker)
        return Corrected(usual.layers, model.method.ranker())

    return Network(kind="correction", outside=build)


def centred(scores: Vector, judged: JudgedSet) -> Vector:
    """Scores with mean 0 in every query."""
    owner = np.repeat(np.arange(judged.n_queries), judged.sizes)
    return scores - (np.bincount(owner, scores) / judged.sizes)[owner]


def standardized(scores: Vector, judged: JudgedSet) -> Vector:
    """Scores with mean 0 in every query and spread 1 over all, as an average of rankers can have them."""
    found = centred(scores, judged)
    return found / (found.std() or 1.0)


def mixed(case: Case, other: Model) -> Vector:
    own, added = (standardized(case.scores(model), case.test) for model in (case.dla, other))
    return own + added


def policy_aware(case: Case, everything: bool) -> Vector:
    """Clicks over expected looks (Oosterhuis and de Rijke 2020), as targets of one list per query."""
    curve = case.dla.examination()
    assert curve is not None
    looks = exposure(case.log, curve)
    clicks = np.bincount(case.log.versions.ravel(), case.log.clicks.ravel(), len(looks))
    sessions = np.bincount(case.log.queries, case.log.sessions, len(case.log.query_ids))[case.log.version_queries]
    targets = np.divide(clicks / sessions, np.maximum(looks, 0.01), out=np.zeros(len(looks)), where=looks > 0)
    judged = replace(case.train, grades=targets.astype(np.float32))
    if not everything:
        kept = np.flatnonzero(looks > 0)
        owner = case.log.version_queries[kept]
        sizes = np.bincount(owner, minlength=judged.n_queries)
        judged = JudgedSet.from_arrays(judged.features[kept], judged.grades[kept], sizes[sizes > 0])
    return case.scores(case.fit("labelled", judged=judged))


WAYS: dict[str, Callable[[Case], Vector]] = {
    "production": lambda case: case.policy.scores(case.test),
    "production, imitated": lambda case: case.scores(case.production),
    "naive": lambda case: case.scores(case.fit("naive", case.log)),
    "dla": lambda case: case.scores(case.dla),
    "naive, 10 weak negatives": lambda case: case.scores(case.fit("naive", with_negatives(case.log, 10))),
    "dla, 10 weak negatives": lambda case: case.scores(case.fit("dla", with_negatives(case.log, 10))),
    "dla, all as negatives": lambda case: case.scores(case.fit("dla", with_negatives(case.log, None))),
    "dla, correction to production": lambda case: case.scores(
        case.fit("dla", case.log, network=correction_of(case.production))
    ),
    "dla, averaged with production": lambda case: mixed(case, case.production),
    "labels of all candidates": lambda case: case.scores(case.fit("labelled", judged=case.train)),
}
STOCHASTIC: dict[str, Callable[[Case], Vector]] = {
    "policy-aware, shown": lambda case: policy_aware(case, everything=False),
    "policy-aware, all": lambda case: policy_aware(case, everything=True),
}


def new_case(data: str, number: int, logger: str, settings: Settings, sessions: int) -> Case:
    """A world of this seed, or a fold, with a logger of its own."""
    if data.startswith("world"):
        kind, size, *more = data.split(":")
        found = load(":".join([kind, size, str(number), *more]))
        train, test = found.train, found.test
    else:
        train, _, test = SETS[data](number + 1)
    train = train.select(range(min(train.n_queries, MOST_QUERIES)))
    policy = make_policy("svm", fraction=max(LOGGERS[logger], 2 / train.n_queries), seed=number).fit(train)
    if logger == "stochastic":
        policy = make_policy(
            "plackett_luce", logger=policy, temperature=0.3 * centred(policy.scores(train), train).std()
        )
    user = make_user("position_based", max_grade=train.max_grade)
    log = simulate(train, policy, user, sessions=sessions, n_shown=N_SHOWN, seed=number).log
    return Case(train, test, policy, log, replace(settings, seed=number))


def measure(case: Case, ways: Mapping[str, Callable[[Case], Vector]]) -> dict[str, dict[str, float]]:
    places = case.policy.scores(case.test)
    shown = np.zeros(case.test.n_documents, dtype=bool)
    for start, end in zip(case.test.offsets, case.test.offsets[1:], strict=False):
        shown[start + np.argsort(-places[start:end], kind="stable")[:N_SHOWN]] = True
    found = {}
    for way, rank in ways.items():
        values = evaluate_scorer(rank(case), case.test, METRICS, shown=shown)
        found[way] = {name: float(values.mean(name)) for name in METRICS}
    return found


def show(title: str, rows: Sequence[Mapping[str, Mapping[str, float]]]) -> None:
    print(f"\n{title}, {len(rows)} cases\n")
    print(f"| | shown | never shown | all | all, less dla |\n|---|{'---:|' * 4}")
    for way in dict.fromkeys(way for row in rows for way in row):
        own = [row for row in rows if way in row]
        means = [f"{np.mean([row[way][name] for row in own]):.3f}" for name in METRICS]
        less = mean_text([row[way]["ndcg@10"] - row["dla"]["ndcg@10"] for row in own], digits=3) if way != "dla" else ""
        cases = "" if len(own) == len(rows) else f" ({len(own)} cases)"
        print(f"| {way}{cases} | {' | '.join(means)} | {less} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", nargs="+", help="world:tiny:documents=100, mq2007-agg, clueweb09, …")
    parser.add_argument("--logger", nargs="+", default=list(LOGGERS), choices=list(LOGGERS))
    parser.add_argument("--ways", nargs="+", choices=[*WAYS, *STOCHASTIC], help="default: all; dla always")
    parser.add_argument("--cases", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--sessions", type=int, default=128)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    settings = Settings(steps=arguments.steps)
    for data in arguments.data:
        for logger in arguments.logger:
            rows = [values_of(data, number, logger, settings, arguments) for number in arguments.cases]
            show(f"{data}, {logger}", rows)


def values_of(data: str, number: int, logger: str, settings: Settings, arguments: argparse.Namespace) -> dict[str, Any]:
    """nDCG@10 of every way in a case, from its file if it is there."""
    name = f"{data}-{logger}-{number}-{settings.steps}-{arguments.sessions}.json".replace(" ", "_").replace("/", "_")
    file = arguments.folder / name
    if not file.exists():
        every = WAYS | STOCHASTIC if logger == "stochastic" else WAYS
        wanted = ["dla", *arguments.ways] if arguments.ways else list(every)
        ways = {way: rank for way, rank in every.items() if way in wanted}
        done = measure(new_case(data, number, logger, settings, arguments.sessions), ways)
        file.with_suffix(".part").write_text(json.dumps(done))
        file.with_suffix(".part").rename(file)
    return json.loads(file.read_text())


if __name__ == "__main__":
    main()
