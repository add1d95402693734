"""Lists: padded tensors of documents, the data type that all parts of the package exchange.

A batch of lists is `[batch, docs, features]` with a boolean mask `[batch, docs]` that is False where a list has
ended. No value of a feature, grade or click ever means "padding". Clicks and grades live in different types, so
that a method for clicks cannot see a label by accident.

Most lists of a query show the same documents in another order. A batch knows its distinct documents, and
`lists.apply(network)` runs a pointwise network once per distinct document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

MOST_PLACES = 1 << 24  # limit on the length of a list, so that no two places of a batch have the same key
Outputs = TypeVar("Outputs", Tensor, tuple[Tensor, ...])


class ListNetwork(Protocol):
    """A network that scores or embeds documents."""

    @property
    def pointwise(self) -> bool: ...  # it sees one document at a time, never the rest of the list

    def __call__(self, features: Tensor, mask: Tensor) -> Any: ...


@dataclass(frozen=True, eq=False)
class Distinct:
    """The distinct feature rows of a batch, and which of them is at which place."""

    rows: Tensor  # [rows, features] float32; if there is padding, the last row is 0 and stands for it
    places: Tensor  # [batch, docs] int64, row numbers
    keys: Tensor | None = None  # [rows] int64, the same for a row in every batch; None: the row number

    @property
    def row_keys(self) -> Tensor:
        """The random keys of rows, `[rows]`."""
        return torch.arange(len(self.rows), device=self.rows.device) if self.keys is None else self.keys

    @cached_property
    def features(self) -> Tensor:
        """The row of each place, `[batch, docs, features]`."""
        return self.spread(self.rows)

    def spread(self, values: Outputs) -> Outputs:
        """Copy values of rows `[rows, …]`, or several such tensors, to the places of the rows, `[batch, docs, …]`."""
        if isinstance(values, tuple):
            return tuple(self.spread(part) for part in values)
        if values.ndim == 1:
            return values.index_select(0, self.places.flatten()).view(self.places.shape)
        # Not by indexing: its gradient adds row by row, which is slow.
        return F.embedding(self.places, values.flatten(1)).view(*self.places.shape, *values.shape[1:])

    def to(self, device: torch.device | str) -> Distinct:
        keys = None if self.keys is None else self.keys.to(device)
        return Distinct(self.rows.to(device), self.places.to(device), keys)


class _LazyFeatures:
    """The features that lists were given, or else those of their distinct rows."""

    def __get__(self, lists: Lists | None, owner: type) -> Tensor:
        if lists is None:
            raise AttributeError("lists have features, their class has not")  # so the field has no default
        given = vars(lists)["features"]
        return given if given is not None or lists.distinct is None else lists.distinct.features

    def __set__(self, lists: Lists, features: Tensor | None) -> None:
        vars(lists)["features"] = features


@dataclass(frozen=True, eq=False)
class Lists:
    """Documents to be ranked."""

    # [batch, docs, features] float32; if None, computed from `distinct` on first use
    if TYPE_CHECKING:
        features: Tensor
    else:
        features: Tensor = _LazyFeatures()
    mask: Tensor  # [batch, docs] bool; False = padding
    codes: Tensor | None = field(default=None, kw_only=True)  # [batch, docs, 3] int64, see data.clicks.vocabulary
    distinct: Distinct | None = field(default=None, kw_only=True)  # None: every place has its own row

    def __post_init__(self) -> None:
        given = vars(self)["features"]
        if self.distinct is not None and given is not None and given is not vars(self.distinct).get("features"):
            object.__setattr__(self, "distinct", None)  # the features are not those of `distinct`

    def apply(self, network: Callable[[Tensor, Tensor], Outputs], *, pointwise: bool | None = None) -> Outputs:
        """The output of a network for each document, `[batch, docs, …]`: scores, vectors, or several of these.

        A pointwise network runs once per distinct document, any other network on the lists.

        Args:
            network: called with features and mask.
            pointwise: whether the network sees one document at a time; default: its attribute `pointwise`.
        """
        if self.distinct is None or not (cast(ListNetwork, network).pointwise if pointwise is None else pointwise):
            return network(self.features, self.mask)
        rows = self.distinct.rows.unsqueeze(0)
        everything = torch.ones(rows.shape[:2], dtype=torch.bool, device=rows.device)
        return self.distinct.spread(_first(network(rows, everything)))

    def per_document(self, layers: Callable[[Tensor], Outputs]) -> Outputs:
        """The same for layers that take features `[…, features]` and no mask."""
        return layers(self.features) if self.distinct is None else self.distinct.spread(layers(self.distinct.rows))

    @property
    def n_lists(self) -> int:
        return self.mask.shape[0]

    @property
    def n_docs(self) -> int:
        return self.mask.shape[1]

    def to(self, device: torch.device | str) -> Self:
        """The same lists on another device."""
        if self.mask.device == torch.device(device):
            return self
        moved = self._changed(lambda _, tensor: tensor.to(device))
        if self.distinct is not None:
            return replace(self, **moved | {"features": None, "distinct": self.distinct.to(device)})
        return replace(self, **moved, features=self.features.to(device))

    def _changed(self, change: Callable[[str, Tensor], Tensor]) -> dict[str, Any]:
        """All tensors but the features, changed."""
        tensors: dict[str, Any] = {}
        for name in (entry.name for entry in fields(self) if entry.name not in ("features", "distinct")):
            value = getattr(self, name)
            if isinstance(value, Tensor):
                tensors[name] = change(name, value)
            elif isinstance(value, Mapping):
                tensors[name] = {key: change(name, tensor) for key, tensor in value.items()}
        return tensors


@dataclass(frozen=True, eq=False)
class ClickedLists(Lists):
    """Documents as they were shown, top first, and how often each was clicked.

    A row is one session (`sessions` = 1), one click pattern (`sessions` = its multiplicity) or all showings of one
    list; in every case `0 <= clicks <= sessions`, unless feedback is graded.
    """

    positions: Tensor  # [batch, docs] int64, 0-based, as shown; 0 in padding
    clicks: Tensor  # [batch, docs] float32; 0 in padding
    sessions: Tensor  # [batch] float32
    bias: Mapping[str, Tensor] = field(default_factory=dict)  # name -> [batch, docs]; int64 levels or float32
    policy_scores: Tensor | None = None  # [batch, docs] float32, of the ranker that showed the list
    seen: Tensor | None = None  # [batch, docs] float32, sessions in which its examination was recorded
    seen_sessions: Tensor | None = None  # [batch] float32, sessions that recorded examination
    pairs: Tensor | None = None  # [batch, docs, docs]: sessions in which i was clicked and j was not
    keys: Tensor | None = None  # [batch] int64, the row's number in the global batch; None: its number here

    @property
    def row_keys(self) -> Tensor:
        """The random keys of rows, `[batch]`."""
        return torch.arange(self.n_lists, device=self.mask.device) if self.keys is None else self.keys

    @property
    def place_keys(self) -> Tensor:
        """The random keys of the places of the rows, `[batch · docs]`."""
        places = torch.arange(self.n_docs, device=self.mask.device)
        return (self.row_keys.unsqueeze(-1) * MOST_PLACES + places).flatten()


@dataclass(frozen=True, eq=False)
class JudgedLists(Lists):
    """Documents with their judged relevance."""

    grades: Tensor  # [batch, docs] float32; 0 in padding


def join_lists(parts: Sequence[ClickedLists]) -> ClickedLists:
    """The rows of several batches as one; shorter lists are padded."""
    wide = [_widened(part, max(part.n_docs for part in parts)) for part in parts]
    joined: dict[str, Any] = {"features": None}
    for name in (entry.name for entry in fields(ClickedLists) if entry.name not in joined):
        values = [getattr(part, name) for part in wide]
        if isinstance(values[0], Mapping):
            joined[name] = {key: torch.cat([value[key] for value in values]) for key in values[0]}
        elif isinstance(values[0], Tensor):
            joined[name] = torch.cat(values)
    if all(part.distinct is None for part in wide):
        return ClickedLists(**{**joined, "features": torch.cat([part.features for part in wide])})
    rows = [_distinct(part) for part in wide]
    starts = np.cumsum([0, *(len(part.rows) for part in rows)]).tolist()
    return ClickedLists(
        **joined,
        distinct=Distinct(
            torch.cat([part.rows for part in rows]),
            torch.cat([part.places + start for part, start in zip(rows, starts, strict=False)]),
            torch.cat([part.row_keys for part in rows]),
        ),
    )


def _widened(lists: ClickedLists, n_docs: int) -> ClickedLists:
    """The same lists with padding after them."""
    more = n_docs - lists.n_docs
    if not more:
        return lists

    def padded(name: str, values: Tensor) -> Tensor:
        if name == "pairs":
            return F.pad(values, (0, more, 0, more))
        return F.pad(values, (*(0, 0) * (values.ndim - 2), 0, more)) if values.ndim > 1 else values

    changed = lists._changed(padded)
    if lists.distinct is None:
        return replace(lists, **changed, features=padded("features", lists.features))
    rows, places = lists.distinct.rows, lists.distinct.places
    keys = torch.cat([lists.distinct.row_keys, places.new_full((1,), -1)])
    distinct = Distinct(F.pad(rows, (0, 0, 0, 1)), F.pad(places, (0, more), value=len(rows)), keys)
    return replace(lists, **changed | {"features": None, "distinct": distinct})


def _distinct(lists: ClickedLists) -> Distinct:
    """The distinct rows of lists; if repeats are not known, each place has its own row."""
    if lists.distinct is not None:
        return lists.distinct
    n_places = lists.n_lists * lists.n_docs
    return Distinct(lists.features.flatten(0, 1), torch.arange(n_places).view(lists.mask.shape), lists.place_keys)


def _first(values: Outputs) -> Outputs:
    return tuple(part.squeeze(0) for part in values) if isinstance(values, tuple) else values.squeeze(0)


def shared_tensor(array: NDArray) -> Tensor:
    """A tensor that shares the array's memory. Only read it: the memory may be a read-only mapped file."""
    whole = np.ascontiguousarray(array)
    _, read_only = whole.__array_interface__["data"]
    return torch.from_numpy(np.asarray(_Unlocked(whole)) if read_only else whole)


class _Unlocked:
    """The memory of a read-only array, kept alive. torch warns about such arrays even if nobody writes to them."""

    def __init__(self, array: NDArray):
        self.array = array
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}
