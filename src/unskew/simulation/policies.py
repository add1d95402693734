"""Logging policies: which documents are shown, and in what order.

A policy scores the documents of a judged set once; then each block of queries is shown in one or several orders. The
same policy with the same settings gives the same scores: its seeds are hyper-parameters, and only orders that differ
between sessions use the randomness of the simulation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray

from unskew.data.clicks.row_fields import BiasColumn
from unskew.data.judged.judged_set import JudgedSet
from unskew.extensions import name_of
from unskew.options import Count, Positive, Probability, Share
from unskew.simulation import display
from unskew.simulation.browsing import Fittable
from unskew.simulation.ranking_svm import LinearScorer, train_ranking_svm
from unskew.simulation.showings import Candidates, Index, Showings, concatenate, one_order, sampled_orders, team_draft
from unskew.simulation.users import make

Scores = NDArray[np.float64]


class Policy(Fittable, ABC):
    """Decides which documents are shown, and in what order."""

    @abstractmethod
    def scores(self, judged: JudgedSet) -> Scores:
        """Scores of all documents, `[documents]`, or of each logger, `[documents, loggers]`."""

    def show(self, candidates: Candidates, sessions: Index, n_shown: int, rng: Generator) -> Showings:  # noqa: ARG002
        """The lists shown in this many sessions of each query."""
        return one_order(candidates, sessions, n_shown)

    def display(self, candidates: Candidates, n_shown: int) -> Scores:
        """Probability of each candidate to be at each position, `[queries, docs, shown]`."""
        if type(self).show is not Policy.show:
            raise ValueError(
                f"{type(self).__name__} draws orders but does not know their probabilities: simulate without display "
                "probabilities, or implement its method `display`"
            )
        return display.of_one_order(candidates, n_shown)

    def shown_scores(self, scores: Scores, loggers: Index) -> Scores:
        """Scores of the lists, `[lists, shown]`, from those of all loggers, `[lists, shown, loggers]`."""
        return np.take_along_axis(scores, loggers[:, None, None], axis=2)[:, :, 0]

    def columns(self, loggers: Index, mask: NDArray[np.bool_]) -> dict[str, BiasColumn]:  # noqa: ARG002
        """Bias columns for the log, by name; default: none."""
        return {}


@dataclass(kw_only=True, eq=False)
class RankingSVM(Policy):
    """A linear pairwise SVM trained on a few judged queries: the usual production ranker of the field.

    Attributes:
        fraction: share of the training queries it is trained on, at least one query.
        cost: weight of the errors, divided by the number of queries, relative to the margin.
        seed: seed of the choice of queries.
    """

    fraction: Share = 0.01
    cost: Positive = 200.0
    seed: int = 0
    _scorer: LinearScorer | None = field(default=None, init=False, repr=False)

    @property
    def fitted(self) -> bool:
        return self._scorer is not None

    def fit(self, train: JudgedSet) -> Self:
        trained = copy(self)
        trained._scorer = train_ranking_svm(train, self.fraction, self.cost, np.random.default_rng(self.seed))
        return trained

    def scores(self, judged: JudgedSet) -> Scores:
        if self._scorer is None:
            raise ValueError("the ranking SVM is not trained yet: call fit(train) first")
        return self._scorer(judged)


@dataclass(kw_only=True, eq=False)
class Random(Policy):
    """Shows documents in random order.

    Attributes:
        orders_per_query: number of orders that the sessions share; None: each session has its own.
    """

    orders_per_query: Count | None = None

    def scores(self, judged: JudgedSet) -> Scores:
        return np.zeros(judged.n_documents)

    def show(self, candidates: Candidates, sessions: Index, n_shown: int, rng: Generator) -> Showings:
        return sampled_orders(candidates, sessions, n_shown, self.orders_per_query, rng)

    def display(self, candidates: Candidates, n_shown: int) -> Scores:
        sizes = np.maximum(candidates.sizes, 1)[:, None, None]
        possible = candidates.mask[:, :, None] & (np.arange(n_shown) < sizes)
        return np.where(possible, 1 / sizes, 0.0)


@dataclass(kw_only=True, eq=False)
class NoisyOracle(Policy):
    r"""Ranks by grades with noise: $s\,z + \sqrt{1-s^2}\,n$, $z$ the standardized grade.

    Attributes:
        strength: $s$, correlation of scores and grades; 0: random but the same in each session, 1: perfect.
        seed: seed of the noise.
    """

    strength: Probability = 0.5
    seed: int = 0

    def scores(self, judged: JudgedSet) -> Scores:
        grades = judged.grades.astype(np.float64)
        known = (grades - grades.mean()) / (grades.std() or 1.0)
        noise = np.random.default_rng(self.seed).normal(size=judged.n_documents)
        blur = max(np.sqrt(1 - self.strength**2), 1e-9)  # equal grades must not keep the order of the file
        return self.strength * known + blur * noise


@dataclass(kw_only=True, eq=False)
class Fixed(Policy):
    """Ranks by the scores of your own ranker.

    Attributes:
        ranker: a torch module of (features, mask), or a function from a judged set to one score per document.
    """

    ranker: torch.nn.Module | Callable[[JudgedSet], Any]

    def scores(self, judged: JudgedSet) -> Scores:
        if isinstance(self.ranker, torch.nn.Module):
            found = _module_scores(self.ranker, judged)
        else:
            found = np.asarray(self.ranker(judged), dtype=np.float64)
        if found.shape != (judged.n_documents,):
            raise ValueError(f"the ranker returned scores of shape {found.shape}, not [{judged.n_documents}]")
        if not np.isfinite(found).all():
            raise ValueError(f"the ranker's score of document {int(np.argmin(np.isfinite(found)))} is not finite")
        return found


@dataclass(kw_only=True, eq=False)
class PlackettLuce(Policy):
    """Samples orders from the scores of another policy, so that a query is shown in several orders.

    Attributes:
        logger: the policy whose scores are used, or its name.
        temperature: scores are divided by it; low: nearly always the order of the scores, high: nearly random.
        orders_per_query: number of orders that the sessions share; None: each session has its own.
    """

    logger: Policy | str = "svm"
    temperature: Positive = 1.0
    orders_per_query: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.logger = make_policy(self.logger)

    @property
    def fitted(self) -> bool:
        return make_policy(self.logger).fitted

    def fit(self, train: JudgedSet) -> Self:
        trained = copy(self)
        trained.logger = make_policy(self.logger).fit(train)
        return trained

    def scores(self, judged: JudgedSet) -> Scores:
        found = make_policy(self.logger).scores(judged)
        if found.ndim > 1:
            raise ValueError("plackett_luce needs the scores of a single logger: mix plackett_luce policies instead")
        return found / self.temperature

    def show(self, candidates: Candidates, sessions: Index, n_shown: int, rng: Generator) -> Showings:
        return sampled_orders(candidates, sessions, n_shown, self.orders_per_query, rng)

    def display(self, candidates: Candidates, n_shown: int) -> Scores:
        return display.of_sampled_orders(candidates, n_shown)


@dataclass(kw_only=True, eq=False)
class _SeveralLoggers(Policy):
    """Shows lists of several loggers."""

    loggers: Sequence[Policy | str] = ("svm", "random")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.loggers = [make_policy(logger) for logger in self.loggers]

    @property
    def fitted(self) -> bool:
        return all(make_policy(logger).fitted for logger in self.loggers)

    def fit(self, train: JudgedSet) -> Self:
        trained = copy(self)
        trained.loggers = [make_policy(logger).fit(train) for logger in self.loggers]
        return trained

    def scores(self, judged: JudgedSet) -> Scores:
        return np.stack([make_policy(logger).scores(judged) for logger in self.loggers], axis=1)

    def _names(self) -> tuple[str, ...]:
        """Names of the loggers, numbered if two have the same name."""
        names = [name_of(POLICIES, type(make_policy(logger))) for logger in self.loggers]
        return tuple(f"{name} {n}" if names.count(name) > 1 else name for n, name in enumerate(names, start=1))


@dataclass(kw_only=True, eq=False)
class Mixed(_SeveralLoggers):
    """Several logging policies, one drawn per session.

    Attributes:
        loggers: policies or their names.
        shares: share of the sessions of each; default: equal.
        arms: name the logger of each list in the log's bias column `arm`, as an A/B test does.
    """

    shares: Sequence[float] | None = None
    arms: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.loggers or any(isinstance(logger, Mixed) for logger in self.loggers):
            raise ValueError("mixed needs at least one logger, and none of them may be mixed itself")
        if self.shares is not None:
            shares = np.asarray(self.shares, dtype=np.float64)
            if len(shares) != len(self.loggers) or (shares < 0).any() or not np.isclose(shares.sum(), 1.0):
                raise ValueError(f"shares must be {len(self.loggers)} numbers that add up to 1, got {self.shares}")

    def show(self, candidates: Candidates, sessions: Index, n_shown: int, rng: Generator) -> Showings:
        turns = rng.multinomial(sessions, self._turns)  # [queries, loggers]
        parts = []
        for number, logger in enumerate(self.loggers):
            shown = make_policy(logger).show(_scored_by(candidates, number), turns[:, number], n_shown, rng)
            parts.append(replace(shown, loggers=np.full(shown.n_lists, number)))
        return concatenate(parts)

    def display(self, candidates: Candidates, n_shown: int) -> Scores:
        own = (make_policy(logger).display(_scored_by(candidates, i), n_shown) for i, logger in enumerate(self.loggers))
        return sum((share * part for share, part in zip(self._turns, own, strict=True)), np.zeros(()))

    @property
    def _turns(self) -> Scores:
        """Share of the sessions of each logger."""
        n_loggers = len(self.loggers)
        shares = np.full(n_loggers, 1 / n_loggers) if self.shares is None else np.asarray(self.shares, dtype=np.float64)
        return shares / shares.sum()

    def columns(self, loggers: Index, mask: NDArray[np.bool_]) -> dict[str, BiasColumn]:  # noqa: ARG002
        return {"arm": BiasColumn(loggers, self._names())} if self.arms else {}


@dataclass(kw_only=True, eq=False)
class TeamDraft(_SeveralLoggers):
    """Interleaves two rankers by team draft (Radlinski et al., CIKM 2008); bias column `team` names the ranker.

    In each round a coin decides which ranker picks first; each picks its best document that is not on the page yet.

    Attributes:
        loggers: two policies that rank by scores, or their names.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.loggers) != 2:
            raise ValueError(f"team_draft interleaves two rankers, got {len(self.loggers)}")

    def show(self, candidates: Candidates, sessions: Index, n_shown: int, rng: Generator) -> Showings:
        return team_draft(candidates, sessions, n_shown, rng)

    def shown_scores(self, scores: Scores, loggers: Index) -> Scores:  # noqa: ARG002
        """Minus the position, because no single score made the order."""
        return np.broadcast_to(-np.arange(scores.shape[1], dtype=np.float64), scores.shape[:2])

    def columns(self, loggers: Index, mask: NDArray[np.bool_]) -> dict[str, BiasColumn]:
        teams = (loggers[:, None] >> np.arange(mask.shape[1])) & 1
        return {"team": BiasColumn(np.where(mask, teams, 0), self._names())}


POLICIES: dict[str, type[Policy]] = {
    "svm": RankingSVM,
    "random": Random,
    "noisy_oracle": NoisyOracle,
    "plackett_luce": PlackettLuce,
    "mixed": Mixed,
    "team_draft": TeamDraft,
    "fixed": Fixed,
}


def make_policy(name: Policy | str | type[Policy] | Mapping[str, Any], **hyper: Any) -> Policy:
    """The policy of this name, of this class, or of a table as in experiment files; a policy itself unchanged."""
    return make("policy", POLICIES, name, hyper)


def _scored_by(candidates: Candidates, logger: int) -> Candidates:
    """Candidates with the scores of one of several loggers."""
    return Candidates(candidates.documents, candidates.mask, candidates.scores[..., logger])


def _module_scores(ranker: torch.nn.Module, judged: JudgedSet) -> Scores:
    found = np.zeros(judged.n_documents)
    training = ranker.training
    ranker.eval()
    with torch.no_grad():
        for queries, lists in judged.batches():
            scores = ranker(lists.features, lists.mask).double().numpy()
            mask = lists.mask.numpy()
            rows = judged.offsets[queries][:, None] + np.arange(mask.shape[1])
            found[rows[mask]] = scores[mask]
    ranker.train(training)
    return found
