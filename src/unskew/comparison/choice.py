"""Which method for a log that nobody has judged: the rule of `auto`.

Position-only observation (`two_tower`) is nested in observation by position and document (`low_rank`), so held-out
clicks can *test* the one against the other. They are no guide to the best ranker among all methods (docs/selection.md):
criteria that hold for position-only observation count only where the test does not reject it. Each case has a safe
choice, and another method replaces it only where it is better beyond its interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unskew.comparison.against_production import ALPHA, PRODUCTION, Standing, standings
from unskew.evaluation.criteria import CRITERIA, leading_criterion
from unskew.evaluation.differences import paired
from unskew.evaluation.held_out import Vector
from unskew.reporting.sheets import signed

BY_POSITION, BY_DOCUMENT = "two_tower", "low_rank"  # nested: the second contains the first
PLAIN = "naive"
# The safe choice first: dla was within 1 % of the best in 19 of 21 worlds, lbd never more than 5.3 % below it.
WITHOUT_COUPLING = ("dla", "two_tower", PLAIN)
WITH_COUPLING = ("low_rank", "lbd", PLAIN)
BY_LOOKS = "attention"  # before all others where looks are recorded and the record is consistent
WITH_BOTH_SIGNS = ("lbd", "low_rank", PLAIN)  # coupling and trust look the same, and low_rank fails under trust
# Documents that catch the eye matter least at the top: all that counts once position-only observation is rejected, and
# where looks say what was observed, so that nobody has to assume it.
IN_SPITE_OF_COUPLING = ("top_agreement",)

Measured = Mapping[str, Mapping[str, Vector]]  # method -> criterion -> one value per query


@dataclass(frozen=True)
class CouplingTest:
    """Held-out click likelihood of observation by position and document, less that of position alone."""

    gain: float
    least: float  # 95 % interval over queries
    most: float

    @property
    def found(self) -> bool:
        return self.least > 0

    @property
    def line(self) -> str:
        numbers = f"{signed(self.gain)} per click ({signed(self.least)} to {signed(self.most)})"
        if self.found:
            return (
                f"Examination also depends on the document: {BY_DOCUMENT} predicts held-out clicks better, {numbers}."
            )
        return f"Examination by position alone is not rejected: {BY_DOCUMENT} minus {BY_POSITION} {numbers}."


@dataclass(frozen=True)
class Choice:
    """A method, and why."""

    method: str
    reason: str
    coupling: CouplingTest | None = None
    criterion: str | None = None  # that may rank methods here; None: none is left


def coupling_test(measured: Measured) -> CouplingTest | None:
    """The test; None if either model is missing or predicts no clicks."""
    values = [measured.get(name, {}).get("click_likelihood") for name in (BY_DOCUMENT, BY_POSITION)]
    if values[0] is None or values[1] is None:
        return None
    pairs = paired(values[0], values[1])
    return CouplingTest(pairs.mean, *pairs.interval())


def choose_method(measured: Measured, *, trust: bool | None = None) -> Choice:
    """Choose among trained methods by held-out clicks; a method that learns from looks comes first.

    Args:
        trust: whether the diagnosis found the signs of trust bias; None: it could not tell.
    """
    coupling = coupling_test(measured)
    coupled = coupling is not None and coupling.found
    order = WITHOUT_COUPLING if not coupled else WITH_BOTH_SIGNS if trust else WITH_COUPLING
    pool = [name for name in (BY_LOOKS, *order) if name in measured] or list(measured)
    criterion = deciding_criterion({name: measured[name] for name in pool}, coupled=coupled or pool[0] == BY_LOOKS)
    safe = pool[0]
    if criterion is None:
        why = "it learns from recorded examination" if safe == BY_LOOKS else "no criterion can rank methods on this log"
        return Choice(safe, f"{safe} is the safe choice: {why}", coupling)
    title = CRITERIA[criterion].title
    best = max((name for name in pool), key=lambda name: np.nanmean(measured[name][criterion]))
    if best != safe:
        level = 1 - ALPHA / (len(pool) - 1)
        gained = paired(measured[best][criterion], measured[safe][criterion])
        least, most = gained.interval(level)
        if least > 0:
            numbers = f"{signed(gained.mean)} {title} ({signed(least)} to {signed(most)})"
            return Choice(best, f"{best} is better than {safe}, the safe choice, by {numbers}", coupling, criterion)
    others = ", ".join(pool[1:])
    reason = f"{safe} is the safe choice, and none of {others} is better in {title} beyond the interval"
    return Choice(safe, reason if others else f"only {safe} can work on this log", coupling, criterion)


def deciding_criterion(measured: Measured, *, coupled: bool) -> str | None:
    """The criterion that all contenders have and whose assumptions are not rejected; None if there is none."""
    names = {label: list(values) for label, values in measured.items()}
    if coupled:
        able = [name for name in IN_SPITE_OF_COUPLING if all(name in values for values in names.values())]
        return able[0] if able else None
    name = leading_criterion(names)
    return name if all(name in values for values in names.values()) else None


def certify(
    measured: Measured, production: Mapping[str, Vector], choice: Choice
) -> tuple[Choice, str | None, list[Standing]]:
    """The choice on queries that did not choose it, against plain clicks and production.

    Plain clicks replace it where they are better beyond the interval. Gives the choice, the criterion by which
    production could be compared (None: by none), and the standings.
    """
    coupled = choice.method == BY_LOOKS or (choice.coupling is not None and choice.coupling.found)
    rivals = {name: measured[name] for name in dict.fromkeys([choice.method, PLAIN]) if name in measured}
    criterion = deciding_criterion(rivals, coupled=coupled)
    if criterion is not None and choice.method != PLAIN and PLAIN in rivals:
        lost = paired(rivals[PLAIN][criterion], rivals[choice.method][criterion])
        if lost.interval()[0] > 0:
            by_how_much = f"{signed(lost.mean)} {CRITERIA[criterion].title}"
            reason = f"plain clicks beat {choice.method} on other queries, by {by_how_much}"
            choice = Choice(PLAIN, reason, choice.coupling, choice.criterion)
    everything: dict[str, Mapping[str, Vector]] = {PRODUCTION: production, **rivals}
    by = deciding_criterion(everything, coupled=coupled)
    if by is None:
        return choice, None, []
    return choice, by, standings({label: values[by] for label, values in everything.items()})


def tried_first(methods: Sequence[str]) -> list[str]:
    """Of these methods, those that the rule needs in any case."""
    return [name for name in methods if name in (*WITHOUT_COUPLING, BY_POSITION, BY_DOCUMENT, BY_LOOKS)]


def tried_later(methods: Sequence[str], measured: Measured, *, trust: bool | None) -> list[str]:
    """Of these methods, those that may win once position-only observation is rejected."""
    coupling = coupling_test(measured)
    if coupling is None or not coupling.found:
        return []
    if not trust and deciding_criterion(measured, coupled=True) is None:
        return []
    return [name for name in methods if name in WITH_COUPLING and name not in measured]
