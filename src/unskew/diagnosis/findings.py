"""Findings: the results of a diagnosis, one sentence each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unskew.diagnosis.advice import NOTABLE_COUPLING
from unskew.diagnosis.assemble import QUICK, Diagnosis, Refusal
from unskew.diagnosis.click_rank import NONE, TRUST
from unskew.propensities.curve import Curve

GOOD, PLAIN, BAD, UNKNOWN = "good", "plain", "bad", "unknown"
LONGEST_REASON = 160  # characters of a refusal; the report has the rest
MARKS = (". ", ": ")
ENOUGH_LINKED = 100  # impressions on the weakest link


@dataclass(frozen=True)
class Finding:
    """One question and its answer."""

    question: str
    answer: str
    tone: str = PLAIN  # good, plain, bad or unknown


def findings(diagnosis: Diagnosis) -> list[Finding]:
    """The answers of all parts."""
    return [finding for ask in QUESTIONS for finding in ask(diagnosis)]


def short(reason: str) -> str:
    """A refusal, shortened to its first sentences if it is too long."""
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
        by_features = (
            "equal features link them all" if links.connected_by_features else "equal features do not link them either"
        )
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
    """The causes of position changes, and the curve if changed features were used."""
    causes = diagnosis.causes
    counts = f"{causes.randomization:,} by randomization, {causes.ranker:,} by a ranker change"
    if not causes.features:
        return [Finding("position pairs by cause", counts)] if causes.randomization + causes.ranker else []
    text = f"{counts}; {causes.features:,} by changed features, which are not used"
    found = [Finding("position pairs by cause", text)]
    curve, other = diagnosis.curves.get("all_pairs"), diagnosis.across_versions
    if isinstance(other, Refusal):
        return found
    if not isinstance(curve, Curve):
        text = "they would link all positions, but a changed feature (a price) also changes relevance"
        return [*found, Finding("with changed features", f"{text}; to use them anyway: across_versions=True", UNKNOWN)]
    _, here, there = np.intersect1d(curve.positions, other.positions, return_indices=True)
    apart = (other.low[there] > curve.high[here]) | (other.high[there] < curve.low[here])
    if not apart.any():
        return [*found, Finding("with changed features", "they give the same curve within its interval", GOOD)]
    at = int(np.flatnonzero(apart)[-1])
    one, two = curve.spelled(int(here[at])), other.spelled(int(there[at]))
    text = f"they give another curve: {two} at position {curve.positions[here[at]] + 1}, but {one} within versions; "
    return [*found, Finding("with changed features", text + "the changed features also changed relevance", BAD)]


def _about_context(diagnosis: Diagnosis) -> list[Finding]:
    """Context features that change examination but are not bias columns yet."""
    found = []
    for name, levels in diagnosis.by_context.items():
        if isinstance(levels, Refusal) or name in diagnosis.log.bias:
            continue
        question = f"examination by {name}"
        if levels.apart is None:
            found.append(Finding(question, "equal for all levels within the intervals", GOOD))
            continue
        one, other, position = levels.apart
        texts = [
            f"{curve.spelled(int(np.searchsorted(curve.positions, position)))} for {level}"
            for level, curve in levels.curves.items()
            if level in (one, other)
        ]
        text = f"differs: at position {position + 1} {', '.join(texts)}; ingest it with --bias {name} as well"
        found.append(Finding(question, text, BAD))
    return found


def _about_curves(diagnosis: Diagnosis) -> list[Finding]:
    refused = [name for name, curve in diagnosis.curves.items() if isinstance(curve, Refusal)]
    told = [name for name in diagnosis.curves if name not in refused]
    curve = diagnosis.curve
    if curve is None:
        return [Finding("examination curve", "no estimator can identify it from this log", BAD)]
    text = f"{curve.values[-1]:.2f} at position {curve.positions[-1] + 1} ({curve.low[-1]:.2f} to {curve.high[-1]:.2f})"
    text += f" by {curve.estimator}; supported: {', '.join(told)}"
    return [Finding("examination curve", text + (f"; not supported: {', '.join(refused)}" if refused else ""), GOOD)]


def _about_learnt(diagnosis: Diagnosis) -> list[Finding]:
    found = []
    for name, curve in diagnosis.learnt.items():
        if not isinstance(curve, Refusal):
            last = f"{curve.values[-1]:.2f} ({curve.low[-1]:.2f} to {curve.high[-1]:.2f})"
            found.append(Finding(f"curve learned by {name}", f"{last} at the last position; depends on its model"))
    return found


def _about_looks(diagnosis: Diagnosis) -> list[Finding]:
    """The record of examination, compared with clicks, and its faults."""
    looks = diagnosis.looks
    if isinstance(looks, Refusal):
        return []
    rates = looks.rates
    text = f"{looks.share:.0%} of the sessions; {rates[0]:.2f} at the top, {rates[-1]:.2f} at position {len(rates)}"
    if looks.blind:
        text += f"; at least {looks.blind:.1%} of the clicks have no recorded examination"
    found = [Finding("recorded examination", text, BAD if looks.faults else GOOD)]
    found += [Finding("record consistent?", f"no: {fault}", BAD) for fault in looks.faults]
    if looks.alarms is None:
        assert looks.alarms_refused is not None
        return [*found, _refused("record: false alarms", Refusal(looks.alarms_refused))]
    text = f"{looks.alarms.rate:.3f} ± {looks.alarms.error:.3f} by {looks.alarms.n_moved:,} documents that moved"
    return [*found, Finding("record: false alarms", text, BAD if looks.sure_alarms else GOOD)]


def _about_rank(diagnosis: Diagnosis) -> list[Finding]:
    question = "scalar examination?"
    rank = diagnosis.rank
    if isinstance(rank, Refusal):
        return [_refused(question, rank)]
    p = rank.rates.p_values[0]
    if rank.scalar_is_enough:
        return [Finding(question, f"not rejected: click rates may have rank 1 (p = {p:.3f})", GOOD)]
    return [Finding(question, f"no: click rates have rank {rank.rates.rank} (p = {p:.3f})", BAD)]


def _about_trust(diagnosis: Diagnosis) -> list[Finding]:
    trust = diagnosis.trust
    if isinstance(trust, Refusal):
        return [_refused("trust bias?", trust)]
    number = f"slope {trust.slope:+.2f} ({trust.low:+.2f} to {trust.high:+.2f})"
    if trust.sign == NONE:
        return [Finding("trust bias?", f"no sign; {number}", GOOD)]
    if trust.sign == TRUST:
        return [Finding("trust bias?", f"yes: at the top, less attractive documents are clicked too; {number}", BAD)]
    return [Finding("trust bias?", f"the reverse: attractive documents gain most from the top; {number}", BAD)]


def _about_coupling(diagnosis: Diagnosis) -> list[Finding]:
    question = "examination by document?"
    found = diagnosis.coupling
    if isinstance(found, Refusal):
        return [_refused(question, found)]
    number = f"strength {found.strength:.2f} ({found.low:.2f} to {found.high:.2f}), held-out p = {found.p_value:.2g}"
    if not found.found:
        return [Finding(question, f"not found; {number}", GOOD)]
    if found.strength < NOTABLE_COUPLING:
        return [Finding(question, f"found, but weak; {number}", PLAIN)]
    also = (
        ""
        if isinstance(diagnosis.trust, Refusal) or diagnosis.trust.sign == NONE
        else " (or trust bias: the signs are the same)"
    )
    return [Finding(question, f"yes{also}; {number}; strongest features: {', '.join(found.features)}", BAD)]


def _about_bounds(diagnosis: Diagnosis) -> list[Finding]:
    bounds = diagnosis.bounds
    if isinstance(bounds, Refusal):
        return [_refused("LBD's theorems", bounds)]
    text = (
        f"if the fitted model is right, Lipschitz orders {bounds.lipschitz_possible:.0%} of the pairs with certainty, "
        f"Bernoulli {bounds.bernoulli_possible:.0%}"
    )
    return [Finding("LBD's theorems", text)]


def _about_logger(diagnosis: Diagnosis) -> list[Finding]:
    found = []
    strength = diagnosis.strength
    if isinstance(strength, Refusal):
        found.append(_refused("logging policy", strength))
    else:
        text = f"{strength.word}: {strength.gain:+.0%} discounted relevance compared with a random order"
        text += f"; relevance {strength.relevance[-1]:.2f} at the last position, relative to the first"
        found.append(Finding("logging policy", text))
    if not isinstance(diagnosis.shuffled, Refusal):
        mixed = diagnosis.shuffled
        text = (
            f"{mixed.gain:+.1%} clicks per session compared with shuffled lists ({mixed.low:+.1%} to {mixed.high:+.1%})"
        )
        found.append(Finding("logging policy, by shuffling", text))
    if not isinstance(diagnosis.order, Refusal):
        text = f"{diagnosis.order:.0%} of held-out document pairs (50% is chance)"
        found.append(Finding("features predict order", text))
    return found


def _about_leaks(diagnosis: Diagnosis) -> list[Finding]:
    found = []
    leaks = diagnosis.position_leaks
    if isinstance(leaks, Refusal):
        found.append(_refused("feature encodes position?", leaks))
    elif leaks.leaks:
        text = ", ".join(f"{leak.feature} ({leak.agreement:.1%} of pairs)" for leak in leaks.leaks[:3])
        found.append(Finding("feature encodes position?", f"yes: {text}", BAD))
    else:
        text = f"no: {leaks.closest.feature} is closest, {leaks.closest.agreement:.0%} of pairs"
        found.append(Finding("feature encodes position?", text, GOOD))
    clicks = diagnosis.click_leaks
    if isinstance(clicks, Refusal):
        found.append(_refused("feature computed from clicks?", clicks))
    elif clicks.leaks:
        these = {True: ", using these very clicks", False: ""}
        text = ", ".join(
            f"{leak.feature} (correlation {leak.correlation:.2f}{these[leak.of_these_clicks]})"
            for leak in clicks.leaks[:3]
        )
        found.append(
            Finding("feature computed from clicks?", f"yes: {text}; at most {clicks.ceiling:.2f} is plausible", BAD)
        )
    else:
        closest = clicks.closest
        text = (
            f"no: {closest.feature} is closest, correlation {closest.correlation:.2f} of at most {clicks.ceiling:.2f}"
        )
        found.append(Finding("feature computed from clicks?", text, GOOD))
    return found


def _about_categories(diagnosis: Diagnosis) -> list[Finding]:
    names = [name for name in diagnosis.log.feature_names if name in diagnosis.log.categories]
    if not names:
        return []
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    text = f"{listed}: the tests of coupling, leaks and order use numeric features only and ignore them"
    return [Finding("categories", text, UNKNOWN)]


def _about_traffic(diagnosis: Diagnosis) -> list[Finding]:
    made = diagnosis.traffic
    found = [
        Finding(
            "orders per query",
            f"{made.orders_per_query:,.1f} on average; {made.one_order:.0%} of the queries had a single order",
        ),
        Finding(
            "sessions per list",
            f"{made.compaction:,.1f}; the heaviest 1% of the queries have {made.heavy_queries:.0%} of the sessions",
        ),
    ]
    if made.only_shown:
        found.append(
            Finding(
                "never shown",
                "unknown: the log contains only shown documents; ingest --features keeps the other candidates",
                UNKNOWN,
            )
        )
    else:
        found.append(Finding("never shown", f"{made.never_shown:.0%} of the candidates: clicks say nothing about them"))
    if made.clickless is not None:
        text = f"{made.clickless:.0%} of the sessions"
        if made.clickless_missing:
            text += ": they seem to have been removed; without them every curve is too flat"
        found.append(Finding("sessions without clicks", text, BAD if made.clickless_missing else PLAIN))
    if made.everything_clicked:
        found.append(Finding("clicked everything", f"{made.everything_clicked:.2%} of the sessions, perhaps robots"))
    return [*found, _about_users(diagnosis)]


def _about_users(diagnosis: Diagnosis) -> Finding:
    users = diagnosis.users
    if isinstance(users, Refusal):
        return _refused("heavy users", users)
    text = (
        f"{users.n_users:,} users; {users.heaviest} has {users.heaviest_share:.1%} of the sessions and clicks "
        f"{users.heaviest_rate:.0%} of the impressions"
    )
    if users.most is not None:
        text += f"; {users.n_capped:,} capped at {users.most:g}, {users.sessions_dropped:,.0f} sessions left out"
    return Finding("heavy users", text)


def _refused(question: str, refusal: Refusal) -> Finding:
    reason = short(refusal.reason)
    return Finding(question, reason if refusal.reason == QUICK else f"unknown: {reason}", UNKNOWN)


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
