r"""Unconfounded Propensity Estimation (UPE; Luo et al., SIGIR 2024, arXiv:2305.09918).

Relevant documents are shown at the top, so relevance drives both position and clicks, and propensities learned from
clicks absorb part of relevance. UPE models examination *given the document* $x$ and then averages over the documents
that could be shown at a position (backdoor adjustment): $P(o \mid do(k)) = E_x[P(o \mid x, k)]$. Three stages:

1. policy: $u_0(d(x))$ learns the order of the policy that made the lists, by listwise softmax; $d$ is a network of the
   document, $u_0$ scores its vector.
2. propensity: $e(x, k) = u(d(x) + p_k)$. The vectors $p_k$ of positions and $u$ learn, from clicks weighted by inverse
   relevance as in `dla`; the documents' part $d$ does not. The ranker learns from clicks weighted by inverse
   $P(o \mid do(k))$.
3. ranking: propensities are fixed, and the ranker is trained further.

So the loss of propensities reaches neither document network nor ranker; the authors' program sends one summed gradient
into all parts, their paper does not. Our choices:

* $u$ is a separate network. With the frozen $u_0$ in its place the policy's score of a document is mistaken for its
  examination, and $p_k$ must undo that: on simulated position-based clicks the adjusted curve then *rises* towards the
  bottom.
* The average over $x$ is over the documents of each list: the list is rotated through all its rotations, so that every
  document is once at every position, instead of through random permutations. Shares are summed over the sessions of a
  batch before a ratio is formed, for each position over the lists that reach it: lists may have any length.
* $d$ is a network of one document; the paper encodes the list as a set, the authors' later program does not.
* Scores of the policy are standardized within their list, because their scale means nothing. If the log has none, its
  order is used: the target is then $\propto 1/k$, and the network estimates the policy's scores.

Relation to others: with a constant document vector it is `dla` with the table $u(d + p_k)$. `lbd` and `low_rank` also
model examination given the document, and keep its effect; `upe` averages it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.method import Method, Stage, Terms
from unskew.networks.observation import RunningEstimate, Table, sum_per_position
from unskew.networks.registry import Problem
from unskew.options import Count, Limits, NotNegative, Positive

TINY = 1e-12  # smaller shares, and smaller spreads of scores, count as 0


class UPE(Method):
    """Dual learning with propensities whose dependence on the document is averaged out.

    Args:
        policy_steps: training steps of the policy stage; the other two stages share the rest.
        width: size of the vectors of documents and positions.
        units: units of the networks before and after them.
        max_weight: largest weight of a click, of either kind; without a bound, inverse relevance may grow until
            training is taken for diverging.
        position_rate: learning rate of propensities relative to the ranker's.
    """

    paper = "Luo et al., SIGIR 2024 (UPE)"
    assumes = "examination depends on position only, but the logging policy confounds it with relevance"
    click_model = "softmax"

    def __init__(
        self,
        problem: Problem,
        *,
        policy_steps: Annotated[int, Limits(0)] = 200,
        width: Count = 64,
        units: Count = 256,
        max_weight: Positive | None = 100.0,
        position_rate: NotNegative = 3.0,
    ):
        super().__init__()
        self.relevance = problem.new_ranker()
        self.policy = PolicyNetwork(problem, width, units)
        self.position = PositionVectors(problem.n_positions, width, units)
        self.policy_steps = policy_steps
        self.max_weight = max_weight
        self.position_rate = position_rate

    def stages(self) -> Sequence[Stage]:
        return [
            Stage("policy", self.policy_loss, {self.policy: 1.0}, steps=self.policy_steps, selects=False),
            # A ranker that is good early must not stop the training of propensities.
            Stage("propensity", self.loss, {self.position: self.position_rate, self.relevance: 1.0}, selects=False),
            Stage("ranking", self.ranking_loss, {self.relevance: 1.0}),
        ]

    def policy_loss(self, lists: ClickedLists) -> Terms:
        """The policy's order, from the documents alone."""
        scores = lists.apply(self.policy)
        return {"policy": losses.distillation(scores, policy_scores(lists), lists.sessions, lists.mask)}

    def loss(self, lists: ClickedLists) -> Terms:
        """Vectors of positions from clicks over relevance, the ranker from clicks over adjusted propensities."""
        first, last = self.position.score[0], self.position.score[1:]
        assert isinstance(first, nn.Linear)
        # The first layer is linear, so it needs each vector once.
        documents, table = first(self._documents(lists)), F.linear(self.position.table, first.weight)
        positions = lists.positions.clamp(max=len(table) - 1)
        seen = last(documents + F.embedding(positions, table)).squeeze(-1)
        relevance = lists.apply(self.relevance)
        shares = adjusted_shares(scores_of_pairs(last, documents, table, positions), lists.mask)
        curve = self.position.curve.relative(shares, lists, keep=self.training)
        return {
            "observation": losses.weighted(seen, relevance, lists.clicks, lists.mask, self.max_weight),
            "relevance": losses.softmax(relevance, lists.clicks * self._weights(curve, lists), lists.mask),
        }

    def ranking_loss(self, lists: ClickedLists) -> Terms:
        """The ranker from clicks over the propensities of the stage before."""
        relevance = lists.apply(self.relevance)
        weights = self._weights(self.position.curve.value(), lists)
        return {"relevance": losses.softmax(relevance, lists.clicks * weights, lists.mask)}

    @torch.no_grad()
    def _documents(self, lists: ClickedLists) -> Tensor:
        return lists.apply(self.policy.vectors, pointwise=True)

    def _weights(self, curve: Tensor, lists: ClickedLists) -> Tensor:
        places = lists.positions.clamp(max=len(curve) - 1)
        return losses.inverse_share(curve.log()[places], lists.mask, self.max_weight)

    def click_logits(self, lists: ClickedLists) -> Tensor:
        curve = self.position.curve.value()
        places = lists.positions.clamp(max=len(curve) - 1)
        return lists.apply(self.relevance) + curve.log()[places]

    def examination(self) -> Tensor:
        return self.position.curve.value()


