"""Advice: which methods are worth training on a log, which cannot work, and why.

The rules in `RULES` use only facts of the diagnosis; None means that the log does not identify the fact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unskew.diagnosis.assemble import Diagnosis, Refusal
from unskew.diagnosis.click_rank import TRUST
from unskew.diagnosis.logging_policy import STRONG
from unskew.methods import METHODS

TRAIN, TRY, DOUBTFUL, CANNOT = "train", "try", "doubtful", "cannot work"
WORDS = (TRAIN, TRY, DOUBTFUL, CANNOT)  # from the best

# Compared on every log where they can work: plain clicks, and examination by position, or by position and document.
ALWAYS = ("naive", "dla", "two_tower", "lbd", "low_rank")

ORDER_IS_FEATURES = 0.9  # share of document pairs whose order the features predict
NOTABLE_COUPLING = 0.05  # standard deviation of the exponent; smaller coupling changes little
FEW_CLICKS = 1_000
FLAT_CURVE = 0.9  # examination of the lowest position relative to the top


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
    links = None if isinstance(diagnosis.connectivity, Refusal) else diagnosis.connectivity
    rank = None if isinstance(diagnosis.rank, Refusal) else diagnosis.rank
    coupling = None if isinstance(diagnosis.coupling, Refusal) else diagnosis.coupling
    looks = None if isinstance(diagnosis.looks, Refusal) else diagnosis.looks
    return Facts(
        n_positions=len(diagnosis.rates.positions),
        n_clicks=log.n_clicks,
        connected=links is not None and links.connected,
        connected_by_features=links is not None and links.connected_by_features,
        curve=None if curve is None else curve.estimator,
        flat=curve is not None and bool(curve.values.min() > FLAT_CURVE),
        scalar=None if rank is None else rank.scalar_is_enough,
        dimensions=None if rank is None else rank.dimensions,
        trust=None if isinstance(diagnosis.trust, Refusal) else diagnosis.trust.sign == TRUST,
        coupled=None if coupling is None else coupling.found and coupling.strength >= NOTABLE_COUPLING,
        strong_logger=None if isinstance(diagnosis.strength, Refusal) else diagnosis.strength.gain >= STRONG,
        features_know_order=None if isinstance(diagnosis.order, Refusal) else diagnosis.order >= ORDER_IS_FEATURES,
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


Judged = tuple[str, str]
Rule = Callable[[Facts], Judged]


def advise(known: Facts) -> tuple[Advice, ...]:
    """Advice for every method, the best first."""
    found = [Advice(name, *_judge(RULES.get(name, _other(name)), name, known)) for name in METHODS]
    return tuple(sorted(found, key=lambda entry: WORDS.index(entry.word)))


def worth_comparing(methods: Sequence[Advice]) -> list[str]:
    """The methods that `unskew compare` tries by default: those worth training, and ALWAYS; plain clicks first."""
    words = {entry.method: entry.word for entry in methods}
    always = [name for name in ALWAYS if words.get(name, CANNOT) != CANNOT]
    worth = [entry.method for entry in methods if entry.word == TRAIN and METHODS[entry.method].has_ranker]
    return list(dict.fromkeys([*always, *worth]))


def _judge(rule: Rule, name: str, known: Facts) -> Judged:
    if not known.n_clicks:
        return CANNOT, "nothing was clicked"
    if known.n_positions < 2 and name not in ("naive", "labelled"):
        return DOUBTFUL, "there is only one position, so no position bias to correct: naive does the same"
    if not known.features and not METHODS[name].takes_ids:
        return CANNOT, "it needs features, and the log has none"
    return rule(known)


def _other(name: str) -> Rule:
    """The rule of a method that has no entry in `RULES`."""
    return lambda known: (TRY, f"valid if {METHODS[name].assumes}, which the diagnosis does not test")  # noqa: ARG005


def _naive(known: Facts) -> Judged:
    if known.flat:
        return TRAIN, "examination is nearly equal at all positions: there is little to correct"
    return TRAIN, "the baseline to beat"


def _labelled(known: Facts) -> Judged:  # noqa: ARG001
    return CANNOT, "it needs judged queries, and a click log has none"


def scalar_violated(known: Facts) -> str | None:
    """Why one number per position is not enough; None if it is."""
    if known.coupled and known.trust:
        return "examination depends on the document, or clicks at the top need less relevance (trust)"
    if known.coupled:
        return "examination also depends on the document"
    if known.trust:
        return "clicks at the top need less relevance (trust)"
    if known.scalar is False:
        return "no scalar examination fits these clicks"
    return None


def _ipw(known: Facts) -> Judged:
    if known.curve is None and known.looks and not known.faulty_looks:
        return TRY, "clicks do not identify the curve, but the record of examination does: pass estimator=seen"
    if known.curve is None:
        return CANNOT, "this log does not identify the curve: pass known propensities"
    violated = scalar_violated(known)
    if violated:
        return DOUBTFUL, f"{violated}; a curve by position corrects only part of it"
    return TRAIN, f"the curve is identified without a model ({known.curve})"


def _joint_learner(known: Facts) -> Judged:
    """Methods that learn one number per position along with the ranker."""
    violated = scalar_violated(known)
    if violated:
        return DOUBTFUL, f"{violated}; it assumes that examination depends on position alone"
    if known.connected:
        return TRAIN, "nothing contradicts its assumption, and documents link all positions"
    if known.connected_by_features:
        return TRY, "only equal features link the positions: valid if relevance is a function of the features"
    if known.features_know_order:
        return (
            TRY,
            "no document links the positions, and features predict the order: nothing in the log can check its curve",
        )
    return TRY, "no document links the positions: its curve depends on the ranker, and nothing in the log can check it"


def _regression_em(known: Facts) -> Judged:
    if known.graded:
        return CANNOT, "it needs binary clicks, and the feedback is graded"
    if known.clickless_missing:
        return DOUBTFUL, "it needs sessions without clicks, and they seem to be missing"
    return _joint_learner(known)


def _pair_debias(known: Facts) -> Judged:
    if not known.joint:
        return CANNOT, "it needs a joint log (which documents were clicked together): ingest with --joint"
    return _joint_learner(known)


def _affine(known: Facts) -> Judged:
    if known.graded:
        return CANNOT, "it needs binary clicks, and the feedback is graded"
    return _affine_softmax(known)


def _affine_softmax(known: Facts) -> Judged:
    return _made_for("trust bias", known.trust, "examination by document", known.coupled)


def _made_for(what: str, found: bool | None, other: str, other_found: bool | None) -> Judged:
    """The advice for a method that corrects one bias whose signs another bias shares."""
    if found is None:
        return TRY, f"for {what}, which this log can neither show nor exclude"
    if found:
        alike = f" (but {other} has the same signs)" if other_found else ""
        return TRAIN, f"made for {what}, and the log shows signs of it{alike}"
    return TRY, f"made for {what}, and the log shows no sign of it: little to gain"


def _vectorization(known: Facts) -> Judged:
    if known.scalar is None:
        return TRY, "for clicks that no scalar examination fits, which this log can neither show nor exclude"
    if known.scalar:
        return TRY, "a scalar examination is enough here: little to gain"
    return TRAIN, f"no scalar examination fits these clicks; pass dimensions={max(known.dimensions or 2, 2)}"


def _lbd(known: Facts) -> Judged:
    return _made_for("examination that depends on the document", known.coupled, "trust bias", known.trust)


def _low_rank(known: Facts) -> Judged:
    if known.coupled and known.trust:
        return TRY, "for examination that depends on the document; it fails under trust bias, which has the same signs"
    return _lbd(known)


def _attention(known: Facts) -> Judged:
    if not known.looks:
        return CANNOT, "it needs recorded examination, and the log has none"
    if known.faulty_looks:
        return DOUBTFUL, f"it depends on the record of examination: {known.faulty_looks}"
    if known.false_alarms:
        return TRAIN, "examination is recorded, with false alarms: pass false_alarms=none to estimate their rate"
    return TRAIN, "examination is recorded, and the record is consistent"


def _hte(known: Facts) -> Judged:
    if not known.interventions:
        return CANNOT, "it needs marked interventions (shuffled or swapped sessions), and the log has none"
    if known.coupled:
        return TRAIN, "interventions are marked, and it lets the effect of a position depend on the document"
    return TRY, "interventions are marked; if examination depends on position alone, ipw uses them better"


def _upe(known: Facts) -> Judged:
    if not known.policy_scores:
        return CANNOT, "it needs the production score of every shown document: ingest with --policy-score"
    if scalar_violated(known):
        return DOUBTFUL, f"{scalar_violated(known)}; it assumes that examination depends on position alone"
    if not known.connected:
        return TRY, "made for confounded propensities; without linked positions nothing in the log can check it"
    if known.strong_logger or known.features_know_order:
        return TRAIN, "made for confounded propensities, and features predict the order of this log"
    return TRY, "made for strong logging policies; this one confounds little"


def _iobm(known: Facts) -> Judged:
    if not known.joint:
        return CANNOT, "it needs a joint log (which documents were clicked together): ingest with --joint"
    return TRY, "if one click makes another more or less likely, which the diagnosis does not test"


def _xpa(known: Facts) -> Judged:  # noqa: ARG001
    return TRY, "if neighboring documents change examination, which the diagnosis does not test"


def _click_model(name: str) -> Rule:
    """The rule of a click model."""

    def rule(known: Facts) -> Judged:
        if known.graded:
            return CANNOT, "it needs binary clicks, and the feedback is graded"
        if not known.joint:
            return CANNOT, "it needs a joint log (which documents were clicked together): ingest with --joint"
        if not METHODS[name].has_ranker:
            return TRY, "a baseline that predicts clicks but does not rank"
        if known.clickless_missing:
            return DOUBTFUL, "it needs sessions without clicks, and they seem to be missing"
        if not known.features:
            return (
                TRAIN,
                "it learns documents by their ids; compare click models with unskew evaluate on held-out clicks",
            )
        return TRY, f"valid if {METHODS[name].assumes}, which the diagnosis does not test"

    return rule


# A method without an entry may work if its assumption holds.
RULES: dict[str, Rule] = {
    "naive": _naive,
    "ipw": _ipw,
    "dla": _joint_learner,
    "two_tower": _joint_learner,
    "regression_em": _regression_em,
    "pair_debias": _pair_debias,
    "cdla_ld": _joint_learner,
    "affine": _affine,
    "affine_softmax": _affine_softmax,
    "vectorization": _vectorization,
    "lbd": _lbd,
    "low_rank": _low_rank,
    "attention": _attention,
    "hte": _hte,
    "upe": _upe,
    "iobm": _iobm,
    "xpa": _xpa,
    "labelled": _labelled,
    **{name: _click_model(name) for name, method in METHODS.items() if method.takes_ids},
}
