r"""Low-rank observation: examination depends on the document in a few shapes only (this project; docs/low_rank.md).

Assumes $P(c) \propto e^{r(x)}\,o_k(x)$ where the document $x$ bends the curve of observation in few ways,
$\log o_k(x) = b_k + \sum_{j \le R} e_j(x)\,a_{jk}$, with $e$ linear in the features, $a$ and $b$ tables of positions,
fitted by a listwise softmax. Documents alike are at different positions; what changes with the position is
observation, what does not is relevance, and so few shapes leave little room for anything else. What clicks leave open
is then small and known: $a_k - c$ with $r + c \cdot e$ gives the same clicks for every $c \in \mathbb{R}^R$.

`choose` says who chooses $c$; no click does, wherever documents are moved. The ranking is by $r + c \cdot e$:

* free: training, by its start and its steps; $c = 0$.
* uncorrelated: relevance and visibility are assumed to have nothing to do with each other: the number, along the
  loadings, for which they are uncorrelated within the lists of the log; never so that observation varies on top the
  other way round than below, or more than twice as much.
* pinned: nothing is lost or gained on top, $a_1 = 0$ and $c = 0$. The score is then the log of the click probability at
  position 1.
* judged: pinned at first, and moved on the judged validation queries, without training again: before every validation,
  so that the number belongs to the state that validation keeps. Small differences are not believed (`caution`; see
  `line_search`).
* examination: the mean examination of the top position is known (`top_examination`), that of all shown documents as if
  each stood there. Observation is assumed to be a power, $\log o_k(x) = m(x) \log \theta_k$ with mean $m = 1$, so that
  $a$ is a multiple of the average curve, and the mean is the geometric one.
* interventions: lists marked with the intervention `seen`, in which every document was certainly examined. The number
  is the one for which their clicks are likeliest. Swaps and shuffles cannot choose it: they change positions only.
* seen: looks were recorded, $P(\text{recorded}) \propto o_k(x)$, so that $\log P(\text{recorded}) = \beta_k + e(x)
  \cdot (a_k - c)$. Clicks tell $e$ and $a$, looks tell $c$: a regression of the record with the offset $e \cdot a_k$.
  Looks that are missed, whatever the document, go into $\beta$; false alarms do harm (`attention` can be told their
  rate).

Relation to others: without the document's term it is `two_tower`. It is `vectorization` with $R + 2$ dimensions, some
of them fixed, and with another way to find the direction to rank by. `lbd` limits the slope of observation instead of
its rank; `attention` learns observation from a record and assumes no form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn import functional as F

from unskew import losses
from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.looks import NO_RECORD, recorded
from unskew.data.judged.judged_set import JudgedSet
from unskew.lists import ClickedLists
from unskew.methods.method import Method, Stage, Terms
from unskew.networks.documents import Ranker
from unskew.networks.limits import showings, weighted_mean
from unskew.networks.line_search import ScoredLists, of_clicks, of_metric, search, spread_axes
from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Problem
from unskew.networks.running import RunningEstimate

START = 0.3  # of the usual weights of e: training begins close to `two_tower`
MEAN_RATE = 0.05
SEEN = "seen"  # the intervention that makes sure that every document of a list is seen
N_SAMPLED = 1024  # lists of which relevance and traits are compared
MOST_ON_TOP = 2.0  # times that observation may vary on top as much as it varies from there to the other positions


class LowRank(Method):
    r"""Listwise softmax on relevance plus an observation of low rank.

    Args:
        rank: $R$, in how many ways a document bends the curve of observation.
        choose: who chooses the number that clicks leave open: uncorrelated, free, pinned, judged, examination,
            interventions or seen.
        top_examination: mean examination of the top position, for `choose="examination"`.
        caution: standard errors by which a number may be worse than the best one to be taken for its caution.
        observation_rate: learning-rate factor of the tables $a$ and $b$: Adagrad moves them more slowly than a network.
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
        rank: int = 1,
        choose: str = "uncorrelated",
        top_examination: float | None = None,
        caution: float = 1.0,
        observation_rate: float = 3.0,
    ):
        super().__init__()
        _check(rank, choose, top_examination, caution)
        self.choose = choose
        self.top_examination = top_examination
        self.caution = caution
        self.observation_rate = observation_rate
        self.n_positions = problem.n_positions
        self.relevance = problem.new_ranker()
        self.observation = PositionObservation(problem)
        self.traits = _trait_network(problem, rank)
        self.loadings = Loadings(rank, problem.n_positions, pinned=choose != "free")
        self.mean_traits = RunningEstimate(torch.zeros(rank), MEAN_RATE)
        self.sample: ClickedLists | None = None  # where relevance and traits are compared
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
        r"""$\log o$ of each document where it was shown, `[batch, docs]`."""
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
        """How much the document with the mean of $e$ is seen relative to the top."""
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
                "choose='judged' chooses a number on judged queries, and there are none: validate on judged data "
                "(--validate DATA, in Python validate= or eval_set=), or take choose='pinned'"
            )
        if self.choose == "interventions":
            _seen_lists(logs.get("interventions"))  # to fail now rather than after training
        return logs

    def tune(self, judged: JudgedSet, metric: str) -> None:
        """Choose on judged queries, or put the number where this state of training has it."""
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
        """The number in use; where it was searched for also how far it is moved, and the plausible interval of that."""
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
    r"""How much each direction of $e$ weighs at each position, `[directions, positions]`; from 0 on top down to -1.

    Args:
        pinned: 0 on top, whatever is learned.
    """

    def __init__(self, n_directions: int, n_positions: int, *, pinned: bool):
        super().__init__()
        self.shape = (n_directions, n_positions)
        self.pinned = pinned
        # Waves of different length: directions that start alike would be distinguished by chance alone.
        waves = torch.arange(1, n_directions + 1).unsqueeze(1) * torch.linspace(0, 1, n_positions)
        start = ((math.pi * waves).cos() - 1) / 2
        # Flat, since matrices are decayed in training, and tables of positions should not be.
        self.flat = nn.Parameter(start.flatten())

    def forward(self) -> Tensor:
        first, rest = self.flat.view(self.shape).tensor_split([1], dim=1)
        return torch.cat([torch.zeros_like(first) if self.pinned else first, rest], dim=1)


