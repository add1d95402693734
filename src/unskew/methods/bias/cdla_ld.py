r"""Contextual Dual Learning with Listwise Distillation (CDLA-LD; Yu et al., 2024, arXiv:2408.09817).

Assumes $P(c) = P(o \mid k)\,P(r \mid x, \text{list})$: examination depends on the position, relevance on the document
and its neighbors. A teacher $f$ with listwise input and the propensities $g$ learn by dual learning (Eq. 5); at the
same time a pointwise student $h$, which is served, learns the teacher's distribution over each list (Eq. 6):

$-\sum_i c_i \frac{g_1}{g_i} \log f_i$, $-\sum_i c_i \frac{f_1}{f_i} \log g_i$ and $-\sum_i f_i \log h_i$.

Here $f$, $g$, $h$ are shares, the softmax over the list, in ratios too (Eq. 5 as printed divides scores), and both the
ratios and the teacher's distribution are constants: no gradient flows through them. In Eq. 6 the student is printed
with the list as its input, but it sees one document at a time. Distillation counts once per session.

The teacher scores its vectors with a network of the same hidden layers as the student's; the paper's are
`hidden=(32, 16, 8)` after a linear layer to 64 (`expand=64`), with one to four `layers` and two to eight `heads`. The
paper's ablations: CDLA serves the teacher (`serve="teacher"`); in C-DLA-LD (`debias="student"`) the teacher fits clicks
as they are, and its distribution replaces clicks in the dual learning of student and propensities. A teacher that sees
a list as a set knows positions only through features, so C-DLA-LD's propensities are too flat, unless the teacher gets
the shown order (`shown_order=True`).

By default $g$ learns by the likelihood of clicks given $f$, as in `dla`; `observed_by="weights"` is Eq. 5. The click
matrix, one world, nDCG@10: .782, by weights .774.

`observation_rate` is the learning rate of the position table relative to the student's (see `dla`), `teacher_rate` that
of the teacher: attention needs lower learning rates than a plain network.

Relation to others: `dla` with a teacher that sees the whole list, distilled into a student that sees one document. With
a teacher that sees one document, CDLA would be `dla`. `xpa` lets examination, not relevance, depend on the neighbors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

from torch import Tensor

from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.method import Method, Stage, Terms
from unskew.networks.documents import Ranker
from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Problem, listwise_ranker
from unskew.options import NotNegative, Positive


class CDLALD(Method):
    """A listwise teacher by dual learning, and a pointwise student that learns from it.

    Args:
        serve: student, or teacher (CDLA).
        debias: which ranker learns together with the propensities: teacher, or student (C-DLA-LD).
        max_weight: largest weight of a click, of either kind.
        observation_rate: learning rate of the position table relative to the student's.
        teacher_rate: learning rate of the teacher relative to the student's.
        observed_by: how the position table learns: "likelihood" of the clicks, or "weights", as in the paper.
    """

    paper = "Yu et al., 2024 (CDLA-LD)"
    assumes = "examination depends on position (and bias columns) only; relevance on the document and its list"
    click_model = "softmax"

    def __init__(
        self,
        problem: Problem,
        *,
        serve: Literal["student", "teacher"] = "student",
        debias: Literal["teacher", "student"] = "teacher",
        max_weight: Positive | None = None,
        observation_rate: NotNegative = 10.0,
        teacher_rate: NotNegative = 0.5,
        observed_by: Literal["likelihood", "weights"] = "likelihood",
    ):
        super().__init__()
        if problem.network.kind == "listwise":
            raise ValueError(
                "the student sees one document at a time: choose network 'tabular', 'mlp' or 'linear'; "
                "layers and heads always belong to the teacher"
            )
        self.relevance = problem.new_ranker()
        self.teacher = listwise_ranker(problem)
        self.observation = PositionObservation(problem)
        self.serve, self.debias = serve, debias
        self.max_weight, self.observed_by = max_weight, observed_by
        self.rates = {self.relevance: 1.0, self.teacher: teacher_rate, self.observation: observation_rate}

    def stages(self) -> Sequence[Stage]:
        return [Stage("train", self.loss, self.rates)]

    def loss(self, lists: ClickedLists) -> Terms:
        """Eq. 5 and Eq. 6; C-DLA-LD has the teacher's shares for clicks in Eq. 5."""
        clicks, sessions, mask = lists.clicks, lists.sessions, lists.mask
        dual = partial(losses.dual, mask=mask, max_weight=self.max_weight, observed_by=self.observed_by)
        f = lists.apply(self.teacher)
        h = lists.apply(self.relevance)
        g = self.observation(lists.positions, lists.bias)
        if self.debias == "teacher":
            return {**dual(f, g, clicks), "distillation": losses.distillation(h, f, sessions, mask)}
        predicted = sessions.unsqueeze(-1) * losses.log_shares(f.detach(), mask).exp() * mask
        return {"clicks": losses.softmax(f, clicks, mask), **dual(h, g, predicted)}

    def ranker(self) -> Ranker:
        return self.teacher if self.serve == "teacher" else self.relevance

    def click_logits(self, lists: ClickedLists) -> Tensor:
        return lists.apply(self.ranker()) + self.observation(lists.positions, lists.bias)

    def examination(self) -> Tensor:
        return self.observation.curve()