class PolicyNetwork(nn.Module):
    """A model of the logging policy: embeddings of documents, and the score of an embedding."""

    pointwise = True

    def __init__(self, problem: Problem, width: int, hidden: int):
        super().__init__()
        # As in the ranker, only the network of the reference programs normalizes its inputs.
        first = [nn.LayerNorm(problem.n_inputs)] if problem.network.kind == "mlp" else []
        self.inputs = problem.new_inputs()
        self.documents = nn.Sequential(
            *first, nn.Linear(problem.n_inputs, hidden), nn.LeakyReLU(inplace=True), nn.Linear(hidden, width)
        )
        self.output = scoring_layers(width, hidden)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """Scores without position, `[batch, docs]`."""
        return self.output(self.vectors(features, mask)).squeeze(-1)

    def vectors(self, features: Tensor, mask: Tensor) -> Tensor:
        """Vectors of documents, `[batch, docs, width]`."""
        return self.documents(self.inputs(features.masked_fill(~mask.unsqueeze(-1), 0.0)))


class PositionVectors(nn.Module):
    """Vectors of positions, initially 0, the network that scores them with a document, and the resulting curve."""

    def __init__(self, n_positions: int, width: int, units: int):
        super().__init__()
        self.table = Table(torch.zeros(n_positions, width))
        self.score = scoring_layers(width, units)
        self.curve = AdjustedCurve(n_positions)


class AdjustedCurve(nn.Module):
    """Adjusted propensities relative to the top, of a batch and as a running mean."""

    def __init__(self, n_positions: int, rate: float = 0.1):
        super().__init__()
        self.mean = RunningEstimate(torch.ones(n_positions), rate)

    def relative(self, shares: Tensor, lists: ClickedLists, *, keep: bool) -> Tensor:
        """The curve of a batch; positions that it does not reach keep the running mean."""
        n_positions = len(self.mean.value)
        weights = lists.sessions.unsqueeze(-1)
        here = sum_per_position(weights * shares, lists.positions, lists.mask, n_positions)
        top = sum_per_position((weights * shares[:, :1]).expand_as(shares), lists.positions, lists.mask, n_positions)
        known = top > TINY
        ratio = here.clamp(min=TINY) / top.clamp(min=TINY)
        if keep:
            self.mean.update(ratio, known)
        return torch.where(known, ratio, self.mean.value)

    def value(self) -> Tensor:
        return self.mean.value


def scoring_layers(width: int, hidden: int) -> nn.Sequential:
    """The network that scores a vector."""
    return nn.Sequential(nn.Linear(width, hidden), nn.LeakyReLU(inplace=True), nn.Linear(hidden, 1))


@torch.no_grad()
def scores_of_pairs(layers: nn.Module, documents: Tensor, table: Tensor, positions: Tensor) -> Tensor:
    """Scores of the vector of each document plus that of each position of its list, `[batch, documents, positions]`."""
    # One position at a time, in the same memory: new pages cost more than the arithmetic.
    sums = torch.empty_like(documents)
    scores = [layers(torch.add(documents, table[each].unsqueeze(1), out=sums)) for each in positions.unbind(1)]
    return torch.cat(scores, -1)


def adjusted_shares(logits: Tensor, mask: Tensor) -> Tensor:
    """Shares of examination at each place of a list, the mean over its rotations, `[batch, docs]`.

    Args:
        logits: of every document at every place, `[batch, documents, places]`.
    """
    length = mask.sum(-1).clamp(min=1).view(-1, 1, 1)
    places = torch.arange(mask.shape[1], device=mask.device)
    # [batch, turns, places]: the document there.
    stands = ((places.unsqueeze(-1) + places) % length).expand_as(logits)
    turned = logits.gather(1, stands)
    shares = losses.log_shares(turned, mask.unsqueeze(1).expand_as(turned)).exp()
    real_turn = mask.unsqueeze(-1)  # a list has as many turns as documents
    return (shares * real_turn).sum(1) / length.squeeze(-1) * mask


def policy_scores(lists: ClickedLists) -> Tensor:
    """Scores of the policy, standardized within lists; without scores, from the shown order, `[batch, docs]`."""
    if lists.policy_scores is None:
        return -(1.0 + lists.positions).to(lists.clicks.dtype).log()
    count = lists.mask.sum(-1, keepdim=True).clamp(min=1)
    scores = lists.policy_scores.masked_fill(~lists.mask, 0.0)
    centred = (scores - scores.sum(-1, keepdim=True) / count).masked_fill(~lists.mask, 0.0)
    spread = (centred.square().sum(-1, keepdim=True) / count).sqrt()
    return centred / spread.clamp(min=TINY)
