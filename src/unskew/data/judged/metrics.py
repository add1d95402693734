r"""Metrics: how good an order of documents is, one value per query.

`metric("ndcg@10")` returns a metric, `str` prints it back, and `metric(...)(scores, grades, mask)` returns one float64
per list. `measure` computes several metrics from one sort. Conventions, the same for all of them:

* **Gain.** `ndcg` and `dcg` gain $2^y - 1$, `ndcg_linear` and `dcg_linear` gain $y$; the discount is
  $1 / \log_2(1 + \text{rank})$. `mrr`, `ap` and `p` call a document relevant from grade 1 on; `ap(relevant=2)`
  changes that. `err` takes grades up to 4; `err(max_grade=2)@10` changes that, and a higher grade is an error.
  `rbp` has a patience of 0.8; `rbp(patience=0.5)` changes that.
* **Cut-off.** `@k` looks at the first k documents. A list shorter than k is not skipped: `p@k` divides by k, and the
  ideal list of `ndcg@k` is as short as the list. `ap@k` divides by all relevant documents, as trec_eval does.
  In `arp@k` every document below k counts as if it was at k + 1, so that pushing a relevant document out of the top
  never helps. (Dropping it from both sums instead, as some programs do, rewards exactly that.)
* **Ties.** The value is the exact mean over all orders of documents with equal scores. So it does not depend on the
  order in a file, which often follows the grades, and a constant scorer gets the value of a random order.
* **No relevant document** (or an empty list): the value is 0.0, never NaN, and `Metric.defined` is False.
  A mean should leave such queries out, as `unskew.evaluation.evaluate` does by default.
* **Shown or not.** `ndcg@10:shown` looks only at the documents that the logging policy showed, `ndcg@10:never_shown` at
  the others: is a ranker that learned from ten of a hundred candidates any good on the other ninety? Both need the
  shown documents (argument `shown` of `evaluate`).
* **Padding** never counts, whatever its values. Scores that are not finite are an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unskew.data.judged.ranked_grades import RankedGrades, Ties, rank_grades
from unskew.extensions import GROUPS
from unskew.options import near

DEFAULT_MAX_GRADE = 4.0
DEFAULT_RELEVANT = 1.0
DEFAULT_PATIENCE = 0.8

Scored = Callable[[Tensor, Tensor, Tensor], Tensor]  # scores, grades, mask [batch, docs] -> values [batch]


class Measured(NamedTuple):
    """Values of one metric, and the lists on which it is defined."""

    values: Tensor  # [batch] float64; 0.0 where not defined
    defined: Tensor  # [batch] bool; False = no relevant document


@dataclass(frozen=True)
class Metric:
    """One metric: a name of `METRICS`, a cut-off, and the one option that some have."""

    name: str
    cutoff: int | None = None
    max_grade: float | None = None  # err only; None = 4
    relevant: float | None = None  # mrr, ap, p only: the lowest grade that is relevant; None = 1
    patience: float | None = None  # rbp only: probability of continuing to the next document; None = 0.8
    outside: Scored | None = field(default=None, repr=False)  # your own function, if the metric is not in METRICS
    among: str | None = None  # "shown" or "never_shown"; None = all documents

    def __post_init__(self) -> None:
        if self.outside is not None:
            return
        if self.name not in METRICS:
            hint = near(self.name, METRICS)
            raise ValueError(f"unknown metric '{self.name}'{hint}: use one of {', '.join(METRICS)}, such as 'ndcg@10'")
        if self.cutoff is not None and self.cutoff < 1:
            raise ValueError(f"'{self.name}@{self.cutoff}' looks at no document: the cut-off must be 1 or more")
        if self.cutoff is None and self.name == "p":
            raise ValueError("precision needs a cut-off: write 'p@10'")
        if self.patience is not None and not self.patience < 1:
            raise ValueError(f"patience of '{self.name}' must be below 1, got {self.patience}")
        for option in ("max_grade", "relevant", "patience"):
            value = getattr(self, option)
            if value is not None and option != METRICS[self.name].option:
                able = ", ".join(name for name, definition in METRICS.items() if definition.option == option)
                raise ValueError(f"'{self.name}' has no option {option}; only {able} do")
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{option} of '{self.name}' must be above 0, got {value}")

    def __call__(self, scores: Tensor, grades: Tensor, mask: Tensor) -> Tensor:
        """The value of each list `[batch]`, 0.0 where `defined` is False; it has no gradient."""
        return measure([self], scores, grades, mask)[str(self)].values

    def defined(self, grades: Tensor, mask: Tensor) -> Tensor:
        """The lists that hold a relevant document `[batch]`."""
        return self._relevant(grades).logical_and(mask).any(-1)

    @property
    def definition(self) -> Definition:
        """How it is computed, and which way is better."""
        if self.outside is None:
            return METRICS[self.name]
        return Definition(_nothing, higher_is_better=getattr(self.outside, "higher_is_better", True))

    @property
    def higher_is_better(self) -> bool:
        return self.definition.higher_is_better

    @property
    def can_reach_one(self) -> bool:
        """Whether the best order of any list with a relevant document has the value 1."""
        return self.definition.can_reach_one

    def _relevant(self, grades: Tensor) -> Tensor:
        if self.definition.option == "relevant":
            return grades >= (self.relevant or DEFAULT_RELEVANT)
        return grades > 0

    def __str__(self) -> str:
        option = self.definition.option
        value = getattr(self, option) if option else None
        return (
            self.name
            + ("" if value is None else f"({option}={value:.15g})")
            + ("" if self.cutoff is None else f"@{self.cutoff}")
            + ("" if self.among is None else f":{self.among}")
        )


FORM = re.compile(r"(?P<name>\w+)(\((?P<option>\w+)=(?P<value>\d+(\.\d+)?)\))?(@(?P<cutoff>\d+))?(:(?P<among>\w+))?")
AMONG = ("shown", "never_shown")


def metric(text: str | Metric | Scored) -> Metric:
    """The metric that a text such as `"ndcg@10"`, `"arp"` or `"err(max_grade=2)@5"` names; case does not matter.

    `evaluate` takes the same texts.

    A function of your own, `(scores, grades, mask) -> values [batch]`, is a metric too, and so is a class with such a
    `__call__`. Its name is its attribute `name`, otherwise that of the function; set `higher_is_better = False` if a
    lower value is better.

    >>> import unskew
    >>> str(unskew.metric("NDCG@10")), unskew.metric("arp").higher_is_better
    ('ndcg@10', False)
    """
    if isinstance(text, Metric):
        return text
    if not isinstance(text, str):
        return _outside(text)
    form = FORM.fullmatch(text.strip().lower())
    if form is None or form["name"] not in METRICS:  # entry points last: finding packages takes time
        for entry in entry_points(group=GROUPS["metric"], name=text.strip()):
            return _outside(entry.load(), text.strip())
    if form is None or form["option"] not in (None, "max_grade", "relevant", "patience"):
        raise ValueError(
            f"'{text}' is not a metric: write name@cutoff, such as 'ndcg@10', 'err(max_grade=2)@5' or "
            f"'ap(relevant=2)'; names are {', '.join(METRICS)}"
        )
    if form["among"] not in (None, *AMONG):
        raise ValueError(f"'{text}' is not a metric: after the colon, write one of {', '.join(AMONG)}")
    options: dict[str, Any] = {form["option"]: float(form["value"])} if form["option"] else {}
    options["among"] = form["among"]
    return Metric(form["name"], int(form["cutoff"]) if form["cutoff"] else None, **options)


@torch.no_grad()
def measure(metrics: Iterable[str | Metric], scores: Tensor, grades: Tensor, mask: Tensor) -> dict[str, Measured]:
    """Several metrics of the same lists, by name; the lists are sorted once."""
    ranking = rank_grades(scores, grades, mask)
    results = {}
    for entry in map(metric, metrics):
        defined = entry._relevant(ranking.highest)
        if entry.outside is not None:
            values = _checked(entry.outside(scores, grades, mask), entry, len(defined))
        else:
            values = METRICS[entry.name].compute(ranking, entry)
        results[str(entry)] = Measured(values.masked_fill(~defined, 0.0), defined)
    return results


def _outside(part: Any, name: str = "") -> Metric:
    """A metric from a user's function, class or instance."""
    function = part() if isinstance(part, type) else part
    if not callable(function):
        raise ValueError(
            f"{part!r} is not a metric: pass a name, or a function (scores, grades, mask) -> values [batch]"
        )
    own = name or getattr(function, "name", "") or getattr(part, "__name__", type(function).__name__)
    return Metric(own, outside=function)


