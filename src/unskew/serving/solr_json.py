"""A plain network as JSON for Solr's learning to rank: `org.apache.solr.ltr.model.NeuralNetworkModel`.

Solr supports dense layers with `relu`, `tanh`, `sigmoid`, `leakyrelu` or `identity`, and one normalizer per feature;
`StandardNormalizer` is our transform `standard`. Other layers and transforms are refused, with the settings that can be
exported. A linear ranker is one layer. Features that the last layer uses besides the hidden units are passed through
`relu` layers as two units, x = relu(x) - relu(-x).

The file is the body of `PUT /solr/COLLECTION/schema/model-store`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unskew.data.raw_columns import numbers_alone
from unskew.data.transforms import Chain, Identity, Standard, Transform
from unskew.networks.documents import Beside, PointwiseRanker
from unskew.training.model import Model, ModelRanker

MODEL = "org.apache.solr.ltr.model.NeuralNetworkModel"
NORMALIZER = "org.apache.solr.ltr.norm.StandardNormalizer"
ACTIVATIONS: dict[type[nn.Module], str] = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid"}
FUNCTIONS = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "identity": lambda values: values}
EXPORTS = "train with --set transform=standard --set norm=false --set activation=relu (or --set network=linear)"
Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Layer:
    """A dense layer."""

    matrix: Matrix  # [outputs, inputs]
    bias: Matrix  # [outputs]
    activation: str = "identity"


@dataclass(frozen=True)
class SolrNetwork:
    """The function that Solr computes."""

    average: Matrix  # [features]
    deviation: Matrix  # [features]
    layers: tuple[Layer, ...]

    def __call__(self, features: Tensor, mask: Tensor) -> Tensor:
        """Scores by Solr's rule."""
        values = features.masked_fill(~mask.unsqueeze(-1), 0.0)
        values = (values - torch.from_numpy(self.average)) / torch.from_numpy(self.deviation)
        for layer in self.layers:
            values = values @ torch.from_numpy(layer.matrix).T + torch.from_numpy(layer.bias)
            values = FUNCTIONS[layer.activation](values)
        return values.squeeze(-1)

    def to_json(self, name: str, feature_names: Sequence[str]) -> bytes:
        """The body to put into the model store."""
        norms = zip(self.average.tolist(), self.deviation.tolist(), strict=True)
        body: dict[str, Any] = {
            "class": MODEL,
            "name": name,
            "features": [
                {"name": feature, "norm": {"class": NORMALIZER, "params": {"avg": f"{mean!r}", "std": f"{std!r}"}}}
                for feature, (mean, std) in zip(feature_names, norms, strict=True)
            ],
            "params": {
                "layers": [
                    {"matrix": layer.matrix.tolist(), "bias": layer.bias.tolist(), "activation": layer.activation}
                    for layer in self.layers
                ]
            },
        }
        return (json.dumps(body, indent=1) + "\n").encode()


def solr_network(model: Model) -> SolrNetwork:
    """The model as Solr's network; an error if Solr does not support its layers or transform."""
    ranker: ModelRanker = model.ranker()
    if not isinstance(ranker.ranker, PointwiseRanker):
        kind = "trees" if model.trees is not None else f"the ranker of {model.recipe.method}"
        raise ValueError(f"Solr supports only plain layers, but {kind} has others: {EXPORTS}, with dla or two_tower")
    average, deviation, used = _normalizer(ranker.transform, model.recipe.transform, model.n_features)
    assert isinstance(ranker.ranker.layers, nn.Sequential)
    layers = _layers(ranker.ranker.layers, model.n_features)
    first = Layer(layers[0].matrix * used, layers[0].bias, layers[0].activation)  # ignores constant columns
    return SolrNetwork(average, deviation, (first, *layers[1:]))


def _normalizer(transform: Transform, name: str, n_features: int) -> tuple[Matrix, Matrix, Matrix]:
    """Average, deviation, and 1 where the feature is used."""
    average, deviation, used = (np.full(n_features, value, np.float32) for value in (0, 1, 1))
    transform = numbers_alone(transform)  # Solr sends a default for missing values
    for step in transform.steps if isinstance(transform, Chain) else [transform]:
        if isinstance(step, Standard):
            inverse = step.inverse_deviation.cpu().numpy()
            used = (inverse > 0).astype(np.float32)
            average = step.mean.cpu().numpy().astype(np.float32)
            deviation = np.where(inverse > 0, 1 / np.where(inverse > 0, inverse, 1), 1).astype(np.float32)
        elif not isinstance(step, Identity):
            raise ValueError(f"Solr has no normalizer for the feature transform '{name}': {EXPORTS}")
    return average, deviation, used


def _layers(modules: Iterable[nn.Module], n_features: int) -> list[Layer]:
    found: list[Layer] = []
    for module in modules:
        if isinstance(module, Beside):
            found = _carrying(_layers(module.layers, n_features), n_features)
        elif isinstance(module, nn.Linear):
            weight, bias = module.weight.detach().cpu().numpy(), module.bias.detach().cpu().numpy()
            width = found[-1].matrix.shape[0] if found else n_features
            if width != weight.shape[1]:  # the last layer uses features and hidden units: [x, h] to [h, x+, x-]
                weight = np.concatenate([weight[:, n_features:], weight[:, :n_features], -weight[:, :n_features]], 1)
            found.append(Layer(weight, bias))
        elif type(module) in ACTIVATIONS and found:
            found[-1] = Layer(found[-1].matrix, found[-1].bias, ACTIVATIONS[type(module)])
        elif not isinstance(module, nn.Dropout):
            raise ValueError(f"Solr has no layer '{type(module).__name__}': {EXPORTS}")
    return found


def _carrying(layers: list[Layer], n_features: int) -> list[Layer]:
    """The layers with additional units that pass the features through."""
    if any(layer.activation != "relu" for layer in layers):
        raise ValueError(f"features can be passed through hidden layers in Solr only with relu: {EXPORTS}")
    same = np.eye(n_features, dtype=np.float32)
    carried = []
    for number, layer in enumerate(layers):
        n_units, n_inputs = layer.matrix.shape
        if number == 0:
            matrix = np.concatenate([layer.matrix, same, -same])
        else:
            matrix = np.zeros((n_units + 2 * n_features, n_inputs + 2 * n_features), np.float32)
            matrix[:n_units, :n_inputs] = layer.matrix
            matrix[n_units:, n_inputs:] = np.eye(2 * n_features)
        carried.append(Layer(matrix, np.concatenate([layer.bias, np.zeros(2 * n_features, np.float32)]), "relu"))
    return carried
