"""Networks of documents, which turn features into scores.

Inputs are numbers unchanged, then a learned vector for the value of each category: its column holds the place of the
value in a table (`data.raw_columns`).

Weights are initialized as in torch's `nn.Linear`, uniform in ±1/√inputs.

`tabular`, the default, never normalizes a document's features across columns, because their scale and mean distinguish
documents. The last layer sees the features besides the last hidden layer, so that a network can always be as good as a
linear ranker. A ranker's last layer starts at 0: no document is better than another before training, and a method that
learns examination along with relevance need not unlearn a random order first.

Layers of many features learn slowly (`FeatureLayer`). Adagrad and Adam change every weight by about the learning rate,
however small its gradient is compared with others; features are correlated, so a score changes by about the learning
rate times their number. With 700 features the first step would give scores of ±15, and inverse weights of $e^{30}$.

`mlp` is the network of the reference programs of the field: LayerNorm before every linear layer, including the first
and the last. On the input this destroys information: of one feature nothing is left, of two only which is larger.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

MANY_FEATURES = 128  # with this many, Adagrad's rate of .1 changes scores by about 2 in the first step
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"elu": nn.ELU, "relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}


class Ranker(nn.Module, ABC):
    """A ranker: takes features and a mask, returns scores. Training returns it, serving runs it."""

    @property
    def pointwise(self) -> bool:
        """Whether a score depends on the features of its document alone."""
        return False

    @abstractmethod
    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """Scores `[batch, docs]` of documents `[batch, docs, features]`; scores of padding mean nothing."""


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


class FeatureLayer(nn.Linear):
    """A linear layer on features that learns more slowly the more there are beyond `MANY_FEATURES`.

    Equal changes of the scores would need a rate in inverse proportion; many features also overfit more easily, and the
    square of that rate was better on worlds of 700 features, with 200 queries and with 3,000.

    Args:
        n_seen: number of features among the inputs; default: all inputs.
    """

    def __init__(self, n_inputs: int, n_outputs: int, n_seen: int | None = None):
        super().__init__(n_inputs, n_outputs)
        self.n_seen = n_inputs if n_seen is None else n_seen

    @property
    def rate(self) -> float:
        """Learning-rate factor of the weights."""
        return min(1.0, MANY_FEATURES / max(self.n_seen, 1)) ** 2


class Beside(nn.Module):
    """Concatenates the output of layers with their input."""

    def __init__(self, layers: nn.Sequential):
        super().__init__()
        self.layers = layers

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([inputs, self.layers(inputs)], -1)


def tabular(
    n_inputs: int,
    hidden: Sequence[int],
    n_outputs: int = 1,
    *,
    activation: str = "elu",
    dropout: float = 0.0,
    norm: bool = False,
) -> nn.Sequential:
    """[Linear, activation, dropout] per hidden size, optionally LayerNorm; then Linear on the result and the inputs."""
    if not hidden:
        return nn.Sequential(FeatureLayer(n_inputs, n_outputs))
    layers: list[nn.Module] = []
    size = n_inputs
    for next_size in hidden:
        linear = nn.Linear(size, next_size) if layers else FeatureLayer(size, next_size)
        layers += [linear, new_activation(activation)]
        layers += [nn.Dropout(dropout)] if dropout else []
        layers += [nn.LayerNorm(next_size)] if norm else []
        size = next_size
    return nn.Sequential(Beside(nn.Sequential(*layers)), FeatureLayer(n_inputs + size, n_outputs, n_inputs))


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
    layers: list[nn.Module] = []
    size = n_inputs
    for next_size in hidden:
        layers += [nn.LayerNorm(size)] if norm else []
        layers += [nn.Linear(size, next_size), new_activation(activation)]
        layers += [nn.Dropout(dropout)] if dropout else []
        size = next_size
    layers += [nn.LayerNorm(size)] if norm and hidden else []
    return nn.Sequential(*layers, nn.Linear(size, n_outputs))


def starting_at(start: Tensor, layers: nn.Sequential) -> nn.Sequential:
    """These layers, with the last one initialized so that the output is `start` for any input."""
    last = layers[-1]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    with torch.no_grad():
        last.bias.copy_(start)
    return layers


def resized(layer: nn.Linear, n_outputs: int) -> nn.Linear:
    """A new layer on the same inputs with another number of outputs."""
    if isinstance(layer, FeatureLayer):
        return FeatureLayer(layer.in_features, n_outputs, layer.n_seen)
    return nn.Linear(layer.in_features, n_outputs)


def new_activation(name: str) -> nn.Module:
    """The activation of this name."""
    if name not in ACTIVATIONS:
        raise ValueError(f"unknown activation '{name}': choose from {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]()


class AveragedRanker(Ranker):
    """The weighted sum of the scores of several rankers of the same features.

    Args:
        weights: one per ranker; divide by the spread of a ranker's scores to give rankers equal influence.
    """

    weights: Tensor

    def __init__(self, rankers: Sequence[Ranker], weights: Sequence[float]):
        super().__init__()
        if not rankers or len(rankers) != len(weights):
            raise ValueError(f"an average needs one weight per ranker: got {len(weights)} for {len(rankers)}")
        self.rankers = nn.ModuleList(rankers)
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float32))

    @property
    def pointwise(self) -> bool:
        return all(bool(ranker.pointwise) for ranker in self.rankers)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        scores = [weight * ranker(features, mask) for weight, ranker in zip(self.weights, self.rankers, strict=True)]
        return torch.stack(scores).sum(0)


VECTOR = 8  # size of a category's vector


class Inputs(nn.Module):
    """Numbers, and vectors in place of categories."""

    numbers: Tensor  # [numbers] columns
    places: Tensor  # [categories] columns
    first: Tensor  # [categories] start of each category in the common table

    def __init__(self, n_features: int, categories: Sequence[tuple[int, int]]):
        """
        Args:
            categories: column and number of values of each category.
        """
        super().__init__()
        columns, sizes = [column for column, _ in categories], [size for _, size in categories]
        self.vectors = nn.Embedding(sum(sizes), VECTOR)
        nn.init.normal_(self.vectors.weight, std=VECTOR**-0.5)
        numbers = [column for column in range(n_features) if column not in columns]
        for name, values in {"numbers": numbers, "places": columns, "first": [0, *sizes[:-1]]}.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.int64), persistent=False)
        self.first = self.first.cumsum(0)

    def forward(self, features: Tensor) -> Tensor:
        """`[..., numbers + 8 · categories]` of features `[..., numbers + categories]`."""
        vectors = self.vectors(features[..., self.places].long() + self.first).flatten(-2)
        return torch.cat([features[..., self.numbers], vectors], -1)


def split_inputs(layers: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The input stage and the layers after it; slopes are taken with respect to the output of the input stage."""
    if isinstance(layers, nn.Sequential) and isinstance(layers[0], Inputs):
        return layers[0], layers[1:]
    return nn.Identity(), layers


def n_inputs(n_features: int, n_categories: int) -> int:
    """The output size of `Inputs`."""
    return n_features + (VECTOR - 1) * n_categories
