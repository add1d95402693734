"""Problem: the sizes that a method is built for, and the architecture of its networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import nn

from unskew.extensions import find, name_of
from unskew.networks.documents import Inputs, PointwiseRanker, Ranker, mlp, n_inputs, starting_at, tabular
from unskew.networks.listwise import ListwiseRanker

# What None means, by kind of network. A network that is built holds no None, so a change here changes no saved model.
NORMALIZED = ("mlp", "listwise")
STARTING_AT_ZERO = ("tabular",)
ENCODER_WIDTH = 64
BY_KIND = ("norm", "expand", "encoder_width", "input_norm", "zero_start")


@dataclass(frozen=True)
class Network:
    """Architecture of a ranker; None is replaced by the default of the kind at once."""

    kind: str = "tabular"  # or "mlp", "linear", "listwise"; or your own class, from `Problem` to `Ranker`
    hidden: tuple[int, ...] = (128, 64)  # the reference programs use (512, 256, 128)
    activation: str = "elu"
    dropout: float = 0.0
    norm: bool | None = None  # LayerNorm: of "mlp" before every layer, of "tabular" after; None: not of "tabular"
    expand: int | None = None  # of "mlp", a linear layer to this size before all others; None: 0, no such layer
    layers: int = 2  # of the encoder of "listwise"
    heads: int = 4  # of attention of "listwise"; they divide `encoder_width`
    shown_order: bool = False  # "listwise" receives the order in which documents are given
    encoder_width: int | None = None  # of "listwise"; None: `expand`, or 64
    input_norm: bool | None = None  # LayerNorm of the features if there are no hidden layers; None: as `norm` says
    zero_start: bool | None = None  # the ranker's last layer starts at 0; None: that of "tabular"
    outside: Callable[[Problem], Ranker] | None = field(default=None, repr=False)  # where it is none of RANKERS

    def __post_init__(self) -> None:
        sizes = (self.hidden,) if isinstance(self.hidden, int) else tuple(self.hidden)
        if not all(isinstance(size, int) and size > 0 for size in sizes):
            raise ValueError(f"hidden must be sizes of layers, e.g. 128,64, got {self.hidden}")
        object.__setattr__(self, "hidden", sizes)
        found = self.outside or find("network", RANKERS, self.kind)
        object.__setattr__(self, "outside", None if found in RANKERS.values() else found)
        object.__setattr__(self, "kind", name_of(RANKERS, self.kind))
        usual = {
            "norm": self.kind in NORMALIZED,
            "expand": 0,
            "encoder_width": self.expand or ENCODER_WIDTH,
            "input_norm": bool(self.norm) and not sizes,  # a linear ranker, as ULTRA has it
            "zero_start": self.kind in STARTING_AT_ZERO,
        }
        for name in BY_KIND:
            if getattr(self, name) is None:
                object.__setattr__(self, name, usual[name])

    def to_json(self) -> dict[str, Any]:
        """Name and sizes."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "outside"}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], outside: Callable[[Problem], Ranker] | None = None) -> Network:
        """The network of a saved model or a stored definition.

        Args:
            outside: your own network, if it was one.
        """
        stated = {name: value for name, value in data.items() if value is not None}
        return cls(**{**_left_open_in_0_2(data), **stated}, outside=outside)


def _left_open_in_0_2(data: Mapping[str, Any]) -> dict[str, Any]:
    """What null and missing entries meant in files of 0.2, whatever is the default now; later files have neither."""
    return {
        "norm": data["kind"] in ("mlp", "listwise"),
        "expand": 0,
        "encoder_width": data.get("expand") or 64,
        "input_norm": bool(data.get("norm")) and not data["hidden"],
        "zero_start": data["kind"] == "tabular",
    }


@dataclass(frozen=True)
class Problem:
    """The facts about the data that a method needs."""

    n_features: int
    n_positions: int
    bias: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)  # name -> levels; None: a number
    network: Network = field(default_factory=Network)
    n_ids: tuple[int, int, int] | None = None  # documents, urls and queries of a vocabulary; None: ids are not used
    categories: tuple[tuple[int, int], ...] = ()  # features that hold categories, and how many values each has

    @property
    def n_inputs(self) -> int:
        """The output size of `new_inputs`."""
        return n_inputs(self.n_features, len(self.categories))

    def new_inputs(self) -> nn.Module:
        """The first layer of every network, which replaces categories by vectors."""
        return Inputs(self.n_features, self.categories) if self.categories else nn.Identity()

    def new_ranker(self) -> Ranker:
        return (self.network.outside or RANKERS[self.network.kind])(self)

    def new_layers(
        self, n_outputs: int, hidden: Sequence[int] | None = None, *, dropout: float = 0.0, start: float = 1.0
    ) -> nn.Sequential:
        """Layers for one document, in the style of the ranker; without hidden layers by default if it is linear.

        Args:
            start: factor of the usual initial weights of the last layer.
        """
        network = self.network
        normed = hidden is None and not network.hidden and network.input_norm
        if hidden is None:
            hidden = () if network.kind == "linear" else network.hidden
        build, norm = mlp if network.kind == "mlp" else tabular, bool(network.norm)
        layers = build(self.n_inputs, hidden, n_outputs, activation=network.activation, dropout=dropout, norm=norm)
        last = layers[-1]
        assert isinstance(last, nn.Linear)
        with torch.no_grad():
            last.weight *= start
        layers = layers.insert(0, nn.LayerNorm(self.n_inputs)) if normed else layers
        return layers.insert(0, self.new_inputs()) if self.categories else layers

    def to_json(self) -> dict[str, Any]:
        entries = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {**entries, "network": self.network.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], network: Callable[[Problem], Ranker] | None = None) -> Problem:
        """The problem of a saved model.

        Args:
            network: your own network, if the model was built with one.
        """
        bias = {name: None if levels is None else tuple(levels) for name, levels in data["bias"].items()}
        n_ids = data.get("n_ids")
        return cls(
            data["n_features"],
            data["n_positions"],
            bias,
            Network.from_json(data["network"], network),
            None if n_ids is None else (n_ids[0], n_ids[1], n_ids[2]),
            tuple((column, size) for column, size in data.get("categories", ())),
        )


def _pointwise_ranker(problem: Problem) -> Ranker:
    network = problem.network
    if network.kind != "mlp" or not network.expand:
        layers = problem.new_layers(1, dropout=network.dropout)
    else:
        wider = replace(problem, n_features=network.expand, categories=()).new_layers(1, dropout=network.dropout)
        layers = nn.Sequential(problem.new_inputs(), nn.Linear(problem.n_inputs, network.expand), *wider)
    return PointwiseRanker(starting_at(torch.zeros(1), layers) if network.zero_start else layers)


def listwise_ranker(problem: Problem) -> ListwiseRanker:
    """A listwise-input ranker of the problem's sizes, whatever its kind of network."""
    network = problem.network
    return ListwiseRanker(
        problem.n_inputs,
        inputs=problem.new_inputs(),
        width=network.encoder_width or ENCODER_WIDTH,
        layers=network.layers,
        heads=network.heads,
        hidden=network.hidden,
        activation=network.activation,
        dropout=network.dropout,
        norm=bool(network.norm),
        n_places=problem.n_positions if network.shown_order else 0,
    )


RANKERS: dict[str, Callable[[Problem], Ranker]] = {
    "tabular": _pointwise_ranker,
    "mlp": _pointwise_ranker,
    "linear": _pointwise_ranker,
    "listwise": listwise_ranker,
}
