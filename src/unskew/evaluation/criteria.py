"""Criteria that compare rankers by held-out clicks, without labels; each with what it can and cannot show.

A criterion gives one value per held-out query, whose mean is the estimate (see `held_out`), or raises `NotMeasured`
with the reason. `unskew reproduce selection` measures how often each of them chooses well (docs/selection.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from torch.nn import functional as F

from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.evaluation import agreement, offline
from unskew.evaluation.agreement import score_likelihood
from unskew.evaluation.evaluate import predicting
from unskew.evaluation.held_out import HeldOut, NotMeasured, Vector, of_ratio
from unskew.methods import losses
from unskew.methods.click_models.click_model import ClickModel
from unskew.methods.method import Method
from unskew.options import check_choice
from unskew.reporting.answers import Refusal, all_known, attempt, needed, reasons

# Chooses among methods without labels, and comes first in the table of `unskew compare`: the criterion that most often
# came within 1% of the best method in 21 simulated worlds (docs/selection.md).
DEFAULT_CRITERION = "dr"
NO_CURVE, NO_MODEL = Refusal("no propensities"), Refusal("there is no model of relevance")


@dataclass(frozen=True, eq=False)
class Contender:
    """A ranker as criteria use it."""

    scores: Vector  # [documents] of the held-out log, of the shown candidates
    scores_of_all: Vector | None = None  # the same with every document of a query as candidate; None: not known
    click_model: str | None = None  # the method's predictions, softmax or bernoulli; None: it predicts no clicks
    log_likelihood: Vector | None = None  # [lists, docs], of the held-out clicks; 0 in padding
    pattern_likelihood: Vector | None = None  # [lists, docs], the same with each click given those above, if known


@dataclass(frozen=True, eq=False)
class Evidence:
    """The held-out log, and what was estimated for it from other queries."""

    held_out: HeldOut
    propensities: Vector | Refusal = NO_CURVE  # [positions]
    relevance: Vector | Refusal = NO_MODEL  # [documents], for doubly robust estimates


@dataclass(frozen=True)
class Criterion:
    """A way to compare rankers, and what it can and cannot show."""

    measure: Callable[[Contender, Evidence], Vector] = field(repr=False)
    title: str  # a column of a table
    measures: str
    can_tell: str
    cannot_tell: str
    higher_is_better: bool = True
    # Whether documents are compared only at equal positions. The order of production is the position itself, so its
    # score has nothing to add here, however good it is: such a criterion cannot rank production.
    given_position: bool = False


def click_log_likelihood(method: Method, log: ClickLog) -> Vector | None:
    """Log-likelihood of the clicks on each document, `[lists, docs]`, under what a method predicts.

    None: it predicts none.

    Args:
        log: with transformed features, as the method was trained on.
    """
    if method.click_model is None:
        return None
    per_document = np.empty(log.mask.shape)
    with predicting(method):
        for rows, lists in ClickBatches(log).by_query():
            logits = method.click_logits(lists)
            assert logits is not None
            if method.click_model == "softmax":
                likelihood = lists.clicks * losses.log_shares(logits, lists.mask)
            else:
                unclicked = lists.sessions.unsqueeze(-1) - lists.clicks
                likelihood = -(lists.clicks * F.softplus(-logits) + unclicked * F.softplus(logits))
            per_document[rows] = likelihood.masked_fill(~lists.mask, 0.0).double().numpy()
    return per_document


def pattern_log_likelihood(method: Method, log: ClickLog) -> Vector | None:
    """Log-likelihood of the clicks on each document, `[lists, docs]`, each click given those above it.

    None: the method predicts no single clicks, or its clicks depend on each other and the log does not keep patterns.
    """
    if not isinstance(method, ClickModel):
        return click_log_likelihood(method, log) if method.click_model == "bernoulli" else None
    if log.patterns is None:
        return None
    per_document = np.zeros(log.mask.shape)
    with predicting(method):
        for rows, lists in ClickBatches(log, detail="patterns").by_query():
            likelihood = method.conditional(lists).log_likelihood(lists.clicks, lists.sessions, lists.mask)
            np.add.at(per_document, log.patterns.lists[rows], likelihood.double().numpy())
    return per_document


def click_likelihood(contender: Contender, evidence: Evidence) -> Vector:
    """Mean log-likelihood of a click's place in its list under the method's own click model."""
    held_out = evidence.held_out
    clicks = np.where(held_out.log.mask, held_out.log.clicks, 0.0).sum(axis=1)
    return of_ratio(
        held_out.sum_by_query(held_out.query_of_list, _likelihood_of(contender, "softmax").sum(axis=1)),
        held_out.sum_by_query(held_out.query_of_list, clicks),
    )


def perplexity(contender: Contender, evidence: Evidence) -> Vector:
    """The exponential of the negative mean log-likelihood of an impression, clicked or not, averaged over positions."""
    return _perplexity(_likelihood_of(contender, "bernoulli"), evidence.held_out)


def conditional_perplexity(contender: Contender, evidence: Evidence) -> Vector:
    """The same, every click predicted from those above it."""
    _likelihood_of(contender, "bernoulli")
    if contender.pattern_likelihood is None:
        raise NotMeasured("the log does not keep which documents were clicked together")
    return _perplexity(contender.pattern_likelihood, evidence.held_out)


def _perplexity(log_likelihood: Vector, held_out: HeldOut) -> Vector:
    """One value per query, whose mean is the perplexity of all sessions, as `click_prediction` defines it."""
    log = held_out.log
    by_position = []
    for place in range(log.n_positions):
        here = log.mask & (log.positions == place)
        shown = held_out.sum_by_query(held_out.query_of_list, log.sessions * here.sum(axis=1))
        if shown.any():
            likelihood = held_out.sum_by_query(held_out.query_of_list, np.where(here, log_likelihood, 0.0).sum(axis=1))
            mean = likelihood.sum() / shown.sum()
            by_position.append(np.exp(-mean) * (1 - (likelihood - mean * shown) / shown.mean()))
    return np.mean(by_position, axis=0)


def _likelihood_of(contender: Contender, click_model: str) -> Vector:
    if contender.click_model is None or contender.log_likelihood is None:
        raise NotMeasured("predicts no clicks")
    if contender.click_model != click_model:
        raise NotMeasured(
            "predicts single clicks: see perplexity"
            if click_model == "softmax"
            else "predicts the place of a click: see click likelihood"
        )
    return contender.log_likelihood


def _dr(contender: Contender, evidence: Evidence) -> Vector:
    propensities = _propensities(evidence)
    return offline.dr(contender.scores, evidence.held_out, propensities, _relevance(evidence))


def _dr_of_all(contender: Contender, evidence: Evidence) -> Vector:
    propensities = _propensities(evidence)
    if contender.scores_of_all is None:
        raise NotMeasured("scores shown documents only")
    return offline.dr(contender.scores_of_all, evidence.held_out, propensities, _relevance(evidence), candidates="all")


def _propensities(evidence: Evidence) -> Vector:
    return needed(evidence.propensities, NotMeasured)


def _relevance(evidence: Evidence) -> Vector:
    return needed(evidence.relevance, NotMeasured)


PRODUCTION_IS_POSITION = "cannot rate production: its order is the position"
NEVER_SHOWN = "anything about documents that were never shown"

CRITERIA: dict[str, Criterion] = {
    "score_likelihood": Criterion(
        measure=lambda contender, evidence: score_likelihood(contender.scores, evidence.held_out),
        title="score likelihood",
        measures="log-likelihood of the place of a click in its list, given the scores and a parameter per position",
        can_tell="whether the scores explain clicks beyond position; needs no randomized rankings, no propensities",
        cannot_tell="whether scores reflect relevance or visual attraction (it rewards eye-catching documents); "
        f"how good production is, because its order is the position; {NEVER_SHOWN}",
        given_position=True,
    ),
    "pair_agreement": Criterion(
        measure=lambda contender, evidence: agreement.same_query(contender.scores, evidence.held_out),
        title="pair agreement",
        measures="how often, of two documents shown for one query at the same position, the clicked one scores higher",
        can_tell="the order of relevance, whatever the examination curve and the trust bias",
        cannot_tell="anything in a log without varied rankings; whether scores reflect relevance or visual attraction; "
        f"{NEVER_SHOWN}",
    ),
    "top_agreement": Criterion(
        measure=lambda contender, evidence: agreement.at_the_top(contender.scores, evidence.held_out),
        title="agreement at the top",
        measures="the same for pairs at the top position only",
        can_tell="the same, nearly unaffected by visual attraction: almost everybody examines the top",
        cannot_tell=f"anything about queries whose top document never changes; it uses few sessions; {NEVER_SHOWN}",
    ),
    "pair_agreement_across": Criterion(
        measure=lambda contender, evidence: agreement.across_queries(contender.scores, evidence.held_out),
        title="agreement across queries",
        measures="the same for two documents of any queries, with scores minus the mean of their query",
        can_tell="the same as pair agreement, also without varied rankings",
        cannot_tell="small differences: it mixes queries with many and with few relevant documents; "
        f"how good production is, because its order is the position; {NEVER_SHOWN}",
        given_position=True,
    ),
    "ips": Criterion(
        measure=lambda contender, evidence: offline.ips(contender.scores, evidence.held_out, _propensities(evidence)),
        title="IPS DCG@10",
        measures="DCG@10 of the shown documents in the new order, each click divided by its propensity",
        can_tell="the value of the ranking, without bias if clicks are position-based and the curve is right",
        cannot_tell=f"anything under trust bias, cascades or visual attraction; its variance is high; {NEVER_SHOWN}",
    ),
    "snips": Criterion(
        measure=lambda contender, evidence: offline.snips(contender.scores, evidence.held_out, _propensities(evidence)),
        title="SNIPS",
        measures="mean DCG discount of the clicked documents of a query, clicks weighted as in IPS",
        can_tell="the same with less variance; every query has equal weight, however many clicks it has",
        cannot_tell=f"the same as IPS; it is slightly biased for queries with few clicks; {NEVER_SHOWN}",
    ),
    "dr": Criterion(
        measure=_dr,
        title="DR DCG@10",
        measures="like IPS, with a model of relevance to reduce the variance",
        can_tell="the same as IPS with less variance, if the model of relevance is right where examination is rare",
        cannot_tell=f"the same as IPS; how good a ranker is that beats the model low in the list; {NEVER_SHOWN}",
    ),
    "dr_all": Criterion(
        measure=_dr_of_all,
        title="DR, all documents",
        measures="like DR, with all documents of the query; the model predicts those never shown",
        can_tell="the value of a ranking that includes documents never shown, if the model of relevance is right",
        cannot_tell="how good a ranker is that beats the model: where nothing was shown, the model judges it",
    ),
    "reweighted_clicks": Criterion(
        measure=lambda contender, evidence: offline.reweighted_clicks(contender.scores, evidence.held_out),
        title="reweighted clicks",
        measures="click rate of the top 10, from impressions that the ranking would show at the same position, each "
        "divided by its logged display probability",
        can_tell="the expected clicks, without a model of examination, if a stochastic ranker logs its probabilities",
        cannot_tell="anything where production is nearly deterministic: it uses only matching impressions; effects of "
        f"neighboring documents; {NEVER_SHOWN}",
    ),
    "click_likelihood": Criterion(
        measure=click_likelihood,
        title="click likelihood",
        measures="log-likelihood of the place of a click in its list, under the method's own click model",
        can_tell="how well a method predicts clicks; useful for choosing a learning rate or a number of steps",
        cannot_tell="which ranker is better: a model that explains clicks by examination alone (Unlimited) fits clicks "
        "best and ranks worst; anything about production, which predicts no clicks",
    ),
    "perplexity": Criterion(
        measure=perplexity,
        title="perplexity",
        measures="perplexity of every impression, clicked or not, by the method's own click model; mean over positions",
        can_tell="the same as click likelihood, for methods that predict single clicks (regression_em, click models)",
        cannot_tell="the same as click likelihood; methods that predict the place of a click have no perplexity",
        higher_is_better=False,
    ),
    "conditional_perplexity": Criterion(
        measure=conditional_perplexity,
        title="conditional perplexity",
        measures="perplexity with every click predicted from those above it",
        can_tell="which click model best predicts how the clicks of a list depend on each other",
        cannot_tell="which ranker is better; anything from a log that only counts clicks",
        higher_is_better=False,
    ),
}


def measure_all(
    contender: Contender, evidence: Evidence, names: Sequence[str] = tuple(CRITERIA)
) -> tuple[dict[str, Vector], dict[str, str]]:
    """Values per query by criterion, and the reasons for those that cannot be measured."""
    measured = {name: attempt(partial(CRITERIA[name].measure, contender, evidence), NotMeasured) for name in names}
    return all_known(measured), reasons(measured)


def measure_production(production: Contender, evidence: Evidence) -> tuple[dict[str, Vector], dict[str, str]]:
    """The same for the production ranking, without the criteria that cannot rank it."""
    able = [name for name, entry in CRITERIA.items() if not entry.given_position]
    values, why_not = measure_all(production, evidence, able)
    unable = {name: PRODUCTION_IS_POSITION for name, entry in CRITERIA.items() if entry.given_position}
    return values, why_not | unable


def leading_criterion(measured: Mapping[str, Sequence[str]], asked: str | None = None) -> str:
    """The criterion that decides: the one asked for, otherwise the default, otherwise the first that all have.

    Args:
        measured: contender -> its measurable criteria.
    """
    if asked is not None:
        check_choice(asked, CRITERIA, "criterion")
    for name in (asked,) if asked else (DEFAULT_CRITERION, *CRITERIA):
        if all(name in names for names in measured.values()):
            return str(name)
    return asked or DEFAULT_CRITERION
