r"""Parts of click models that depend on the document (attraction, satisfaction), as logits.

A part is a network of features, a table of ids, or both: the network generalizes to new documents, and a residual fits
documents that were shown often. The logit of a document is $b + f(x) + w_d + u_{url(d)} + v_{query(d)}$, where each
table has a normal prior with mean 0 and a given standard deviation (its spread): a document that was shown rarely stays
close to its URL and its query, and an unknown one is scored by these as far as they are known, otherwise by $b + f(x)$.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from unskew.lists import ClickedLists, Lists
from unskew.networks.documents import Ranker
from unskew.networks.registry import Problem

Kind = Literal["auto", "features", "ids", "both"]
DEPTH_SPREAD = 0.3  # better than 0 on validation pages of three logs, with any of five sets of spreads of documents


class IdTables(nn.Module):
    """Residuals of documents, URLs and queries; 0 for unknown ones (number 0)."""

    def __init__(self, sizes: Sequence[int], spreads: Sequence[float]):
        super().__init__()
        self.spreads = tuple(spreads)
        # In units of the spread, so that all levels are equally easy to fit.
        lengths = [size + 1 if spread else 0 for size, spread in zip(sizes, spreads, strict=True)]
        self.tables = nn.ParameterList([torch.zeros(length) for length in lengths])

    def forward(self, codes: Tensor) -> Tensor:
        """Sum of the residuals, `[...]` from numbers `[..., 3]`."""
        found = torch.zeros(codes.shape[:-1], dtype=self.tables[0].dtype, device=codes.device)
        for level, (table, spread) in enumerate(zip(self.tables, self.spreads, strict=True)):
            if spread:
                # Not table[...]: its gradient adds entry by entry, which is slow.
                found = found + spread * table.index_select(0, codes[..., level].flatten()).view(codes.shape[:-1])
        return found

    def penalty(self) -> Tensor:
        """Minus the log-density of the residuals, up to a constant."""
        return sum((table.square().sum() / 2 for table in self.tables), start=torch.zeros(()))


class DocumentPart(nn.Module):
    """Logits of documents from features, ids or both.

    Args:
        start: initial logit of all documents.
    """

    def __init__(self, problem: Problem, kind: Kind, spreads: Sequence[float], name: str, start: float = 0.0):
        super().__init__()
        if kind == "auto":
            kind = "features" if problem.n_features else "ids"
        if kind != "ids" and not problem.n_features:
            raise ValueError(f"{name}={kind} needs features, and the log has none: pass {name}=ids")
        if kind != "features" and problem.n_ids is None:
            raise ValueError(f"{name}={kind} needs document ids, and there are none: pass {name}=features")
        self._held: dict[int, Tensor] = {}
        self.offset = nn.Parameter(torch.full((), start))
        self.network = problem.new_ranker() if kind != "ids" else None
        self.ids = IdTables(problem.n_ids or (), spreads) if kind != "features" else None

    def forward(self, features: Tensor, mask: Tensor, codes: Tensor | None) -> Tensor:
        """Logits `[batch, docs]`; without codes every id is unknown."""
        return self._add(None if self.network is None else self.network(features, mask), mask, codes)

    def of(self, lists: Lists) -> Tensor:
        """Logits of lists; the network runs once per distinct document."""
        return self._add(None if self.network is None else self._scores(lists), lists.mask, lists.codes)

    def hold(self, batches: Sequence[Lists]) -> None:
        """Run the network once on these lists and keep its outputs until `release`, while it does not change."""
        if self.network is not None:
            with torch.no_grad():
                self._held = {id(lists): lists.apply(self.network).double() for lists in batches}

    def release(self) -> None:
        self._held = {}

    def _scores(self, lists: Lists) -> Tensor:
        assert self.network is not None
        held = self._held.get(id(lists))
        return lists.apply(self.network) if held is None else held

    def _add(self, scores: Tensor | None, mask: Tensor, codes: Tensor | None) -> Tensor:
        logits = self.offset.expand(mask.shape) if scores is None else self.offset + scores
        return logits if self.ids is None or codes is None else logits + self.ids(codes)


class QueryDepth(nn.Module):
    r"""How far down the users of a query examine: $\tau\,\delta_q \ln(1 + k)$ is added to the logit of examination.

    $\delta_q$ has a standard normal prior and is 0 for an unknown query; $\tau$ is the spread.

    Args:
        spread: None: the default with ids, otherwise 0.
    """

    def __init__(self, problem: Problem, spread: float | None, attraction: DocumentPart):
        super().__init__()
        if spread is None:
            spread = DEPTH_SPREAD if attraction.ids is not None else 0.0
        if spread and attraction.ids is None:
            raise ValueError("depth_spread needs query ids: pass attraction=ids or both, or depth_spread=0")
        self.spread, self.lowest = spread, problem.n_positions - 1
        self.table = nn.Parameter(torch.zeros(problem.n_ids[2] + 1 if spread and problem.n_ids else 0))

    def forward(self, lists: ClickedLists) -> Tensor:
        """Logits `[batch, docs]`, or a single 0 if there is nothing to add."""
        if not self.table.numel() or lists.codes is None:
            return torch.zeros((), dtype=self.table.dtype)
        queries = lists.codes[..., 2]
        depth = lists.positions.clamp(max=self.lowest).to(self.table.dtype).log1p()
        return self.spread * depth * self.table.index_select(0, queries.flatten()).view(queries.shape)

    def penalty(self) -> Tensor:
        """Minus the log-density of $\\delta$, up to a constant."""
        return self.table.square().sum() / 2


class PartsRanker(Ranker):
    r"""Ranks by the product of the probabilities of parts: $\sum_i \log \sigma(\text{part}_i)$."""

    def __init__(self, parts: Sequence[DocumentPart]):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    @property
    def pointwise(self) -> bool:
        return all(part.network is None or part.network.pointwise for part in self._parts)

    @property
    def uses_ids(self) -> bool:
        return any(part.ids is not None for part in self._parts)

    @property
    def _parts(self) -> list[DocumentPart]:
        return [part for part in self.parts if isinstance(part, DocumentPart)]

    def forward(self, features: Tensor, mask: Tensor, codes: Tensor | None = None) -> Tensor:
        logits = [part(features, mask, codes) for part in self.parts]
        return logits[0] if len(logits) == 1 else torch.stack([_log_sigmoid(each) for each in logits]).sum(0)


def _log_sigmoid(logits: Tensor) -> Tensor:
    """The log-sigmoid in plain steps: in ONNX, torch's own is the logarithm of a sigmoid, infinite at -100."""
    return logits.clamp(max=0.0) - torch.log1p(torch.exp(-logits.abs()))
