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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.shard_batches import ShardBatches
from unskew.lists import ClickedLists
from unskew.methods.click_models.parts import DocumentPart, IdTables, PartsRanker, QueryDepth
from unskew.methods.click_models.sequences import Chances
from unskew.methods.click_models.whole_log import WholeLogFit, minimize_whole
from unskew.methods.method import Method, Stage, Terms
from unskew.networks.documents import Ranker
from unskew.networks.observation import PositionObservation

MOST_PASSES = 150
LEAST_GAIN = 0.02  # of the log-likelihood of the whole log in a step; a number's sampling error costs about 0.5
ROWS_AT_ONCE = 8192
TABLE_SPREAD = 3.0  # of logits by position and of averages: wide, so that only what was never seen is held
WAITING_STEPS = 500  # at most half of all
WAITING_RATE = 0.1  # share of the learning rate: a part that only clicks inform learns more from noise
INFORMATION = 0.3  # of a click about a logit: a click is examination and attraction together
COARSE = 10  # how much earlier the fit stops while a part waits


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
        return [part.of(lists) for part in self._parts()] + by_position

    def loss(self, lists: ClickedLists) -> Terms:
        return {"clicks": -(lists.sessions * self.log_likelihood(lists)).sum()}

    def click_logits(self, lists: ClickedLists) -> Tensor:
        return self.marginal(lists).logits()

    def stages(self) -> list[Stage]:
        if not self._networks():
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
        if self.uses_ids or not self._networks():
            self._fit_tables(logs["clicks"])

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
        return any(part.ids is not None for part in self._parts())

    def penalty(self) -> Tensor:
        """Minus the log-density of the prior, up to a constant."""
        deviates = [module for module in self.modules() if isinstance(module, IdTables | QueryDepth)]
        ids = sum((module.penalty() for module in deviates), start=torch.zeros(()))
        tables = [module for module in self.modules() if isinstance(module, PositionObservation)]
        wide = [entry for table in tables for entry in table.parameters()] + [part.offset for part in self._parts()]
        return ids + sum((entry.square().sum() for entry in wide), start=torch.zeros(())) / (2 * TABLE_SPREAD**2)

    def _fit_tables(self, source: Any) -> None:
        """Fit all parameters except networks to the whole log; networks run once, or in every pass over shards."""
        frozen = {id(entry) for network in self._networks() for entry in network.parameters()}
        self.eval()
        streamed = isinstance(source, ShardBatches)
        kept = [] if streamed else list(ClickBatches(source, detail="patterns").all(ROWS_AT_ONCE))
        for part in self._parts():
            part.hold(kept)
        self.double()
        for network in self._networks():
            network.float()

        def batches() -> Iterable[ClickedLists]:
            return self._held_in_turn(source) if streamed else kept

        def add_gradients() -> float:
            value = _backward(self.penalty())
            return value + sum(_backward(self.loss(lists)["clicks"]) for lists in batches())

        sessions = sum(float(lists.sessions.sum()) for lists in batches())
        curvature = self._curvature(batches)

        def minimize(held: Set[int], least_gain: float) -> WholeLogFit:
            parameters = [entry for entry in self.parameters() if id(entry) not in held and entry.numel()]
            for entry in self.parameters():
                entry.requires_grad_(id(entry) not in held)
            return minimize_whole(
                parameters,
                add_gradients,
                curvature=[curvature[id(entry)] for entry in parameters],
                scale=sessions,
                most_passes=self.most_passes,
                tolerance=least_gain / sessions,
            )

        waiting = {id(entry) for part in self.waiting() for entry in part.parameters()}
        coarse = minimize(frozen | waiting, COARSE * LEAST_GAIN) if waiting else None
        fine = minimize(frozen, LEAST_GAIN)
        self.fitted = fine if coarse is None else replace(fine, passes=coarse.passes + fine.passes)
        self.float()
        for part in self._parts():
            part.release()

    def _curvature(self, batches: Callable[[], Iterable[ClickedLists]]) -> dict[int, Tensor]:
        """Approximate second derivative of the objective for each parameter: 1 from the prior, the rest from clicks."""
        for entry in self.parameters():
            entry.requires_grad_()
        self.zero_grad()
        for lists in batches():
            terms = [(INFORMATION * lists.clicks * logits).sum() for logits in self.logits(lists)]
            _backward(sum(terms, start=torch.zeros(())))
        found = {
            id(entry): 1 + (torch.zeros_like(entry) if entry.grad is None else entry.grad.abs())
            for entry in self.parameters()
        }
        self.zero_grad()
        return found

    def _held_in_turn(self, source: ShardBatches) -> Iterator[ClickedLists]:
        """All rows; network outputs are kept for the batch in use."""
        for lists in source.all(ROWS_AT_ONCE):
            for part in self._parts():
                part.hold([lists])
            yield lists

    def _parts(self) -> list[DocumentPart]:
        return [module for module in self.modules() if isinstance(module, DocumentPart)]

    def _networks(self) -> list[nn.Module]:
        return [part.network for part in self._parts() if part.network is not None]


def _backward(term: Tensor) -> float:
    """Add the gradient of a term, and return its value."""
    if term.requires_grad:
        term.backward()
    return float(term.detach())
