r"""Rankers as JSON for search engines: linear ones for Elasticsearch and OpenSearch, plain networks for Solr.

**Linear.** Both plugins share one format. The file is the body of `POST _ltr/_featureset/FEATURE_SET/_createmodel`:

    {"model": {"name": NAME, "model": {"type": "model/linear", "definition": "{\"FEATURE\": WEIGHT, ...}"}}}

The definition is itself JSON, as a string: one number per feature, by the feature's name in the feature set. The plugin
holds weights as float32, has no intercept, and treats a missing feature as 0.

An affine transform $z = a x + b$ is folded into the weights: $w^\top z + c = (a w)^\top x + (b^\top w + c)$. The
constant in the last parentheses is left out, which shifts all scores equally and keeps the order. Other transforms are
refused, because weights cannot represent them.

**Solr** (`org.apache.solr.ltr.model.NeuralNetworkModel`) supports dense layers with `relu`, `tanh`, `sigmoid`,
`leakyrelu` or `identity`, and one normalizer per feature; `StandardNormalizer` is our transform `standard`. Other
layers and transforms are refused, with the settings that can be exported. A linear ranker is one layer. Features that
the last layer uses besides the hidden units are passed through `relu` layers as two units, x = relu(x) - relu(-x). The
file is the body of `PUT /solr/COLLECTION/schema/model-store`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unskew.data.raw_columns import numbers_alone
from unskew.data.transforms import Chain, Identity, Standard, Transform
from unskew.networks.documents import Beside, PointwiseRanker, Ranker
from unskew.training.model import Model, ModelRanker

WHY_NOT_AFFINE = {
    "log1p": "takes logarithms",
    "heavy_tail_log": "takes logarithms of heavy-tailed columns",
    "clip": "clips features",
    "minmax": "clips features to the range of training",
    "reciprocal": "takes reciprocals",
    "per_query_minmax": "depends on the other documents of the query",
    "raw_columns": "has indicators of missing values, or categories",
}
LINEAR = 1e-5  # tolerance as a share of the largest score, in float64
MODEL = "org.apache.solr.ltr.model.NeuralNetworkModel"
NORMALIZER = "org.apache.solr.ltr.norm.StandardNormalizer"
ACTIVATIONS: dict[type[nn.Module], str] = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid"}
FUNCTIONS = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "identity": lambda values: values}
EXPORTS = "train with --set transform=standard --set norm=false --set activation=relu (or --set network=linear)"
Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class LinearScores:
    """Raw features times weights, plus a constant."""

    weights: NDArray[np.float32]  # [features]; the plugin holds float32
    constant: float

    def __call__(self, features: Tensor, mask: Tensor) -> Tensor:
        """Scores as the plugin computes them, plus the constant that it leaves out."""
        known = features.masked_fill(~mask.unsqueeze(-1), 0.0)
        return known.float() @ torch.from_numpy(self.weights) + self.constant


def linear_scores(model: Model, n_features: int, rng: np.random.Generator) -> LinearScores:
    """The model as weights of raw features; an error if it is not linear in them."""
    ranker: ModelRanker = model.ranker()
    scale, shift = _affine(ranker.transform, model.recipe.transform, n_features)
    weights, constant = _probe(ranker.ranker, n_features, rng)
    folded = LinearScores((scale * weights).astype(np.float32), float(shift @ weights) + constant)
    if not np.isfinite(folded.weights).all():
        column = int(np.argmin(np.isfinite(folded.weights)))
        raise ValueError(f"the weight of feature {column} overflows float32: rescale that feature and train again")
    return folded


def to_json(scores: LinearScores, name: str, feature_names: tuple[str, ...]) -> bytes:
    """The body to post."""
    if len(set(feature_names)) != len(feature_names):
        twice = next(entry for entry in feature_names if feature_names.count(entry) > 1)
        raise ValueError(f"two features are named '{twice}': a linear definition needs distinct names; rename one")
    definition = {
        feature: float(str(weight)) for feature, weight in zip(feature_names, scores.weights, strict=True)
    }  # str gives the shortest digits that read back as the same float32
    body = {"model": {"name": name, "model": {"type": "model/linear", "definition": json.dumps(definition)}}}
    return (json.dumps(body, indent=2) + "\n").encode()


def _affine(transform: Transform, name: str, n_features: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scale and shift of each feature."""
    scale, shift = np.ones(n_features), np.zeros(n_features)
    transform = numbers_alone(transform)  # the plugin treats missing values as 0 in any case
    for step in transform.steps if isinstance(transform, Chain) else [transform]:
        assert isinstance(step, Transform)
        if isinstance(step, Standard):
            inverse = step.inverse_deviation.double().cpu().numpy()
            scale, shift = scale * inverse, (shift - step.mean.double().cpu().numpy()) * inverse
        elif not isinstance(step, Identity):
            why = WHY_NOT_AFFINE.get(step.kind, f"has a step '{step.kind}'")
            raise ValueError(
                f"weights cannot represent the feature transform '{name}', which {why}: train with --set "
                "transform=standard, or export to .onnx, which supports any transform"
            )
    return scale, shift


def _probe(ranker: Ranker, n_features: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], float]:
    """Weights and constant of a linear ranker, from its scores of the zero vector and of one unit of each feature."""
    exact = copy.deepcopy(ranker).cpu().double().eval()
    units = torch.cat([torch.zeros(1, n_features), torch.eye(n_features)]).double()
    noise = torch.from_numpy(rng.standard_normal((8, 16, n_features)))
    with torch.inference_mode():
        alone = exact(units.unsqueeze(1), torch.ones(n_features + 1, 1, dtype=torch.bool)).squeeze(1)
        weights = alone[1:] - alone[0]
        scores = exact(noise, torch.ones(8, 16, dtype=torch.bool))
    missed = float((noise @ weights + alone[0] - scores).abs().max())
    if not missed <= LINEAR * max(float(scores.abs().max()), 1.0):
        raise ValueError(
            "the ranker is not linear, so weights cannot represent it: train with --set network=linear "
            "(vectorization also needs --set base=mean), or export to .onnx, which supports any ranker"
        )
    return weights.numpy(), float(alone[0])


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
        norms = zip(feature_names, self.average.tolist(), self.deviation.tolist(), strict=True)
        features = [
            {"name": feature, "norm": {"class": NORMALIZER, "params": {"avg": f"{mean!r}", "std": f"{std!r}"}}}
            for feature, mean, std in norms
        ]
        layers = [
            {"matrix": layer.matrix.tolist(), "bias": layer.bias.tolist(), "activation": layer.activation}
            for layer in self.layers
        ]
        body = {"class": MODEL, "name": name, "features": features, "params": {"layers": layers}}
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
    first = replace(layers[0], matrix=layers[0].matrix * used)  # ignores constant columns
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
            found[-1] = replace(found[-1], activation=ACTIVATIONS[type(module)])
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
