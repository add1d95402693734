"""Advice: which methods are worth training on a log, which cannot work, and why; the verdict says it in sentences.

The rules use only facts of the diagnosis; None means that the log does not identify the fact. The first rule that
applies decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unskew.command_line.repeating import command_line
from unskew.diagnosis.click_rank import TRUST
from unskew.diagnosis.connectivity import Connectivity, Link
from unskew.diagnosis.logging_policy import STRONG
from unskew.methods import METHODS
from unskew.reporting.answers import Refusal, known

if TYPE_CHECKING:
    from unskew.diagnosis.assemble import Diagnosis

TRAIN, TRY, DOUBTFUL, CANNOT = "train", "try", "doubtful", "cannot work"
TITLES = {  # from the best
    TRAIN: "Worth training",
    TRY: "Possible, but with little to gain or no way to check it",
    DOUBTFUL: "Doubtful, because the log contradicts an assumption or cannot test it",
    CANNOT: "Cannot work on this log",
}
WORDS = tuple(TITLES)

# Compared on every log where they can work: raw clicks, and examination by position, or by position and document.
ALWAYS = ("naive", "dla", "two_tower", "lbd", "low_rank")

ORDER_IS_FEATURES = 0.9  # share of document pairs whose order the features predict
FEW_CLICKS = 1_000
FLAT_CURVE = 0.9  # examination of the lowest position relative to the top
MOST_LINKS = 3  # links named in a sentence; more are summarized


@dataclass(frozen=True)
class Facts:
    """The facts that the rules use."""

    n_positions: int
    n_clicks: float
    connected: bool  # by documents
    connected_by_features: bool
    curve: str | None  # an estimator of the curve that the log supports
    flat: bool  # the curve is nearly flat
    scalar: bool | None  # rank one is not rejected
    dimensions: int | None
    trust: bool | None
    coupled: bool | None
    strong_logger: bool | None
    features_know_order: bool | None
    interventions: bool
    policy_scores: bool
    joint: bool
    graded: bool
    clickless_missing: bool
    features: bool = True  # documents have features to rank by
    looks: bool = False  # examination was recorded
    faulty_looks: str | None = None  # inconsistencies of the record of examination
    false_alarms: bool = False  # the record contains documents that were not examined


@dataclass(frozen=True)
class Advice:
    """The advice for one method."""

    method: str
    word: str  # one of WORDS
    reason: str


def facts(diagnosis: Diagnosis) -> Facts:
    """The facts of a diagnosis that decide which methods can work."""
    log, curve = diagnosis.log, diagnosis.curve
    links, rank, coupling = known(diagnosis.connectivity), known(diagnosis.rank), known(diagnosis.coupling)
    looks, trust = known(diagnosis.looks), known(diagnosis.trust)
    strength, order = known(diagnosis.strength), known(diagnosis.order)
    return Facts(
        n_positions=len(diagnosis.rates.positions),
        n_clicks=log.n_clicks,
        connected=links is not None and links.connected,
        connected_by_features=links is not None and links.connected_by_features,
        curve=None if curve is None else curve.estimator,
        flat=curve is not None and bool(curve.values.min() > FLAT_CURVE),
        scalar=None if rank is None else rank.scalar_is_enough,
        dimensions=None if rank is None else rank.dimensions,
        trust=None if trust is None else trust.sign == TRUST,
        coupled=None if coupling is None else coupling.notable,
        strong_logger=None if strength is None else strength.gain >= STRONG,
        features_know_order=None if order is None else order >= ORDER_IS_FEATURES,
        interventions=log.interventions is not None and bool((log.interventions.values > 0).any()),
        policy_scores=log.policy_scores is not None,
        looks=looks is not None,
        faulty_looks=None if looks is None else "; ".join(looks.faults) or None,
        false_alarms=looks is not None and looks.sure_alarms,
        joint=log.joint,
        graded=log.graded,
        clickless_missing=diagnosis.traffic.clickless_missing,
        features=log.n_features > 0,
    )


Rule = tuple[object, str, str]  # whether it applies, the word, and the reason


def advise(given: Facts) -> tuple[Advice, ...]:
    """Advice for every method, the best first."""
    rules = _rules(given)
    found = []
    for name, method in METHODS.items():
        one_position = given.n_positions < 2 and name not in ("naive", "labelled")
        own = [
            (not given.n_clicks, CANNOT, "nothing was clicked"),
            (
                one_position,
                DOUBTFUL,
                "there is only one position, so no position bias to correct: naive does the same",
            ),
            (not given.features and not method.takes_ids, CANNOT, "it needs features, and the log has none"),
            *(_click_model(given, name) if method.takes_ids else rules.get(name, ())),
            (True, TRY, f"valid if {method.assumes}, which the diagnosis does not test"),
        ]
        found.append(Advice(name, *next((word, reason) for applies, word, reason in own if applies)))
    return tuple(sorted(found, key=lambda entry: WORDS.index(entry.word)))


def worth_comparing(methods: Sequence[Advice]) -> list[str]:
    """The methods that `unskew compare` tries by default: those worth training, and ALWAYS; raw clicks first."""
    words = {entry.method: entry.word for entry in methods}
    always = [name for name in ALWAYS if words.get(name, CANNOT) != CANNOT]
    worth = [entry.method for entry in methods if entry.word == TRAIN and METHODS[entry.method].has_ranker]
    return list(dict.fromkeys([*always, *worth]))


def scalar_violated(given: Facts) -> str | None:
    """Why one number per position is not enough; None if it is."""
    if given.coupled and given.trust:
        return "examination depends on the document, or clicks at the top need less relevance (trust)"
    if given.coupled:
        return "examination also depends on the document"
    if given.trust:
        return "clicks at the top need less relevance (trust)"
    if given.scalar is False:
        return "no scalar examination fits these clicks"
    return None


NOT_BINARY = "it needs binary clicks, and the feedback is graded"
NOT_JOINT = "it needs a joint log (which documents were clicked together): ingest with --joint"
NO_CLICKLESS = "it needs sessions without clicks, and they seem to be missing"


def _rules(given: Facts) -> dict[str, list[Rule]]:
    """Rules by method; one without rules may work if its assumption holds."""
    by_position = _by_position(given)
    lbd = _made_for("examination that depends on the document", given.coupled, "trust bias", given.trust)
    affine = _made_for("trust bias", given.trust, "examination by document", given.coupled)
    fails = "for examination that depends on the document; it fails under trust bias, which has the same signs"
    return {
        "naive": [
            (given.flat, TRAIN, "examination is nearly equal at all positions: there is little to correct"),
            (True, TRAIN, "the baseline to beat"),
        ],
        "labelled": [(True, CANNOT, "it needs judged queries, and a click log has none")],
        **dict.fromkeys(("ipw", "doubly_robust"), _ipw(given)),
        **dict.fromkeys(("dla", "two_tower", "cdla_ld"), by_position),
        "regression_em": [
            (given.graded, CANNOT, NOT_BINARY),
            (given.clickless_missing, DOUBTFUL, NO_CLICKLESS),
            *by_position,
        ],
        "pair_debias": [(not given.joint, CANNOT, NOT_JOINT), *by_position],
        "affine": [(given.graded, CANNOT, NOT_BINARY), *affine],
        "affine_softmax": affine,
        "vectorization": _vectorization(given),
        "lbd": lbd,
        "low_rank": [(given.coupled and given.trust, TRY, fails), *lbd],
        "attention": _attention(given),
        "hte": _hte(given),
        "upe": _upe(given),
        "iobm": [
            (not given.joint, CANNOT, NOT_JOINT),
            (True, TRY, "if one click makes another more or less likely, which the diagnosis does not test"),
        ],
        "xpa": [(True, TRY, "if neighboring documents change examination, which the diagnosis does not test")],
    }


def _by_position(given: Facts) -> list[Rule]:
    """Of methods that learn one number per position along with the ranker."""
    violated = scalar_violated(given)
    by_features = (
        "documents never move, but features overlap between positions, which is what it needs without swaps: valid if "
        "relevance is a function of the features"
    )
    unlinked = (
        "no document links the positions: swap some documents, since without swaps it needs features that overlap"
    )
    return [
        (violated, DOUBTFUL, f"{violated}; it assumes that examination depends on position alone"),
        (given.connected, TRAIN, "documents link all positions, and nothing large contradicts its assumption"),
        (given.connected_by_features, TRY, by_features),
        (
            given.features_know_order,
            TRY,
            f"{unlinked} between positions, and they predict the order: nothing in the log can check its curve",
        ),
        (True, TRY, f"{unlinked} between positions; its curve depends on the ranker, and nothing can check it"),
    ]


def _ipw(given: Facts) -> list[Rule]:
    violated = scalar_violated(given)
    recorded = "clicks do not identify the curve, but the record of examination does: pass estimator=seen"
    return [
        (given.curve is None and given.looks and not given.faulty_looks, TRY, recorded),
        (given.curve is None, CANNOT, "this log does not identify the curve: pass known propensities"),
        (violated, DOUBTFUL, f"{violated}; a curve by position corrects only part of it"),
        (True, TRAIN, f"the curve is identified without a model ({given.curve})"),
    ]


def _made_for(what: str, found: bool | None, other: str, other_found: bool | None) -> list[Rule]:
    """Of a method that corrects one bias whose signs another bias shares."""
    alike = f" (but {other} has the same signs)" if other_found else ""
    return [
        (found is None, TRY, f"for {what}, which this log can neither show nor exclude"),
        (found, TRAIN, f"made for {what}, and the log shows signs of it{alike}"),
        (True, TRY, f"made for {what}, and the log shows no sign of it: little to gain"),
    ]


def _vectorization(given: Facts) -> list[Rule]:
    unfit = "no scalar examination fits these clicks"
    untold = "for clicks that no scalar examination fits, which this log can neither show nor exclude"
    return [
        (given.scalar is None, TRY, untold),
        (given.scalar, TRY, "a scalar examination is enough here: little to gain"),
        (True, TRAIN, f"{unfit}; pass dimensions={max(given.dimensions or 2, 2)}"),
    ]


def _attention(given: Facts) -> list[Rule]:
    alarms = "examination is recorded, with false alarms: pass false_alarms=none to estimate their rate"
    return [
        (not given.looks, CANNOT, "it needs recorded examination, and the log has none"),
        (given.faulty_looks, DOUBTFUL, f"it depends on the record of examination: {given.faulty_looks}"),
        (given.false_alarms, TRAIN, alarms),
        (True, TRAIN, "examination is recorded, and the record is consistent"),
    ]


def _hte(given: Facts) -> list[Rule]:
    unmarked = "it needs marked interventions (shuffled or swapped sessions), and the log has none"
    by_document = "interventions are marked, and it lets the effect of a position depend on the document"
    return [
        (not given.interventions, CANNOT, unmarked),
        (given.coupled, TRAIN, by_document),
        (True, TRY, "interventions are marked; if examination depends on position alone, ipw uses them better"),
    ]


def _upe(given: Facts) -> list[Rule]:
    violated, made_for = scalar_violated(given), "made for confounded propensities"
    unlinked = f"{made_for}; without linked positions nothing in the log can check it"
    confounded = given.strong_logger or given.features_know_order
    return [
        (
            not given.policy_scores,
            CANNOT,
            "it needs the production score of every shown document: ingest with --policy-score",
        ),
        (violated, DOUBTFUL, f"{violated}; it assumes that examination depends on position alone"),
        (not given.connected, TRY, unlinked),
        (confounded, TRAIN, f"{made_for}, and features predict the order of this log"),
        (True, TRY, "made for strong logging policies; this one confounds little"),
    ]


def _click_model(given: Facts, name: str) -> list[Rule]:
    by_ids = "it learns documents by their ids; compare click models with unskew evaluate on held-out clicks"
    return [
        (given.graded, CANNOT, NOT_BINARY),
        (not given.joint, CANNOT, NOT_JOINT),
        (not METHODS[name].has_ranker, TRY, "a baseline that predicts clicks but does not rank"),
        (given.clickless_missing, DOUBTFUL, NO_CLICKLESS),
        (not given.features, TRAIN, by_ids),
    ]


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
