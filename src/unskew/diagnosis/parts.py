"""The parts of a diagnosis: what each computes and what it answers; `page` draws them.

A part that the log does not support raises an error that says why, and is a `Refusal` in the diagnosis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.data.clicks.click_log import ClickLog
from unskew.diagnosis.click_kinds import click_matrix_without_grades
from unskew.diagnosis.click_matrix import ClickMatrix
from unskew.diagnosis.click_rank import click_rank, trust_bias
from unskew.diagnosis.click_rates import click_rates, pair_causes, single_documents
from unskew.diagnosis.connectivity import Connectivity, connectivity, connectivity_by
from unskew.diagnosis.coupling import coupling
from unskew.diagnosis.examination_record import looks
from unskew.diagnosis.leaks import click_leaks, position_leaks
from unskew.diagnosis.logging_policy import LoggerStrength, logger_strength, order_from_features, shuffled_clicks
from unskew.diagnosis.model_based import LEARNT, learnt_curve, model_bounds
from unskew.diagnosis.traffic import CappedUsers, Traffic, heavy_users, scale_heavy_users, traffic
from unskew.evaluation.production import latest_ranker
from unskew.propensities.curve import Curve
from unskew.propensities.estimate import ESTIMATORS, LevelCurves, curves_by_level
from unskew.propensities.harvesting import all_pairs
from unskew.propensities.position_pairs import intervention_coverage
from unskew.propensities.randomization import display
from unskew.reporting.answers import BAD, GOOD, UNKNOWN, Finding, Refusal, all_known, attempt, known, needed, reasons

if TYPE_CHECKING:
    from unskew.diagnosis.assemble import Diagnosis

QUICK = "skipped by --quick"
RARE = 0.01  # significance of each test that may reject scalar examination: there are three
BY_LIST = ("randomization", "display")  # estimators that need whole lists
NO_MATRIX = "it needs a click matrix, see scalar examination"


class Work:
    """A log, what several parts need of it, and the results so far.

    Args:
        users: the bias column that names users; it is counted, not used as bias.
        cap: maximum number of sessions per user.
    """

    def __init__(self, log: ClickLog, *, users: str | None, cap: float | None, seed: int):
        self.whole, self.users, self.cap, self.seed = log, users, cap, seed
        self.results: dict[str, Any] = {}

    @cached_property
    def log(self) -> ClickLog:
        """The log without the column of users, and without the excess of capped ones."""
        if self.users is None:
            return self.whole
        log = self.whole if self.cap is None else scale_heavy_users(self.whole, self.users, self.cap)
        return replace(log, bias={name: column for name, column in log.bias.items() if name != self.users})

    @cached_property
    def single(self) -> ClickLog:
        """The log as lists of one document."""
        return single_documents(self.log)

    @cached_property
    def matrix(self) -> ClickMatrix | Refusal:
        return attempt(lambda: click_matrix_without_grades(self.single, seed=self.seed))

    @property
    def curve(self) -> Curve | None:
        """The curve estimated from clicks with the narrowest interval."""
        return narrowest(all_known(self.results["curves"]).values())


def narrowest(curves: Iterable[Curve]) -> Curve | None:
    """The curve with the smallest mean width of its interval, on a log scale; None: there are none."""

    def width(curve: Curve) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            widths = np.log(curve.high / curve.low)
        return float(np.nan_to_num(widths, nan=np.inf, posinf=np.inf).mean())

    return min(curves, key=width, default=None)


def _own(result: Any, *_: Any) -> Iterable[Finding]:
    """What a result says of itself."""
    return result.findings() if hasattr(result, "findings") else [Finding("", *result.answer())]


@dataclass(frozen=True)
class Part:
    """One part: a field of `Diagnosis`."""

    compute: Callable[..., Any]  # from `Work`, and a name if there are several results
    # From the result, the diagnosis and the name; a finding without a question answers ours.
    answer: Callable[[Any, Diagnosis, str], Iterable[Finding]] | None = _own
    question: str = ""  # with {} for a name: asked of each result
    title: str = ""  # among what was not measured
    names: Callable[[Work], Iterable[str]] | None = None  # of its results, if there are several
    fitted: bool = False  # needs a trained model
    silent: bool = False  # a refusal is no answer

    def results(self, work: Work, run: Callable[[Callable[[], Any]], Any]) -> Any:
        """What it computes, by `run`; a mapping if there are several results."""
        if self.names is None:
            return run(lambda: self.compute(work))
        return {name: run(partial(self.compute, work, name)) for name in self.names(work)}

    def findings(self, result: Any, diagnosis: Diagnosis) -> Iterator[Finding]:
        """Its answers."""
        for name, each in (result if "{}" in self.question else {"": result}).items():
            question = self.question.format(name)
            if isinstance(each, Refusal) and not self.silent:
                yield Finding(question, each.short if each.reason == QUICK else f"unknown: {each.short}", UNKNOWN)
            elif not isinstance(each, Refusal) and self.answer is not None:
                for entry in self.answer(each, diagnosis, name):
                    yield replace(entry, question=entry.question or question)

    def refused(self, result: Any) -> dict[str, str]:
        """What was not measured, and why."""
        results = result if self.names is not None else {"": result}
        return reasons({self.title.format(name): each for name, each in results.items()}) if self.title else {}


def _users(work: Work) -> CappedUsers:
    if work.users is None:
        raise ValueError(
            "a log counts sessions, not users: pass the bias column with users (--users COLUMN), or cap users when "
            "you ingest the log (unskew ingest --user COLUMN=N)"
        )
    return heavy_users(work.whole, work.users, work.cap)


def _across_versions(work: Work) -> Curve:
    if not work.results["causes"].features:
        raise ValueError("no document was moved by a change of its features alone")
    return all_pairs(work.single, seed=work.seed, across_versions=True)


def _connectivity(work: Work) -> Connectivity:
    coverage = known(work.results["coverage"])
    return connectivity(work.single, rates=work.results["rates"], coverage=coverage, n_sessions=work.log.n_sessions)


def _estimators(work: Work) -> dict[str, Callable[..., Curve]]:
    return {**ESTIMATORS, **({} if work.log.display_probabilities is None else {"display": display})}


def _curve(work: Work, name: str) -> Curve:
    return _estimators(work)[name](work.log if name in BY_LIST else work.single, seed=work.seed)


def _matrix(work: Work, why_not: str = "") -> ClickMatrix:
    return needed(Refusal(why_not) if why_not and isinstance(work.matrix, Refusal) else work.matrix)


def _strength(work: Work) -> LoggerStrength:
    if work.curve is None:
        raise ValueError("it needs an examination curve")
    return logger_strength(work.results["rates"], work.curve)


def _about_factors(links: Connectivity, *_: Any) -> Iterator[Finding]:
    if links.connected:
        yield Finding("", f"yes: documents link all {len(links.groups[0])} factors", GOOD)
    else:
        yield Finding("", f"no: {links.factor} fall into {len(links.groups)} groups", BAD)


def _about_context(levels: LevelCurves, diagnosis: Diagnosis, name: str) -> Iterator[Finding]:
    """A context feature that changes examination but is not a bias column yet."""
    if name in diagnosis.log.bias:
        return
    if levels.apart is None:
        yield Finding("", "equal for all levels within the intervals", GOOD)
        return
    *pair, position = levels.apart
    values = ", ".join(
        f"{curve.spelled(int(np.searchsorted(curve.positions, position)))} for {level}"
        for level, curve in levels.curves.items()
        if level in pair
    )
    text = f"differs: at position {position + 1} {values}; ingest it with --bias {name} as well"
    yield Finding("", text, BAD)


def _about_curves(curves: Mapping[str, Curve | Refusal], diagnosis: Diagnosis, _: str) -> Iterator[Finding]:
    """What the estimators of the curve say, which is one answer."""
    curve, supported = diagnosis.curve, all_known(curves)
    if curve is None:
        links = known(diagnosis.connectivity)
        linked = links is not None and links.connected
        text = "too few clicks on documents that moved" if linked else "documents do not link all positions"
        yield Finding("", f"unknown: {text}", BAD)
        return
    refused = [name for name in curves if name not in supported]
    text = f"{curve.values[-1]:.2f} at position {curve.positions[-1] + 1} ({curve.low[-1]:.2f} to {curve.high[-1]:.2f})"
    text += f" by {curve.estimator}; supported: {', '.join(supported)}"
    yield Finding("", text + (f"; not supported: {', '.join(refused)}" if refused else ""), GOOD)


def _about_traffic(result: Traffic, diagnosis: Diagnosis, _: str) -> Iterator[Finding]:
    names = [name for name in diagnosis.log.feature_names if name in diagnosis.log.categories]
    if names:
        listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        text = f"{listed}: the tests of coupling, leaks and order use numeric features only and ignore them"
        yield Finding("categories", text, UNKNOWN)
    yield from result.findings()


# In the order of the answers; a part may use the results of those above it.
PARTS: dict[str, Part] = {
    "rates": Part(lambda work: click_rates(work.single), None),
    "coverage": Part(lambda work: intervention_coverage(work.single), None, title="coverage", silent=True),
    "connectivity": Part(_connectivity, question="positions linked?"),
    "by_column": Part(
        lambda work, name: connectivity_by(work.log, name),
        _about_factors,
        "linked, with {}?",
        names=lambda work: work.log.bias,
    ),
    "causes": Part(
        lambda work: pair_causes(work.log),
        lambda causes, all_parts, _: causes.findings(
            known(all_parts.curves["all_pairs"]), known(all_parts.across_versions)
        ),
    ),
    "across_versions": Part(_across_versions, None, silent=True),
    "by_context": Part(
        lambda work, name: curves_by_level(work.log, name, seed=work.seed),
        _about_context,
        "examination by {}",
        names=lambda work: work.log.context_names,
        silent=True,
    ),
    "curves": Part(_curve, _about_curves, "examination curve", "curve, {}", names=_estimators),
    "learnt": Part(
        lambda work, name: learnt_curve(work.log, name, seed=work.seed),
        lambda curve, *_: [Finding("", f"{curve.spelled(-1)} at the last position; depends on its model")],
        question="curve learned by {}",
        title="learned curve, {}",
        names=lambda _: LEARNT,
        fitted=True,
        silent=True,
    ),
    "looks": Part(lambda work: looks(work.log, seed=work.seed), silent=True),
    "rank": Part(
        lambda work: click_rank(_matrix(work), significance=RARE, seed=work.seed),
        question="scalar examination?",
        title="click matrix",
    ),
    "trust": Part(lambda work: trust_bias(_matrix(work, NO_MATRIX)), question="trust bias?"),
    "coupling": Part(
        lambda work: coupling(work.single, seed=work.seed),
        lambda result, all_parts, _: [Finding("", *result.answer(known(all_parts.trust)))],
        "examination by document?",
        "coupling",
    ),
    "bounds": Part(
        lambda work: model_bounds(work.log, seed=work.seed),
        question="LBD's theorems",
        title="theorems of LBD",
        fitted=True,
    ),
    "strength": Part(_strength, question="logging policy", title="strength of the logging policy"),
    "shuffled": Part(
        lambda work: shuffled_clicks(work.log),
        question="logging policy, by shuffling",
        title="shuffled lists",
        silent=True,
    ),
    "order": Part(
        lambda work: order_from_features(work.log, seed=work.seed),
        lambda share, *_: [Finding("", f"{share:.0%} of held-out document pairs (50% is chance)")],
        "features predict order",
        silent=True,
    ),
    "ranker": Part(lambda work: latest_ranker(work.log), question="one ranker?"),
    "position_leaks": Part(
        lambda work: position_leaks(work.log, seed=work.seed),
        question="feature encodes position?",
        title="features that encode the position",
    ),
    "click_leaks": Part(
        lambda work: click_leaks(work.single, seed=work.seed),
        question="feature computed from clicks?",
        title="features computed from clicks",
    ),
    "traffic": Part(lambda work: traffic(work.log), _about_traffic),
    "users": Part(_users, question="heavy users", title="users"),
}
