"""Which rankers to use for a log without labels: the rule of `auto`.

Held-out clicks are no guide to the best ranker among all methods: a method that fits clicks best may rank worst
(docs/selection.md). So the rule does not pick one. It averages rankers that go wrong in different ways, by how far they
agree with each other (Kendall's tau within held-out queries):

* Half of the average is `low_rank`, which lets examination depend on position and document.
* The other half is production, imitated from features, to the degree that clicks lead to its order: then there is
  little to gain and much to lose, since documents that attract attention look like errors of production.
* What production leaves of that half is `dla`, which corrects for positions alone; but plain clicks to the degree that
  `dla` and `low_rank` contradict each other, because at least one of the two is wrong.
* Where looks are recorded and the record is consistent, `attention` takes the place of all but production.

All criteria assume examination by position alone, and count only where nothing rejects it. They choose nothing: they
certify, on other queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from unskew.comparison.against_production import ALPHA, PRODUCTION, Standing, standings
from unskew.evaluation.criteria import CRITERIA, Contender, Evidence, measure_all, measure_production
from unskew.evaluation.differences import Paired, paired
from unskew.evaluation.held_out import HeldOut, Vector
from unskew.evaluation.order_agreement import kendall
from unskew.reporting.sheets import signed

PLAIN = "naive"
BY_POSITION, BY_DOCUMENT = "two_tower", "low_rank"  # nested: the second contains the first
POSITION_ALONE = "dla"
BY_LOOKS = "attention"  # where looks are recorded and the record is consistent
FIRST = (PLAIN, POSITION_ALONE, BY_POSITION, BY_DOCUMENT, BY_LOOKS)
MOST_MEMBERS = 3  # of an average: each is one more training
# Kendall's tau, where a share begins and where it is full. From one log of each of 74 simulated worlds, which hardly
# tell other values apart (docs/selection.md).
FAR, NEAR = 0.4, 0.6  # of what clicks teach with production
CONTRADICT, ALIKE = 0.3, 0.8  # of `dla` with `low_rank`
Z = 2.0  # standard errors by which a difference of likelihoods is a sign
# One that rests on the examination curve, and one that compares documents at one position: a verdict needs both.
CRITERIA_OF_POSITION = ("dr", "pair_agreement")

Tried = Mapping[str, Contender]


@dataclass(frozen=True)
class Signs:
    """What orders of rankers and held-out clicks say about a log; None: not measurable."""

    as_production: float | None = None  # agreement of what clicks teach with production
    alike: float | None = None  # agreement of `dla` and `low_rank`
    click_likelihood: Paired | None = None  # of `low_rank`, less that of `two_tower`: the test of nested models
    score_likelihood: Paired | None = None  # of `low_rank`, less that of `dla`
    diagnosed: bool | None = None  # whether `diagnose` found examination that depends on the document
    rejected: bool = False  # whether `diagnose` rejects examination by position alone, for any reason

    @property
    def coupled(self) -> bool:
        """Whether examination seems to depend on the document: two rankers contradict each other, and one more sign.

        Scores that follow what attracts attention explain clicks well, so a ranker without it explains clicks worse.
        """
        if self.alike is None or self.alike >= ALIKE:
            return False
        return bool(self.diagnosed) or _z(self.click_likelihood) > Z or _z(self.score_likelihood) < -Z

    @property
    def near(self) -> float:
        """The degree to which clicks lead to production's order, from 0 to 1."""
        return 0.0 if self.as_production is None else _ramp(self.as_production, FAR, NEAR)

    @property
    def contradiction(self) -> float:
        """The degree to which `dla` and `low_rank` contradict each other, from 0 to 1."""
        return 0.0 if self.alike is None else 1 - _ramp(self.alike, CONTRADICT, ALIKE)

    @property
    def line(self) -> str:
        """All of it in one sentence; empty where nothing was measured."""
        if self.alike is None:
            return ""
        found = (
            "Examination seems to depend on the document, too"
            if self.coupled
            else "Nothing shows that examination depends on the document"
        )
        return (
            f"{found}: {POSITION_ALONE} agrees with {BY_DOCUMENT} to {self.alike:.2f} (Kendall's tau); {BY_DOCUMENT} "
            f"explains held-out clicks by {_text(self.score_likelihood)} per click beside it, and predicts them by "
            f"{_text(self.click_likelihood)} beside {BY_POSITION}."
        )


def _ramp(value: float, start: float, end: float) -> float:
    return float(np.clip((value - start) / (end - start), 0, 1))


def _z(pairs: Paired | None) -> float:
    return 0.0 if pairs is None or not pairs.error > 0 else pairs.mean / pairs.error


