"""Findings: what the parts of a diagnosis say, each as one sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unskew.diagnosis.advice import NOTABLE_COUPLING
from unskew.diagnosis.assemble import QUICK, Diagnosis, Refusal
from unskew.diagnosis.estimators.curve import Curve
from unskew.diagnosis.estimators.trust import NONE, TRUST

GOOD, PLAIN, BAD, UNKNOWN = "good", "plain", "bad", "unknown"
LONGEST_REASON = 160  # characters of a refusal; the rest is in the report
MARKS = (". ", ": ")
ENOUGH_LINKED = 100  # impressions on the weakest link


@dataclass(frozen=True)
class Finding:
    """One question and its answer."""

    question: str
    answer: str
    tone: str = PLAIN  # good, plain, bad or unknown


def findings(diagnosis: Diagnosis) -> list[Finding]:
    """The answers of all parts, in the order in which one would ask."""
    return [finding for ask in QUESTIONS for finding in ask(diagnosis)]


def short(reason: str) -> str:
    """A refusal, or so many of its first sentences as fit."""
    while len(reason) > LONGEST_REASON and any(mark in reason for mark in MARKS):
        reason = reason[: max(reason.rfind(mark) for mark in MARKS)]
    return reason.rstrip(".")


def _about_identification(diagnosis: Diagnosis) -> list[Finding]:
    question = "positions linked?"
    links = diagnosis.connectivity
    if isinstance(links, Refusal):
        return [_refused(question, links)]
    found = []
    if links.connected:
        text = f"yes: documents link all {len(links.groups[0])} positions"
        tone = GOOD
        if links.weakest is not None:
            weak = links.weakest
            text += f"; weakest link {weak.one + 1}–{weak.other + 1}, {weak.impressions:,.0f} shared impressions"
            tone = GOOD if weak.impressions >= ENOUGH_LINKED else BAD
        found.append(Finding(question, text, tone))
    else:
        by_features = "equal features link them all" if links.connected_by_features else "nor do equal features"
        text = f"no: {len(links.groups)} groups that no document links; {by_features}"
        found.append(Finding(question, text, BAD))
    for name, other in diagnosis.by_column.items():
        asked = f"linked, with {name}?"
        if isinstance(other, Refusal):
            found.append(_refused(asked, other))
        elif other.connected:
            found.append(Finding(asked, f"yes: documents link all {len(other.groups[0])} factors", GOOD))
        else:
            found.append(Finding(asked, f"no: {other.factor} fall into {len(other.groups)} groups", BAD))
    return found


def _about_causes(diagnosis: Diagnosis) -> list[Finding]:
    """What moved documents, and what changed features would make of the curve."""
    causes = diagnosis.causes
    counts = f"{causes.randomization:,} by randomization, {causes.ranker:,} by a change of ranker"
    if not causes.features:
        return [Finding("pairs of positions", counts)] if causes.randomization + causes.ranker else []
    text = f"{counts}; {causes.features:,} by changed features, which are not compared"
    found = [Finding("pairs of positions", text)]
    curve, other = diagnosis.curves.get("all_pairs"), diagnosis.across_versions
    if isinstance(other, Refusal):
        return found
    if not isinstance(curve, Curve):
        text = "they would link all positions, but a price that moved a document changed its relevance, too"
        return [*found, Finding("with changed features", f"{text}; on request: across_versions=True", UNKNOWN)]
    _, here, there = np.intersect1d(curve.positions, other.positions, return_indices=True)
    apart = (other.low[there] > curve.high[here]) | (other.high[there] < curve.low[here])
    if not apart.any():
        return [*found, Finding("with changed features", "the curve is the same within its interval", GOOD)]
    at = int(np.flatnonzero(apart)[-1])
    one, two = curve.spelled(int(here[at])), other.spelled(int(there[at]))
    text = f"another curve: {two} at position {curve.positions[here[at]] + 1}, and {one} within versions. The features "
    return [*found, Finding("with changed features", text + "that moved documents changed their relevance", BAD)]


def _about_context(diagnosis: Diagnosis) -> list[Finding]:
    """Context features that change examination, and are no bias columns yet."""
    found = []
    for name, levels in diagnosis.by_context.items():
        if isinstance(levels, Refusal) or name in diagnosis.log.bias:
            continue
        question = f"examination by {name}"
        if levels.apart is None:
            found.append(Finding(question, "the same for all levels, within the intervals", GOOD))
            continue
        one, other, position = levels.apart
        texts = [
            f"{curve.spelled(int(np.searchsorted(curve.positions, position)))} for {level}"
            for level, curve in levels.curves.items()
            if level in (one, other)
        ]
        text = f"differs: at position {position + 1} {', '.join(texts)}; ingest it with --bias {name}, too"
        found.append(Finding(question, text, BAD))
    return found


def _about_curves(diagnosis: Diagnosis) -> list[Finding]:
    refused = [name for name, curve in diagnosis.curves.items() if isinstance(curve, Refusal)]
    told = [name for name in diagnosis.curves if name not in refused]
    curve = diagnosis.curve
    if curve is None:
        return [Finding("examination curve", "no estimator can tell it from this log", BAD)]
    text = f"{curve.values[-1]:.2f} at position {curve.positions[-1] + 1} ({curve.low[-1]:.2f} to {curve.high[-1]:.2f})"
    text += f" by {curve.estimator}; told by {', '.join(told)}"
    return [Finding("examination curve", text + (f"; not by {', '.join(refused)}" if refused else ""), GOOD)]


def _about_learnt(diagnosis: Diagnosis) -> list[Finding]:
    found = []
    for name, curve in diagnosis.learnt.items():
        if not isinstance(curve, Refusal):
            last = f"{curve.values[-1]:.2f} ({curve.low[-1]:.2f} to {curve.high[-1]:.2f})"
            found.append(Finding(f"curve learnt by {name}", f"{last} at the last position; rests on its model"))
    return found


def _about_looks(diagnosis: Diagnosis) -> list[Finding]:
    """The record of looks beside the clicks, and what is wrong with it."""
    looks = diagnosis.looks
    if isinstance(looks, Refusal):
        return []
    rates = looks.rates
    text = (
        f"{looks.share:.0%} of the sessions; seen {rates[0]:.2f} at the top, {rates[-1]:.2f} at position {len(rates)}"
    )
    if looks.blind:
        text += f"; at least {looks.blind:.1%} of the clicks have no look"
    found = [Finding("looks recorded", text, BAD if looks.faults else GOOD)]
    found += [Finding("looks consistent?", f"no: {fault}", BAD) for fault in looks.faults]
    if looks.alarms is None:
        assert looks.alarms_refused is not None
        return [*found, _refused("looks: false alarms", Refusal(looks.alarms_refused))]
    text = f"{looks.alarms.rate:.3f} ± {looks.alarms.error:.3f} by {looks.alarms.n_moved:,} documents that moved"
    return [*found, Finding("looks: false alarms", text, BAD if looks.sure_alarms else GOOD)]


def _about_rank(diagnosis: Diagnosis) -> list[Finding]:
    question = "scalar examination?"
    rank = diagnosis.rank
    if isinstance(rank, Refusal):
        return [_refused(question, rank)]
    p = rank.rates.p_values[0]
    if rank.scalar_is_enough:
        return [Finding(question, f"not contradicted: click rates may have rank 1 (p = {p:.3f})", GOOD)]
    return [Finding(question, f"no: click rates have rank {rank.rates.rank} (p = {p:.3f})", BAD)]


def _about_trust(diagnosis: Diagnosis) -> list[Finding]:
    trust = diagnosis.trust
    if isinstance(trust, Refusal):
        return [_refused("trust bias?", trust)]
    number = f"slope {trust.slope:+.2f} ({trust.low:+.2f} to {trust.high:+.2f})"
    if trust.sign == NONE:
        return [Finding("trust bias?", f"no sign of it; {number}", GOOD)]
    if trust.sign == TRUST:
        return [Finding("trust bias?", f"yes: on top less attractive documents are clicked, too; {number}", BAD)]
    return [Finding("trust bias?", f"the reverse: attractive documents gain most from the top; {number}", BAD)]


def _about_coupling(diagnosis: Diagnosis) -> list[Finding]:
    question = "observation by document?"
    found = diagnosis.coupling
    if isinstance(found, Refusal):
        return [_refused(question, found)]
    number = f"strength {found.strength:.2f} ({found.low:.2f} to {found.high:.2f}), held-out p = {found.p_value:.2g}"
    if not found.found:
        return [Finding(question, f"not found; {number}", GOOD)]
    if found.strength < NOTABLE_COUPLING:
        return [Finding(question, f"found, but weak; {number}", PLAIN)]
    also = (
        "" if isinstance(diagnosis.trust, Refusal) or diagnosis.trust.sign == NONE else " (or trust: they look alike)"
    )
    return [Finding(question, f"yes{also}; {number}; most by {', '.join(found.features)}", BAD)]


def _about_bounds(diagnosis: Diagnosis) -> list[Finding]:
    bounds = diagnosis.bounds
    if isinstance(bounds, Refusal):
        return [_refused("LBD's theorems", bounds)]
    text = (
        f"if the fitted model were true: Lipschitz could order {bounds.lipschitz_possible:.0%} of the pairs surely, "
        f"Bernoulli {bounds.bernoulli_possible:.0%}"
    )
    return [Finding("LBD's theorems", text)]


def _about_logger(diagnosis: Diagnosis) -> list[Finding]:
    found = []
    strength = diagnosis.strength
    if isinstance(strength, Refusal):
        found.append(_refused("logger", strength))
    else:
        text = f"{strength.word}: {strength.gain:+.0%} discounted relevance over a random order"
        text += f"; relevance falls to {strength.relevance[-1]:.2f} at the last position"
        found.append(Finding("logger", text))
    if not isinstance(diagnosis.shuffled, Refusal):
        mixed = diagnosis.shuffled
        text = f"{mixed.gain:+.1%} clicks a session over shuffled lists ({mixed.low:+.1%} to {mixed.high:+.1%})"
        found.append(Finding("logger, by shuffling", text))
    if not isinstance(diagnosis.order, Refusal):
        text = f"{diagnosis.order:.0%} of held-out pairs of a list (50 % is chance)"
        found.append(Finding("features predict order", text))
    return found


def _about_leaks(diagnosis: Diagnosis) -> list[Finding]:
    found = []
    leaks = diagnosis.position_leaks
    if isinstance(leaks, Refusal):
        found.append(_refused("a feature is the position?", leaks))
    elif leaks.leaks:
        text = ", ".join(f"{leak.feature} ({leak.agreement:.1%} of pairs)" for leak in leaks.leaks[:3])
        found.append(Finding("a feature is the position?", f"yes: {text}", BAD))
    else:
        text = f"no: {leaks.closest.feature} comes closest, {leaks.closest.agreement:.0%} of pairs"
        found.append(Finding("a feature is the position?", text, GOOD))
    clicks = diagnosis.click_leaks
    if isinstance(clicks, Refusal):
        found.append(_refused("a feature from clicks?", clicks))
    elif clicks.leaks:
        these = {True: ", with these very clicks", False: ""}
        text = ", ".join(
            f"{leak.feature} (correlation {leak.correlation:.2f}{these[leak.of_these_clicks]})"
            for leak in clicks.leaks[:3]
        )
        found.append(Finding("a feature from clicks?", f"yes: {text}; at most {clicks.ceiling:.2f} is plausible", BAD))
    else:
        closest = clicks.closest
        text = f"no: {closest.feature} comes closest, {closest.correlation:.2f} of at most {clicks.ceiling:.2f}"
        found.append(Finding("a feature from clicks?", text, GOOD))
    return found


def _about_categories(diagnosis: Diagnosis) -> list[Finding]:
    names = [name for name in diagnosis.log.feature_names if name in diagnosis.log.categories]
    if not names:
        return []
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    text = f"{listed}: coupling, leaks and order from features look at numbers only, and leave them out"
    return [Finding("categories", text, UNKNOWN)]


def _about_traffic(diagnosis: Diagnosis) -> list[Finding]:
    made = diagnosis.traffic
    found = [
        Finding(
            "orders of a query",
            f"{made.orders_per_query:,.1f} on average; {made.one_order:.0%} of the queries had one order only",
        ),
        Finding(
            "sessions a row", f"{made.compaction:,.1f}; the heaviest 1 % of the queries hold {made.heavy_queries:.0%}"
        ),
    ]
    if made.only_shown:
        found.append(Finding("never shown", "not known: the log holds shown documents only", UNKNOWN))
    else:
        found.append(Finding("never shown", f"{made.never_shown:.0%} of the candidates: clicks say nothing of them"))
    if made.clickless is not None:
        text = f"{made.clickless:.0%} of the sessions"
        if made.clickless_missing:
            text += ": they seem to have been left out, and every curve is too flat without them"
        found.append(Finding("without a click", text, BAD if made.clickless_missing else PLAIN))
    if made.everything_clicked:
        found.append(Finding("clicked everything", f"{made.everything_clicked:.2%} of the sessions: robots?"))
    return [*found, _about_users(diagnosis)]


def _about_users(diagnosis: Diagnosis) -> Finding:
    users = diagnosis.users
    if isinstance(users, Refusal):
        return _refused("heavy users", users)
    text = (
        f"{users.n_users:,} users; {users.heaviest} has {users.heaviest_share:.1%} of the sessions and clicks "
        f"{users.heaviest_rate:.0%} of what is shown"
    )
    if users.most is not None:
        text += f"; {users.n_capped:,} capped at {users.most:g}, {users.sessions_dropped:,.0f} sessions left out"
    return Finding("heavy users", text)


def _refused(question: str, refusal: Refusal) -> Finding:
    reason = short(refusal.reason)
    return Finding(question, reason if refusal.reason == QUICK else f"cannot be told: {reason}", UNKNOWN)


def _about_ranker(diagnosis: Diagnosis) -> list[Finding]:
    question = "one ranker?"
    if isinstance(diagnosis.ranker, Refusal):
        return [_refused(question, diagnosis.ranker)]
    found = diagnosis.ranker
    if found.which is None:
        return [Finding(question, found.line, PLAIN)]
    return [Finding(question, f"no: {found.line}. Production is --production {found.which}", BAD)]


QUESTIONS: tuple[Callable[[Diagnosis], list[Finding]], ...] = (
    _about_identification,
    _about_causes,
    _about_context,
    _about_curves,
    _about_learnt,
    _about_looks,
    _about_rank,
    _about_trust,
    _about_coupling,
    _about_bounds,
    _about_logger,
    _about_ranker,
    _about_leaks,
    _about_categories,
    _about_traffic,
)
