r"""Pairwise debiasing, as in Unbiased LambdaMART (Hu et al., WWW 2019, arXiv:1809.05818).

Assumes that a click at position $i$ means relevance with a ratio $t^+_i$, and no click at $j$ means irrelevance with a
ratio $t^-_j$, both relative to the top. For $i$ clicked and $j$ not, with $L_{ij} = \log(1 + e^{-(s_i - s_j)})$, the
loss is $\sum \frac{L_{ij}}{t^+_i t^-_j}$, and the ratios follow from it:

$t^+_i = \left(\frac{A_i}{A_1}\right)^{1/(1+p)}$, $A_i = \sum_j \frac{L_{ij}}{t^-_j}$, and
$t^-_j = \left(\frac{B_j}{B_1}\right)^{1/(1+p)}$, $B_j = \sum_i \frac{L_{ij}}{t^+_i}$.

Here each batch gives one such ratio of sums, and a running mean of them is kept; it does not change for a batch without
a pair at the top, nor at positions that no list of the batch reaches. A position that was shown without a pair counts
as 0: leaving it out would raise the ratios of rarely clicked positions. The regularization $p$ is `regulation`: the
authors' table was made with $p = 0$, their program ships other values, the toolboxes use 1. The factor
$|\Delta \mathrm{nDCG}|$ of LambdaMART belongs to the trees and is not used here. The method needs a joint log, which
says which documents were clicked *together*.

Relation to others: `ipw` and `dla` weight clicks only; this method also weights non-clicks, pair by pair. Like `dla`,
it learns its ratios along with the ranker.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.method import Method, Terms
from unskew.networks.observation import RunningEstimate, sum_per_position
from unskew.networks.registry import Problem
from unskew.options import NotNegative, Share

SMALLEST = 1e-3  # with a smaller ratio, one pair would dominate the others


class PairDebias(Method):
    """Logistic loss of pairs, with clicks and non-clicks reweighted by position ratios.

    Args:
        regulation: $p$, shrinks the ratios towards 1; 0: none.
        step_size: weight of a batch in the running mean of the ratios.
    """

    paper = "Hu et al., WWW 2019"
    assumes = "clicks and non-clicks are reweighted by ratios that depend on position alone"
    detail = "pairs"

    def __init__(self, problem: Problem, *, regulation: NotNegative = 1.0, step_size: Share = 0.05):
        super().__init__()
        self.relevance = problem.new_ranker()
        self.regulation = regulation
        ones = torch.ones(problem.n_positions)
        self.clicked = RunningEstimate(ones, step_size)
        self.unclicked = RunningEstimate(ones, step_size)

    def loss(self, lists: ClickedLists) -> Terms:
        assert lists.pairs is not None
        scores = lists.apply(self.relevance)
        pair_losses = lists.pairs * losses.preference_pairs(scores)
        places = lists.positions.clamp(max=len(self.clicked.value) - 1)
        over_unclicked = (pair_losses / self.unclicked.value[places].unsqueeze(1)).sum(2)  # A: for each clicked i
        over_clicked = (pair_losses / self.clicked.value[places].unsqueeze(2)).sum(1)  # B: for each unclicked j
        total = (over_unclicked / self.clicked.value[places]).sum()
        if self.training:
            self._update(self.clicked, over_unclicked, lists)
            self._update(self.unclicked, over_clicked, lists)
        return {"pairs": total}

    def examination(self) -> Tensor:
        return self.clicked.value

    def _update(self, ratio: RunningEstimate, pair_losses: Tensor, lists: ClickedLists) -> None:
        n_positions = len(ratio.value)
        sums = sum_per_position(pair_losses.detach(), lists.positions, lists.mask, n_positions)
        shown = sum_per_position(torch.ones_like(pair_losses), lists.positions, lists.mask, n_positions)
        known = (shown > 0) & (sums[0] > 0)
        ratio.update((sums / sums[0]).pow(1 / (1 + self.regulation)).clamp(min=SMALLEST), known)