def _text(pairs: Paired | None) -> str:
    if pairs is None:
        return "an unknown amount"
    least, most = pairs.interval()
    return f"{signed(pairs.mean)} ({signed(least)} to {signed(most)})"


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
    tried: Tried, production: Contender, evidence: Evidence, *, coupled: bool | None = None, rejected: bool = False
) -> Signs:
    """The signs that the rule goes by.

    Args:
        production: scores of the same held-out documents.
        coupled: whether the diagnosis found examination that depends on the document; None: it could not tell.
        rejected: whether it rejects examination by position alone, be it for trust.
    """
    if not {POSITION_ALONE, BY_POSITION, BY_DOCUMENT} <= set(tried):
        return Signs(diagnosed=coupled, rejected=rejected)
    taught = [BY_LOOKS] if BY_LOOKS in tried else [POSITION_ALONE, BY_DOCUMENT]
    held_out = evidence.held_out
    document, position = tried[BY_DOCUMENT], tried[POSITION_ALONE]
    close = [agreement(tried[name], production, held_out) for name in taught]
    return Signs(
        max((tau for tau in close if tau is not None), default=None),
        agreement(position, document, held_out),
        _gained("click_likelihood", document, tried[BY_POSITION], evidence),
        _gained("score_likelihood", document, position, evidence),
        coupled,
        rejected,
    )


def _gained(name: str, one: Contender, other: Contender, evidence: Evidence) -> Paired | None:
    values = [measure_all(each, evidence, [name])[0].get(name) for each in (one, other)]
    return None if values[0] is None or values[1] is None else paired(values[0], values[1])


def agreement(one: Contender, other: Contender, held_out: HeldOut) -> float | None:
    """Mean Kendall's tau of two contenders within queries; None if no query has an order of both."""
    documents, queries = held_out.candidates("shown")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(queries, minlength=held_out.n_queries))]).astype(np.int64)
    taus = kendall(one.scores[documents], other.scores[documents], offsets)
    return None if np.isnan(taus).all() else float(np.nanmean(taus))


def choose(tried: Tried, signs: Signs) -> Choice:
    """Which rankers to average on this log, and with which weights."""
    criteria = () if signs.coupled or signs.diagnosed or signs.rejected else CRITERIA_OF_POSITION
    if BY_LOOKS in tried:
        weights, criteria = {BY_LOOKS: 1.0, PRODUCTION: signs.near}, ()
        why = "it learns from recorded examination, so it needs no assumption about examination"
    else:
        rest = 1 - signs.near
        weights = {
            BY_DOCUMENT: 1.0,
            POSITION_ALONE: rest * (1 - signs.contradiction),
            PLAIN: rest * signs.contradiction,
            PRODUCTION: signs.near,
        }
        why = "rankers that go wrong in different ways are averaged"
    able = {name: weight for name, weight in weights.items() if weight and name in (*tried, PRODUCTION)}
    able = {name: able[name] for name in sorted(able, key=lambda name: -able[name])[:MOST_MEMBERS]}
    if not able:
        return Choice((PLAIN,), "only plain clicks can work on this log", signs, criteria)
    if PRODUCTION in able:
        why += f"; production, since clicks lead close to its order (Kendall's tau {signs.as_production:.2f})"
    if PLAIN in able:
        why += f"; plain clicks, since {POSITION_ALONE} and {BY_DOCUMENT} disagree (tau {signs.alike:.2f})"
    choice = Choice(tuple(able), why, signs, criteria, tuple(able.values()))
    if len(able) == 1:
        return choice
    shares = ", ".join(f"{share:.0%}" for share in choice.shares)
    return replace(choice, reason=f"{why} (shares {shares})")


def average(contenders: Sequence[Contender], held_out: HeldOut, shares: Sequence[float] = ()) -> Contender:
    """Contenders whose scores count by their shares, by default alike; one stays as it is."""
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
        """Whether nothing is shown to be better: no criterion that counts gives the choice anything over production."""
        return bool(self.criteria) and all((self.own(name).difference or 0.0) <= 0 for name in self.criteria)


def certify(choice: Choice, tried: Tried, production: Contender, evidence: Evidence) -> Certificate:
    """The choice on queries that did not choose it; plain clicks replace it where all criteria say so."""
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
            choice = Choice((PLAIN,), f"plain clicks beat {choice.label} on other queries: {by}", choice.signs)
    rivals = {PRODUCTION: measure_production(production, evidence)[0], choice.label: values[choice.label]}
    able = tuple(name for name in counting if name in rivals[PRODUCTION])
    found = {name: tuple(standings({label: each[name] for label, each in rivals.items()})) for name in able}
    return Certificate(choice, able, found)


def tried_first(methods: Sequence[str]) -> list[str]:
    """Those of these methods that the rule needs."""
    return [name for name in FIRST if name in methods]
