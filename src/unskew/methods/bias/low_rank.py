r"""Low-rank observation: examination depends on the document through a low-rank term (this project; docs/low_rank.md).

Assumes $P(c) \propto e^{r(x)}\,o_k(x)$ where the document $x$ changes the examination curve in only a few directions,
$\log o_k(x) = b_k + \sum_{j \le R} e_j(x)\,a_{jk}$, with $e$ linear in the features, $a$ and $b$ tables of positions,
fitted by a listwise softmax. Similar documents are shown at different positions: what changes with the position is
examination, what does not is relevance. What clicks do not identify is then small and known: $a_k - c$ with
$r + c \cdot e$ gives the same clicks for every $c \in \mathbb{R}^R$.

`choose` decides how $c$ is chosen; clicks cannot, however documents are moved. The ranking is by $r + c \cdot e$:

* free: by training, through its initialization and steps; $c = 0$.
* uncorrelated: assumes that relevance and visual attraction are unrelated, and picks the $c$ along the loadings that
  makes them uncorrelated within the lists of the log. It is limited so that examination at the top varies neither in
  the opposite direction of the positions below, nor more than twice as much.
* pinned: examination at the top does not depend on the document, $a_1 = 0$ and $c = 0$. The score is then the log of
  the click probability at position 1.
* judged: pinned first, then chosen on the judged validation queries, without training again. This happens before
  every validation, so that $c$ belongs to the state that validation keeps. Small differences are ignored (`caution`;
  see `line_search`).
* examination: the mean examination of the top position is known (`top_examination`), over all shown documents as if
  each were at the top. Examination is assumed to be a power, $\log o_k(x) = m(x) \log \theta_k$ with mean $m = 1$, so
  that $a$ is a multiple of the average curve, and the mean is the geometric mean.
* interventions: uses lists marked with the intervention `seen`, in which every document was certainly examined. $c$
  maximizes the likelihood of their clicks. Swaps and shuffles do not identify it: they only change positions.
* seen: examination was recorded, $P(\text{recorded}) \propto o_k(x)$, so that $\log P(\text{recorded}) = \beta_k + e(x)
  \cdot (a_k - c)$. Clicks identify $e$ and $a$, the record identifies $c$: a regression of the record with the offset
  $e \cdot a_k$. Misses that do not depend on the document go into $\beta$; false alarms do harm (`attention` accepts
  their rate).

Relation to others: without the document's term it is `two_tower`. It is `vectorization` with $R + 2$ dimensions, some
of them fixed, and another way to find the direction to rank by. `lbd` limits the slope of observation instead of its
rank; `attention` learns examination from a record and assumes no form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.examination_record import NO_RECORD, recorded
from unskew.data.judged.judged_set import JudgedSet
from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.line_search import ScoredLists, of_clicks, of_metric, search, spread_axes
from unskew.methods.method import Method, Stage, Terms
from unskew.networks.documents import Ranker
from unskew.networks.observation import PositionObservation, RunningEstimate, showings, weighted_mean
from unskew.networks.registry import Problem
from unskew.options import Count, NotNegative, Share

Choice = Literal["uncorrelated", "free", "pinned", "judged", "examination", "interventions", "seen"]
START = 0.3  # factor of the usual initial weights of e: training begins close to `two_tower`
MEAN_RATE = 0.05
SEEN = "seen"  # the intervention that ensures that every document of a list is examined
N_SAMPLED = 1024  # lists in which relevance and traits are compared
MOST_ON_TOP = 2.0  # limit of the variation at the top, relative to the variation from there to the other positions


class LowRank(Method):
    r"""Listwise softmax on relevance plus an observation of low rank.

    Args:
        rank: $R$, number of directions in which a document can change the examination curve.
        choose: how to choose the parameter that clicks do not identify: uncorrelated, free, pinned, judged,
            examination, interventions or seen.
        top_examination: mean examination of the top position, for `choose="examination"`.
        caution: of all $c$ within this many standard errors of the best, take the one that changes scores least.
        observation_rate: learning-rate factor of the tables $a$ and $b$, whose numbers move one by one.
    """

    paper = "this project, docs/low_rank.md"
    assumes = "examination depends on position and, through a low-rank term, on the document; clicks are a product"
    click_model = "softmax"
    judged_choice: ClassVar[dict[str, Any]] = {"choose": "judged", "top_examination": None}
    numbers: Tensor
    lengths: Tensor

    def __init__(
        self,
        problem: Problem,
        *,
        rank: Count = 1,
        choose: Choice = "uncorrelated",
        top_examination: Share | None = None,
        caution: NotNegative = 1.0,
        observation_rate: NotNegative = 10.0,
    ):
        super().__init__()
        if (choose == "examination") != (top_examination is not None):
            raise ValueError(
                "choose='examination' needs top_examination, the examination probability of the top position; pass "
                "both, or neither"
            )
        self.choose = choose
        self.top_examination = top_examination
        self.caution = caution
        self.observation_rate = observation_rate
        self.n_positions = problem.n_positions
        self.relevance = problem.new_ranker()
        self.observation = PositionObservation(problem)
        self.traits = problem.new_layers(rank, (), start=START)
        self.loadings = Loadings(rank, problem.n_positions, pinned=choose != "free")
        self.mean_traits = RunningEstimate(torch.zeros(rank), MEAN_RATE)
        self.sample: ClickedLists | None = None  # lists in which relevance and traits are compared
        self.register_buffer("numbers", torch.zeros(rank))
        self.register_buffer("lengths", torch.zeros(3, rank))

    def stages(self) -> list[Stage]:
        tables: dict[nn.Module, float] = dict.fromkeys((self.observation, self.loadings), self.observation_rate)
        return [Stage("train", self.loss, {**tables, self: 1.0})]

    def loss(self, lists: ClickedLists) -> Terms:
        return {"clicks": losses.softmax(self.click_logits(lists), lists.clicks, lists.mask)}

    def click_logits(self, lists: ClickedLists) -> Tensor:
        return lists.apply(self.relevance) + self.log_seen(lists)

    def log_seen(self, lists: ClickedLists) -> Tensor:
        r"""$\log o$ of each document at its position, `[batch, docs]`."""
        traits = lists.per_document(self.traits)
        if self.training:
            mean = weighted_mean(traits.detach(), showings(lists).unsqueeze(-1), (0, 1))
            self.mean_traits.update(mean, lists.mask.any())
        places = lists.positions.clamp(max=self.n_positions - 1)
        weighed = (traits * self.loadings()[:, places].movedim(0, -1)).sum(-1)
        return self.observation(lists.positions, lists.bias) + weighed

    @torch.no_grad()
    def log_curve(self) -> Tensor:
        """Log examination of the document with the mean of $e$ relative to the top, `[positions]`.

        At the average of all levels of bias columns and 0 of numeric ones.
        """
        log_seen = self.observation.average_logits() + self.mean_traits.value @ self.loadings()
        return log_seen - log_seen[0]

    def examination(self) -> Tensor:
        """Examination, relative to the top, of a document with the mean of $e$."""
        return self.log_curve().exp()

    # -- what is served

    def ranker(self) -> Ranker:
        numbers = CHOICES[self.choose](self)
        return self.relevance if numbers is None else CorrectedRanker(self.relevance, self.traits, numbers)

    def prepare(self, logs: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.choose in FROM_THE_LOG:
            self.sample = _sample(logs["clicks"], with_looks=self.choose == "seen")
        if self.choose == "judged" and not isinstance(logs.get("validation"), JudgedSet):
            raise ValueError(
                "choose='judged' needs judged queries, and there are none: validate on judged data "
                "(--validate DATA, in Python validate= or eval_set=), or use choose='pinned'"
            )
        if self.choose == "interventions":
            _seen_lists(logs.get("interventions"))  # raises now rather than after training
        return logs

    def tune(self, judged: JudgedSet, metric: str) -> None:
        """Choose on judged queries, or set the number that belongs to this state of training."""
        self._choose_by_the_log()
        if self.choose == "judged":
            batches = (lists for _, lists in judged.batches())
            self._search([self._scored(lists, of_metric(lists, metric)) for lists in batches])

    def finish(self, logs: Mapping[str, Any]) -> None:
        """Choose by the clicks of lists that were certainly examined, or by lists of the log."""
        self._choose_by_the_log()
        if self.choose == "interventions":
            batches = ClickBatches(_seen_lists(logs.get("interventions"))).all()
            self._search([self._scored(lists, of_clicks(lists)) for lists in batches])

    def findings(self) -> dict[str, Any]:
        """The number in use; if it was searched for, also the length of the move and its plausible interval."""
        numbers = CHOICES[self.choose](self)
        if numbers is None:
            return {}
        found = {"number": numbers.tolist()}
        if self.choose in ("judged", "interventions"):
            found |= dict(zip(("low", "moved", "high"), self.lengths.tolist(), strict=True))
        return {"chosen": found}

    @torch.no_grad()
    def _run_networks(self, lists: Any) -> tuple[Tensor, Tensor]:
        """Relevance and traits of each document, without dropout."""
        was_training = self.training
        self.eval()
        found = lists.apply(self.relevance), lists.per_document(self.traits)
        self.train(was_training)
        return found

    def _scored(self, lists: Any, value: Callable[[Tensor], Tensor]) -> ScoredLists:
        relevance, traits = self._run_networks(lists.to(self.numbers.device))
        return ScoredLists(relevance.cpu(), traits.cpu(), lists.mask, value)

    @torch.no_grad()
    def _choose_by_the_log(self) -> None:
        if self.choose in FROM_THE_LOG:
            assert self.sample is not None
            lists = self.sample.to(self.numbers.device)
            self.numbers.copy_(FROM_THE_LOG[self.choose](*self._run_networks(lists), self.loadings(), lists))

    def _search(self, parts: Sequence[ScoredLists]) -> None:
        found = search(parts, lambda relevance, traits, c: relevance + traits @ c, spread_axes(parts), self.caution)
        self.numbers.copy_(found.numbers)
        self.lengths.copy_(found.lengths)


class Loadings(nn.Module):
    r"""Weight of each direction of $e$ at each position, `[directions, positions]`; initially from 0 at the top to -1.

    Args:
        pinned: always 0 at the top.
    """

    def __init__(self, n_directions: int, n_positions: int, *, pinned: bool):
        super().__init__()
        self.shape = (n_directions, n_positions)
        self.pinned = pinned
        # Waves of different length: directions that start equal would be distinguished by chance alone.
        waves = torch.arange(1, n_directions + 1).unsqueeze(1) * torch.linspace(0, 1, n_positions)
        start = ((math.pi * waves).cos() - 1) / 2
        # Flat, since matrices are decayed in training, and tables of positions should not be.
        self.flat = nn.Parameter(start.flatten())

    def forward(self) -> Tensor:
        first, rest = self.flat.view(self.shape).tensor_split([1], dim=1)
        return torch.cat([torch.zeros_like(first) if self.pinned else first, rest], dim=1)


class CorrectedRanker(Ranker):
    r"""Relevance plus $c \cdot e$, once $c$ is chosen."""

    numbers: Tensor

    def __init__(self, relevance: Ranker, traits: nn.Module, numbers: Tensor):
        super().__init__()
        self.relevance = relevance
        self.traits = traits
        self.register_buffer("numbers", numbers.detach().clone())

    @property
    def pointwise(self) -> bool:
        return self.relevance.pointwise

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        return self.relevance(features, mask) + (self.traits(features) * self.numbers).sum(-1)


def covariance(one: Tensor, other: Tensor, mask: Tensor) -> Tensor:
    """Covariance within lists of two values of each document, `[lists, docs]`."""
    sizes = mask.sum(1, keepdim=True).clamp(min=1)

    def within(values: Tensor) -> Tensor:
        return (values - (values * mask).sum(1, keepdim=True) / sizes) * mask

    return (within(one) * within(other)).sum() / mask.sum().clamp(min=1)


def _apart(relevance: Tensor, traits: Tensor, loadings: Tensor, lists: ClickedLists) -> Tensor:
    r"""$c = \rho d$ with $d$ the mean of $a_1 - a_k$, and $r + \rho\,d \cdot e$ uncorrelated with $d \cdot e$."""
    top, below = loadings.tensor_split([1], dim=1)
    fall = (top - below).sum(1) / max(below.shape[1], 1)
    missed = traits @ fall  # loss of examination further down, in logs
    spread = covariance(missed, missed, lists.mask).clamp(min=torch.finfo(fall.dtype).eps)
    ratio = -covariance(relevance, missed, lists.mask) / spread
    return ratio.clamp(0.0, MOST_ON_TOP) * fall


def by_looks(_: Tensor, traits: Tensor, loadings: Tensor, lists: ClickedLists) -> Tensor:
    r"""$c$ of the Poisson regression $\log E[\text{recorded}] = \log n + \beta_k + e \cdot (a_k - c)$.

    It is valid for counts that are not rare, too: its estimating equations are unbiased whatever the variance.
    """
    assert lists.seen is not None
    assert lists.seen_sessions is not None
    rows = lists.mask & (lists.seen_sessions > 0).unsqueeze(-1)
    places = lists.positions.clamp(max=loadings.shape[1] - 1)[rows]
    looks, shown = lists.seen[rows].double(), lists.seen_sessions.unsqueeze(-1).expand_as(rows)[rows].double()
    one_place = F.one_hot(places, loadings.shape[1]).double()
    inputs = torch.cat([one_place, -traits[rows].double()], 1).cpu().numpy()
    offset = ((traits[rows] * loadings.T[places]).sum(-1).double() + shown.log()).cpu().numpy()
    counts = looks.cpu().numpy()

    def cost(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        logs = np.minimum(offset + inputs @ values, losses.LARGEST_EXPONENT)
        expected = np.exp(logs)
        return float((expected - counts * logs).mean()), inputs.T @ (expected - counts) / len(counts)

    found = minimize(cost, np.zeros(inputs.shape[1]), jac=True, method="L-BFGS-B", options={"ftol": 1e-12})
    return traits.new_tensor(found.x[loadings.shape[1] :])


# relevance [lists, docs], traits [lists, docs, R], loadings [R, positions], lists of the log -> the number [R]
FROM_THE_LOG: dict[str, Callable[[Tensor, Tensor, Tensor, ClickedLists], Tensor]] = {
    "uncorrelated": _apart,
    "seen": by_looks,
}


def _power_of_the_curve(method: LowRank) -> Tensor:
    r"""$c = -s \log \theta_1$ with $s$ the slope of $a$ in the average curve, both relative to the top."""
    assert method.top_examination is not None
    curve = method.log_curve()
    slope = method.loadings().detach() @ curve / curve.square().sum().clamp(min=torch.finfo(curve.dtype).eps)
    return -math.log(method.top_examination) * slope


# The number in use; None: the scores of relevance as they are.
CHOICES: dict[str, Callable[[LowRank], Tensor | None]] = {
    "uncorrelated": lambda method: method.numbers,
    "free": lambda _: None,
    "pinned": lambda _: None,
    "judged": lambda method: method.numbers,
    "examination": _power_of_the_curve,
    "interventions": lambda method: method.numbers,
    "seen": lambda method: method.numbers,
}


def _sample(clicks: Any, *, with_looks: bool) -> ClickedLists:
    """Some lists of the log."""
    if not isinstance(clicks, ClickLog):
        lists = clicks(0)  # of a log larger than memory: one batch
        if with_looks and (lists.seen_sessions is None or not lists.seen_sessions.any()):
            raise ValueError(NO_RECORD)
        return lists
    if with_looks:
        clicks = clicks.select(recorded(clicks)[1] > 0)
    return ClickBatches(clicks, min(N_SAMPLED, clicks.n_lists), together=1)(0)


def _seen_lists(log: Any) -> ClickLog:
    """Lists of which every document was certainly examined."""
    column = log.interventions if isinstance(log, ClickLog) else None
    if column is None or column.levels is None or SEEN not in column.levels:
        raise ValueError(
            f"choose='interventions' needs lists whose documents were all certainly examined, marked by the "
            f"intervention '{SEEN}'; changed positions, such as swaps, cannot identify this parameter: mark such "
            "lists, or use choose='judged' or 'pinned'"
        )
    return log.select(column.values == column.levels.index(SEEN))
