r"""Low-rank observation: examination depends on the document in a few shapes only (this project; docs/low_rank.md).

Assumes $P(c) \propto e^{r(x)}\,o_k(x)$ where the document $x$ bends the curve of observation in few ways:

* `link="log_linear"`: $\log o_k(x) = b_k + \sum_{j \le R} e_j(x)\,a_{jk}$,
* `link="logit"`: $\log o_k(x) = \log \sigma(b_k + e_1(x) + \sum_{2 \le j \le R} e_j(x)\,a_{jk})$,

with $e$ a network of the document, $a$ and $b$ tables of positions, fitted by a listwise softmax. $R = 0$ is
`two_tower`. Documents alike stand at different positions; what changes with the position is observation, what does not
is relevance, and so few shapes leave little room for anything else. What clicks leave open is then small and known:

* log-linear: $a_k - c$ with $r + c \cdot e$ gives the same clicks for every $c \in \mathbb{R}^R$;
* logit, $R = 1$, with $w = e^{-e_1}$: $e^{-b_k} + \delta$, $e_1 + \log(1 - \delta w)$, $r - \log(1 - \delta w)$, for
  $\delta$ from $-e^{-b_1}$ to $1 / \max w$.

`choose` says who chooses that number; no click does, wherever documents are moved. The ranking is by $r + c \cdot e$
or $r - \log(1 - \delta w)$:

* free: training, by its start and its steps; $c = \delta = 0$.
* uncorrelated: relevance and visibility are assumed to have nothing to do with each other: the number for which they
  are uncorrelated within the lists of the log. Log-linear: along the loadings, and never so that observation varies
  on top the other way round than below, or more than twice as much.
* pinned: nothing is lost or gained on top. The score is then the log of the click probability at position 1. Log-linear
  models are trained with $a_1 = 0$, logit models are moved there ($\delta = -e^{-b_1}$).
* judged: pinned (log-linear) or free (logit) at first, and moved on the judged validation queries, without training
  anew: before every validation, so that the number belongs to the state that validation keeps. Small differences are
  not believed (`caution`; see `line_search`).
* examination: the mean examination of the top position is known (`top_examination`), that of all shown documents as if
  each stood there. Log-linear: observation is assumed to be a power, $\log o_k(x) = m(x) \log \theta_k$ with mean
  $m = 1$, so that $a$ is a multiple of the average curve, and the mean is the geometric one; logit: nothing else is
  assumed.
* interventions: lists marked with the intervention `seen`, in which every document was surely seen. The number is the
  one for which their clicks are likeliest. Swaps and shuffles cannot choose it: they change positions only.

The shape says what observation may look like; LBD's limits say how much of it to believe: `penalty` is the weight of
$\lVert\nabla_x \sum_j e_j(x)\,a_{jk}\rVert_2$, averaged over positions and summed over shown documents, and `cancel`
the chance that a document's observation is left out in training (`lbd`). A large penalty is `two_tower`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unskew import losses
from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.judged_set import JudgedSet
from unskew.lists import ClickedLists
from unskew.methods.method import Method, Stage, Terms
from unskew.networks.documents import Ranker
from unskew.networks.inputs import split_inputs
from unskew.networks.limits import draw_kept, penalized_pairs, showings, slope_lengths, weighted_mean
from unskew.networks.line_search import Axis, Found, ScoredLists, of_clicks, of_metric, search, spread_axes
from unskew.networks.low_rank import LINKS, Average, CorrectedRanker, Loadings, largest_delta
from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Problem
from unskew.networks.running import RunningEstimate

START = 0.3  # of the usual weights of the last layer of e: training begins close to `two_tower`
MOMENT_RATE = 0.05
SEEN = "seen"  # the intervention that makes sure that every document of a list is seen
N_SAMPLED = 1024  # lists of which relevance and traits are compared
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of delta's interval, to either side


class LowRank(Method):
    r"""Listwise softmax on relevance plus an observation of low rank.

    Args:
        rank: $R$, in how many ways a document bends the curve of observation; 0 is `two_tower`.
        link: log_linear, or logit.
        choose: who chooses the number that clicks leave open: uncorrelated, free, pinned, judged, examination or
            interventions.
        top_examination: mean examination of the top position, for `choose="examination"`.
        caution: standard errors by which a number may be worse than the best one to be taken for its caution.
        penalty: weight of the slope of observation in the document; 0 for none.
        cancel: probability that a document's observation is cancelled in training.
        monotone: no loading $a_{jk}$ grows with the position.
        share: of the documents of a batch, those whose penalty is computed.
        exact: compute the penalty of all documents at all positions.
        observation_hidden: layers of the network of $e$; none: linear.
        observation_rate: learning-rate factor of the tables $a$ and $b$: Adagrad moves them more slowly than a network.
    """

    paper = "this project, docs/low_rank.md"
    assumes = "examination depends on position and, in few shapes, on the document; clicks are a product of the two"
    click_model = "softmax"
    judged_choice: ClassVar[dict[str, Any]] = {"choose": "judged", "top_examination": None}
    numbers: Tensor
    lengths: Tensor

    def __init__(
        self,
        problem: Problem,
        *,
        rank: int = 1,
        link: str = "log_linear",
        choose: str = "uncorrelated",
        top_examination: float | None = None,
        caution: float = 1.0,
        penalty: float = 0.0,
        cancel: float = 0.0,
        monotone: bool = False,
        share: float = 0.25,
        exact: bool = False,
        observation_hidden: Sequence[int] = (),
        observation_rate: float = 3.0,
    ):
        super().__init__()
        _check_choices(rank, link, choose, top_examination, monotone=monotone)
        _check_numbers(caution=caution, penalty=penalty, cancel=cancel, share=share)
        self.rank = rank
        self.link = LINKS[link]
        self.axes = AXES[link]
        self.choose = choose
        self.top_examination = top_examination
        self.caution = caution
        self.penalty = penalty
        self.cancel = cancel
        self.share = share
        self.exact = exact
        self.observation_rate = observation_rate
        self.n_positions = problem.n_positions
        self.relevance = problem.new_ranker()
        self.observation = PositionObservation(problem)
        self.sample: ClickedLists | None = None  # where relevance and traits are compared
        if rank == 0:
            return
        self.traits = _trait_network(problem, rank, observation_hidden)
        n_loadings = rank - self.link.n_ones
        self.loadings = Loadings(
            n_loadings, problem.n_positions, pinned=self.link.n_ones > 0 or choose != "free", monotone=monotone
        )
        n_moments = self.link.moments(torch.zeros(rank), torch.zeros(())).shape[-1]
        self.moments = RunningEstimate(torch.zeros(n_moments), MOMENT_RATE)
        n_numbers = rank if self.link.n_ones == 0 else 1
        self.register_buffer("numbers", torch.zeros(n_numbers))
        self.register_buffer("lengths", torch.zeros(3, n_numbers))

    def stages(self) -> list[Stage]:
        tables: dict[nn.Module, float] = {self.observation: self.observation_rate}
        if self.rank > self.link.n_ones:
            tables[self.loadings] = self.observation_rate
        return [Stage("train", self.loss, {**tables, self: 1.0})]

    def loss(self, lists: ClickedLists) -> Terms:
        scores = lists.apply(self.relevance)
        log_seen = self.log_seen(lists)
        if self.training and self.cancel > 0:
            # A cancelled document counts as seen as the average one, see `lbd`.
            level = weighted_mean(log_seen, showings(lists), (0, 1))
            log_seen = draw_kept(lists.mask, self.cancel, "document").to(scores.dtype) * (log_seen - level)
        terms = {"clicks": losses.softmax(scores + log_seen, lists.clicks, lists.mask)}
        if self.penalty and self.rank:
            terms["penalty"] = self.penalty * self.steepness(lists)
        return terms

    def click_logits(self, lists: ClickedLists) -> Tensor:
        return lists.apply(self.relevance) + self.log_seen(lists)

    def log_seen(self, lists: ClickedLists) -> Tensor:
        r"""$\log o$ of each document where it was shown, `[batch, docs]`."""
        average = self.observation(lists.positions, lists.bias)
        if self.rank == 0:
            return average
        traits = lists.per_document(self.traits)
        if self.training:
            moments = self.link.moments(traits.detach(), self.average_logits()[0])
            mean = weighted_mean(moments, showings(lists).unsqueeze(-1), (0, 1))
            self.moments.update(mean, lists.mask.any())
        places = lists.positions.clamp(max=self.n_positions - 1)
        return self.link.log_seen(average + (traits * self.table()[:, places].movedim(0, -1)).sum(-1))

    def table(self) -> Tensor:
        """$a$, `[R, positions]`."""
        ones = torch.ones(self.link.n_ones, self.n_positions)
        return torch.cat([ones.to(self.loadings.flat), self.loadings()])

    def average_logits(self) -> Tensor:
        """$b$ at the average of all levels of bias columns and 0 of numeric ones, `[positions]`."""
        return (self.observation.logits + sum(level.mean(0) for level in self.observation.levels)).detach()

    def average(self) -> Average:
        """What is known of observation as a whole; the average document is the one with the mean of $e$."""
        logits, table, moments = self.average_logits(), self.table().detach(), self.moments.value
        log_seen = self.link.log_seen(logits + moments[: self.rank] @ table)
        return Average(logits, table, log_seen - log_seen[0], moments)

    def examination(self) -> Tensor:
        """How much the document with the mean of $e$ is seen relative to the top."""
        return self.average().curve.exp() if self.rank else self.observation.curve()

    def steepness(self, lists: ClickedLists) -> Tensor:
        r"""$\sum_x \frac{1}{K} \sum_k \lVert\nabla_x \sum_j e_j(x)\,a_{jk}\rVert_2$ over the showings of the batch."""
        chosen = penalized_pairs(lists, {}, self.n_positions, share=self.share, exact=self.exact)
        loadings = self.table()[:, chosen.positions].T
        inputs, layers = split_inputs(self.traits)
        lengths = slope_lengths(lambda numbers: (layers(numbers) * loadings).sum(-1), inputs(chosen.features))
        return (chosen.weights * lengths).sum() / self.n_positions

    # -- what is served

    def ranker(self) -> Ranker:
        numbers = CHOICES[self.choose](self) if self.rank else None
        return self.relevance if numbers is None else CorrectedRanker(self.relevance, self.traits, self.link, numbers)

    def prepare(self, logs: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.rank and self.choose == "uncorrelated":
            self.sample = _sample(logs["clicks"])
        if self.rank and self.choose == "judged" and not isinstance(logs.get("validation"), JudgedSet):
            raise ValueError(
                "choose='judged' chooses a number on judged queries, and there are none: validate on judged data "
                "(--validate DATA, in Python validate= or eval_set=), or take choose='pinned'"
            )
        if self.rank and self.choose == "interventions":
            _seen_lists(logs.get("interventions"))  # to fail now rather than after training
        return logs

    def tune(self, judged: JudgedSet, metric: str) -> None:
        """Choose on judged queries, or put the number where this state of training has it."""
        if self.rank and self.choose == "uncorrelated":
            self._uncorrelate()
        if self.rank and self.choose == "judged":
            batches = (lists for _, lists in judged.batches())
            self._search([self._scored(lists, of_metric(lists, metric)) for lists in batches])

    def finish(self, logs: Mapping[str, Any]) -> None:
        """Choose by the clicks of lists that were surely seen, or by lists of the log."""
        if self.rank and self.choose == "uncorrelated":
            self._uncorrelate()
        if self.rank and self.choose == "interventions":
            batches = ClickBatches(_seen_lists(logs.get("interventions"))).all()
            self._search([self._scored(lists, of_clicks(lists)) for lists in batches])

    def findings(self) -> dict[str, Any]:
        """The number in use; where it was searched for also how far it is moved, and the plausible interval of that."""
        numbers = CHOICES[self.choose](self) if self.rank else None
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
    def _uncorrelate(self) -> None:
        assert self.sample is not None
        lists = self.sample.to(self.numbers.device)
        self.numbers.copy_(self.link.uncorrelated(self.average(), *self._run_networks(lists), lists.mask))

    @torch.no_grad()
    def _search(self, parts: Sequence[ScoredLists]) -> None:
        def score(relevance: Tensor, traits: Tensor, numbers: Tensor) -> Tensor:
            return relevance + self.link.correction(traits, numbers)

        found: Found = search(parts, score, self.axes(parts, self.average_logits()[0].cpu()), self.caution)
        self.numbers.copy_(found.numbers)
        self.lengths.copy_(found.lengths)


def _axes_of_traits(parts: Sequence[ScoredLists], top: Tensor) -> list[Axis]:  # noqa: ARG001
    return spread_axes(parts)


def _axis_of_delta(parts: Sequence[ScoredLists], top: Tensor) -> list[Axis]:
    """From nothing to both ends: what ranks by clicks on top, and what the least visible documents allow."""
    most = largest_delta(torch.cat([part.traits[part.mask] for part in parts]))
    least = -torch.exp(-top).to(most)
    shares = most.new_tensor(SHARES)
    both = torch.stack([shares * least, shares * most], 1).flatten()
    return [Axis(most.new_ones(1), torch.cat([most.new_zeros(1), both]))]


# Where the number is searched for: lists, b_1 -> axes.
AXES: dict[str, Callable[[Sequence[ScoredLists], Tensor], list[Axis]]] = {
    "log_linear": _axes_of_traits,
    "logit": _axis_of_delta,
}
CHOICES: dict[str, Callable[[LowRank], Tensor | None]] = {
    "uncorrelated": lambda method: method.numbers,
    "free": lambda _: None,
    "pinned": lambda method: method.link.on_top(method.average()),
    "judged": lambda method: method.numbers,
    "examination": lambda method: method.link.by_examination(method.average(), method.top_examination or 1.0),
    "interventions": lambda method: method.numbers,
}
CLOSED = ("free", "pinned")  # what can be asked of a logit model of higher rank, which leaves no number open


def _trait_network(problem: Problem, rank: int, hidden: Sequence[int]) -> nn.Sequential:
    layers = problem.new_layers(rank, hidden)
    last = layers[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight *= START
    return layers


def _sample(clicks: Any) -> ClickedLists:
    """Some lists of the log."""
    if isinstance(clicks, ClickLog):
        return ClickBatches(clicks, min(N_SAMPLED, clicks.n_lists), together=1)(0)
    return clicks(0)  # of a log larger than memory: one batch


def _seen_lists(log: Any) -> ClickLog:
    """Lists of which every document was surely seen."""
    column = log.interventions if isinstance(log, ClickLog) else None
    if column is None or column.levels is None or SEEN not in column.levels:
        raise ValueError(
            f"choose='interventions' needs lists whose documents were all surely seen, marked by the intervention "
            f"'{SEEN}'; changed positions, such as swaps, cannot choose the number that clicks leave open: mark such "
            "lists, or take choose='judged' or 'pinned'"
        )
    return log.select(column.values == column.levels.index(SEEN))


def _check_choices(rank: int, link: str, choose: str, top_examination: float | None, *, monotone: bool) -> None:
    if rank < 0:
        raise ValueError(f"rank must be at least 0 (0: two_tower), got {rank}")
    for name, value, known in (("link", link, LINKS), ("choose", choose, CHOICES)):
        if value not in known:
            raise ValueError(f"unknown {name} '{value}', known: {', '.join(known)}")
    ones = LINKS[link].n_ones
    if ones and rank > ones and choose not in CLOSED:
        raise ValueError(
            f"a logit model of rank {rank} leaves no number open to be chosen: take rank=1, or choose='free' or "
            "'pinned'"
        )
    if monotone and rank <= ones:
        raise ValueError(f"monotone holds the loadings, and rank={rank} with link='{link}' has none: leave it out")
    if choose == "examination" and not (top_examination is not None and 0 < top_examination <= 1):
        raise ValueError(
            "choose='examination' needs top_examination, how often the top position is looked at, above 0 and at most "
            f"1; got {top_examination}"
        )
    if choose != "examination" and top_examination is not None:
        raise ValueError("top_examination is only used by choose='examination': pass that as well, or leave it out")


def _check_numbers(*, caution: float, penalty: float, cancel: float, share: float) -> None:
    for name, value, allowed, rule in (
        ("caution", caution, caution >= 0, "at least 0"),
        ("penalty", penalty, penalty >= 0, "at least 0"),
        ("cancel", cancel, 0 <= cancel <= 1, "from 0 to 1"),
        ("share", share, 0 < share <= 1, "above 0 and at most 1"),
    ):
        if not (allowed and math.isfinite(value)):
            raise ValueError(f"{name} must be {rule}, got {value}")
