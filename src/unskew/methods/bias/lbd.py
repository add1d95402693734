r"""Lipschitz and Bernoulli Decoupling (LBD; Chen et al., NeurIPS 2022).

Assumes $c_k(x) = r(x)\,o_k(x)$: examination depends on the position and on the document. Both factors are functions of
the same features, so a free model of both is not identified ("Unlimited"). LBD limits observation in two ways:

* Lipschitz: a penalty $\lambda \sum_k \lVert\nabla_x \hat o_k(x)\rVert_2$ on every shown document (`penalty` is
  $\lambda$), or a network whose slope cannot exceed $\beta$ (`lipschitz="certified"`).
* Bernoulli: in training $\log \hat o$ is cancelled with probability $t$ (`cancel`), so that relevance learns to explain
  clicks without it as well. The ranker is $\hat r$ alone; outside training nothing is cancelled.

The loss is the listwise softmax cross-entropy on $\log \hat r + \gamma \log \hat o_k$, $\gamma \sim$ Bernoulli$(1-t)$.
(The paper's Eq. 2 lacks the logarithm.) The paper's ablations are in `PRESETS`.

**Scale.** The softmax leaves the scale of $\hat o$ free; theory and penalty do not: Theorems 2 to 4 need
$\hat o \le 1$, and a model that may shrink $\hat o$ as a whole escapes the penalty. So
$\hat o_k(x) = \sigma(\mathrm{logit}\,p_k + g_k(x))$, that is $\log \hat o_k(x) = b_k + h_k(x)$ with $b_k = \log p_k$,
$h_k = g_k - \log(1 + p_k(e^{g_k} - 1))$: at most 1 by construction, and $h = 0$ where $g = 0$. $p$ is a table whose
largest entry is fixed (`top_seen`), $g$ a network minus its mean over the documents of the batch (outside training: a
running mean). So $p_k$ is the examination probability of the average document, and neither can drift to 0 as a whole.
The penalty trains only $g$: because $\nabla \hat o = \hat o\,\nabla \log \hat o$ it would otherwise also change the
position table.

**Cancelling.** Within a list some documents are cancelled and others are not, so the scale matters there too.
With $\hat o \le 1$ a cancelled document counts as certainly examined (`cancel_to="sure"`, as in the theorems): it then
dominates its list, and the position curve is far too flat. In the reference program the scale is free and learned. The
default takes it from the batch: a cancelled document gets the mean of $\log \hat o$ over all showings. That is
equivalent to cancelling an $\hat o$ of another scale to 1; for whole lists (`cancel_by="list"`) it cancels out.

**Differences.** The penalty is estimated without bias from one random position of a random share of the documents
(`exact`: from all of them), and unlike the reference program's does not change with the batch size. Relevance and
observation are separate networks, clipped separately; in one trunk (`shared`, as in the reference) the penalty flattens
relevance too. The reference draws $\gamma$ for every position of a document, but only the shown one enters the loss:
that is `cancel_by="document"`. The paper's second set of outputs ("variance") is used nowhere and not built here.

Relation to others: with $t = 1$ it is `naive`; with $t = 0$ and an observation that does not depend on the document it
is `two_tower`. `low_rank` limits the number of ways in which a document changes the curve, not the slope. `attention`
learns observation from a record instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.method import Method, Stage, Terms
from unskew.networks.documents import Ranker, split_inputs
from unskew.networks.limited_observation import (
    CANCELLED_TOGETHER,
    draw_kept,
    penalized_pairs,
    showings,
    slope_lengths,
    weighted_mean,
)
from unskew.networks.lipschitz import LipschitzNetwork
from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Problem
from unskew.networks.running import RunningEstimate

# The paper's variants, as arguments of LBD.
PRESETS: dict[str, dict[str, float]] = {
    "lbd": {},
    "lbd_lips": {"cancel": 0.0},
    "lbd_ber": {"penalty": 0.0},
    "unlimited": {"cancel": 0.0, "penalty": 0.0},
}
LEVELS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "average": lambda log_seen, weights: weighted_mean(log_seen, weights, (0, 1)),
    "sure": lambda log_seen, _: torch.zeros((), dtype=log_seen.dtype, device=log_seen.device),
}
PENALIZED = {"probability": torch.exp, "log": lambda log_seen: log_seen}
LIPSCHITZ = ("penalty", "certified")
SHARED_KINDS = ("tabular", "mlp", "linear")
STEEPEST_SIGMOID = 0.25
CENTRE_RATE = 0.05
# Not 0: otherwise the penalty would start at 0, and its normal values later would look like divergence.
START = 0.3  # factor of the usual initial weights of the last layer


class LBD(Method):
    r"""Listwise softmax on relevance plus an observation that depends only weakly on the document.

    Args:
        penalty: $\lambda$, weight of the gradient of observation; 0 for none. Sums over positions and documents, as in
            the paper, but on another scale than in the reference: at 0.01 observation hardly depends on the document.
        cancel: $t$, probability that observation is cancelled in training; 1 is `naive`.
        cancel_by: what is cancelled together, a document or a whole list.
        cancel_to: how a cancelled document counts, average (examined as the mean of the batch) or sure (certainly).
        penalize: the gradient of the probability (the paper), or of its log, which has no scale.
        share: share of the documents of a batch whose penalty is computed.
        exact: compute the penalty of all documents at all positions.
        lipschitz: penalty, or certified: no penalty, but a slope of $\hat o_k$ of at most `beta` by construction.
        beta: $\beta$, Lipschitz constant of a certified observation, with respect to the inputs of the network, as the
            penalty: transformed numbers, indicators of missing values and the vectors of categories.
        shared: one network for relevance and observation, as in the reference program.
        observation_hidden: layers of the network of observation; default: those of the ranker, none for a linear one.
        top_seen: examination probability of the average document at its best position; sets the overall scale.
        observation_rate: learning-rate factor of the position table, whose logits move one by one.
    """

    paper = "Chen et al., NeurIPS 2022"
    assumes = "examination depends on position and, smoothly, on the document; P(click) = examination × relevance"
    click_model = "softmax"

    def __init__(
        self,
        problem: Problem,
        *,
        penalty: float = 0.001,
        cancel: float = 0.1,
        cancel_by: str = "document",
        cancel_to: str = "average",
        penalize: str = "probability",
        share: float = 0.25,
        exact: bool = False,
        lipschitz: str = "penalty",
        beta: float | None = None,
        shared: bool = False,
        observation_hidden: Sequence[int] | None = None,
        top_seen: float = 0.9,
        observation_rate: float = 10.0,
    ):
        super().__init__()
        _check_number("penalty", penalty, penalty >= 0, "at least 0")
        _check_number("cancel", cancel, 0 <= cancel <= 1, "from 0 to 1")
        _check_number("share", share, 0 < share <= 1, "above 0 and at most 1")
        _check_number("top_seen", top_seen, 0 < top_seen < 1, "between 0 and 1")
        if shared and observation_hidden is not None:
            raise ValueError("a shared network has the ranker's layers: leave out observation_hidden, or shared=True")
        _check_choice("cancel_by", cancel_by, CANCELLED_TOGETHER)
        _check_choice("cancel_to", cancel_to, LEVELS)
        _check_choice("penalize", penalize, PENALIZED)
        _check_choice("lipschitz", lipschitz, LIPSCHITZ)
        _check_certified(lipschitz, beta, shared=shared)
        certified = lipschitz == "certified"
        self.penalty = 0.0 if certified else penalty
        self.cancel = cancel
        self.cancel_by = cancel_by
        self.level = LEVELS[cancel_to]
        self.penalized = PENALIZED[penalize]
        self.share = share
        self.exact = exact
        self.top_seen = top_seen
        self.observation_rate = observation_rate
        self.n_positions = problem.n_positions
        self.observation = PositionObservation(problem)
        self.centre = RunningEstimate(torch.zeros(problem.n_positions), CENTRE_RATE)
        self.relevance = SharedRanker(problem) if shared else problem.new_ranker()
        if not shared:
            self.dependence = _dependence(problem, observation_hidden, beta if certified else None)

    @property
    def exempt(self) -> dict[str, str]:
        if not self.cancel and (self.exact or not self.penalty):
            return {}
        return {
            "distinct_documents_agree": "draws the documents that it penalizes: agrees in expectation",
            "padding_changes_nothing": "draws what is cancelled and what is penalized anew for every batch",
            "counts_teach_like_sessions": "cancels and penalizes row by row: both agree in expectation only",
        }

    def stages(self) -> list[Stage]:
        return [Stage("train", self.loss, {self.observation: self.observation_rate, self: 1.0})]

    def loss(self, lists: ClickedLists) -> Terms:
        scores, outputs = self._forward(lists)
        centre = self._centre_of(outputs, lists)
        log_seen = self._log_seen(outputs, centre, lists)
        kept = self._kept(lists).to(scores.dtype)
        logits = scores + kept * (log_seen - self.level(log_seen, showings(lists)))
        terms = {"clicks": losses.softmax(logits, lists.clicks, lists.mask)}
        if self.penalty:
            terms["penalty"] = self.penalty * self.steepness(lists, centre)
        return terms

    def click_logits(self, lists: ClickedLists) -> Tensor:
        scores, outputs = self._forward(lists)
        return scores + self._log_seen(outputs, self.centre.value, lists)

    def examination(self) -> Tensor:
        """How much the average document, that of the mean of $g$, is seen relative to the top."""
        return self.observation.curve()

    def seen(self, features: Tensor) -> Tensor:
        r"""$\hat o_k(x)$ of documents `[..., features]` at all positions, `[..., positions]`.

        At the average of all levels of bias columns. The scale is `top_seen`'s, not the log's.
        """
        curve = self.examination()
        log_average = (curve / curve.max()).log() + math.log(self.top_seen)
        return log_odds(log_average).add(self.deviation(features)).sigmoid()

    def deviation(self, features: Tensor) -> Tensor:
        """$g_k(x)$, examination of a document compared with the average one, in log odds, `[..., positions]`."""
        return self._outputs(features) - self.centre.value

    def steepness(self, lists: ClickedLists, centre: Tensor) -> Tensor:
        r"""$\sum_x \sum_k \lVert\nabla_x \hat o_k(x)\rVert_2$ over the showings of the batch, exact or estimated."""
        chosen = penalized_pairs(lists, lists.bias, self.n_positions, share=self.share, exact=self.exact)
        places = chosen.positions
        average = self._log_average(places, chosen.bias).detach()

        inputs, outputs_of = self._split_outputs()

        def seen(numbers: Tensor) -> Tensor:
            outputs = outputs_of(numbers).gather(-1, places.unsqueeze(-1)).squeeze(-1)
            return self.penalized(F.logsigmoid(log_odds(average) + outputs - centre[places]))

        return (chosen.weights * slope_lengths(seen, inputs(chosen.features))).sum()

    def _kept(self, lists: ClickedLists) -> Tensor:
        r"""$\gamma$: False if observation is cancelled."""
        if not self.training:
            return lists.mask
        return draw_kept(lists, self.cancel, self.cancel_by)

    def _forward(self, lists: ClickedLists) -> tuple[Tensor, Tensor]:
        """Scores `[batch, docs]` and the outputs of observation `[batch, docs, positions]`."""
        if isinstance(self.relevance, SharedRanker):
            both = lists.per_document(self.relevance.layers)
            return both[..., 0], both[..., 1:]
        return lists.apply(self.relevance), lists.per_document(self.dependence)

    def _outputs(self, features: Tensor) -> Tensor:
        """Outputs of observation, `[..., positions]`."""
        if isinstance(self.relevance, SharedRanker):
            return self.relevance.layers(features)[..., 1:]
        return self.dependence(features)

    def _split_outputs(self) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
        """The input stage, and the outputs of observation as a function of its output."""
        if isinstance(self.relevance, SharedRanker):
            inputs, layers = split_inputs(self.relevance.layers)
            return inputs, lambda numbers: layers(numbers)[..., 1:]
        return split_inputs(self.dependence)

    def _centre_of(self, outputs: Tensor, lists: ClickedLists) -> Tensor:
        """Mean outputs of the showings of the batch, `[positions]`; outside training the running mean."""
        if not self.training:
            return self.centre.value
        centre = weighted_mean(outputs, showings(lists).unsqueeze(-1), (0, 1))
        self.centre.update(centre.detach(), lists.mask.any())
        return centre

    def _log_seen(self, outputs: Tensor, centre: Tensor, lists: ClickedLists) -> Tensor:
        r"""$\log \hat o$ of each document at its position, `[batch, docs]`."""
        places = lists.positions.clamp(max=self.n_positions - 1)
        deviation = (outputs - centre).gather(-1, places.unsqueeze(-1)).squeeze(-1)
        return F.logsigmoid(log_odds(self._log_average(places, lists.bias)) + deviation)

    def _log_average(self, places: Tensor, bias: Mapping[str, Tensor]) -> Tensor:
        """$b_k$, log probability that the average document is examined at these positions."""
        tables = self.observation
        highest = (tables.logits + sum(table.amax(0) for table in tables.levels)).amax()
        relative = tables(places, bias) - highest
        if len(tables.slopes):
            relative = relative.clamp(max=0.0)  # a numeric column has no largest value to normalize by
        return relative + math.log(self.top_seen)


class SharedRanker(Ranker):
    """One network with 1 + positions outputs: the first is relevance, the others are observation."""

    def __init__(self, problem: Problem):
        super().__init__()
        network = problem.network
        if network.kind not in SHARED_KINDS:
            raise ValueError(f"a '{network.kind}' network cannot be shared: use {' or '.join(SHARED_KINDS)}")
        self.layers = problem.new_layers(1 + problem.n_positions, dropout=network.dropout)

    @property
    def pointwise(self) -> bool:
        return True

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        return self.layers(features)[..., 0]


def log_odds(log_probability: Tensor) -> Tensor:
    r"""$\log\frac{p}{1 - p}$ of $\log p < 0$."""
    return log_probability - torch.log(-torch.expm1(log_probability))


def _dependence(problem: Problem, hidden: Sequence[int] | None, beta: float | None) -> nn.Module:
    """The network of observation; nearly flat at the start, so that training begins close to `two_tower`."""
    if beta is not None:
        if hidden is None:
            hidden = () if problem.network.kind == "linear" else problem.network.hidden
        limited = LipschitzNetwork(problem.n_inputs, hidden, problem.n_positions, constant=beta / STEEPEST_SIGMOID)
        return nn.Sequential(problem.new_inputs(), limited) if problem.categories else limited
    layers = problem.new_layers(problem.n_positions, hidden)
    last = layers[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight *= START
    return layers


def _check_number(name: str, value: float, allowed: bool, rule: str) -> None:
    if not (allowed and math.isfinite(value)):
        raise ValueError(f"{name} must be {rule}, got {value}")


def _check_choice(name: str, value: str, known: Sequence[str] | Mapping) -> None:
    if value not in known:
        raise ValueError(f"unknown {name} '{value}': choose from {', '.join(known)}")


def _check_certified(lipschitz: str, beta: float | None, *, shared: bool) -> None:
    certified = lipschitz == "certified"
    if certified and (beta is None or not (beta >= 0 and math.isfinite(beta))):
        raise ValueError(f"lipschitz='certified' needs beta, the largest slope of observation, at least 0; got {beta}")
    if not certified and beta is not None:
        raise ValueError("beta applies only to lipschitz='certified': pass that as well, or penalty=... instead")
    if certified and shared:
        raise ValueError("a shared network cannot be certified: relevance may be steep; leave out shared=True")
