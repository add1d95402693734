"""The verdicts on the claims of a paper.

Each comparison of a claim is a paired difference over folds, worlds or seeds (see `comparison.statistics`) and holds,
fails or is undecided. P-values are Holm-corrected over all comparisons of the experiment. "similar" is equivalence by
two one-sided tests, "no_worse" is non-inferiority; both by the margin that the claim names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from unskew.comparison.statistics import Table
from unskew.data.judged.metrics import metric
from unskew.evaluation.differences import Paired, corrected
from unskew.papers.settings import Claim
from unskew.reporting.sheets import FAILS, HOLDS, UNDECIDED, UNTESTED, ClaimResult, interval_text, signed

ALPHA = 0.05


@dataclass(frozen=True)
class Comparison:
    """One comparison of a claim: the evidence for it, and the evidence for its opposite."""

    text: str
    p: float  # one-sided p-value for the claim; small supports it
    p_against: float  # p-value for its opposite


def judge(claims: Sequence[Claim], tables: Mapping[str, Table], main_metric: str) -> list[ClaimResult]:
    """The verdicts on claims by results on one or several data sets, by name."""
    return judge_together([(claims, tables, main_metric)])[0]


def judge_together(
    experiments: Sequence[tuple[Sequence[Claim], Mapping[str, Table], str]],
) -> list[list[ClaimResult]]:
    """The same for several experiments, corrected over all their comparisons, such as all tables of a paper."""
    found = [[_comparisons(claim, tables, name) for claim in claims] for claims, tables, name in experiments]
    every = [one for some in found for of_claim in some for one in of_claim]
    p, p_against = (
        corrected({str(number): getattr(one, side) for number, one in enumerate(every)}) for side in ("p", "p_against")
    )
    verdicts = iter([_verdict(p[str(number)], p_against[str(number)]) for number in range(len(every))])
    return [
        [
            _result(claim, of_claim, [next(verdicts) for _ in of_claim], _n_expected(claim, tables) - len(of_claim))
            for claim, of_claim in zip(claims, some, strict=True)
        ]
        for (claims, tables, _), some in zip(experiments, found, strict=True)
    ]


def _verdict(p: float, p_against: float) -> str:
    return HOLDS if p < ALPHA else FAILS if p_against < ALPHA else UNDECIDED


def _result(claim: Claim, some: Sequence[Comparison], verdicts: Sequence[str], n_missing: int = 0) -> ClaimResult:
    if claim.relation == "untestable":
        return ClaimResult(claim.text, UNTESTED, claim.reason)
    if not some:
        return ClaimResult(claim.text, UNTESTED, "its runs are missing, or there is only one repetition")
    counts = {verdict: verdicts.count(verdict) for verdict in (HOLDS, FAILS, UNDECIDED)}
    whole = HOLDS if counts[HOLDS] == len(some) and not n_missing else FAILS if counts[FAILS] else UNDECIDED
    detail = "; ".join(f"{one.text}: {verdict}" for one, verdict in zip(some, verdicts, strict=True))
    detail += f"; {n_missing} comparisons of the claim were not run" if n_missing else ""
    return ClaimResult(claim.text, whole, detail, counts[HOLDS], counts[FAILS], len(some))


def _n_expected(claim: Claim, tables: Mapping[str, Table]) -> int:
    """Comparisons that a claim asks for: one that was not run keeps it from holding."""
    if claim.relation in ("falls", "rises", "untestable"):
        return 0 if claim.relation == "untestable" else len(tables)
    settings = [
        len([name for name in claim.settings or table.settings if name in table.settings]) for table in tables.values()
    ]
    return sum(settings) * len(claim.than)


def _comparisons(claim: Claim, tables: Mapping[str, Table], main_metric: str) -> list[Comparison]:
    if claim.relation == "untestable":
        return []
    name = claim.metric or main_metric
    found = []
    for data, table in tables.items():
        settings = [setting for setting in (claim.settings or table.settings) if setting in table.settings]
        some = RELATIONS[claim.relation](claim, table, settings, name)
        found += [replace(one, text=f"{data}: {one.text}") for one in some] if len(tables) > 1 else some
    return found


def _differences(rule: Callable[[Paired, int, float], tuple[float, float]]) -> Judge:
    """A judge of differences: `rule` returns both one-sided p-values for a pair, the direction and the margin."""

    def judge_differences(claim: Claim, table: Table, settings: Sequence[str], name: str) -> list[Comparison]:
        sign = 1 if metric(name).higher_is_better else -1
        found = []
        for setting in settings:
            for other in claim.than:
                pair = table.paired(setting, claim.label, other, name)
                if pair is not None and len(pair.units.values) > 1:
                    where = f"{setting + ': ' if setting else ''}{claim.label} − {other}"
                    text = f"{where} {signed(pair.units.mean)} {name} ({interval_text(*pair.units.interval())})"
                    found.append(Comparison(text, *rule(pair.units, sign, claim.margin)))
        return found

    return judge_differences


def _better(pair: Paired, sign: int, margin: float) -> tuple[float, float]:
    del margin
    p = min(1.0, 2 * pair.p_above(0.0)), min(1.0, 2 * (1 - pair.p_above(0.0)))  # two-sided, as the tables
    return p if sign > 0 else (p[1], p[0])


def _similar(pair: Paired, sign: int, margin: float) -> tuple[float, float]:
    del sign
    within = max(pair.p_above(-margin), 1 - pair.p_above(margin))
    return within, min(pair.p_above(margin), 1 - pair.p_above(-margin))


def _no_worse(pair: Paired, sign: int, margin: float) -> tuple[float, float]:
    p = pair.p_above(-margin) if sign > 0 else 1 - pair.p_above(margin)
    return p, 1 - p


def _trend(sign: int) -> Judge:
    """A judge of the slope over settings, unit by unit."""

    def judge_trend(claim: Claim, table: Table, settings: Sequence[str], name: str) -> list[Comparison]:
        by_setting = {
            setting: table.by_unit(setting, claim.label, name) for setting in settings if table.of(setting, claim.label)
        }
        if len(by_setting) < 2:
            return []
        common = [
            unit for unit in next(iter(by_setting.values())) if all(unit in units for units in by_setting.values())
        ]
        if len(common) < 2:
            return []
        curves = np.array([[units[unit].mean() for units in by_setting.values()] for unit in common])
        slopes = np.polyfit(np.arange(curves.shape[1]), curves.T, 1)[0]
        places = list(by_setting)
        pair = Paired(slopes, table.overlap(places[0], claim.label))
        ends = curves.mean(axis=0)
        text = f"{claim.label}: {ends[0]:.4f} at {places[0]}, {ends[-1]:.4f} at {places[-1]} ({name})"
        return [Comparison(text, *_better(pair, sign, 0.0))]

    return judge_trend


Judge = Callable[[Claim, Table, Sequence[str], str], list[Comparison]]
RELATIONS: dict[str, Judge] = {
    "better": _differences(_better),
    "similar": _differences(_similar),
    "no_worse": _differences(_no_worse),
    "falls": _trend(-1),
    "rises": _trend(1),
}
