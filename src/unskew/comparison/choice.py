"""Which observation model explains the clicks of a log: the rule of `auto`, and what it is worth against production.

A small family of nested models, each of which adds one assumption to another (`FAMILY`). From the simplest upwards, a
step is taken only if the larger model predicts the clicks of held-out queries better, beyond the interval of the
difference per click over queries. Where several steps are, the one that gains most. So what cannot be told from the log
is not assumed, and the model that is served is explained by the parts that were added.

Where anything is corrected, a tenth of the score is that of raw clicks (`HELD_BACK`): in directions of which clicks
say little, a correction follows noise, and raw clicks follow production.

Models that fit any clicks say nothing about relevance: the family must stay small, and its members comparable, all
trained to their ends on the same queries. How it was measured: docs/selection.md.

The criteria of `certify` assume examination by position alone, and count only where nothing speaks against it. They
choose nothing: they certify, on other queries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from unskew.comparison.against_production import ALPHA, PRODUCTION, Standing, standings
from unskew.evaluation.criteria import CRITERIA, Contender, Evidence, measure_all, measure_production
from unskew.evaluation.differences import paired
from unskew.evaluation.held_out import Vector
from unskew.reporting.sheets import interval_text, signed


@dataclass(frozen=True)
class Member:
    """A model of the family."""

    method: str
    extends: tuple[str, ...]  # the models of which it is an extension, from the simplest
    part: str  # what it adds to the last of them, in words
    says: str  # what users do if it is right


PLAIN, BY_POSITION, BY_DOCUMENT, BY_LOOKS = "naive", "two_tower", "low_rank", "attention"
FAMILY = (  # from the simplest
    Member(PLAIN, (), "raw clicks", "No bias can be shown, so a click is taken as it is"),
    Member(BY_POSITION, (PLAIN,), "position", "Users see less of what is shown further down"),
    Member(BY_LOOKS, (PLAIN,), "recorded looks", "The log records what users looked at"),
    Member(BY_DOCUMENT, (PLAIN, BY_POSITION), "document", "What users see depends on the position and on the document"),
)
MEMBERS = {member.method: member for member in FAMILY}
HELD_BACK = 0.1  # share of raw clicks in the score of a correction, see docs/selection.md
# One that rests on the examination curve, and one that compares documents at one position: a verdict needs both.
CRITERIA_OF_POSITION = ("dr", "pair_agreement")

Tried = Mapping[str, Contender]


@dataclass(frozen=True)
class Step:
    """From a model of the family to a larger one: the gain in log-likelihood per click on held-out queries."""

    method: str
    over: str
    gain: float
    low: float
    high: float
    n_queries: int

    @property
    def accepted(self) -> bool:
        return self.low > 0

    @property
    def part(self) -> str:
        """What the larger model adds, in words."""
        return MEMBERS[self.method].part

    @property
    def numbers(self) -> tuple[str, str]:
        """The gain and its interval as text."""
        return signed(self.gain), interval_text(self.low, self.high)


@dataclass(frozen=True)
class Choice:
    """The model to serve, and how it was reached."""

    method: str
    steps: tuple[Step, ...] = ()
    reason: str = ""

    @property
    def shares(self) -> dict[str, float]:
        """Of the scores that are served: where anything is corrected, a part of the correction is held back."""
        return {PLAIN: 1.0} if self.method == PLAIN else {self.method: 1 - HELD_BACK, PLAIN: HELD_BACK}

    @property
    def label(self) -> str:
        return " + ".join(self.shares)

    def served(self, tried: Tried) -> Contender:
        """The scores that are served; click logits have one scale, so they are added as they are."""
        if self.method == PLAIN:
            return tried[PLAIN]
        one, plain = tried[self.method], tried[PLAIN]
        scores = (1 - HELD_BACK) * one.scores + HELD_BACK * plain.scores
        if one.scores_of_all is None or plain.scores_of_all is None:
            return Contender(scores)
        return Contender(scores, (1 - HELD_BACK) * one.scores_of_all + HELD_BACK * plain.scores_of_all)


def choose(able: Collection[str], likelihood: Callable[[str], Vector]) -> Choice:
    """Climb the family: the next model is the simplest extension that held-out queries support.

    Args:
        able: methods that can work on this log.
        likelihood: of a method, log-likelihood per click of held-out queries, one value per query; it may train it.
    """
    at, steps = PLAIN, []
    while True:
        rivals = [one.method for one in FAMILY if at in one.extends and one.method in able]
        found = [_step(likelihood(name), likelihood(at), name, at, len(rivals)) for name in rivals]
        steps += found
        accepted = [step.method for step in found if step.accepted]
        if not accepted:
            return Choice(at, tuple(steps), _reason(at, steps))
        at = accepted[0]


def _step(larger: Vector, smaller: Vector, name: str, over: str, n_rivals: int) -> Step:
    pairs = paired(larger, smaller)
    low, high = pairs.interval(1 - ALPHA / n_rivals)
    return Step(name, over, pairs.mean, low, high, len(pairs.values))


def _reason(method: str, steps: list[Step]) -> str:
    """One sentence for a manager, with the one number that decided."""
    says = MEMBERS[method].says
    for step in steps:
        if step.method == method:
            numbers = f"{step.gain:.4f} per click ({step.low:.4f} to {step.high:.4f})"
            return f"{says}: this predicts clicks of {step.n_queries:,} held-out queries better by {numbers}"
    return says


@dataclass(frozen=True)
class Certificate:
    """How a choice compares with raw clicks and production, on queries that did not choose it."""

    choice: Choice
    criteria: tuple[str, ...] = ()  # criteria that could rank production; none: there is no verdict
    by_criterion: Mapping[str, tuple[Standing, ...]] | None = None

    def own(self, criterion: str) -> Standing:
        assert self.by_criterion is not None
        return next(entry for entry in self.by_criterion[criterion] if entry.label != PRODUCTION)

    @property
    def better(self) -> bool:
        """Whether every valid criterion puts the choice above production, beyond its interval."""
        return bool(self.criteria) and all(self.own(name).beats for name in self.criteria)

    @property
    def worse(self) -> bool:
        """Whether every valid criterion puts the choice below production, beyond its interval."""
        return bool(self.criteria) and all(self.own(name).verdict == "worse" for name in self.criteria)


def certify(choice: Choice, tried: Tried, production: Contender, evidence: Evidence) -> Certificate:
    """The choice on queries that did not choose it; raw clicks replace it where all criteria say so."""
    known = {choice.label: choice.served(tried), PLAIN: tried[PLAIN]}
    values = {name: measure_all(each, evidence, CRITERIA_OF_POSITION)[0] for name, each in known.items()}
    counting = [name for name in CRITERIA_OF_POSITION if all(name in found for found in values.values())]
    if counting and choice.method != PLAIN:
        lost = {name: paired(values[PLAIN][name], values[choice.label][name]) for name in counting}
        if all(pairs.interval(1 - ALPHA)[0] > 0 for pairs in lost.values()):
            by = ", ".join(f"{signed(pairs.mean)} {CRITERIA[name].title}" for name, pairs in lost.items())
            choice = replace(choice, method=PLAIN, reason=f"Raw clicks beat {choice.method} on other queries: {by}")
    rivals = {PRODUCTION: measure_production(production, evidence)[0], choice.label: values[choice.label]}
    able = tuple(name for name in counting if name in rivals[PRODUCTION])
    found = {name: tuple(standings({label: each[name] for label, each in rivals.items()})) for name in able}
    return Certificate(choice, able, found)
