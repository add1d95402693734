"""What became of the claims of a paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from unskew.comparison.statistics import Table
from unskew.evaluation.differences import holm, paired_t
from unskew.metrics import metric
from unskew.papers.settings import Claim
from unskew.reporting.page import VERDICTS, ClaimResult
from unskew.reporting.sheets import signed

ALPHA = 0.05


def judge(claim: Claim, table: Table, main_metric: str) -> ClaimResult:
    """What results say about a claim."""
    if claim.relation == "untestable":
        return ClaimResult(claim.text, VERDICTS[3], claim.reason)
    name = claim.metric or main_metric
    settings = [setting for setting in (claim.settings or table.settings) if setting in table.settings]
    found = _JUDGES[claim.relation](claim, table, settings, name)
    if not found:
        return ClaimResult(claim.text, VERDICTS[3], "the runs it is about are missing")
    good = sum(held for held, _ in found)
    verdict = VERDICTS[0] if good == len(found) else VERDICTS[1] if good else VERDICTS[2]
    return ClaimResult(claim.text, verdict, "; ".join(text for _, text in found), good, len(found))


Judge = Callable[[Claim, Table, Sequence[str], str], list[tuple[bool, str]]]  # whether it held, and the numbers


def _pairs(claim: Claim, table: Table, settings: Sequence[str], name: str) -> list[tuple[str, float, float]]:
    """Differences with Holm-corrected p, as (where, difference, p)."""
    found = []
    for setting in settings:
        for other in claim.than:
            own, base, _, _ = table.paired(setting, claim.label, other, name)
            if len(own) > 1:
                where = f"{setting + ': ' if setting else ''}{claim.label} − {other}"
                found.append((where, float(np.nanmean(own) - np.nanmean(base)), paired_t(own, base)))
    p_values = holm([p for *_, p in found]).tolist()
    return [(where, difference, p) for (where, difference, _), p in zip(found, p_values, strict=True)]


def _judge_better(claim: Claim, table: Table, settings: Sequence[str], name: str) -> list[tuple[bool, str]]:
    sign = 1 if metric(name).higher_is_better else -1
    return [
        (sign * difference > 0 and p < ALPHA, _difference_text(where, name, difference, p))
        for where, difference, p in _pairs(claim, table, settings, name)
    ]


def _judge_similar(claim: Claim, table: Table, settings: Sequence[str], name: str) -> list[tuple[bool, str]]:
    return [
        (p >= ALPHA, _difference_text(where, name, difference, p))
        for where, difference, p in _pairs(claim, table, settings, name)
    ]


def _difference_text(where: str, name: str, difference: float, p: float) -> str:
    return f"{where} {signed(difference)} {name} (p {'< .001' if p < 0.001 else f'= {p:.3f}'})"


def _judge_trend(sign: int) -> Judge:
    def judge_trend(claim: Claim, table: Table, settings: Sequence[str], name: str) -> list[tuple[bool, str]]:
        known = [setting for setting in settings if table.of(setting, claim.label)]
        if len(known) < 2:
            return []
        values = [float(table.means(setting, claim.label, name).mean()) for setting in known]
        slope = np.polyfit(range(len(values)), values, 1)[0]
        held = bool(sign * slope > 0 and sign * (values[-1] - values[0]) > 0)
        return [(held, f"{claim.label}: {values[0]:.4f} at {known[0]}, {values[-1]:.4f} at {known[-1]} ({name})")]

    return judge_trend


_JUDGES: dict[str, Judge] = {
    "better": _judge_better,
    "similar": _judge_similar,
    "falls": _judge_trend(-1),
    "rises": _judge_trend(1),
}