def _checked(values: Tensor, entry: Metric, n_lists: int) -> Tensor:
    if values.shape != (n_lists,) or not bool(values.isfinite().all()):
        raise ValueError(
            f"metric '{entry}' must return one finite value per list, shape [{n_lists}], got {tuple(values.shape)}"
        )
    return values.double()


def _nothing(ranking: RankedGrades, metric: Metric) -> Tensor:  # noqa: ARG001
    raise AssertionError(f"{metric} computes itself")


def _exponential(grades: Tensor) -> Tensor:
    return torch.exp2(grades) - 1


def _linear(grades: Tensor) -> Tensor:
    return grades


def _discounts(ranking: RankedGrades, cutoff: int | None) -> Tensor:
    return 1 / torch.log2(1 + ranking.ranks[:cutoff])


def _dcg(gain: Callable[[Tensor], Tensor]) -> Compute:
    r"""$\sum_{i \le k} \frac{gain(y_i)}{\log_2(1 + i)}$."""

    def compute(ranking: RankedGrades, metric: Metric) -> Tensor:
        if gain is _exponential and (highest := _highest(ranking)) > 1000:
            raise ValueError(
                f"2^y - 1 is not finite for a grade of {highest:g}: use the linear gain, as in 'ndcg_linear'"
            )
        gains = ranking.expected(gain(ranking.top(metric.cutoff)), lambda gains, ties: ties.mean(gains))
        return gains[:, : metric.cutoff] @ _discounts(ranking, metric.cutoff)

    return compute