class CorrectedRanker(Ranker):
    """Relevance, and what is added once the open number is chosen."""

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
    missed = traits @ fall  # how much less a document is seen further down, in logs
    spread = covariance(missed, missed, lists.mask).clamp(min=torch.finfo(fall.dtype).eps)
    ratio = -covariance(relevance, missed, lists.mask) / spread
    return ratio.clamp(0.0, MOST_ON_TOP) * fall


def by_looks(_: Tensor, traits: Tensor, loadings: Tensor, lists: ClickedLists) -> Tensor:
    r"""$c$ of the regression $\log E[\text{looks}] = \log n + \beta_k + e \cdot (a_k - c)$, of Poisson form.

    That of a rate is as good for counts that are not rare: its equations are unbiased whatever their spread.
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


def _trait_network(problem: Problem, rank: int) -> nn.Sequential:
    layers = problem.new_layers(rank, ())
    last = layers[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight *= START
    return layers


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
            f"choose='interventions' needs lists whose documents were all certainly examined, marked by "
            "the intervention "
            f"'{SEEN}'; changed positions, such as swaps, cannot choose the number that clicks leave open: mark such "
            "lists, or take choose='judged' or 'pinned'"
        )
    return log.select(column.values == column.levels.index(SEEN))


def _check(rank: int, choose: str, top_examination: float | None, caution: float) -> None:
    if rank < 1:
        raise ValueError(f"rank must be at least 1 (without a document's part it is two_tower), got {rank}")
    if choose not in CHOICES:
        raise ValueError(f"unknown choose '{choose}', known: {', '.join(CHOICES)}")
    if choose == "examination" and not (top_examination is not None and 0 < top_examination <= 1):
        raise ValueError(
            "choose='examination' needs top_examination, how often the top position is looked at, above 0 and at most "
            f"1; got {top_examination}"
        )
    if choose != "examination" and top_examination is not None:
        raise ValueError("top_examination is only used by choose='examination': pass that as well, or leave it out")
    if not 0 <= caution < math.inf:
        raise ValueError(f"caution must be at least 0, got {caution}")
