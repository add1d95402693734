"""Networks of documents: what turns features into scores.

Weights start as torch's `nn.Linear` starts them, uniform in ±1/√inputs. As in the reference programs of the field
the MLP normalizes (LayerNorm) before every linear layer, the first and the last included.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from torch import Tensor, nn

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"elu": nn.ELU, "relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}


class Ranker(nn.Module, ABC):
    """What training yields and serving runs: features and mask in, scores out, nothing else."""

    @property
    def pointwise(self) -> bool:
        """Whether a score depends on the features of its document alone."""
        return False

    @abstractmethod
    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """Scores `[batch, docs]` of documents `[batch, docs, features]`; what padding gets means nothing."""


class PointwiseRanker(Ranker):
    """A score for each document from its own features."""

    def __init__(self, layers: nn.Module):
        super().__init__()
        self.layers = layers

    @property
    def pointwise(self) -> bool:
        return True

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        return self.layers(features).squeeze(-1)


def mlp(
    n_inputs: int,
    hidden: Sequence[int],
    n_outputs: int = 1,
    *,
    activation: str = "elu",
    dropout: float = 0.0,
    norm: bool = True,
) -> nn.Sequential:
    """[LayerNorm, Linear, activation, dropout] for each hidden size, then LayerNorm and Linear."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"unknown activation '{activation}', known: {', '.join(ACTIVATIONS)}")
    layers: list[nn.Module] = []
    size = n_inputs
    for next_size in hidden:
        layers += [nn.LayerNorm(size)] if norm else []
        layers += [nn.Linear(size, next_size), ACTIVATIONS[activation]()]
        layers += [nn.Dropout(dropout)] if dropout else []
        size = next_size
    layers += [nn.LayerNorm(size)] if norm and hidden else []
    return nn.Sequential(*layers, nn.Linear(size, n_outputs))
