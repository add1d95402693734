r"""Cross-Positional Attention (XPA; Zhuang et al., WWW 2021), experimental.

Assumes $P(c_i) \propto e^{r(x_i)}\,e^{o_i}$ where $o_i$, the examination of place $i$, depends on its position and on
what is at the *other* positions. Both are fitted jointly by a listwise softmax; the ranker is $r$ alone.

The authors' program is not public, and we know the paper only by description. Our choices:

* $o_i = b_{k_i} + w^\top a_i$: a table of logits as in `two_tower`, and what attention gathers. $w$ starts at 0, so
  that training starts as `two_tower`, and without attention (`attention=False`) it stays that.
* $a_i$ is multi-head attention of torch. The query is an embedding of the position $k_i$ and nothing else; keys and
  values are embeddings of the other positions plus a linear map of what is displayed there. The document itself is
  left out of both: otherwise its own features could pass from relevance into observation, and the two would not be
  identified.
* What is displayed is all features (`displayed="features"`), because logs seldom say which of them people see; or the
  bias columns (`"bias"`), such as result types; or nothing but the positions themselves (`"nothing"`).
* Relevance and observation are added in the exponent, as the other listwise methods here do.

The reported examination is relative to the top and a mean over sessions, because it differs between lists.

Relation to others: `two_tower` with an observation that also depends on the neighbors; with `attention=False` it is
`two_tower`. `cdla_ld` lets relevance depend on the neighbors, `iobm` lets examination depend on their clicks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.method import Method, Stage, Terms
from unskew.networks.observation import AverageCurve, PositionObservation
from unskew.networks.registry import Problem
from unskew.options import Count, NotNegative

SMALLEST_LOGIT, LARGEST_LOGIT = -30.0, 30.0  # of the reported curve only


class XPA(Method):
    """Listwise softmax on relevance plus a logit of position and neighbors.

    Args:
        attention: attend to the other positions; without, this is `two_tower`.
        displayed: what is displayed at other positions: features, bias (columns), or nothing.
        width: size of queries, keys and values.
        attention_heads: number of heads; it must divide the width.
        position_rate: learning rate of the position table relative to the ranker's (see `dla`).
        attention_rate: learning rate of attention relative to the ranker's.
    """

    paper = "Zhuang et al., WWW 2021 (XPA)"
    assumes = "examination depends on position and the neighboring documents; P(click) = examination × relevance"
    click_model = "softmax"

    def __init__(
        self,
        problem: Problem,
        *,
        attention: bool = True,
        displayed: Literal["features", "bias", "nothing"] = "features",
        width: Count = 16,
        attention_heads: Count = 2,
        position_rate: NotNegative = 3.0,
        attention_rate: NotNegative = 1.0,
    ):
        super().__init__()
        self.relevance = problem.new_ranker()
        self.position = PositionObservation(problem)
        self.context = ContextObservation(problem, displayed, width, attention_heads) if attention else None
        self.position_rate = position_rate
        self.attention_rate = attention_rate

    def stages(self) -> Sequence[Stage]:
        trains: dict[nn.Module, float] = {self.relevance: 1.0, self.position: self.position_rate}
        if self.context is not None:
            trains[self.context] = self.attention_rate
        return [Stage("train", self.loss, trains)]

    def loss(self, lists: ClickedLists) -> Terms:
        observation = self.observation(lists)
        if self.training and self.context is not None:
            top = observation[:, :1]
            self.context.curve.update((observation - top).clamp(SMALLEST_LOGIT, LARGEST_LOGIT).exp(), lists)
        logits = lists.apply(self.relevance) + observation
        return {"clicks": losses.softmax(logits, lists.clicks, lists.mask)}

    def observation(self, lists: ClickedLists) -> Tensor:
        """Logits of examination, `[batch, docs]`."""
        logits = self.position(lists.positions, lists.bias)
        return logits if self.context is None else logits + self.context(lists)

    def click_logits(self, lists: ClickedLists) -> Tensor:
        return lists.apply(self.relevance) + self.observation(lists)

    def examination(self) -> Tensor:
        return self.position.curve() if self.context is None else self.context.curve.relative()

    def at_level(self, column: str, level: int) -> Self | None:
        """None with a context: the curve is then the mean over all sessions of the log."""
        return super().at_level(column, level) if self.context is None else None


class ContextObservation(nn.Module):
    """The effect of the other positions of a list on the examination of a position; 0 at the start."""

    def __init__(self, problem: Problem, displayed: str, width: int, heads: int):
        super().__init__()
        if width % heads:
            raise ValueError(f"{heads} heads do not divide a width of {width}: choose a width that they divide")
        self.displayed = displayed
        self.levels = {name: None if levels is None else len(levels) for name, levels in problem.bias.items()}
        self.n_positions = problem.n_positions
        self.asking = nn.Embedding(problem.n_positions, width)
        self.asked = nn.Embedding(problem.n_positions, width)
        n_inputs = DISPLAYED_SIZES[displayed](problem)
        self.display: nn.Module | None = nn.Linear(n_inputs, width, bias=False) if n_inputs else None
        if self.display is not None and displayed == "features" and problem.categories:
            self.display = nn.Sequential(problem.new_inputs(), self.display)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.score = nn.Linear(width, 1, bias=False)  # no bias: a constant cancels in a list
        nn.init.zeros_(self.score.weight)
        self.curve = AverageCurve(problem.n_positions)

    def forward(self, lists: ClickedLists) -> Tensor:
        """Logits to be added, `[batch, docs]`."""
        places = lists.positions.clamp(max=self.n_positions - 1)
        others = self.asked(places)
        if self.display is not None:
            others = others + DISPLAYED[self.displayed](self, lists).masked_fill(~lists.mask.unsqueeze(-1), 0.0)
        hidden, alone = hidden_from(lists.mask)
        gathered, _ = self.attention(
            self.asking(places),
            others,
            others,
            attn_mask=hidden.repeat_interleave(self.attention.num_heads, 0),
            need_weights=False,
        )
        return self.score(gathered).squeeze(-1).masked_fill(alone, 0.0)


def hidden_from(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Documents that each may not attend to (itself, padding), `[batch, docs, docs]`, and those without any other.

    The latter attend to everything, because a softmax needs something; drop what they gather.
    """
    itself = torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)
    hidden = itself | ~mask.unsqueeze(1)
    alone = hidden.all(-1)
    return hidden & ~alone.unsqueeze(-1), alone


def _display_features(context: ContextObservation, lists: ClickedLists) -> Tensor:
    assert context.display is not None
    return lists.per_document(context.display)


def _display_bias(context: ContextObservation, lists: ClickedLists) -> Tensor:
    assert context.display is not None
    columns = []
    for name, size in context.levels.items():
        values = lists.bias[name]
        # A number may have any scale, which is unknown here: asinh keeps sign and order.
        columns.append(values.asinh().unsqueeze(-1) if size is None else F.one_hot(values, size))
    return context.display(torch.cat([column.to(lists.clicks.dtype) for column in columns], -1))


DISPLAYED: dict[str, Callable[[ContextObservation, ClickedLists], Tensor]] = {
    "features": _display_features,
    "bias": _display_bias,
    "nothing": lambda _, lists: lists.clicks.unsqueeze(-1)[..., :0],
}
DISPLAYED_SIZES: dict[str, Callable[[Problem], int]] = {
    "features": lambda problem: problem.n_inputs,
    "bias": lambda problem: sum(1 if levels is None else len(levels) for levels in problem.bias.values()),
    "nothing": lambda _: 0,
}
