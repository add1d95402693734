r"""Attention: examination is learned from a record of it, relevance from clicks given examination (docs/attention.md).

Assumes $P(c) = P(r \mid x)\,o_k(x)$, and a record of examination (viewport, hover), perhaps for only part of the
sessions: $P(\text{recorded}) = f + (1 - f)\,\hat o_k(x)$ with $\mathrm{logit}\,\hat o_k(x) = b_k + g_k(x)$, $b$ a table
of positions and $g$ a network of the document. Examination learns from the record alone, by cross-entropy.
Relevance learns from clicks:

* `learn="product"`: by the listwise softmax on $r + \log \hat o$;
* `learn="weights"`: by the listwise softmax on clicks divided by $\hat o$, each weight at most `max_weight`.

Misses that do not depend on the document only scale $\hat o$ and change nothing. Pass the rate $f$ of false alarms
(`false_alarms`), or estimate it from documents that moved (`false_alarms=none`; see `data.clicks.examination_record`).
A record that grows with interest is partly relevance; `unskew diagnose` detects this only if it is strong.

Relation to others: `ipw` with `estimator=seen` estimates one curve by position from the same record; `low_rank` with
`choose=seen` uses it only for the parameter that clicks do not identify. `lbd` and `low_rank` learn examination that
depends on the document from clicks alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.examination_record import examination_rates, recorded
from unskew.data.clicks.examination_record import false_alarms as estimate_false_alarms
from unskew.data.clicks.shard_batches import ShardBatches
from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.method import Method, Stage, Terms
from unskew.networks.observation import PositionObservation, RunningEstimate, showings, weighted_mean
from unskew.networks.registry import Problem
from unskew.options import Limits, NotNegative, Positive

HIGHEST_RATE = 0.99
MEAN_RATE = 0.05
UNSURE = 0.01  # largest harmless standard error of the rate of false alarms; an error of .05 cost .07 nDCG@10
UNSURE_RATE = (
    "the rate of false alarms is %.3f ± %.3f, too uncertain to correct for: shuffle lists, or swap the first "
    "document with another, in a share of the sessions (swapping neighbors is not enough), or pass the rate as "
    "false_alarms"
)

logger = logging.getLogger(__name__)


class Attention(Method):
    r"""Examination from its record, relevance from clicks given examination.

    Args:
        false_alarms: $f$, probability that a document that was not examined is recorded; none: estimated from documents
            that moved.
        learn: how relevance learns from clicks, product or weights.
        max_weight: largest weight of a click, for `learn="weights"`; none: no bound.
        observation_hidden: layers of the network of $g$; default: those of the ranker.
        observation_rate: learning-rate factor of the table $b$, whose logits move one by one.
    """

    paper = "this project, docs/attention.md"
    assumes = "examination was recorded, at least in part of the sessions; P(click) = examination × relevance"
    click_model = "softmax"
    rate: Tensor

    def __init__(
        self,
        problem: Problem,
        *,
        false_alarms: Annotated[float, Limits(0, below=1)] | None = 0.0,
        learn: Literal["product", "weights"] = "product",
        max_weight: Positive | None = 100.0,
        observation_hidden: Sequence[int] | None = None,
        observation_rate: NotNegative = 10.0,
    ):
        super().__init__()
        self.estimates = false_alarms is None
        self.learn = learn
        self.max_weight = max_weight
        self.observation_rate = observation_rate
        self.n_positions = problem.n_positions
        self.relevance = problem.new_ranker()
        self.observation = PositionObservation(problem)
        self.dependence: nn.Module = problem.new_layers(problem.n_positions, observation_hidden)
        self.mean = RunningEstimate(torch.zeros(problem.n_positions), MEAN_RATE)
        self.register_buffer("rate", torch.tensor([false_alarms or 0.0, 0.0]))  # and its standard error

    def stages(self) -> list[Stage]:
        return [Stage("train", self.loss, {self.observation: self.observation_rate, self: 1.0})]

    def loss(self, lists: ClickedLists) -> Terms:
        logits = self.look_logits(lists)
        log_seen = F.logsigmoid(logits).detach()
        scores = lists.apply(self.relevance)
        if self.learn == "product":
            clicks = losses.softmax(scores + log_seen, lists.clicks, lists.mask)
        else:
            weights = (-log_seen).clamp(max=losses.LARGEST_EXPONENT).exp().clamp(max=self.max_weight or float("inf"))
            clicks = losses.softmax(scores, lists.clicks * weights.masked_fill(~lists.mask, 0.0), lists.mask)
        return {"clicks": clicks, "looks": self._cost_of_looks(logits, lists)}

    def look_logits(self, lists: ClickedLists) -> Tensor:
        r"""$\mathrm{logit}\,\hat o$ of each document at its position, `[batch, docs]`."""
        places = lists.positions.clamp(max=self.n_positions - 1)
        outputs = lists.per_document(self.dependence)
        if self.training:
            mean = weighted_mean(outputs.detach(), showings(lists).unsqueeze(-1), (0, 1))
            self.mean.update(mean, lists.mask.any())
        by_document = outputs.gather(-1, places.unsqueeze(-1)).squeeze(-1)
        return self.observation(lists.positions, lists.bias) + by_document

    def click_logits(self, lists: ClickedLists) -> Tensor:
        return lists.apply(self.relevance) + F.logsigmoid(self.look_logits(lists))

    def examination(self) -> Tensor:
        """Examination, relative to the top, of a document with the mean of $g$."""
        log_seen = F.logsigmoid(self.observation.average_logits() + self.mean.value)
        return (log_seen - log_seen[0]).exp()

    def prepare(self, logs: Mapping[str, Any]) -> Mapping[str, Any]:
        log = logs["clicks"]
        if self.estimates and isinstance(log, ShardBatches):
            log = log.folder.without_features()
        if isinstance(log, ClickLog):
            recorded(log)
        if self.estimates:
            found = estimate_false_alarms(log)
            most = np.nanmin(examination_rates(log))  # false alarms cannot exceed the record of any position
            if found.error > UNSURE:
                logger.warning(UNSURE_RATE, found.rate, found.error)
            self.rate.copy_(torch.tensor([min(max(found.rate, 0.0), most, HIGHEST_RATE), found.error]))
        return logs

    def findings(self) -> dict[str, Any]:
        if not self.estimates:
            return {}
        return {"false_alarms": {"rate": float(self.rate[0]), "standard_error": float(self.rate[1])}}

    def _cost_of_looks(self, logits: Tensor, lists: ClickedLists) -> Tensor:
        """Cross-entropy of the record, summed over the sessions that recorded examination."""
        if lists.seen is None or lists.seen_sessions is None:
            raise ValueError(
                "attention needs recorded examination: ingest the log with --seen COLUMN or --seen-event TYPE"
            )
        alarms = self.rate[0].to(logits.dtype)
        noted = torch.logaddexp(alarms.log(), torch.log1p(-alarms) + F.logsigmoid(logits))
        passed = torch.log1p(-alarms) + F.logsigmoid(-logits)
        cost = lists.seen * noted + (lists.seen_sessions.unsqueeze(-1) - lists.seen) * passed
        return -cost.masked_fill(~lists.mask, 0.0).sum()
