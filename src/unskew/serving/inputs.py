"""Models and rankers that public functions take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unskew.serving.model_files import load_model
from unskew.serving.saved_ranker import SavedRanker, open_ranker
from unskew.training.model import Model


def as_model(model: Any) -> Model:
    """A model from a model, a fitted `UnbiasedRanker`, or the folder of a saved model."""
    fitted = getattr(model, "model_", model)
    if isinstance(fitted, Model):
        return fitted
    if isinstance(fitted, str | Path):
        return load_model(Path(fitted))
    raise TypeError(f"pass a fitted model or the path of a saved one, got {type(model).__name__}")


def as_ranker(ranker: Any) -> SavedRanker:
    """A ranker and the inputs it expects, from a model, a fitted estimator, a model folder or an `.onnx` file."""
    if isinstance(ranker, SavedRanker):
        return ranker
    if isinstance(ranker, str | Path):
        return open_ranker(Path(ranker))
    return SavedRanker.of(as_model(ranker))