def _ndcg(gain: Callable[[Tensor], Tensor]) -> Compute:
    r"""DCG@k divided by that of the list sorted by grade."""
    dcg = _dcg(gain)

    def compute(ranking: RankedGrades, metric: Metric) -> Tensor:
        gains = dcg(ranking, metric)
        return _divide(gains, gain(ranking.ideal(metric.cutoff)) @ _discounts(ranking, metric.cutoff))

    return compute


def _arp(ranking: RankedGrades, metric: Metric) -> Tensor:
    r"""$\sum_i \min(i, k + 1)\, y_i / \sum_i y_i$ over all documents."""
    grades = ranking.expected(ranking.top(), lambda grades, ties: ties.mean(grades))
    ranks = ranking.ranks if metric.cutoff is None else ranking.ranks.clamp(max=metric.cutoff + 1)
    return _divide(grades @ ranks, grades.sum(-1))


def _precision(ranking: RankedGrades, metric: Metric) -> Tensor:
    """Share of relevant documents among the first k."""
    assert metric.cutoff is not None
    relevant = ranking.expected(_relevance(ranking, metric), lambda relevant, ties: ties.mean(relevant))
    return relevant[:, : metric.cutoff].sum(-1) / metric.cutoff


def _ap(ranking: RankedGrades, metric: Metric) -> Tensor:
    r"""$\frac{1}{R} \sum_{i \le k} rel_i \cdot P@i$, with R relevant documents in the whole list."""
    relevant = _relevance(ranking, metric)

    def in_ties(_: Tensor, ties: Ties) -> Tensor:
        # One of the group's r relevant documents is at this rank with probability r / n; then each place above it
        # in the group holds another one with probability (r - 1) / (n - 1).
        here = relevant[ties.lists]
        in_group = ties.total(here)
        above = (here.cumsum(-1) - here).gather(1, ties.first)
        others = ties.offset * (in_group - 1) / (ties.size - 1).clamp(min=1)
        return in_group / ties.size * (above + 1 + others) / ranking.ranks

    precisions = ranking.expected(relevant * relevant.cumsum(-1) / ranking.ranks, in_ties)
    return _divide(precisions[:, : metric.cutoff].sum(-1), relevant.sum(-1))


def _mrr(ranking: RankedGrades, metric: Metric) -> Tensor:
    """One over the rank of the first relevant document, 0 if it is below k."""

    def in_ties(relevant: Tensor, ties: Ties) -> Tensor:
        # After j fruitless documents of a group of n, the next is one of its r relevant ones with chance r / (n - j).
        return (ties.total(relevant) / (ties.size - ties.offset)).clamp(max=1)

    stops = ranking.expected(_relevance(ranking, metric), in_ties)
    return _expected_reciprocal((1 - stops).cumprod(-1)[:, : metric.cutoff], ranking)


def _rbp(ranking: RankedGrades, metric: Metric) -> Tensor:
    r"""Rank-biased precision $(1 - p) \sum_{i \le k} rel_i\, p^{i - 1}$ with patience p (Moffat and Zobel, 2008)."""
    patience = metric.patience or DEFAULT_PATIENCE
    relevant = ranking.expected((ranking.grades > 0).double(), lambda relevant, ties: ties.mean(relevant))
    weights = (1 - patience) * patience ** (ranking.ranks[: metric.cutoff] - 1)
    return relevant[:, : metric.cutoff] @ weights


