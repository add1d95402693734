r"""A linear ranker as JSON for the learning-to-rank plugins of Elasticsearch and OpenSearch.

Both plugins share one format. The file is the body of `POST _ltr/_featureset/FEATURE_SET/_createmodel`:

    {"model": {"name": NAME, "model": {"type": "model/linear", "definition": "{\"FEATURE\": WEIGHT, ...}"}}}

The definition is itself JSON, as a string: one number per feature, by the feature's name in the feature set. The plugin
holds weights as float32, has no intercept, and treats a missing feature as 0.

An affine transform $z = a x + b$ is folded into the weights: $w^\top z + c = (a w)^\top x + (b^\top w + c)$. The
constant in the last parentheses is left out, which shifts all scores equally and keeps the order. Other transforms are
refused, because weights cannot represent them.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.data.raw_columns import numbers_alone
from unskew.data.transforms import Chain, Identity, Standard, Transform
from unskew.networks.documents import Ranker
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
    body: dict[str, Any] = {
        "model": {"name": name, "model": {"type": "model/linear", "definition": json.dumps(definition)}}
    }
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
