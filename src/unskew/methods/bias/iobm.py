r"""Interactional Observation-Based Model inside dual learning (IOBM; Chen et al., SIGIR 2021).

Assumes that the examination of a position depends on the position, on the query's context and on the *other* clicks of
the session: $\theta_k = P(o_k \mid k, \text{context}, c_{-k})$. Embeddings of each position and its click are weighted
by the context; one direction of an LSTM reads the positions above $k$, the other those below; their outputs are
weighted by the context again, and a linear layer gives the logit. The input at $k$ is shifted by one position, so a
click never explains itself. Context is the mean of the list's features. Weights of both kinds are
$d \cdot \mathrm{softmax}(\tanh(W[\text{context}; v]))$ on the $d$ entries of $v$. Relevance learns as in `dla`, from
clicks over propensities. The method needs a joint log, which says which documents were clicked *together*.

Differences from the authors' program, with reasons:

* Propensities learn from every position separately, by cross-entropy, and not from a softmax over the list: in a
  session with one click the other positions see a click and the clicked one sees none, so a softmax would know where
  it was.
  (For the same reason sessions without a click must not be dropped from the log.)
* Targets are bounded. In the program, a click at $k$ has the weight $\frac{f_1}{f_k}$, up to 200, as the target of a
  probability. Here it is clipped at `max_weight` and divided by it: a target in [0, 1]. This only scales $\theta$, and
  only ratios matter.
* A click is weighted by $\bar\theta_1 / \theta_k$ with a running mean for the top. The top's $\theta_1$ of the same
  session depends on the click at $k$.
* A table of position logits is added, and the linear layer starts at 0: training starts as position-only.

Relation to others: `dla` with propensities that depend on the other clicks and learn by cross-entropy. `ubm` uses the
last click above only, in a model of the whole session. `xpa` uses the other documents instead of their clicks.
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
from unskew.networks.observation import AverageCurve, PositionObservation
from unskew.networks.registry import Problem
from unskew.options import Count, Limits, NotNegative

START = 0.5  # probability of examination at the start


class IOBM(Method):
    """Dual learning with propensities from position, context and the other clicks.

    Args:
        max_weight: largest weight of a click, of either kind.
        embedding: size of the embeddings of a position and of a click.
        units: units of each direction of the LSTM.
        use_clicks: let propensities see the other clicks.
        use_context: let propensities see the mean of the list's features.
        position_rate: learning rate of the position table relative to the ranker's (see `dla`).
        context_rate: learning rate of the rest of the propensities relative to the ranker's.
    """

    paper = "Chen et al., SIGIR 2021 (IOBM)"
    assumes = "examination depends on position, the query's context and the other clicks of the session"
    detail = "patterns"

    def __init__(
        self,
        problem: Problem,
        *,
        max_weight: Annotated[float, Limits(1)] = 20.0,
        embedding: Count = 4,
        units: Count = 8,
        use_clicks: bool = True,
        use_context: bool = True,
        position_rate: NotNegative = 3.0,
        context_rate: NotNegative = 1.0,
    ):
        super().__init__()
        self.relevance = problem.new_ranker()
        self.position = PositionObservation(problem)
        with torch.no_grad():
            self.position.logits.fill_(torch.tensor(START / max_weight).logit())
        self.context = OtherClicks(problem, embedding, units, use_clicks=use_clicks, use_context=use_context)
        self.max_weight = max_weight
        self.position_rate = position_rate
        self.context_rate = context_rate

    def stages(self) -> Sequence[Stage]:
        trains = {self.relevance: 1.0, self.position: self.position_rate, self.context: self.context_rate}
        return [Stage("train", self.loss, trains)]

    def loss(self, lists: ClickedLists) -> Terms:
        relevance = lists.apply(self.relevance)
        observation = self.observation(lists)
        if self.training:
            self.context.curve.update(self.max_weight * observation.sigmoid(), lists)
        targets = lists.clicks * losses.inverse_share(relevance, lists.mask, self.max_weight) / self.max_weight
        return {
            "relevance": losses.softmax(relevance, lists.clicks * self.weights(observation), lists.mask),
            # Multiplied by the bound again, so that a click counts as much as for relevance.
            "observation": self.max_weight * losses.sigmoid(observation, targets, lists.sessions, lists.mask),
        }

    def observation(self, lists: ClickedLists) -> Tensor:
        """Logits of examination, in the scale of targets, `[batch, docs]`."""
        return self.position(lists.positions, lists.bias) + self.context(lists)

    def weights(self, observation: Tensor) -> Tensor:
        """Inverse propensities relative to the average top, without gradient."""
        top = self.context.curve.seen.value[0] / self.max_weight
        inverse = (-F.logsigmoid(observation.detach())).clamp(max=losses.LARGEST_EXPONENT).exp()
        return (top * inverse).clamp(max=self.max_weight)

    def examination(self) -> Tensor:
        return self.context.curve.relative()

    def at_level(self, column: str, level: int) -> None:
        """None: the curve is the mean over all sessions of the log."""


class OtherClicks(nn.Module):
    """Examination logit of a position from its context and the other clicks; 0 at the start."""

    def __init__(self, problem: Problem, embedding: int, units: int, *, use_clicks: bool, use_context: bool):
        super().__init__()
        self.n_positions = problem.n_positions
        self.use_clicks = use_clicks
        n_context = problem.n_inputs if use_context else 0
        self.inputs = problem.new_inputs() if use_context else nn.Identity()
        self.n_context = n_context
        self.positions = nn.Embedding(problem.n_positions, embedding)
        self.clicks = nn.Embedding(2, embedding)
        self.weigh_places = EntryAttention(n_context, 2 * embedding)
        self.reader = nn.LSTM(2 * embedding, units, batch_first=True, bidirectional=True)
        self.weigh_states = EntryAttention(n_context, 2 * units)
        self.score = nn.Linear(2 * units, 1, bias=False)
        nn.init.zeros_(self.score.weight)
        self.curve = AverageCurve(problem.n_positions, start=START)

    def forward(self, lists: ClickedLists) -> Tensor:
        """Logits to be added, `[batch, docs]`."""
        places = self.positions(lists.positions.clamp(max=self.n_positions - 1))
        clicked = (lists.clicks > 0).long() if self.use_clicks else torch.zeros_like(lists.positions)
        context = self._context(lists)
        read = self.read(self.weigh_places(context, torch.cat([places, self.clicks(clicked)], -1)), lists.mask)
        return self.score(self.weigh_states(context, read)).squeeze(-1)

    def read(self, places: Tensor, mask: Tensor) -> Tensor:
        """Outputs of one direction for the positions above, of the other for those below, `[batch, docs, 2 units]`."""
        lengths = mask.sum(-1).clamp(min=1).cpu()  # a list of padding only is read as one position
        packed = nn.utils.rnn.pack_padded_sequence(places, lengths, batch_first=True, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(
            self.reader(packed)[0], batch_first=True, total_length=mask.shape[1]
        )
        above, below = states.chunk(2, -1)
        return torch.cat([F.pad(above, (0, 0, 1, 0))[:, :-1], F.pad(below, (0, 0, 0, 1))[:, 1:]], -1)

    def _context(self, lists: ClickedLists) -> Tensor:
        """Mean features of each list (mean vectors of categories), at every position, `[batch, docs, inputs]`."""
        if not self.n_context:
            return lists.clicks.unsqueeze(-1)[..., :0]
        mask = lists.mask.unsqueeze(-1)
        features = self.inputs(lists.features.masked_fill(~mask, 0.0))
        mean = features.masked_fill(~mask, 0.0).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
        return mean.expand_as(features)


class EntryAttention(nn.Module):
    """Weights on the entries of a vector, with mean 1, from the context and the vector itself."""

    def __init__(self, n_context: int, size: int):
        super().__init__()
        self.layer = nn.Linear(n_context + size, size)

    def forward(self, context: Tensor, vectors: Tensor) -> Tensor:
        weights = self.layer(torch.cat([context, vectors], -1)).tanh().softmax(-1)
        return weights * vectors.shape[-1] * vectors
