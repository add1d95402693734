"""The verdict: what to do with a log, in a few sentences, and the advice for each method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unskew.command_line.repeating import command_line
from unskew.diagnosis.advice import (
    FEW_CLICKS,
    TITLES,
    TRAIN,
    Advice,
    Facts,
    advise,
    facts,
    scalar_violated,
    worth_comparing,
)
from unskew.diagnosis.connectivity import Connectivity, Link
from unskew.reporting.answers import Refusal, known

if TYPE_CHECKING:
    from unskew.diagnosis.assemble import Diagnosis

MOST_LINKS = 3  # links named in a sentence; more are summarized


@dataclass(frozen=True)
class Verdict:
    """The verdict on a log."""

    lines: tuple[str, ...]
    methods: tuple[Advice, ...]
    command: str  # what to do next

    def by_reason(self) -> list[tuple[str, str, str]]:
        """Word, reason and the methods that share them, the best word first."""
        methods: dict[tuple[str, str], list[str]] = {}
        for entry in self.methods:
            methods.setdefault((entry.word, entry.reason), []).append(entry.method)
        return [(*key, ", ".join(names)) for key, names in methods.items()]


def verdict(diagnosis: Diagnosis) -> Verdict:
    """Which methods to train, which cannot work, and what to do first."""
    given = facts(diagnosis)
    methods = advise(given)
    lines = [_can_tell(diagnosis, given)]
    if 0 < given.n_clicks < FEW_CLICKS:
        lines.append(f"With {given.n_clicks:,.0f} clicks every answer is uncertain: collect more before training.")
    lines += _before(diagnosis)
    for word, title in TITLES.items():
        names = [entry.method for entry in methods if entry.word == word]
        if names:
            lines.append(f"{title}: {', '.join(names)}.")
    if given.n_clicks:
        lines.append(f"By default, unskew compare tries {', '.join(worth_comparing(methods))}.")
    command = _next_command(diagnosis, given, methods)
    return Verdict((*lines, f"Next: {command}"), methods, command)


def _next_command(diagnosis: Diagnosis, given: Facts, methods: tuple[Advice, ...]) -> str:
    """The one command that helps most."""
    if not given.n_clicks:
        return "unskew ingest EVENTS --out LOG --click COLUMN"
    if _leaking(diagnosis):
        return "unskew ingest EVENTS --out LOG --feature NAME, once per feature to keep"
    if given.features:
        return command_line("auto", {"log": diagnosis.name, "out": "model"})
    able = next((each.method for each in methods if each.word == TRAIN), None)
    if able is None:
        return "unskew ingest EVENTS --features TABLE --out LOG"
    return command_line("train", {"log": diagnosis.name, "method": able, "out": "model"})


def _leaking(diagnosis: Diagnosis) -> dict[str, list[str]]:
    """The features that leak, by the reason to leave them out."""
    parts = {
        "nearly identical to the shown order": known(diagnosis.position_leaks),
        "apparently computed from clicks": known(diagnosis.click_leaks),
    }
    return {why: [leak.feature for leak in part.leaks] for why, part in parts.items() if part and part.leaks}


def _can_tell(diagnosis: Diagnosis, given: Facts) -> str:
    if not given.n_clicks:
        return "The log has no clicks, so nothing can be learned from it. Check the click column."
    links = diagnosis.connectivity
    if isinstance(links, Refusal):
        return f"It is unknown whether the log can separate relevance from position: {links.short}."
    if [len(group) for group in links.groups] == [1]:
        return "All documents were shown at one position: there is no order to learn from and no position bias."
    if not links.connected:
        groups = f"{len(links.groups)} groups that no document links"
        return f"The log alone does not identify relevance: its positions fall into {groups}."
    if given.curve is None:
        few = "but those that do have too few clicks to estimate examination: collect more"
        return f"Documents link all positions, {few}. Until then the log identifies relevance in principle only."
    identified = "The log identifies relevance, up to scale, if examination depends on the position alone."
    violated = scalar_violated(given)
    return identified if violated is None else f"{identified} But this does not seem to hold: {violated}."


def _before(diagnosis: Diagnosis) -> list[str]:
    """What to do before training."""
    links = known(diagnosis.connectivity)
    lines = [] if links is None or links.connected else [how_to_link(links)]
    lines += [f"Leave out {', '.join(names)}: {why}." for why, names in _leaking(diagnosis).items()]
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
    if share > 1:
        return f"{share:.1f} times as many sessions"
    return f"{share:{'.1%' if share < 0.1 else '.0%'}} of as many sessions"


def _pair(link: Link) -> str:
    return f"positions {link.one + 1} and {link.other + 1}"