def _err(ranking: RankedGrades, metric: Metric) -> Tensor:
    r"""$\sum_{i \le k} \frac{1}{i} R_i \prod_{j < i} (1 - R_j)$ with $R = (2^y - 1) / 2^{y_{max}}$."""
    max_grade = metric.max_grade or DEFAULT_MAX_GRADE
    if (highest := _highest(ranking)) > max_grade:
        raise ValueError(
            f"'{metric}' takes grades up to {max_grade:g}, but the data have a grade {highest:g}: "
            f"set the highest possible grade, as in 'err(max_grade={math.ceil(highest)})@10'"
        )
    passes = 1 - _exponential(ranking.top(metric.cutoff)) / 2**max_grade
    width = min(metric.cutoff or passes.shape[1], passes.shape[1])
    survival = ranking.expected(passes.cumprod(-1), lambda _, ties: _tied_survival(passes[ties.lists], ties, width))
    return _expected_reciprocal(survival[:, :width], ranking)


def _tied_survival(passes: Tensor, ties: Ties, width: int) -> Tensor:
    """Expected product of `passes` [tied, docs] down to each of the first `width` ranks.

    At the end of a group the product does not depend on the order within it. After m of a group's n documents it is the
    mean of all products of m of them, built up document by document: the last document is missing from a fraction
    (n - m) / n of these products.
    """
    survival = passes.cumprod(-1)
    before = torch.nn.functional.pad(survival, (1, 0), value=1.0)[:, :-1].gather(1, ties.first)
    offset = ties.offset
    chosen = torch.arange(1, width + 1, device=passes.device)
    means = torch.zeros(len(passes), width + 1, dtype=passes.dtype, device=passes.device)
    means[:, 0] = 1.0
    for column in range(passes.shape[1]):
        if (ties.first[:, column] >= width).all():
            break
        n = offset[:, column : column + 1] + 1
        means[:, 1:].masked_fill_(n == 1, 0.0)  # a new group
        means[:, 1:] = ((n - chosen) * means[:, 1:] + chosen * passes[:, column : column + 1] * means[:, :-1]) / n
        ended = (n == ties.size[:, column : column + 1]).squeeze(-1).nonzero().squeeze(-1)
        within = ties.first[ended, :width] == ties.first[ended, column : column + 1]
        partial = before[ended, :width] * means[ended].gather(1, offset[ended, :width] + 1)
        survival[ended, :width] = torch.where(within, partial, survival[ended, :width])
    return survival


def _expected_reciprocal(survival: Tensor, ranking: RankedGrades) -> Tensor:
    """Expected reciprocal of the rank where a reader stops; `survival` is the probability of reading past each rank."""
    stopping = torch.nn.functional.pad(survival, (1, 0), value=1.0)[:, :-1] - survival
    return stopping @ (1 / ranking.ranks[: survival.shape[1]])


def _highest(ranking: RankedGrades) -> float:
    return float(ranking.highest.max()) if len(ranking.highest) else 0.0


def _relevance(ranking: RankedGrades, metric: Metric) -> Tensor:
    return metric._relevant(ranking.grades).double()


def _divide(values: Tensor, by: Tensor) -> Tensor:
    """A quotient that is 0 where nothing is relevant."""
    return values / by.where(by > 0, 1.0)


Compute = Callable[[RankedGrades, Metric], Tensor]


@dataclass(frozen=True)
class Definition:
    compute: Compute
    can_reach_one: bool = False
    higher_is_better: bool = True
    option: str | None = None


METRICS: dict[str, Definition] = {
    "ndcg": Definition(_ndcg(_exponential), can_reach_one=True),
    "ndcg_linear": Definition(_ndcg(_linear), can_reach_one=True),
    "dcg": Definition(_dcg(_exponential)),
    "dcg_linear": Definition(_dcg(_linear)),
    "err": Definition(_err, option="max_grade"),
    "arp": Definition(_arp, higher_is_better=False),
    "mrr": Definition(_mrr, can_reach_one=True, option="relevant"),
    "ap": Definition(_ap, can_reach_one=True, option="relevant"),
    "p": Definition(_precision, option="relevant"),
    "rbp": Definition(_rbp, option="patience"),
}
