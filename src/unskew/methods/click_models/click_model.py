"""The base class of click models: methods whose loss is the exact likelihood of click patterns.

A click model gives the probability of a click on each document, given the clicks above it (`conditional`) and before
anything is clicked (`marginal`). Its parts that depend on the document are networks of features, tables of ids or both
(`parts`). Networks learn in the training loop; tables, and all other parameters, are then fitted to the
whole log at once by maximum a posteriori (`whole_log`), so that a log of ids needs no training steps.

Satisfaction waits: attraction is learned first, with satisfaction at its initial value, then both together. As long as
attraction does not distinguish good lists from bad ones, the clicks of a list seem to depend on each other; the
likelihood then drives satisfaction to 0, where its gradient vanishes (docs/click_models.md).

Conventions: positions beyond those of training count as the last one; a document that is not in the table is scored by
its URL and query if these are known, otherwise by the average; the temporal order of clicks is not used; a pattern that
is impossible under a model has the smallest representable probability, never 0 (`sequences`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unskew.lists import ClickedLists
from unskew.methods.click_models.parts import DocumentPart, IdTables, Kind, PartsRanker, QueryDepth
from unskew.methods.click_models.sequences import (
    Chances,
    downward,
    downward_examination,
    downward_likelihood,
    independent,
)
from unskew.methods.click_models.whole_log import fit_tables
from unskew.methods.method import Method, Stage, Terms
from unskew.networks.documents import Ranker
from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Problem
from unskew.options import NotNegative

MOST_PASSES = 150
TABLE_SPREAD = 3.0  # of logits by position and of averages: wide, so that only what was never seen is held
WAITING_STEPS = 500  # at most half of all
UNSATISFIED = -2.0  # initial logit of satisfaction: few clicks end a search
WAITING_RATE = 0.1  # share of the learning rate: a part that only clicks inform learns more from noise


class ClickModel(Method):
    """A method whose loss is the log-likelihood of click patterns."""

    detail = "patterns"
    click_model = "bernoulli"
    counts_only = True
    takes_ids = True
    most_passes = MOST_PASSES  # over the whole log, in each of at most two fits

    @abstractmethod
    def conditional(self, lists: ClickedLists) -> Chances:
        """Probability of a click on each document, given the clicks above it."""

    @abstractmethod
    def marginal(self, lists: ClickedLists) -> Chances:
        """Probability of a click on each document."""

    def ranking_parts(self) -> Sequence[DocumentPart]:
        """Parts whose product is relevance; empty: the model does not distinguish documents."""
        return ()

    def waiting(self) -> Sequence[nn.Module]:
        """Parts that keep their initial value until the others have been learned; default: none."""
        return ()

    def log_likelihood(self, lists: ClickedLists) -> Tensor:
        """The log-likelihood of the click pattern of each row, in one session, `[batch]`."""
        ones = torch.ones_like(lists.sessions)
        return self.conditional(lists).log_likelihood((lists.clicks > 0).to(ones), ones, lists.mask).sum(1)

    def logits(self, lists: ClickedLists) -> list[Tensor]:
        """All logits, which are linear in the parameters: they determine how much data each parameter has."""
        curves = [module for module in self.modules() if isinstance(module, PositionObservation)]
        by_position = [curve(lists.positions, lists.bias) for curve in curves]
        return [part.of(lists) for part in self.parts()] + by_position

    def loss(self, lists: ClickedLists) -> Terms:
        return {"clicks": -(lists.sessions * self.log_likelihood(lists)).sum()}

    def click_logits(self, lists: ClickedLists) -> Tensor:
        return self.marginal(lists).logits()

    def stages(self) -> list[Stage]:
        if not self.networks():
            # Tables alone are fitted to the whole log afterwards; one step checks that the likelihood is finite.
            return [Stage("train", self.loss, {self: 1.0}, steps=1)]
        waiting = self.waiting()
        if not waiting:
            return [Stage("train", self.loss, {self: 1.0})]
        first = {part: 1.0 for part in self.children() if part not in waiting}
        return [
            Stage("attraction", self.loss, first, steps=WAITING_STEPS),
            Stage("train", self.loss, {**first, **dict.fromkeys(waiting, WAITING_RATE)}),
        ]

    def finish(self, logs: Mapping[str, Any]) -> None:
        if self.uses_ids or not self.networks():
            self.fitted = fit_tables(self, logs["clicks"])

    def ranker(self) -> Ranker:
        parts = self.ranking_parts()
        if not parts:
            name = type(self).__name__.lower()
            raise ValueError(
                f"{name} does not distinguish documents, so it has no ranker: train pbm, ubm or dbn to rank"
            )
        return PartsRanker(parts)

    @property
    def uses_ids(self) -> bool:
        """Whether documents are known by their ids."""
        return any(part.ids is not None for part in self.parts())

    def penalty(self) -> Tensor:
        """Minus the log-density of the prior, up to a constant."""
        deviates = [module for module in self.modules() if isinstance(module, IdTables | QueryDepth)]
        ids = sum((module.penalty() for module in deviates), start=torch.zeros(()))
        tables = [module for module in self.modules() if isinstance(module, PositionObservation)]
        wide = [entry for table in tables for entry in table.parameters()] + [part.offset for part in self.parts()]
        return ids + sum((entry.square().sum() for entry in wide), start=torch.zeros(())) / (2 * TABLE_SPREAD**2)

    def parts(self) -> list[DocumentPart]:
        """All parts that depend on the document."""
        return [module for module in self.modules() if isinstance(module, DocumentPart)]

    def networks(self) -> list[nn.Module]:
        """The networks of these parts."""
        return [part.network for part in self.parts() if part.network is not None]


class DocumentModel(ClickModel):
    """A click model in which documents attract; it ranks by attraction.

    Args:
        attraction: a network of `features`, a table of `ids`, or `both`; auto: features where the log has some.
        spread: standard deviation of a document's logit around that of its url and query; small: shrunk strongly.
        url_spread, query_spread: the same of urls and of queries; 0: none.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        attraction: Kind = "auto",
        spread: NotNegative = 1.0,
        url_spread: NotNegative = 0.5,
        query_spread: NotNegative = 0.5,
    ):
        super().__init__()
        self.spreads = (spread, url_spread, query_spread)
        self.attraction = DocumentPart(problem, attraction, self.spreads, "attraction")

    def ranking_parts(self) -> Sequence[DocumentPart]:
        return [self.attraction]


