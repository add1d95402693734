"""Which rankers to use for a log without labels: the rule of `auto`.

Held-out clicks are no guide to the best ranker among all methods: a method that fits clicks best may rank worst
(docs/selection.md). So the rule does not pick one. It asks two questions about orders (Kendall's tau within held-out
queries), and averages rankers that go wrong in different ways:

* **Is the correction in doubt?** `dla` corrects for positions alone, `low_rank` for positions and documents. If they
  contradict each other, at least one is wrong. It is also in doubt if `diagnose` finds coupling.
* **Is it near production?** If clicks lead to production's order, there is little to gain and much to lose, since
  documents that attract attention look like errors of production.

| | far from production | near it |
|---|---|---|
| no doubt | `dla`, `low_rank` | plain clicks, some `dla` |
| doubt | `lbd`, some `low_rank` | `lbd`, production |

`lbd` lies between plain clicks and a full correction. Production is imitated from features. Where looks are recorded
and the record is consistent, `attention` ranks, near production together with it.

All criteria assume examination by position alone, and count only where nothing speaks against it. They choose nothing:
they certify, on other queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from unskew.comparison.against_production import ALPHA, PRODUCTION, Standing, standings
from unskew.evaluation.agreement import kendall
from unskew.evaluation.criteria import CRITERIA, Contender, Evidence, measure_all, measure_production
from unskew.evaluation.differences import paired
from unskew.evaluation.held_out import HeldOut, Vector
from unskew.reporting.sheets import signed

PLAIN = "naive"
POSITION_ALONE, BY_DOCUMENT = "dla", "low_rank"
HALFWAY = "lbd"  # between plain clicks and a full correction; it is not tried, since nothing is measured where it ranks
BY_LOOKS = "attention"  # where looks are recorded and the record is consistent
FIRST = (PLAIN, POSITION_ALONE, BY_DOCUMENT, BY_LOOKS)
# Kendall's tau; from 256 simulated worlds, which hardly tell other values apart (docs/selection.md).
ALIKE = 0.7  # of `dla` with `low_rank`: below, they contradict each other
NEAR = 0.5  # of what clicks teach with production
# One that rests on the examination curve, and one that compares documents at one position: a verdict needs both.
CRITERIA_OF_POSITION = ("dr", "pair_agreement")

Tried = Mapping[str, Contender]


@dataclass(frozen=True)
class Signs:
    """What orders of rankers and the diagnosis say about a log; None: not measurable."""

    as_production: float | None = None  # agreement of what clicks teach with production
    alike: float | None = None  # agreement of `dla` and `low_rank`
    diagnosed: bool | None = None  # whether `diagnose` found examination that depends on the document
    rejected: bool = False  # whether `diagnose` rejects examination by position alone, for any reason

    @property
    def doubtful(self) -> bool:
        """Whether a correction for positions is in doubt."""
        return bool(self.diagnosed) or (self.alike is not None and self.alike < ALIKE)

    @property
    def near(self) -> bool:
        """Whether clicks lead to production's order."""
        return self.as_production is not None and self.as_production >= NEAR

    @property
    def line(self) -> str:
        """All of it in one sentence; empty where nothing was measured."""
        if self.alike is None:
            return ""
        found = "agree" if self.alike >= ALIKE else "contradict each other, so at least one is wrong"
        more = "; examination seems to depend on the document" if self.diagnosed else ""
        return f"{POSITION_ALONE} and {BY_DOCUMENT} {found} (Kendall's tau {self.alike:.2f}){more}."


@dataclass(frozen=True)
class Choice:
    """Rankers to average, or a single one, and why."""

    members: tuple[str, ...]  # methods, or PRODUCTION
    reason: str
    signs: Signs = Signs()
    criteria: tuple[str, ...] = ()  # whose assumptions are not rejected on this log
    weights: tuple[float, ...] = ()  # of the members, each with scores of spread 1; none: all alike

    @property
    def label(self) -> str:
        return " + ".join(self.members)

    @property
    def shares(self) -> tuple[float, ...]:
        """The weights; they sum to 1."""
        weights = self.weights or (1.0,) * len(self.members)
        return tuple(weight / sum(weights) for weight in weights)


