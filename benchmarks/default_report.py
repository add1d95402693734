"""What the rule of `auto` does in the worlds of `default.py`: regret, losses, and whether its verdicts are right."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from default_worlds import SEEDS, World
from unskew.comparison.choice import BY_LOOKS, PLAIN, Certificate, certify, choose, read_signs, tried_first
from unskew.data.judged.judged_set import JudgedSet
from unskew.diagnosis.advice import Facts, scalar_violated
from unskew.evaluation.criteria import Contender, Evidence
from unskew.evaluation.differences import paired
from unskew.evaluation.evaluate import evaluate_scorer

METRIC = "ndcg@10"
PRODUCTION, AUTO = "production", "auto"
IMITATED = "imitated"  # a ranker that learned the order of production
MARGIN = 0.01  # a loss up to this share of the better one of plain clicks and production is none

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class KeptCase:
    """What a log can tell of methods, and the truth about production."""

    facts: Facts
    choosing: Evidence
    certifying: Evidence
    production: tuple[Contender, Contender]  # on the queries that choose and on those that certify
    test_scores: Vector  # of production
    which: str | None
    told: Mapping[str, Any] = field(default_factory=dict)  # parts of the diagnosis, by name


@dataclass(frozen=True, eq=False)
class KeptMethod:
    """A trained method."""

    choosing: Contender
    certifying: Contender
    test_scores: NDArray[np.float32]
    seconds: float  # of processor time


@dataclass(frozen=True, eq=False)
class Told:
    """One log: what the rule said, and the truth, one value per test query."""

    certificate: Certificate
    truth: Mapping[str, Vector]  # methods, production, and auto: production where it refused

    @property
    def refused(self) -> bool:
        return self.certificate.worse

    @property
    def verdict(self) -> str:
        found = self.certificate
        if found.worse:
            return "refused"
        return "no verdict" if not found.criteria else "better" if found.better else "open"


@dataclass(frozen=True, eq=False)
class Row:
    """One world: means over its seeds."""

    world: World
    told: Sequence[Told]
    identified: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "identified", not self.world.person.coupled)

    def mean(self, name: str) -> float:
        return float(np.mean([np.nanmean(each.truth[name]) for each in self.told]))

    @property
    def regret(self) -> float:
        """Of auto to the method that was best on the other seeds, as a share of it."""
        lost = []
        for seed, each in enumerate(self.told):
            others = [other for number, other in enumerate(self.told) if number != seed] or [each]
            names = [name for name in each.truth if name not in (AUTO, PRODUCTION)]
            names = [name for name in names if all(name in other.truth for other in others)]
            best = max(names, key=lambda name: np.mean([np.nanmean(other.truth[name]) for other in others]))
            lost.append(1 - np.nanmean(each.truth[AUTO]) / np.nanmean(each.truth[best]))
        return float(np.mean(lost))

    @property
    def loss(self) -> tuple[float, float]:
        """What auto lacks to the better of plain clicks and production, as a share, and the least that it may be."""
        better = max((PLAIN, PRODUCTION), key=self.mean)
        means = [np.mean([each.truth[name] for each in self.told], axis=0) for name in (better, AUTO)]
        pairs = paired(*means)
        return pairs.mean / self.mean(better), pairs.interval()[0] / self.mean(better)

    @property
    def violated(self) -> bool:
        """Whether auto is more than the margin below, beyond the interval of the difference."""
        lost, least = self.loss
        return lost > MARGIN and least > 0


def show(worlds: Sequence[World], folder: Path) -> None:
    """Print a row per world, then the bar."""
    rows = [row for row in (read_row(world, folder) for world in worlds) if row is not None]
    print("| world | chosen | verdict | auto | best | regret | plain clicks | production | loss |")
    print("| --- | --- | --- | ---: | --- | ---: | ---: | ---: | ---: |")
    for row in rows:
        print(line(row))
    print(f"\n{len(rows)} of {len(worlds)} worlds, {sum(len(row.told) for row in rows)} logs.")
    for title, chosen in (
        ("identified", [row for row in rows if row.identified]),
        ("coupled", [row for row in rows if not row.identified]),
    ):
        if chosen:
            values = [row.regret for row in chosen]
            print(f"{title}: {len(chosen)} worlds, mean regret {np.mean(values):.2%}, worst {max(values):.2%}")
    single = [name for name in rows[0].told[0].truth if name not in (AUTO, PRODUCTION)]
    for name in single:
        have = [row for row in rows if all(name in each.truth for each in row.told)]
        print(f"always {name}: {np.mean([fixed(row, name).regret for row in have]):.2%} over {len(have)}", end="; ")
        print(f"violations {sum(fixed(row, name).violated for row in have)}")
    print(f"more than {MARGIN:.0%} below the better of plain clicks and production, beyond the interval: ", end="")
    print(f"{sum(row.violated for row in rows)} of {len(rows)}")
    judged = [each for row in rows for each in row.told if each.verdict == "better"]
    wrong = [each for each in judged if not _truly_better(each)]
    print(f"verdict 'better than production': {len(judged)} logs, wrong in {len(wrong)}")


def _truly_better(told: Told) -> bool:
    return bool(np.nanmean(told.truth[AUTO]) > np.nanmean(told.truth[PRODUCTION]))


def fixed(row: Row, name: str) -> Row:
    """The row as if a method were always chosen."""
    told = [Told(each.certificate, {**each.truth, AUTO: each.truth[name]}) for each in row.told]
    return Row(row.world, told)


def line(row: Row) -> str:
    """One world as a row of a table."""
    first = row.told[0].truth
    names = [name for name in first if name not in (AUTO, PRODUCTION) and all(name in e.truth for e in row.told)]
    best = max(names, key=row.mean)
    chosen = ", ".join(dict.fromkeys(each.certificate.choice.label for each in row.told))
    verdicts = ", ".join(dict.fromkeys(each.verdict for each in row.told))
    lost, least = row.loss
    mark = " **" if row.violated else ""
    values = f"{row.mean(AUTO):.4f} | {best} {row.mean(best):.4f} | {row.regret:.1%} | {row.mean(PLAIN):.4f}"
    loss = f"{lost:.1%} (at least {least:.1%}){mark}"
    return f"| {row.world.name} | {chosen} | {verdicts} | {values} | {row.mean(PRODUCTION):.4f} | {loss} |"


def read_row(world: World, folder: Path) -> Row | None:
    """The rule on every log of a world; None where nothing was trained."""
    places = [folder / f"{world.number:02d}-{seed}" for seed in SEEDS]
    places = [place for place in places if all((place / f"{n}.pickle").exists() for n in ("case", PLAIN, "dla"))]
    if not places:
        return None
    test = _read(folder / f"{world.number:02d}-scene.pickle").test
    return Row(world, [tell(place, test) for place in places])


def tell(place: Path, test: JudgedSet) -> Told:
    """The rule on one log."""
    case, methods = read_log(place)
    found = apply_rule(case, methods)
    scores = {name: kept.test_scores.astype(np.float64) for name, kept in methods.items()}
    known = {**scores, PRODUCTION: scores.pop(IMITATED, case.test_scores * np.nan)}
    own = averaged([known[name] for name in found.choice.members], test, found.choice.shares)
    scores |= {PRODUCTION: case.test_scores, AUTO: case.test_scores if found.worse else own}
    return Told(found, {name: evaluate_scorer(each, test, [METRIC]).values(METRIC) for name, each in scores.items()})


def read_log(place: Path) -> tuple[KeptCase, dict[str, KeptMethod]]:
    """What was kept of a log."""
    methods = {file.stem: _read(file) for file in sorted(place.glob("*.pickle")) if file.stem != "case"}
    return _read(place / "case.pickle"), {name: kept for name, kept in methods.items() if kept is not None}


def imitates(place: Path) -> bool:
    """Whether the rule gives production a share on this log, so that its imitation is needed."""
    return PRODUCTION in apply_rule(*read_log(place)).choice.members


def apply_rule(case: KeptCase, methods: Mapping[str, KeptMethod]) -> Certificate:
    """What `auto` does with the methods on one log; no judgement enters."""
    tried = tried_first(list(methods))
    if case.facts.faulty_looks:
        tried = [name for name in tried if name != BY_LOOKS]
    choosing, certifying = (
        {name: getattr(methods[name], part) for name in tried} for part in ("choosing", "certifying")
    )
    rejected = scalar_violated(case.facts) is not None
    held_out = case.choosing.held_out
    signs = read_signs(choosing, case.production[0], held_out, coupled=case.facts.coupled, rejected=rejected)
    return certify(choose(choosing, signs, list(methods)), certifying, case.production[1], case.certifying)


def averaged(scores: Sequence[Vector], test: JudgedSet, shares: Sequence[float]) -> Vector:
    """Scores that count by their shares."""
    starts, sizes = test.offsets[:-1], test.sizes
    found = np.zeros(test.n_documents)
    for each, share in zip(scores, shares, strict=True):
        deviations = each - np.repeat(np.add.reduceat(each, starts) / sizes, sizes)
        found += share * each / max(float(np.sqrt((deviations**2).mean())), 1e-12)
    return found


def _read(place: Path) -> Any:
    return pickle.loads(place.read_bytes())
