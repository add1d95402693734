r"""Flat ONNX: one row per document and no mask, for engines that score document by document (Vespa, Triton).

    features  float32 [documents, features]  raw, as in the log
    scores    float32 [documents, 1]         higher is better

Both names can be chosen. Only a ranker whose score depends on the document alone can be flat; for others, the error
says what to do instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from unskew.methods.bias.vectorization import ProjectedRanker
from unskew.networks.documents import PointwiseRanker
from unskew.serving.onnx_file import export_module
from unskew.training.model import Model, ModelRanker

INPUT = "features"
OUTPUT = "scores"
TREES = "or distil it into trees (--as lightgbm or --as xgboost), or serve the masked .onnx with whole lists"


class FlatRanker(nn.Module):
    """A model's ranker on rows of documents."""

    def __init__(self, ranker: ModelRanker):
        super().__init__()
        self.transform = ranker.transform
        self.ranker = ranker.ranker

    def forward(self, features: Tensor) -> Tensor:
        """Scores `[documents, 1]` of raw features `[documents, f]`."""
        # Plain layers take rows: onnxruntime multiplies a matrix faster than a batch of one matrix.
        rows = features if isinstance(self.ranker, PointwiseRanker) else features.unsqueeze(0)
        mask = torch.ones(rows.shape[:-1], dtype=torch.bool)  # the ranker is pointwise and does not look at it
        scores: Tensor = self.ranker(self.transform.change(rows, mask), mask)
        return scores.reshape(-1, 1)


def check_flat(model: Model, ranker: ModelRanker) -> None:
    """Refuse a ranker that depends on the other documents of the list, and say what to do."""
    if ranker.pointwise:
        return
    if ranker.transform.per_query:
        why = f"the transform '{model.recipe.transform}' depends on the other documents of the query"
        do = "train with --set transform=automatic"
    elif isinstance(ranker.ranker, ProjectedRanker) and ranker.ranker.embedding.encoder is None:
        why = "vectorization projects documents onto a vector of the whole list"
        do = "train with --set base=mean, one vector for all lists"
    else:
        why = f"a '{model.recipe.network.kind}' ranker scores a document together with the others of its list"
        do = "train without --set network=listwise"
    raise ValueError(f"the ranker cannot be flat, because {why}: {do}, {TREES}")


def to_flat_onnx(
    ranker: ModelRanker, n_features: int, metadata: Mapping[str, str], names: tuple[str, str] = (INPUT, OUTPUT)
) -> bytes:
    """The ranker as a flat ONNX file, with these names of input and output."""
    documents = torch.export.Dim("documents", min=1)
    example = (torch.zeros(7, n_features),)
    return export_module(FlatRanker(ranker), example, ({0: documents},), [names[0]], [names[1]], metadata)


def rank_profile(file: str, name: str, feature_names: Sequence[str], names: tuple[str, str]) -> str:
    """A Vespa rank profile that scores with the file; it assumes fields with the names of the features."""
    model = "".join(letter if letter.isalnum() else "_" for letter in name)
    values = ",\n            ".join(f"attribute({feature})" for feature in feature_names)
    return f"""\
rank-profile {model} {{
    function {model}_features() {{
        expression: tensor<float>(d0[1],d1[{len(feature_names)}]):[[
            {values}]]
    }}
    onnx-model {model} {{
        file: files/{file}
        input "{names[0]}": {model}_features
        output "{names[1]}": score
    }}
    first-phase {{
        expression: sum(onnx({model}).score)
    }}
}}"""