def read_signs(
    tried: Tried, production: Contender, held_out: HeldOut, *, coupled: bool | None = None, rejected: bool = False
) -> Signs:
    """The signs that the rule goes by.

    Args:
        production: scores of the same held-out documents.
        coupled: whether the diagnosis found examination that depends on the document; None: it could not tell.
        rejected: whether it rejects examination by position alone, be it for trust.
    """
    if not {POSITION_ALONE, BY_DOCUMENT} <= set(tried):
        return Signs(diagnosed=coupled, rejected=rejected)
    taught = [BY_LOOKS] if BY_LOOKS in tried else [POSITION_ALONE, BY_DOCUMENT]
    close = [agreement(tried[name], production, held_out) for name in taught]
    return Signs(
        max((tau for tau in close if tau is not None), default=None),
        agreement(tried[POSITION_ALONE], tried[BY_DOCUMENT], held_out),
        coupled,
        rejected,
    )


def agreement(one: Contender, other: Contender, held_out: HeldOut) -> float | None:
    """Mean Kendall's tau of two contenders within queries; None if no query has an order of both."""
    documents, queries = held_out.candidates("shown")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(queries, minlength=held_out.n_queries))]).astype(np.int64)
    taus = kendall(one.scores[documents], other.scores[documents], offsets)
    return None if np.isnan(taus).all() else float(np.nanmean(taus))


def choose(tried: Tried, signs: Signs, able: Sequence[str] = ()) -> Choice:
    """Which rankers to average on this log, and with which weights.

    Args:
        able: methods that can work on this log and were not tried.
    """
    criteria = () if signs.doubtful or signs.rejected or BY_LOOKS in tried else CRITERIA_OF_POSITION
    if set(tried) <= {PLAIN}:
        return Choice((PLAIN,), "only plain clicks can work on this log", signs, criteria)
    weights, why = _looked(signs) if BY_LOOKS in tried else _averaged(signs)
    known = (*tried, *able, PRODUCTION)
    members = {name if name in known else PLAIN: weight for name, weight in weights.items()}
    choice = Choice(tuple(members), why, signs, criteria, tuple(members.values()))
    if len(members) == 1:
        return choice
    parts = ", ".join(f"{share:.0%} {name}" for share, name in zip(choice.shares, members, strict=True))
    return replace(choice, reason=f"{why}. Shares: {parts}")


def _looked(signs: Signs) -> tuple[dict[str, float], str]:
    why = "it learns from recorded examination, so it needs no assumption about examination"
    if not signs.near:
        return {BY_LOOKS: 1.0}, why
    return {BY_LOOKS: 1.0, PRODUCTION: 1.0}, f"{why}; {_joins(signs)}"


def _averaged(signs: Signs) -> tuple[dict[str, float], str]:
    """Weights of the average, and why."""
    if signs.doubtful:
        alone = "examination seems to depend on the document" if signs.diagnosed else _contradiction(signs)
        why = f"a full correction for positions is in doubt, since {alone}"
        if signs.near:
            return {HALFWAY: 1.0, PRODUCTION: 1.0}, f"{why}; {_joins(signs)}"
        return {HALFWAY: 3.0, BY_DOCUMENT: 1.0}, f"{why}; {HALFWAY} corrects less"
    if signs.near:
        return {PLAIN: 3.0, POSITION_ALONE: 1.0}, f"{_nearness(signs)}, so a small correction is enough"
    return {POSITION_ALONE: 1.0, BY_DOCUMENT: 1.0}, "it averages two corrections that fail in different ways"


def _joins(signs: Signs) -> str:
    return f"{_nearness(signs)}, so production joins the average"


def _nearness(signs: Signs) -> str:
    return f"what clicks teach is close to production's order (Kendall's tau {signs.as_production:.2f})"


