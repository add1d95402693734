"""Problem: the sizes that a method is built for, and the architecture chosen for its networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from unskew.networks.documents import PointwiseRanker, Ranker, mlp


@dataclass(frozen=True)
class Network:
    """Architecture of a ranker."""

    kind: str = "mlp"  # or "linear"
    hidden: tuple[int, ...] = (128, 64)  # the reference programs use (512, 256, 128)
    activation: str = "elu"
    dropout: float = 0.0
    norm: bool = True  # LayerNorm before every layer

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(int(size) for size in self.hidden))
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
        problem.n_features,
        network.hidden,
        activation=network.activation,
        dropout=network.dropout,
        norm=network.norm,
    )
    return PointwiseRanker(layers)


def _linear_ranker(problem: Problem) -> Ranker:
    return PointwiseRanker(mlp(problem.n_features, ()))


RANKERS: dict[str, Callable[[Problem], Ranker]] = {"mlp": _mlp_ranker, "linear": _linear_ranker}
