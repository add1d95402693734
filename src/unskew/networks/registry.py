"""Problem: the sizes that a method is built for, and the architecture chosen for its networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import nn

from unskew.networks.documents import PointwiseRanker, Ranker, mlp
from unskew.networks.listwise import ListwiseRanker

LISTWISE_WIDTH = 64


@dataclass(frozen=True)
class Network:
    """Architecture of a ranker."""

    kind: str = "mlp"  # or "linear", "listwise"
    hidden: tuple[int, ...] = (128, 64)  # the reference programs use (512, 256, 128)
    activation: str = "elu"
    dropout: float = 0.0
    norm: bool = True  # LayerNorm before every layer
    expand: int | None = None  # a linear layer to this size before all others; "listwise": 64 where it is None
    layers: int = 2  # of the encoder of "listwise"
    heads: int = 4  # of attention of "listwise"; they divide `expand`
    shown_order: bool = False  # "listwise" is told the order in which documents are given

    def __post_init__(self) -> None:
        sizes = (self.hidden,) if isinstance(self.hidden, int) else tuple(self.hidden)
        if not all(isinstance(size, int) and size > 0 for size in sizes):
            raise ValueError(f"hidden must be sizes of layers, e.g. 128,64, got {self.hidden}")
        object.__setattr__(self, "hidden", sizes)
        if self.kind not in RANKERS:
            raise ValueError(f"unknown network '{self.kind}', known: {', '.join(RANKERS)}")


@dataclass(frozen=True)
class Problem:
    """What a method must know of the data, and no more."""

    n_features: int
    n_positions: int
    bias: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)  # name -> levels; None: a number
    network: Network = field(default_factory=Network)

    def new_ranker(self) -> Ranker:
        return RANKERS[self.network.kind](self)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Problem:
        bias = {name: None if levels is None else tuple(levels) for name, levels in data["bias"].items()}
        return cls(data["n_features"], data["n_positions"], bias, Network(**data["network"]))


def _mlp_ranker(problem: Problem) -> Ranker:
    network = problem.network
    layers = mlp(
        network.expand or problem.n_features,
        network.hidden,
        activation=network.activation,
        dropout=network.dropout,
        norm=network.norm,
    )
    if network.expand:
        layers.insert(0, nn.Linear(problem.n_features, network.expand))
    return PointwiseRanker(layers)


def _linear_ranker(problem: Problem) -> Ranker:
    return PointwiseRanker(mlp(problem.n_features, ()))


def listwise_ranker(problem: Problem) -> ListwiseRanker:
    """A listwise-input ranker of the problem's sizes, whatever kind of network it asks for."""
    network = problem.network
    return ListwiseRanker(
        problem.n_features,
        width=network.expand or LISTWISE_WIDTH,
        layers=network.layers,
        heads=network.heads,
        hidden=network.hidden,
        activation=network.activation,
        dropout=network.dropout,
        norm=network.norm,
        n_places=problem.n_positions if network.shown_order else 0,
    )


RANKERS: dict[str, Callable[[Problem], Ranker]] = {
    "mlp": _mlp_ranker,
    "linear": _linear_ranker,
    "listwise": listwise_ranker,
}