def _contradiction(signs: Signs) -> str:
    return f"{POSITION_ALONE} and {BY_DOCUMENT} contradict each other (Kendall's tau {signs.alike:.2f})"


def average(contenders: Sequence[Contender], held_out: HeldOut, shares: Sequence[float] = ()) -> Contender:
    """Contenders whose scores count by their shares, by default equally; a single one is returned unchanged."""
    if len(contenders) == 1:
        return contenders[0]
    parts = shares or (1.0,) * len(contenders)
    weights = [part / spread(each.scores, held_out) for part, each in zip(parts, contenders, strict=True)]
    scores = np.sum([weight * each.scores for weight, each in zip(weights, contenders, strict=True)], axis=0)
    of_all = [each.scores_of_all for each in contenders]
    known = [each for each in of_all if each is not None]
    if len(known) < len(of_all):
        return Contender(scores)
    return Contender(scores, np.sum([weight * each for weight, each in zip(weights, known, strict=True)], axis=0))


def spread(scores: Vector, held_out: HeldOut) -> float:
    """Standard deviation of scores within queries, never 0."""
    documents, queries = held_out.candidates("shown")
    own = scores[documents]
    mean = held_out.sum_by_query(queries, own) / np.maximum(held_out.sum_by_query(queries, np.ones(len(own))), 1)
    found = float(np.sqrt(np.mean((own - mean[queries]) ** 2))) if len(own) else 0.0
    return found if found > 0 else 1.0


@dataclass(frozen=True)
class Certificate:
    """How a choice compares with plain clicks and production, on queries that did not choose it."""

    choice: Choice
    criteria: tuple[str, ...] = ()  # criteria that could rank production; none: there is no verdict
    by_criterion: Mapping[str, tuple[Standing, ...]] | None = None

    def own(self, criterion: str) -> Standing:
        assert self.by_criterion is not None
        return next(entry for entry in self.by_criterion[criterion] if entry.label == self.choice.label)

    @property
    def better(self) -> bool:
        """Whether every valid criterion puts the choice above production, beyond its interval."""
        return bool(self.criteria) and all(self.own(name).beats for name in self.criteria)

    @property
    def worse(self) -> bool:
        """Whether every valid criterion puts the choice below production, beyond its interval."""
        return bool(self.criteria) and all(self.own(name).verdict == "worse" for name in self.criteria)


def certify(choice: Choice, tried: Tried, production: Contender, evidence: Evidence) -> Certificate:
    """The choice on queries that did not choose it; plain clicks replace it where all criteria say so."""
    if not choice.criteria:
        return Certificate(choice)
    last = np.nanmin(production.scores, initial=0.0)  # where it would show what it has not shown
    known = {**tried, PRODUCTION: Contender(np.nan_to_num(production.scores, nan=last))}
    chosen = average([known[name] for name in choice.members], evidence.held_out, choice.shares)
    contenders = {choice.label: chosen, PLAIN: tried[PLAIN]}
    values = {label: measure_all(each, evidence, choice.criteria)[0] for label, each in contenders.items()}
    counting = [name for name in choice.criteria if all(name in found for found in values.values())]
    if counting and choice.label != PLAIN:
        lost = {name: paired(values[PLAIN][name], values[choice.label][name]) for name in counting}
        if all(pairs.interval(1 - ALPHA)[0] > 0 for pairs in lost.values()):
            by = ", ".join(f"{signed(pairs.mean)} {CRITERIA[name].title}" for name, pairs in lost.items())
            why = f"plain clicks beat {choice.label} on other queries: {by}"
            choice = replace(choice, members=(PLAIN,), weights=(), reason=why)
    rivals = {PRODUCTION: measure_production(production, evidence)[0], choice.label: values[choice.label]}
    able = tuple(name for name in counting if name in rivals[PRODUCTION])
    found = {name: tuple(standings({label: each[name] for label, each in rivals.items()})) for name in able}
    return Certificate(choice, able, found)


def tried_first(methods: Sequence[str]) -> list[str]:
    """Those of these methods that the rule needs."""
    return [name for name in FIRST if name in methods]