class DownwardModel(DocumentModel):
    """Users scan from the top down and, after each document, continue or leave."""

    @abstractmethod
    def browsing(self, lists: ClickedLists) -> tuple[Tensor, Tensor, Tensor]:
        """Attraction, and the log-probabilities to continue after a click and after a skip."""

    def conditional(self, lists: ClickedLists) -> Chances:
        return downward(*self.browsing(lists), lists.clicks > 0)

    def log_likelihood(self, lists: ClickedLists) -> Tensor:
        return downward_likelihood(*self.browsing(lists), lists.clicks > 0, lists.mask)

    def marginal(self, lists: ClickedLists) -> Chances:
        attraction, after_click, after_skip = self.browsing(lists)
        return independent(attraction, downward_examination(attraction, after_click, after_skip))


class SatisfactionModel(DownwardModel):
    """Users leave when a clicked document satisfies them.

    Args:
        satisfaction: as `attraction`.
        rank_by: attraction, or relevance (attraction times satisfaction, as in the paper): if few clicks are
            informative about satisfaction, a network of it ranks badly (docs/click_models.md).
    """

    def __init__(
        self,
        problem: Problem,
        *,
        satisfaction: Kind = "auto",
        rank_by: Literal["relevance", "attraction"] = "attraction",
        **shared: Any,
    ):
        super().__init__(problem, **shared)
        self.rank_by = rank_by
        self.satisfaction = DocumentPart(problem, satisfaction, self.spreads, "satisfaction", start=UNSATISFIED)

    def waiting(self) -> list[DocumentPart]:
        return [self.satisfaction]

    def ranking_parts(self) -> Sequence[DocumentPart]:
        return [self.attraction, self.satisfaction] if self.rank_by == "relevance" else [self.attraction]
