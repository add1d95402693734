r"""Parts of click models: what depends on the document (attraction, satisfaction), as logits.

A part is a network of features, a table of ids, or both: the network for what is new, a residual for what was shown
often. The logit of a document is $b + f(x) + w_d + u_{url(d)} + v_{query(d)}$, where each table is a normal deviate
of mean 0 and given standard deviation (its spread): a document that was shown rarely stays near its url and its
query, one that is unknown is scored by what is known of these, and by $b + f(x)$ if nothing is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unskew.lists import ClickedLists, Lists
from unskew.networks.documents import Ranker
from unskew.networks.registry import Problem

KINDS = ("auto", "features", "ids", "both")


class IdTables(nn.Module):
    """Residuals of documents, urls and queries; what is unknown (number 0) has none."""

    def __init__(self, sizes: Sequence[int], spreads: Sequence[float]):
        super().__init__()
        self.spreads = tuple(spreads)
        # In units of the spread: all levels are then equally easy to fit.
        lengths = [size + 1 if spread else 0 for size, spread in zip(sizes, spreads, strict=True)]
        self.tables = nn.ParameterList([torch.zeros(length) for length in lengths])

    def forward(self, codes: Tensor) -> Tensor:
        """Sum of the residuals, `[...]` from numbers `[..., 3]`."""
        found = torch.zeros(codes.shape[:-1], dtype=self.tables[0].dtype, device=codes.device)
        for level, (table, spread) in enumerate(zip(self.tables, self.spreads, strict=True)):
            if spread:
                # Not table[...]: the gradient of that adds entry by entry.
                found = found + spread * table.index_select(0, codes[..., level].flatten()).view(codes.shape[:-1])
        return found

    def penalty(self) -> Tensor:
        """Minus the log-density of the residuals, up to a constant."""
        return sum((table.square().sum() / 2 for table in self.tables), start=torch.zeros(()))


class DocumentPart(nn.Module):
    """Logits of documents from features, ids or both.

    Args:
        start: the logit that all documents have before training.
    """

    def __init__(self, problem: Problem, kind: str, spreads: Sequence[float], name: str, start: float = 0.0):
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"{name} must be one of {', '.join(KINDS)}, got '{kind}'")
        if kind == "auto":
            kind = "features" if problem.n_features else "ids"
        if kind != "ids" and not problem.n_features:
            raise ValueError(f"{name}={kind} needs features, and the log has none: pass {name}=ids")
        if kind != "features" and problem.n_ids is None:
            raise ValueError(f"{name}={kind} needs the ids of documents, and there are none: pass {name}=features")
        self._held: dict[int, Tensor] = {}
        self.offset = nn.Parameter(torch.full((), start))
        self.network = problem.new_ranker() if kind != "ids" else None
        self.ids = IdTables(problem.n_ids or (), spreads) if kind != "features" else None

    def forward(self, features: Tensor, mask: Tensor, codes: Tensor | None) -> Tensor:
        """Logits `[batch, docs]`; without codes every id is unknown."""
        return self._add(None if self.network is None else self.network(features, mask), mask, codes)

    def of(self, lists: Lists) -> Tensor:
        """Logits of lists, the network run once for each distinct document."""
        return self._add(None if self.network is None else self._scores(lists), lists.mask, lists.codes)

    def hold(self, batches: Sequence[Lists]) -> None:
        """Run the network once on these lists and keep what it gives, until `release`: it does not change meanwhile."""
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
    r"""How deep the users of a query look: $\tau\,\delta_q \ln(1 + k)$ is added to the logit of examination.

    $\delta_q$ is a normal deviate of standard deviation 1, 0 for an unknown query, $\tau$ the spread.
    """

    def __init__(self, problem: Problem, spread: float, attraction: DocumentPart):
        super().__init__()
        if spread and attraction.ids is None:
            raise ValueError("depth_spread goes by the ids of queries: pass attraction=ids or both, or depth_spread=0")
        self.spread, self.lowest = spread, problem.n_positions - 1
        self.table = nn.Parameter(torch.zeros(problem.n_ids[2] + 1 if spread and problem.n_ids else 0))

    def forward(self, lists: ClickedLists) -> Tensor:
        """Logits `[batch, docs]`, or one 0 where there is nothing to add."""
        if not self.table.numel() or lists.codes is None:
            return torch.zeros((), dtype=self.table.dtype)
        queries = lists.codes[..., 2]
        depth = lists.positions.clamp(max=self.lowest).to(self.table.dtype).log1p()
        return self.spread * depth * self.table.index_select(0, queries.flatten()).view(queries.shape)

    def penalty(self) -> Tensor:
        """Minus the log-density of the deviates, up to a constant."""
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
    """In plain steps: torch's own becomes the logarithm of a sigmoid in ONNX, which is infinite at -100."""
    return logits.clamp(max=0.0) - torch.log1p(torch.exp(-logits.abs()))
