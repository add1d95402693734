"""The verdict: what to do with a log, in a few sentences, and the advice for each method."""

from __future__ import annotations

from dataclasses import dataclass

from unskew.diagnosis.advice import (
    CANNOT,
    DOUBTFUL,
    FEW_CLICKS,
    TRAIN,
    TRY,
    Advice,
    advise,
    facts,
    scalar_violated,
    worth_comparing,
)
from unskew.diagnosis.assemble import Diagnosis, Refusal
from unskew.diagnosis.connectivity import Connectivity, Link
from unskew.diagnosis.findings import short

MOST_LINKS = 3  # links named in a sentence; more are summarized


@dataclass(frozen=True)
class Verdict:
    """The verdict on a log."""

    lines: tuple[str, ...]
    methods: tuple[Advice, ...]


def verdict(diagnosis: Diagnosis) -> Verdict:
    """Which methods to train, which cannot work, and what to do first."""
    known = facts(diagnosis)
    methods = advise(known)
    lines = [_can_tell(diagnosis)]
    if 0 < known.n_clicks < FEW_CLICKS:
        lines.append(f"With {known.n_clicks:,.0f} clicks every answer is uncertain: collect more before training.")
    lines += _before(diagnosis)
    for word, phrase in (
        (TRAIN, "Worth training: {}."),
        (TRY, "Possible, but with little to gain or no way to check it: {}."),
        (DOUBTFUL, "Doubtful, because the log contradicts an assumption or cannot test it: {}."),
        (CANNOT, "Cannot work on this log: {}."),
    ):
        names = [entry.method for entry in methods if entry.word == word]
        if names:
            lines.append(phrase.format(", ".join(names)))
    if known.n_clicks:
        lines.append(f"By default, unskew compare tries {', '.join(worth_comparing(methods))}.")
    return Verdict(tuple(lines), methods)


def _can_tell(diagnosis: Diagnosis) -> str:
    if not facts(diagnosis).n_clicks:
        return "The log has no clicks, so nothing can be learned from it. Check the click column."
    links = diagnosis.connectivity
    if isinstance(links, Refusal):
        return f"It is unknown whether the log can separate relevance from position: {short(links.reason)}."
    if [len(group) for group in links.groups] == [1]:
        return "All documents were shown at one position: there is no order to learn from and no position bias."
    if links.connected:
        told = "The log identifies relevance, up to scale, if examination depends on the position alone."
        violated = scalar_violated(facts(diagnosis))
        return told if violated is None else f"{told} But this does not seem to hold: {violated}."
    return (
        "The log alone does not identify relevance: its positions fall into "
        f"{len(links.groups)} groups that no document links."
    )


def _before(diagnosis: Diagnosis) -> list[str]:
    """What to do before training."""
    lines = []
    links = diagnosis.connectivity
    if not isinstance(links, Refusal) and not links.connected:
        lines.append(how_to_link(links))
    leaks = [] if isinstance(diagnosis.position_leaks, Refusal) else [e.feature for e in diagnosis.position_leaks.leaks]
    if leaks:
        lines.append(f"Leave out {', '.join(leaks)}: nearly identical to the shown order.")
    clicked = [] if isinstance(diagnosis.click_leaks, Refusal) else [e.feature for e in diagnosis.click_leaks.leaks]
    if clicked:
        lines.append(f"Leave out {', '.join(clicked)}: apparently computed from clicks.")
    if diagnosis.traffic.clickless_missing:
        lines.append("Add the sessions without clicks: without them every curve is too flat.")
    return lines


def how_to_link(links: Connectivity) -> str:
    """How to link the positions."""
    merge = links.merges[0]
    merged = f"Merging {_pair(merge)} (click rates {merge.rate_ratio:.2f} to 1) does the least harm"
    if len(links.merges) > MOST_LINKS:
        merged += f", but all {len(links.merges)} required merges would amount to naive"
    swapped = "neighbors" if len(links.links) > MOST_LINKS else ", ".join(_pair(link) for link in links.links)
    return (
        f"To link them with an error of about 10%, shuffle {_of_sessions(links.shuffle_share or 0.0)}, or swap "
        f"{swapped} in {_of_sessions(sum(link.share for link in links.links))}. {merged}."
    )


def _of_sessions(share: float) -> str:
    return f"{_percent(share)} of as many sessions" if share <= 1 else f"{share:.1f} times as many sessions"


def _pair(link: Link) -> str:
    return f"positions {link.one + 1} and {link.other + 1}"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"
