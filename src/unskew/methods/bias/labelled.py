r"""Labeled Data: the skyline, trained on judgements instead of clicks.

The loss is that of `naive` with grades in place of clicks. The reference programs weight a document by its grade $y$;
`gain="exponential"` weights it by $2^y - 1$, as nDCG does. Unlike the reference it learns from all judged documents of
a query, not only from the ten that were shown.

Relation to others: `naive` with grades in place of clicks, and the upper reference of every method that learns from
clicks. `unskew tune` trains a ranker that has learned from clicks further on grades.
"""

from __future__ import annotations

from typing import Literal

import torch

from unskew.lists import JudgedLists
from unskew.methods import losses
from unskew.methods.method import Method, Stage, Terms
from unskew.networks.registry import Problem
from unskew.processes import total

GAINS = {"grade": lambda grades: grades.clamp(min=0.0), "exponential": lambda grades: grades.clamp(min=0.0).exp2() - 1}


class Labelled(Method):
    """Listwise softmax on grades.

    Args:
        gain: weight of a document: its grade, or exponential ($2^y - 1$).
    """

    paper = "skyline"
    assumes = "judged queries are available (--judged DATA)"
    learns_from = "judgements"

    def __init__(self, problem: Problem, *, gain: Literal["grade", "exponential"] = "grade"):
        super().__init__()
        self.relevance = problem.new_ranker()
        self.gain = GAINS[gain]

    @property
    def exempt(self) -> dict[str, str]:
        return {"counts_teach_like_sessions": "learns from grades, not from counted clicks"}

    def stages(self) -> list[Stage]:
        return [Stage("judgements", self.loss, {self: 1.0}, source="judgements")]

    def loss(self, lists: JudgedLists) -> Terms:
        scores = lists.apply(self.relevance)
        gains = self.gain(lists.grades).masked_fill(~lists.mask, 0.0)
        # Normalize gains per list, so that steps and clipping do not depend on the scale of grades.
        n_lists, all_gains = total(torch.stack([gains.new_tensor(len(gains)), gains.sum()]))
        # Without relevant documents there is nothing to learn.
        unit = torch.where(all_gains > 0, n_lists / all_gains, 0.0)
        return {"grades": losses.softmax(scores, gains * unit, lists.mask)}
