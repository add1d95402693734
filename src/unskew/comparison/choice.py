"""Which rankers to use for a log without labels: the rule of `auto`.

Held-out clicks alone do not identify the best ranker among all methods: the method that fits clicks best may rank worst
(docs/selection.md). But together with the orders of the rankers, they say which case applies to a log:

* The ranker that corrects for position (`dla` and `two_tower`) orders documents as production does: production is good,
  and corrections gain little and may lose. `dla` is averaged with plain clicks (`naive`).
* That ranker differs widely from the ranker that lets examination depend on the document too (`low_rank`), and there is
  another sign of such coupling: `low_rank` is averaged with plain clicks. If even `low_rank` agrees with production,
  nothing is shown to be better than production.
* Otherwise `dla` and `low_rank` are averaged, which then rank alike.
* If examination was recorded and the record is consistent, `attention` is used alone; it is not shown to be better than
  a production ranking that it agrees with.

All criteria assume that examination depends on position alone, and count only if nothing rejects that. This includes
agreement on top: under strong coupling it put plain clicks above `attention`, which was far better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unskew.comparison.against_production import ALPHA, PRODUCTION, Standing, standings
from unskew.evaluation.criteria import CRITERIA, Contender, Evidence, measure_all, measure_production
from unskew.evaluation.differences import Paired, paired
from unskew.evaluation.held_out import HeldOut, Vector
from unskew.evaluation.order_agreement import kendall
from unskew.reporting.sheets import signed

PLAIN = "naive"
BY_POSITION, BY_DOCUMENT = "two_tower", "low_rank"  # nested: the second contains the first
POSITION_ALONE = ("dla", BY_POSITION)
BY_LOOKS = "attention"  # if examination was recorded and the record is consistent
FIRST = (PLAIN, *POSITION_ALONE, BY_DOCUMENT, BY_LOOKS)
LIKE_PRODUCTION = (POSITION_ALONE[0], PLAIN)
EYE_CATCHERS = (BY_DOCUMENT, PLAIN)
USUAL = (POSITION_ALONE[0], BY_DOCUMENT)
# Kendall's tau within queries. All three come from one log of each of 32 simulated worlds (docs/selection.md).
AS_PRODUCTION = 0.6  # of the ranker by position with production: from here on production is assumed to be good
STILL_AS_PRODUCTION = 0.45  # of `low_rank`, or `attention`, with production, under coupling
ALIKE = 0.75  # of the ranker by position with `low_rank`: below, they contradict each other
Z = 2.0  # standard errors of a difference of likelihoods that counts as a sign
# One relies on the examination curve, the other compares documents at the same position: a verdict needs both.
CRITERIA_OF_POSITION = ("dr", "pair_agreement")

Tried = Mapping[str, Contender]


@dataclass(frozen=True)
class Signs:
    """What orders of rankers and held-out clicks say about a log; None: not measurable."""

    as_production: float | None = None  # agreement of the ranker by position with production
    document_as_production: float | None = None  # the same for `low_rank`, or for `attention` if there is one
    alike: float | None = None  # agreement of the ranker by position with `low_rank`
    click_likelihood: Paired | None = None  # of `low_rank` minus `two_tower`: the test of nested models
    score_likelihood: Paired | None = None  # of `low_rank` minus the ranker by position
    diagnosed: bool | None = None  # whether `diagnose` found examination that depends on the document

    @property
    def coupled(self) -> bool:
        """Whether examination seems to depend on the document: the two rankers contradict each other, and another sign.

        Scores that follow visual attraction explain clicks well, so a ranker that corrects for it explains them worse.
        """
        if self.alike is None or self.alike >= ALIKE:
            return False
        return bool(self.diagnosed) or _z(self.click_likelihood) > Z or _z(self.score_likelihood) < -Z

    @property
    def line(self) -> str:
        """All signs in one sentence; empty if nothing was measured."""
        if self.as_production is None or self.alike is None:
            return ""
        found = f"{'Examination seems' if self.coupled else 'Examination does not seem'} to depend on the document"
        return (
            f"{found}: Kendall's tau of the position-corrected ranker is {self.alike:.2f} with {BY_DOCUMENT} and "
            f"{self.as_production:.2f} with production; the scores of {BY_DOCUMENT} change the log-likelihood of "
            f"held-out clicks by {_text(self.score_likelihood)} per click, and its click predictions by "
            f"{_text(self.click_likelihood)} compared with {BY_POSITION}."
        )


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

    members: tuple[str, ...]
    reason: str
    signs: Signs = Signs()
    criteria: tuple[str, ...] = ()  # criteria whose assumptions are not rejected on this log
    keeps_production: bool = False  # nothing can be shown to be better than production

    @property
    def label(self) -> str:
        return " + ".join(self.members)


def read_signs(tried: Tried, production: Contender, evidence: Evidence, *, coupled: bool | None = None) -> Signs:
    """The signs that the rule uses.

    Args:
        production: scores of the same held-out documents.
        coupled: whether the diagnosis found examination that depends on the document; None: not measurable.
    """
    if not {*POSITION_ALONE, BY_DOCUMENT} <= set(tried):
        return Signs(diagnosed=coupled)
    held_out = evidence.held_out
    closest = tried.get(BY_LOOKS, tried[BY_DOCUMENT])
    document, position = tried[BY_DOCUMENT], average([tried[name] for name in POSITION_ALONE], held_out)
    return Signs(
        agreement(position, production, held_out),
        agreement(closest, production, held_out),
        agreement(position, document, held_out),
        _gained("click_likelihood", document, tried[BY_POSITION], evidence),
        _gained("score_likelihood", document, position, evidence),
        coupled,
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
    """Choose among the tried methods by the signs."""
    if BY_LOOKS in tried:
        why = "it learns from recorded examination, so no assumption about examination is needed"
        return Choice((BY_LOOKS,), why, signs, keeps_production=_still_as_production(signs))
    if (signs.as_production or 0.0) >= AS_PRODUCTION:
        why = "corrected clicks order documents much as production does, so corrections are averaged with plain clicks"
        return _able(LIKE_PRODUCTION, why, tried, signs)
    if not signs.coupled:
        return _able(
            USUAL, "nothing contradicts examination by position, and rankers that agree are averaged", tried, signs
        )
    why = "examination seems to depend on the document, and plain clicks hedge what clicks do not identify"
    return _able(EYE_CATCHERS, why, tried, signs, keeps_production=_still_as_production(signs))


def _still_as_production(signs: Signs) -> bool:
    return (signs.document_as_production or 0.0) >= STILL_AS_PRODUCTION


def _able(members: Sequence[str], why: str, tried: Tried, signs: Signs, *, keeps_production: bool = False) -> Choice:
    able = tuple(name for name in members if name in tried)
    if able in ((), (PLAIN,)) and len(tried) == 1:
        able, why = (PLAIN,), "only plain clicks can work on this log"
    criteria = () if signs.coupled or signs.diagnosed else CRITERIA_OF_POSITION
    return Choice(able, why, signs, criteria, keeps_production)


def average(contenders: Sequence[Contender], held_out: HeldOut) -> Contender:
    """The average of contenders, with equal influence; a single one stays as it is."""
    if len(contenders) == 1:
        return contenders[0]
    weights = [1 / spread(contender.scores, held_out) for contender in contenders]
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
        """Whether nothing is shown to be better: no valid criterion puts the choice above production."""
        if self.choice.keeps_production and not self.better:
            return True
        return bool(self.criteria) and all((self.own(name).difference or 0.0) <= 0 for name in self.criteria)


def certify(choice: Choice, tried: Tried, production: Contender, evidence: Evidence) -> Certificate:
    """Evaluate the choice on queries that did not choose it; plain clicks replace it if all criteria say so."""
    chosen = average([tried[name] for name in choice.members], evidence.held_out)
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
